"""Models of everything around the hardware, and the studies that use them.

From Python: `run` a `Workload` on a `Machine`; `run_collectives` on a network. See docs/python.md.
"""

import contextlib
import hashlib
import importlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim_models.user_cache import cache_folder

if TYPE_CHECKING:
    from sim_models.api import run
    from sim_models.errors import BadInput
    from sim_models.flow.runs import CollectiveRuns, run_collectives
    from sim_models.machine import Machine, load_machine
    from sim_models.study.results import RunResult, TechniqueResult
    from sim_models.workloads import Workload, gemm_workload, transformer_workload

__all__ = ["BadInput", "CollectiveRuns", "Machine", "RunResult", "TechniqueResult", "Workload", "gemm_workload",
           "load_machine", "run", "run_collectives", "transformer_workload"]

_HOMES = {"BadInput": "errors", "CollectiveRuns": "flow.runs", "Machine": "machine", "RunResult": "study.results",
          "TechniqueResult": "study.results", "Workload": "workloads", "gemm_workload": "workloads",
          "load_machine": "machine", "run": "api", "run_collectives": "flow.runs", "transformer_workload": "workloads"}


def __getattr__(name: str) -> Any:
    """Public names are imported when they are asked for: the command line starts without what it does not use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def _numba_cache() -> str:
    """Folder for compiled loops, one per version of the sources: numba looks at the file of a function only, not at
    those of the functions that it calls."""
    package = Path(__file__).parent
    sources = hashlib.sha256()
    for path in sorted([*package.rglob("*.py"), *(package.parent / "rtl").rglob("*.py")]):
        text = path.read_bytes()
        if b"jit import" in text or b"numba" in text:
            sources.update(text)
    folder = cache_folder() / f"loops-{sources.hexdigest()[:16]}"
    with contextlib.suppress(OSError):
        os.utime(folder)  # in use: the others go first when room is short
    return str(folder)


os.environ.setdefault("NUMBA_CACHE_DIR", _numba_cache())
