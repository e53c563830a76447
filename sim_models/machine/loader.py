"""Machine files: TOML, each by itself or on top of another one that it extends."""

import os
import re
import tomllib
from collections.abc import Mapping
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from t3sim.base.bounded import LARGEST_TOML, TooLarge, read_bounded
from t3sim.base.errors import InFile, shown

_FOLDER = resources.files(__name__.rpartition(".")[0]).joinpath("machines")

#: Machines that come with the package, each a file of that name.
PRESETS = tuple(sorted(file.name.removesuffix(".toml") for file in _FOLDER.iterdir() if file.name.endswith(".toml")))
GIVEN = "machine"  #: what messages call one that is no file
_LONGEST_CHAIN = 16  #: machines that extend one another


class MachineError(InFile):
    """A machine that cannot be read or cannot exist. The message names the file, the key and what is allowed."""


class NoSuchMachine(MachineError):
    """A name that is neither a preset's nor a file's: the message is the name."""


def read(name: str | Mapping[str, Any], seen: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the content of a preset, a TOML file or what stands for one, on top of what it extends.

    A file either has all that is needed of it, or starts with `extends = "NAME"` and has only what differs. Raises
    `MachineError`, with one line. `seen`: files that extend this one.
    """
    if isinstance(name, Mapping):
        return _on_top(GIVEN, dict(name), (*seen, GIVEN))
    if "\0" in name:
        raise NoSuchMachine(name)
    identity = name if name in PRESETS else os.path.realpath(name)  # a circle may lead through folders and links
    if identity in seen:
        raise MachineError(f"machine {shown(name)} extends itself")
    if len(seen) == _LONGEST_CHAIN:
        raise MachineError(f"extends = {shown(name)}: at most {_LONGEST_CHAIN} machines may extend one another")
    return _on_top(name, _parsed(name), (*seen, identity))


def _on_top(name: str, content: dict[str, Any], seen: tuple[str, ...]) -> dict[str, Any]:
    """Return the content of a machine on top of what it extends."""
    base = content.pop("extends", None)
    if base is None:
        return content
    if not isinstance(base, str) or not base or "\0" in base:
        raise MachineError(f"{name}: extends = {shown(base)} is not the name of a machine")
    if base not in PRESETS:  # a file named by a file is looked for beside it
        base = str(Path(name).parent / base)
    return _merge(read(base, seen), content)


def origin(name: str) -> str:
    """Return the first sentence of what a preset's file says of itself."""
    lines = []
    for line in _FOLDER.joinpath(f"{name}.toml").read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.lstrip("# ").strip())
    return re.split(r"\. |[.:]$|: ", " ".join(lines), maxsplit=1)[0]


def _parsed(name: str) -> dict[str, Any]:
    try:
        raw = read_bounded(_FOLDER.joinpath(f"{name}.toml") if name in PRESETS else Path(name), LARGEST_TOML)
    except FileNotFoundError:
        raise NoSuchMachine(name) from None
    except TooLarge as error:
        raise MachineError(f"{name}: not a machine file: {error}") from None
    except OSError as error:
        raise MachineError(f"machine file {shown(name)} cannot be read: {error.strerror}") from None
    try:
        return dict(_toml(raw.decode("utf-8")))  # `read` takes a key away; sections are only read
    except RecursionError:
        raise MachineError(f"{name}: not a machine file: nested too deeply") from None
    except ValueError as error:  # TOML's, UTF-8's, or a number of thousands of digits
        raise MachineError(f"{name}: not a TOML file: {error}") from None


@lru_cache(maxsize=64)
def _toml(text: str) -> dict[str, Any]:
    """Parse once: a study, and a refusal that lists machines, read the same files again and again."""
    return tomllib.loads(text)


def _merge(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in changes.items():
        both_sections = isinstance(value, dict) and isinstance(base.get(key), dict)
        merged[key] = _merge(base[key], value) if both_sections else value
    return merged
