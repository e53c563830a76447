"""Results of kernels and collectives in the user's cache: what one command simulated, the next one reads."""

import contextlib
import os
from typing import Any

from t3sim.base import user_cache
from t3sim.study.tasks.sources import source_digest
from t3sim.study.tasks.store import Store
from t3sim.study.tasks.task import Task


class KeptResults:
    """The results that all commands of a user share, a folder for each state of the sources.

    A task says by `result_module` whether, and with which sources. A cache that takes no files keeps nothing.
    """

    def load(self, task: Task) -> Any:
        """Return the result, or None if it is not there or cannot be read."""
        if (store := self._store(task)) is None or (result := store.load(task)) is None:
            return None
        with contextlib.suppress(OSError):
            os.utime(store.folder)  # in use: others go first when room is short
        return result

    def save(self, task: Task, result: Any) -> None:
        """Keep a result."""
        if (store := self._store(task)) is not None:
            with contextlib.suppress(OSError):
                store.save(task, result)

    def _store(self, task: Task) -> Store | None:
        if (entry := getattr(task, "result_module", None)) is None:
            return None
        sources = source_digest(entry, rtl=task.needs_rtl)
        return Store(user_cache.results_folder() / f"results-{sources[:24]}")
