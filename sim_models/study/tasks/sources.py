"""Dependences of a simulation's result besides its task: the sources that it runs and what compiles them."""

import ast
import hashlib
import json
from functools import cache
from importlib import metadata
from modulefinder import ModuleFinder
from pathlib import Path

from t3sim.base.cache import cached, digest
from t3sim.base.places import source_folders

_ROOT = Path(__file__).resolve().parents[3]
_DOORS_TO_RTL = ["t3sim.cosim.gpu", "t3sim.cosim.traced"]
_LIST = "files.json"


class _OurModules(ModuleFinder):
    """Follows imports through our own packages only."""

    def find_module(self, name, path, parent=None):
        folder = source_folders().get(f"{parent.__name__}.{name}" if parent else name)
        if folder:
            return super().find_module(folder.name, [str(folder.parent)])
        if path is None:
            raise ImportError(name)
        return super().find_module(name, path, parent)


def source_files(entry: str, rtl: bool = False) -> list[Path]:
    """Return every file of ours that the module `entry` may execute, with or without the RTL."""
    return [Path(name) for name in _sources(entry, rtl)]


def meaning(source: bytes) -> str:
    """Return what a source says to Python: without comments, docstrings and layout."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and (
                ast.get_docstring(node, clean=False) is not None):
            del node.body[0]
    return ast.dump(tree)


@cache
def _meaning_digest(source: bytes) -> str:
    return digest(meaning(source))


def _sources(entry: str, rtl: bool) -> dict[str, str]:
    """Return the files that `entry` may execute, with a digest of what each means.

    Following imports takes seconds: the list is kept for as long as no source changes.
    """
    def follow(folder: Path) -> None:
        finder = _OurModules(excludes=[] if rtl else _DOORS_TO_RTL)
        finder.import_hook(entry)
        paths = sorted(Path(module.__file__) for module in finder.modules.values() if module.__file__)
        (folder / _LIST).write_text(json.dumps({str(path): _meaning_digest(path.read_bytes()) for path in paths}))

    list_folder = cached(f"imports-{digest(entry, str(rtl), _all_sources())}", follow)
    return json.loads((list_folder / _LIST).read_text())


@cache
def _all_sources() -> str:
    """Return a digest of every source of ours, and of where it lies."""
    state = hashlib.sha256()
    for path in sorted({path for folder in source_folders().values() for path in folder.rglob("*.py")}):
        state.update(f"{path}\n".encode() + path.read_bytes())
    return state.hexdigest()


@cache
def source_digest(entry: str, rtl: bool = False) -> str:
    """Return a digest of all that may change what the module `entry` gives.

    It changes with what a source says to Python, a data file beside one, or a package.
    """
    state = hashlib.sha256()
    for package in ("numba", "numpy", *(("amaranth",) if rtl else ())):
        state.update(f"{package} {metadata.version(package)}\n".encode())
    files = {Path(name): meaning_digest for name, meaning_digest in _sources(entry, rtl).items()}
    data_files = sorted(data for path in files if path.name == "__init__.py" for data in path.parent.glob("*.json"))
    for path, meaning_digest in [*files.items(), *((data, digest(data.read_text())) for data in data_files)]:
        state.update(f"{path.relative_to(_ROOT)} {meaning_digest}\n".encode())
    return state.hexdigest()
