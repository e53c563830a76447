"""Results of kernels in the user's cache: what one command simulated, the next one reads."""

import contextlib
import os
from typing import Any

from t3sim import user_cache
from t3sim.tasks.sources import source_digest
from t3sim.tasks.store import Store
from t3sim.tasks.task import KERNEL_SOURCES, KernelTask, Task


class KeptResults:
    """The results that all commands of a user share, a folder for each state of the sources.

    Only kernels of ours are kept, without custom parts: of others it is not known which sources they import. A cache
    that takes no files keeps nothing.
    """

    def load(self, task: Task) -> Any:
        """Return the result, or None if it is not there or cannot be read."""
        if (store := self._store(task)) is None or (found := store.load(task)) is None:
            return None
        with contextlib.suppress(OSError):
            os.utime(store.folder)  # in use: others go first when room is short
        return found

    def save(self, task: Task, result: Any) -> None:
        """Keep a result."""
        if (store := self._store(task)) is not None:
            with contextlib.suppress(OSError):
                store.save(task, result)

    def _store(self, task: Task) -> Store | None:
        if not isinstance(task, KernelTask) or task.custom or not type(task.kernel).__module__.startswith("t3sim."):
            return None
        sources = source_digest(KERNEL_SOURCES, rtl=task.needs_rtl)
        return Store(user_cache.results_folder() / f"results-{sources[:24]}")
