"""Machines out of their files, each for a level of simulation."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from t3sim.base.errors import choices, shown
from t3sim.machine.derived import DERIVED
from t3sim.machine.faults import Place, explain, fields_at, is_lack
from t3sim.machine.levels import CYCLE, LEVELS, Level
from t3sim.machine.loader import GIVEN, PRESETS, MachineError, NoSuchMachine, read
from t3sim.machine.machine import Machine
from t3sim.machine.section import is_read, section_of

DEFAULT = CYCLE.example


def load_machine(name_or_path: str | Path | Mapping[str, Any] | Machine = DEFAULT, level: Level = CYCLE) -> Machine:
    """Load a machine for a level, by the name of a preset, from a TOML file, or of what stands for one.

    A file either has every key that is needed, or starts with `extends = "NAME"` and has only those that differ. What
    is there for other levels is checked, too, and left out. Raises `MachineError`, with one line that names the file,
    the section, the key and what is allowed.
    """
    if isinstance(name_or_path, Machine):
        return _for_level(name_or_path.name, name_or_path, level)
    name = GIVEN if isinstance(name_or_path, Mapping) else str(name_or_path)
    try:
        content = read(name if isinstance(name_or_path, Path) else name_or_path)
    except NoSuchMachine as error:
        raise MachineError(f"machine {shown(str(error))} is neither a file nor one of {', '.join(machines_of(level))}"
                           f"{_elsewhere(str(error), level)}") from None
    return _for_level(name, _checked(name, content, level), level)


def sections(level: Level) -> tuple[str, ...]:
    """Return the sections that a level needs."""
    return tuple(name for name in level.needs if section_of(Machine.model_fields[name]))


def machines_of(level: Level) -> list[str]:
    """Return the machines of the package that a level can take."""
    return [name for name in PRESETS if serves(name, level) or level in DERIVED and serves(name, CYCLE)]


def serves(name_or_path: str, level: Level) -> bool:
    """Say whether there is such a machine, whose file itself has all that this level needs."""
    try:
        return not Machine.model_validate(read(name_or_path)).lacks(level)
    except (NoSuchMachine, ValidationError):
        return False


def _checked(name: str, content: dict[str, Any], level: Level) -> Machine:
    """Return the machine whose file has this content, which a level asks for. Raises `MachineError`."""
    try:
        return Machine.model_validate(content)
    except ValidationError as error:
        lacking = [f"[{one}]" for one in sections(level) if one not in content]
        if lacking and all(map(is_lack, error.errors())):
            raise MachineError(_missing(name, lacking, level)) from None

        def needed(place: Place) -> str:
            return _needed(name, level) if place[0] in level.reads else ""

        def allowed(sections: Place) -> Iterable[str]:
            fields = fields_at(Machine, sections)
            return level.reads if not sections else fields if sections[0] not in level.reads else (
                key for key, field in fields.items() if is_read(field, level))
        raise MachineError(f"{name}: {explain(Machine, error, allowed, needed)}") from None


def _for_level(name: str, machine: Machine, level: Level) -> Machine:
    """Return what a level reads of a machine. Raises `MachineError` for what it lacks."""
    lacking = machine.lacks(level)
    if level in DERIVED and any(getattr(machine, one) is None for one in level.needs) and not machine.lacks(CYCLE):
        machine, lacking = DERIVED[level](machine, name), []
    if lacking:
        raise MachineError(_missing(name, lacking, level))
    if machine.gpus is not None and machine.gpus < level.least_gpus:
        raise MachineError(f"{name}: gpus = {machine.gpus}: {level.called} needs at least {level.least_gpus}")
    return machine.part(level)


def _missing(name: str, lacking: list[str], level: Level) -> str:
    """Write the line for a machine that lacks sections of a level, or else keys, of which the first is named."""
    keys = not lacking[0].endswith("]")
    more = f" ({len(lacking) - 1} more)" if keys and lacking[1:] else ""
    return (f"{name}: {lacking[0] if keys else ', '.join(lacking)} {'is' if keys or len(lacking) == 1 else 'are'} "
            f"missing{_needed(name, level)}{more}")


def _needed(name: str, level: Level) -> str:
    return f", which {level.called} needs; " + (
        f"machines that have all are {choices(name, machines_of(level))}" if name in PRESETS else
        f"a file with `extends = \"{level.example}\"` needs only what differs")


def _elsewhere(name: str, asked: Level) -> str:
    """Say which machines of other levels a name could mean, and by which commands they run."""
    mine, found = machines_of(asked), []
    for level in LEVELS:
        if names := [one for one in machines_of(level)
                     if name and one.startswith(name[:4].lower()) and one not in mine]:
            found.append(f"{', '.join(names)} by `{level.command}`")
    return f"; others: {'; '.join(found)} (t3 machines lists all)" if found else ""
