"""Results on disk: one JSON file per task, there whole or not at all."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from t3sim.support.output import write_whole
from t3sim.tasks.task import Task

_adapter = cache(TypeAdapter)


class Store:
    """A folder of results. Processes may share it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.json"

    def load(self, task: Task) -> Any:
        """Return the result, or None if it is not there or cannot be read."""
        try:
            content = json.loads(self._path(task.key).read_text(encoding="utf-8"))
            return _adapter(task.result_type).validate_python(content["result"])
        except (OSError, ValueError, KeyError, TypeError, ValidationError):
            return None

    def save(self, task: Task, result: Any) -> None:
        content = {"task": task.description, "result": _adapter(task.result_type).dump_python(result, mode="json")}
        self.folder.mkdir(parents=True, exist_ok=True)
        write_whole(self._path(task.key), json.dumps(content, allow_nan=False))
