"""Read machine files: TOML, complete or as changes to a machine that it extends."""

import os
import re
import tomllib
from collections.abc import Collection, Iterable, Mapping
from functools import cache, lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from t3sim.base.bounded import LARGEST_TOML, TooLarge, read_bounded
from t3sim.base.errors import InFile, shown

_FOLDER = resources.files(__name__.rpartition(".")[0]).joinpath("machines")

#: Machines that come with the package, each a file of that name.
PRESETS = tuple(sorted(file.name.removesuffix(".toml") for file in _FOLDER.iterdir() if file.name.endswith(".toml")))
#: Other names of machines: of files that told of the same GPUs for one level each.
ALIASES = {"dgx-a100": "a100-sxm", "h100-nvlink": "h100-sxm", "h800-nvlink": "h800-sxm"}
GIVEN = "machine"  #: name in messages of a machine that is no file
_LONGEST_CHAIN = 16  #: machines that extend one another

MEMORY_RATE = ("memory", "bandwidth_gb_per_s"), ("accelerator", "memory_gb_per_s")
LINK_RATE = ("link", "bandwidth_gb_per_s"), ("intra", "bandwidth_gb_per_s")
#: Keys for the same property of the hardware. A file that says one of them says it for all: the others follow, also
#: those of the machine that it extends.
SAME = ((("gpu", "compute_units"), ("accelerator", "cores")), MEMORY_RATE, LINK_RATE,
        (("network", "bandwidth_gb_per_s"), ("cards", "gb_per_s"), ("inter", "bandwidth_gb_per_s")))


class MachineError(InFile):
    """A machine that cannot be read or cannot exist. The message names the file, the key and what is allowed."""


class NoSuchMachine(MachineError):
    """A name of neither a preset nor a file; the message is the name."""


def preset(name: str) -> str:
    """Return the preset that another name is of; any other name as it is."""
    return ALIASES.get(name, name)


def read(name: str | Mapping[str, Any], chain: tuple[str, ...] = ()) -> dict[str, Any]:
    """Read a preset, a TOML file or a file's content, and merge it into the machine that it extends.

    `chain`: files that extend this one. Raises `MachineError`, with one line.
    """
    if isinstance(name, Mapping):
        return _on_top(GIVEN, dict(name), (*chain, GIVEN))
    if "\0" in name:
        raise NoSuchMachine(name)
    name = preset(name)
    identity = name if name in PRESETS else os.path.realpath(name)  # a circle may lead through folders and links
    if identity in chain:
        raise MachineError(f"machine {shown(name)} extends itself")
    if len(chain) == _LONGEST_CHAIN:
        raise MachineError(f"extends = {shown(name)}: at most {_LONGEST_CHAIN} machines may extend one another")
    return _on_top(name, _parsed(name), (*chain, identity))


def _on_top(name: str, content: dict[str, Any], chain: tuple[str, ...]) -> dict[str, Any]:
    base = content.pop("extends", None)
    if isinstance(cycle_machine := content.get("cycle_machine"), str):
        content["cycle_machine"] = _beside(name, cycle_machine)
    if base is None:
        return content
    if not isinstance(base, str) or not base or "\0" in base:
        raise MachineError(f"{name}: extends = {shown(base)} is not the name of a machine")
    extended = read(_beside(name, base), chain)
    extended.pop("cycle_machine", None)  # it has the GPUs of that file only
    if changed(content) and isinstance(measured := extended.get("measured"), dict):
        extended["measured"] = {key: value for key, value in measured.items() if key != "held_out"}
    return _merge(_without_same(extended, content), content)


def _beside(name: str, other: str) -> str:
    """Return a preset that a file names, or the path of a file beside it."""
    return other if preset(other) in PRESETS else str(Path(name).parent / other)


def read_cycle_machine(name: str | Mapping[str, Any], sections: Collection[str]) -> dict[str, Any] | None:
    """Read the `cycle_machine` of a file's GPUs, in these sections with what files say that extend the one naming it.

    None if no file names any. The file is one that `read` can read.
    """
    content = dict(name) if isinstance(name, Mapping) else _parsed(preset(name))
    name = GIVEN if isinstance(name, Mapping) else name
    if isinstance(cycle_machine := content.get("cycle_machine"), str) and cycle_machine:
        return read(_beside(name, cycle_machine))
    if (base := content.pop("extends", None)) is None or (
            extended := read_cycle_machine(_beside(name, base), sections)) is None:
        return None
    stated_content = {key: value for key, value in content.items() if key in sections}
    for keys in SAME:
        for value in stated(content, keys)[:1]:
            stated_content |= {section: {**values, key: value} for section, key in keys
                               if section in sections and isinstance(values := stated_content.get(section, {}), dict)}
    return _merge(extended, stated_content)


def _without_same(base: dict[str, Any], overrides: dict[str, Any]) -> dict[str, Any]:
    """Leave out of a machine the keys whose property the file that extends it says by another key."""
    left = {name: dict(value) if isinstance(value, dict) else value for name, value in base.items()}
    for section, key in (one for keys in SAME if stated(overrides, keys) for one in keys):
        if isinstance(left.get(section), dict):
            left[section].pop(key, None)
    return left


def changed(content: Mapping[str, Any]) -> set[str]:
    """Return the keys and sections by which a file's machine differs from the one that it extends, besides names."""
    return {*content} - {"extends", "name", "cycle_machine"}


def stated(content: dict[str, Any], keys: Iterable[tuple[str, str]]) -> list[Any]:
    """Return what a file says by some of these keys, each a section and a name."""
    return [values[key] for section, key in keys if isinstance(values := content.get(section), dict) and key in values]


def extended_files(name: str | Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return a machine that can be read and those that it extends, nearest first, each with what its own file says."""
    files = [(GIVEN, dict(name))] if isinstance(name, Mapping) else [(preset(name), _parsed(preset(name)))]
    while (base := files[-1][1].get("extends")) is not None:
        extended = preset(_beside(files[-1][0], base))
        files.append((extended, _parsed(extended)))
    return files


def origin(name: str) -> str:
    """Return the first sentence of a preset file's comment."""
    lines = []
    for line in _FOLDER.joinpath(f"{name}.toml").read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.lstrip("# ").strip())
    return re.split(r"\. |[.:]$|: ", " ".join(lines), maxsplit=1)[0]


def _parsed(name: str) -> dict[str, Any]:
    try:
        content = _preset_file(name) if name in PRESETS else read_bounded(Path(name), LARGEST_TOML)
    except FileNotFoundError:
        raise NoSuchMachine(name) from None
    except TooLarge as error:
        raise MachineError(f"{name}: not a machine file: {error}") from None
    except OSError as error:
        raise MachineError(f"machine file {shown(name)} cannot be read: {error.strerror}") from None
    try:
        return dict(_toml(content.decode("utf-8")))  # a copy, because `read` removes "extends"
    except RecursionError:
        raise MachineError(f"{name}: not a machine file: nested too deeply") from None
    except ValueError as error:  # TOML's, UTF-8's, or a number of thousands of digits
        raise MachineError(f"{name}: not a TOML file: {error}") from None


@cache
def _preset_file(name: str) -> bytes:
    return _FOLDER.joinpath(f"{name}.toml").read_bytes()


@lru_cache(maxsize=64)
def _toml(text: str) -> dict[str, Any]:
    """Parse once: studies and messages that list machines read the same files many times."""
    return tomllib.loads(text)


def _merge(base: dict[str, Any], overrides: dict[str, Any]) -> dict[str, Any]:
    content = dict(base)
    for key, value in overrides.items():
        both_sections = isinstance(value, dict) and isinstance(base.get(key), dict)
        content[key] = _merge(base[key], value) if both_sections else value
    return content
