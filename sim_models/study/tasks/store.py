"""Results on disk: one JSON file per task, there whole or not at all."""

import contextlib
import hashlib
import json
import os
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from pydantic import TypeAdapter, ValidationError

from t3sim.base import user_cache
from t3sim.base.output import write_whole
from t3sim.study.tasks.sources import source_digest
from t3sim.study.tasks.task import Task

_adapter = cache(TypeAdapter)


class Results(Protocol):
    """A place where results are found and kept."""

    def load(self, task: Task) -> Any: ...

    def save(self, task: Task, result: Any) -> None: ...


class Store:
    """A folder of results. Processes may share it.

    `fallback`: where else results are looked for and kept.
    """

    def __init__(self, folder: Path, fallback: Results | None = None) -> None:
        self.folder, self.fallback = folder, fallback

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.json"

    def load(self, task: Task) -> Any:
        """Return the result, or None if it is not there or is damaged."""
        try:
            content = json.loads(self._path(task.key).read_text(encoding="utf-8"))
            if content["digest"] == _digest(content["result"]):
                return _adapter(task.result_type).validate_python(content["result"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError, ValidationError):
            pass
        if self.fallback is None or (result := self.fallback.load(task)) is None:
            return None
        self._save(task, result)
        return result

    def save(self, task: Task, result: Any) -> None:
        """Keep a result, whole or not at all."""
        self._save(task, result)
        if self.fallback is not None:
            self.fallback.save(task, result)

    def _save(self, task: Task, result: Any) -> None:
        result_json = _adapter(task.result_type).dump_python(result, mode="json")
        content = {"task": task.description, "result": result_json, "digest": _digest(result_json)}
        self.folder.mkdir(parents=True, exist_ok=True)
        write_whole(self._path(task.key), json.dumps(content, allow_nan=False))


def _digest(result: Any) -> str:
    return hashlib.sha256(json.dumps(result, sort_keys=True).encode()).hexdigest()


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
