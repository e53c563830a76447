"""Results on disk: one JSON file per task, there whole or not at all."""

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from pydantic import TypeAdapter, ValidationError

from t3sim.base.output import write_whole
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
