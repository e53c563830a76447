"""Custom parts by reference: a function of a file, or of a module that can be imported, `my_ring.py:leaping`.

An installed distribution may have names for its own, as entry points.
"""

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from .errors import BadInput, Key, choices, shown

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
    found = {point.name: point for point in entry_points(group=GROUPS[key])}.get(name)
    return name if found is None else f"{found.module}:{found.attr}"


def check_installed(references: Mapping[str, str]) -> None:
    """Refuse functions, by their keys, that no entry point of an installed part names. Raises BadInput.

    This is the one check of what a file asks to be called: `shutil:rmtree` is a reference like any other.
    """
    for key, reference in references.items():
        if reference not in (f"{point.module}:{point.attr}" for point in entry_points(group=GROUPS[key])):
            raise BadInput(Key(key, reference), ": a file may name installed parts, not a function: ",
                           Key("allow_code", True), " calls what it names")


def installed(key: str, kind: type[Made], known: Collection[str]) -> list[Made]:
    """Load the objects of a key's group, in the order of their names, that other distributions add to those `known`.

    Raises BadInput for one that cannot be loaded, or is of another kind or name.
    """
    return [_loaded(f"entry point {point.name} of {GROUPS[key]}", point, kind)
            for point in sorted(entry_points(group=GROUPS[key])) if point.name not in known]


def _loaded(said: str, point: EntryPoint, kind: type[Made]) -> Made:
    with _of_a_user(said):
        made = point.load()
    if not isinstance(made, kind) or getattr(made, "name", None) != point.name:
        raise BadInput(f"{said}: {point.value} is {shown(made)}: a {kind.__name__} of this name is needed")
    return made


def make_custom(key: str, reference: str, kind: type[Made] | None, *arguments: Any) -> Made:
    """Call the function of a reference and return what it makes. Raises BadInput for all that goes wrong in it.

    `key`: of the scenario, for messages; `kind`: what it must return, None: anything.
    """
    function = _function(key, reference)
    with _of_a_user(Key(key, reference)):
        made = function(*arguments)
    if kind is not None and not isinstance(made, kind):
        raise BadInput(Key(key, reference), f" returns {shown(made)}: a {kind.__name__} is needed")
    return made


def digest_of_custom(key: str, reference: str) -> str:
    """Return a digest of the source of a reference, without what it imports. Raises BadInput."""
    source = _module(key, reference).__file__ or ""
    return hashlib.sha256(Path(source).read_bytes() if source else reference.encode()).hexdigest()[:20]


@contextmanager
def _of_a_user(said: str | Key) -> Iterator[None]:
    """Turn whatever a user's code raises into one line."""
    try:
        yield
    except Exception as met:
        why = met.strerror if isinstance(met, OSError) and met.strerror else " ".join(str(met).split())[:_LONGEST]
        raise BadInput(said, f" fails: {type(met).__name__}{f': {why}' if why else ''}") from None


def _function(key: str, reference: str) -> Callable[..., Any]:
    module, name = _module(key, reference), reference.rpartition(":")[2]
    found = getattr(module, name, None)
    if not callable(found):
        there = [one for one, value in vars(module).items() if callable(value) and not one.startswith("_")]
        raise BadInput(Key(key, reference), f": no function {name!r} is there: allowed are {choices(name, there)}")
    return found


@cache
def _module(key: str, reference: str) -> ModuleType:
    source = reference.rpartition(":")[0]
    with _of_a_user(Key(key, reference)):
        if not source.endswith(".py"):
            return importlib.import_module(source)
        path = Path(source).resolve(strict=True)
        name = f"custom_{hashlib.sha256(str(path).encode()).hexdigest()[:16]}"
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module
