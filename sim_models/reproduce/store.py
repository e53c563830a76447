"""Results on disk: one JSON file per task, there whole or not at all."""

import json
from dataclasses import asdict
from pathlib import Path

from sim_models.kernels import FusedKernel, IsolatedKernel, Kernel, Traffic
from sim_models.reproduce.tasks import KernelTask
from sim_models.results import write_whole


class Store:
    """A folder of results. Processes may share it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.json"

    def load(self, task: KernelTask) -> Kernel | None:
        """The result, or None if it is not there or cannot be read."""
        try:
            content = json.loads(self._path(task.key).read_text(encoding="utf-8"))
            return _decode(content["result"], content["host_seconds"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def save(self, task: KernelTask, result: Kernel) -> None:
        fields = asdict(result)
        content = {"task": task.description, "host_seconds": fields.pop("host_seconds"), "result": fields}
        self.folder.mkdir(parents=True, exist_ok=True)
        write_whole(self._path(task.key), json.dumps(content, allow_nan=False))


def _decode(fields: dict, host_seconds: float) -> Kernel:
    traffic = fields.pop("traffic")
    if traffic is not None:
        traffic = Traffic(traffic["window_cycles"], tuple(map(tuple, traffic["windows"])))
    for name in ("unit_cycles", "waited"):
        fields[name] = tuple(fields[name])
    kind = FusedKernel if "gemm_cycles" in fields else IsolatedKernel
    return kind(**fields, traffic=traffic, host_seconds=host_seconds)

