"""Custom parts by reference: a function of a file, or of a module that can be imported, `my_ring.py:leaping`.

An installed distribution may have names for its own, as entry points.
"""

import hashlib
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from t3sim.base.errors import BadInput, Ended, choices, said_by, shown
from t3sim.rtl.arbiter import GROUP, points_of

Made = TypeVar("Made")

_LONGEST = 200  #: characters of what a user's exception says


def is_custom(name: str) -> bool:
    """Say whether a name is a reference: `FILE.py:FUNCTION` or `PACKAGE.MODULE:FUNCTION`."""
    source, _, function = name.rpartition(":")
    return bool(source) and function.isidentifier()


#: Groups of entry points, by the keys of a scenario that name one; policies' is in `t3sim.rtl.arbiter.policies`.
GROUPS = {"layer.operator": "t3sim.operators", "exchange.algorithm": "t3sim.algorithms",
          "exchange.topology": "t3sim.topologies", "techniques": "t3sim.techniques"}


def reference_of(key: str, name: str) -> str:
    """Return the reference for which an entry point of the key's group stands, or the name itself if none has it."""
    return {point.name: f"{point.module}:{point.attr}" for point in points_of(GROUPS[key])}.get(name, name)


def check_installed(references: Mapping[str, str]) -> None:
    """Refuse functions, by their keys, that no entry point of an installed part names. Raises BadInput.

    This is the one check of what a file asks to be called: `shutil:rmtree` is a reference like any other.
    """
    for key, reference in references.items():
        if reference not in (f"{point.module}:{point.attr}" for point in points_of(GROUPS[key])):
            raise BadInput(f"{key} = {reference}: a file may name installed parts, not a function: allow_code = true "
                           "calls what it names")


def installed(key: str, kind: type[Made], known: Collection[str]) -> list[Made]:
    """Load the objects of a key's group, in the order of their names, that other distributions add to those `known`.

    Raises BadInput for one that cannot be loaded, or is of another kind or name.
    """
    return [_loaded(f"entry point {point.name} of {GROUPS[key]}", point, kind)
            for point in points_of(GROUPS[key]) if point.name not in known]


def _loaded(subject: str, point: EntryPoint, kind: type[Made]) -> Made:
    with of_a_user(subject):
        part = point.load()
    if not isinstance(part, kind) or getattr(part, "name", None) != point.name:
        raise BadInput(f"{subject}: {point.value} is {shown(part)}: a {kind.__name__} of this name is needed")
    return part


def make_custom(key: str, reference: str, kind: type[Made], *arguments: Any) -> Made:
    """Call the function of a reference and return what it makes. Raises BadInput for all that goes wrong in it.

    `key`: of the scenario, for messages; `kind`: what it must return.
    """
    function = _function(key, reference)
    with of_a_user(f"{key} = {reference}"):
        part = function(*arguments)
    return of_kind(f"{key} = {reference}", part, kind)


def of_kind(subject: str, value: object, kind: type[Made]) -> Made:
    """Return what a user's code made. Raises BadInput if it is of another kind."""
    if not isinstance(value, kind):
        raise BadInput(f"{subject} returns {shown(value)}: {'an' if kind.__name__[0] in 'AEIOU' else 'a'} "
                       f"{kind.__name__} is needed")
    return value


def digest_of_custom(key: str, reference: str) -> str:
    """Return a digest of the source of a reference, without what it imports. Raises BadInput."""
    source = _module(key, reference).__file__ or ""
    return hashlib.sha256(Path(source).read_bytes() if source else reference.encode()).hexdigest()[:20]


@contextmanager
def of_a_user(subject: str) -> Iterator[None]:
    """Turn whatever a user's code raises into one line, `sys.exit` too."""
    try:
        yield
    except (KeyboardInterrupt, Ended):
        raise
    except BaseException as error:
        raise BadInput(f"{subject} fails: {_why(error)}") from None


def _why(met: BaseException) -> str:
    why = met.strerror if isinstance(met, OSError) and met.strerror else said_by(met)[:_LONGEST]
    return f"{type(met).__name__}{f': {why}' if why else ''}"


def fault_of_a_part(error: BaseException) -> str | None:
    """Say in which line of a user's part an exception was met, and which one; None: in none."""
    points = {point.module for group in (*GROUPS.values(), GROUP) for point in points_of(group)}
    packages = [Path(file).parent for name in points if name in sys.modules
                and (file := getattr(sys.modules[name.partition(".")[0]], "__file__", None))
                and Path(file).name == "__init__.py"]
    files = {getattr(module, "__file__", None) for name, module in sys.modules.items()
             if name in points or name in _loaded_modules}
    where = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in files
             or any(package in Path(frame.filename).parents for package in packages)]
    return f"{where[-1].filename}, line {where[-1].lineno}, fails: {_why(error)}" if where else None


def _function(key: str, reference: str) -> Callable[..., Any]:
    module, name = _module(key, reference), reference.rpartition(":")[2]
    function = getattr(module, name, None)
    if not callable(function):
        functions = [one for one, value in vars(module).items() if callable(value) and not one.startswith("_")]
        raise BadInput(f"{key} = {reference}: no function {name!r} is there: allowed are {choices(name, functions)}")
    return function


_loaded_modules: set[str] = set()  #: names of those that references stand for


@cache
def _module(key: str, reference: str) -> ModuleType:
    source = reference.rpartition(":")[0]
    with of_a_user(f"{key} = {reference}"):
        if not source.endswith(".py"):
            _loaded_modules.add(source)
            return importlib.import_module(source)
        path = Path(source).resolve(strict=True)
        if not path.is_file():  # a pipe's writer would be waited for
            raise ValueError("it is not a regular file")
        name = f"custom_{hashlib.sha256(str(path).encode()).hexdigest()[:16]}"
        _loaded_modules.add(name)
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module
