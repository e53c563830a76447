"""Load machines from their files, each for a level of simulation."""

from collections.abc import Iterable, Mapping
from functools import cache
from itertools import dropwhile
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from t3sim.base.errors import choices, shown
from t3sim.machine.derived import DERIVED
from t3sim.machine.faults import Place, explain, fields_at, is_lack
from t3sim.machine.files import (
    GIVEN,
    LINK_RATE,
    MEMORY_RATE,
    PRESETS,
    MachineError,
    NoSuchMachine,
    changed,
    extended_files,
    preset,
    read,
    read_cycle_machine,
    stated,
)
from t3sim.machine.levels import CLUSTER, CYCLE, ITERATIONS, LEVELS, QUEUE, Level
from t3sim.machine.machine import Machine
from t3sim.machine.section import is_read, section_of

DEFAULT = CYCLE.example
_ROUNDED = 0.05  #: of a bandwidth, in data sheets


def load_machine(name_or_path: str | Path | Mapping[str, Any] | Machine = DEFAULT, level: Level = CYCLE) -> Machine:
    """Load a machine for a level: a preset by name, a TOML file, or its content.

    A file either has all required keys, or starts with `extends = "NAME"` and has only keys that differ. Keys of other
    levels are checked and then dropped. Raises `MachineError` with one line that names the file, the section, the key
    and the allowed values.
    """
    if isinstance(name_or_path, Machine):
        return _for_level(name_or_path.name, name_or_path, level)
    name = GIVEN if isinstance(name_or_path, Mapping) else preset(str(name_or_path))
    try:
        content, *others = _contents(name if isinstance(name_or_path, Path) else name_or_path, level)
    except NoSuchMachine as error:
        raise MachineError(f"machine {shown(str(error))} is neither a file nor one of "
                           f"{choices(str(error), machines_of(level))}{_elsewhere(str(error), level)}") from None
    for other in others:
        _checked(name, other, level)
    machine = _for_level(name, _checked(name, content, level), level)
    if level in (CLUSTER, ITERATIONS) and machine.cycle_machine is None and name is not GIVEN and serves(name, CYCLE):
        machine = machine.model_copy(update={"cycle_machine": name})
    files = extended_files(name_or_path if isinstance(name_or_path, Mapping) else name)
    return machine.with_lineage(one for one, _ in dropwhile(
        lambda file: "extends" in file[1] and not changed(file[1]) & {*level.reads}, files))


def sections(level: Level) -> tuple[str, ...]:
    """Return the sections that a level requires."""
    return tuple(name for name in level.needs if section_of(Machine.model_fields[name]))


@cache
def machines_of(level: Level) -> list[str]:
    """Return the presets that a level can simulate."""
    return [name for name in PRESETS if serves(name, level) or level in DERIVED and "dram" in read(name)]


def serves(name_or_path: str, level: Level) -> bool:
    """Say whether such a machine exists and its file has every key that the level requires."""
    try:
        content = _contents(name_or_path, level)[0]
        return content.keys() >= {*level.needs} and not Machine.model_validate(content).lacks(level)
    except (NoSuchMachine, ValidationError):
        return False


def cycle_machine_of(name_or_path: str | Mapping[str, Any]) -> Machine | None:
    """Return the cycle level's machine of a product's GPUs, with what files change in it; None if it has none.

    Raises `MachineError` for one that cannot be.
    """
    return load_machine(name_or_path, CYCLE) if "dram" in _contents(name_or_path, CYCLE)[0] else None


#: Sections of Track & Trigger's hardware.
_HARDWARE = ("tracker", "channels", "dma", "arbiter")


def _contents(name_or_path: str | Mapping[str, Any], level: Level) -> list[dict[str, Any]]:
    """Read what a level takes of a machine, then what else of its file is to be checked. Raises `MachineError`.

    For the cycle level it is the file's `cycle_machine`, if that has the memory and links of the file's GPU.
    """
    content = read(name_or_path)
    if level in (CYCLE, QUEUE) and (of_cycles := read_cycle_machine(name_or_path, level.reads)) is not None:
        # A file that extends the one naming it may say some keys of a section that only the cycle level has.
        others = content if "cycle_machine" in content else {
            key: value for key, value in content.items() if key == "name" or key not in level.reads}
        if _same_gpu(stated(content, LINK_RATE), others, of_cycles):
            return [of_cycles, others]
    elif "cycle_machine" not in content and (of_cycles := read_cycle_machine(name_or_path, CYCLE.reads)) is not None:
        # Of Track & Trigger's sections such a file says what differs from that machine's.
        content |= {key: of_cycles[key] for key in _HARDWARE if key in content and key not in level.reads}
    return [content]


def _same_gpu(link_rates: list[Any], others: dict[str, Any], of_cycles: dict[str, Any]) -> bool:
    """Say whether the cycle level's DRAM and link have a file's bandwidths. So has a machine that cannot exist."""
    try:
        product, machine = Machine.model_validate(others), Machine.model_validate(of_cycles)
    except ValidationError:
        return True
    # A ring around GPUs with a link to each other one has all links of a GPU.
    links = product.gpus - 1 if product.gpus and product.wires and product.wires.kind == "full" else 1
    rates = [(rate, machine.dram_peak_bytes_per_ns) for rate in stated(product.model_dump(), MEMORY_RATE)]
    rates += [(links * rate, machine.link.bandwidth_gb_per_s) for rate in link_rates]
    return all(abs(rate / simulated - 1) < _ROUNDED for rate, simulated in rates)


def _checked(name: str, content: dict[str, Any], level: Level) -> Machine:
    """Check a machine file's content; messages name keys of this level. Raises `MachineError`."""
    try:
        return Machine.model_validate(content)
    except ValidationError as error:
        missing = [f"[{one}]" for one in sections(level) if one not in content]
        if missing and all(map(is_lack, error.errors())):
            raise MachineError(_missing(name, missing, level)) from None

        def needed(place: Place) -> str:
            return _needed(name, level) if place[0] in level.reads else ""

        def allowed(sections: Place) -> Iterable[str]:
            fields = fields_at(Machine, sections)
            return level.reads if not sections else fields if sections[0] not in level.reads else (
                key for key, field in fields.items() if is_read(field, level))
        raise MachineError(f"{name}: {explain(Machine, error, allowed, needed)}") from None


def _for_level(name: str, machine: Machine, level: Level) -> Machine:
    """Return the machine with the keys that a level reads. Raises `MachineError` if required keys are missing."""
    missing = machine.lacks(level)
    if level in DERIVED and any(getattr(machine, one) is None for one in level.needs) and not machine.lacks(CYCLE):
        machine, missing = DERIVED[level](machine, name), []
    if missing:
        raise MachineError(_missing(name, missing, level))
    if machine.gpus is not None and machine.gpus < level.least_gpus:
        raise MachineError(f"{name}: gpus = {machine.gpus}: {level.called} needs at least {level.least_gpus}")
    return machine.part(level)


def _missing(name: str, missing: list[str], level: Level) -> str:
    """Write the message for missing sections, or for missing keys, of which it names the first."""
    keys = not missing[0].endswith("]")
    more = f" ({len(missing) - 1} more)" if keys and missing[1:] else ""
    return (f"{name}: {missing[0] if keys else ', '.join(missing)} {'is' if keys or len(missing) == 1 else 'are'} "
            f"missing{_needed(name, level)}{more}")


def _needed(name: str, level: Level) -> str:
    return f", which {level.called} needs; " + (
        f"machines that have all are {choices(name, machines_of(level))}" if name in PRESETS else
        f"a file with `extends = \"{level.example}\"` needs only what differs")


def _elsewhere(name: str, level_asked: Level) -> str:
    """List machines of other levels whose names start alike, and the commands that run them."""
    allowed, others = machines_of(level_asked), []
    for level in LEVELS:
        if names := [one for one in machines_of(level)
                     if name and one.startswith(name[:4].lower()) and one not in allowed]:
            others.append(f"{', '.join(names)} by `{level.command}`")
    return f"; others: {'; '.join(others)} (t3 machines lists all)" if others else ""
