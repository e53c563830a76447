"""The levels of simulation, what each needs of a machine, and how a machine is loaded for it.

All read the same files. A section or key means the same to every level; each takes those that it needs, and what is
there for another level is checked, too. What no level knows is refused.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from t3sim.errors import choices, shown
from t3sim.machine import cluster, commercial, cycle, engines, network, tiles
from t3sim.machine.faults import Place, brackets, explain, fields_at, said, section_of, unknown
from t3sim.machine.loader import GIVEN, PRESETS, MachineError, NoSuchMachine, read
from t3sim.machine.section import Section

DEFAULT = "t3-table1"

_Seen = TypeVar("_Seen", bound=Section)


@dataclass(frozen=True)
class Level(Generic[_Seen]):
    """A level of simulation."""

    kind: type[_Seen]  #: its schema
    called: str  #: in a message
    example: str  #: a machine that has all that it needs
    command: str  #: that simulates it, without its machine
    #: What a machine of the cycle level is here, if it says nothing for this level. Takes its name, too.
    made_of: Callable[[cycle.Machine, str], _Seen] | None = None

    def load(self, name_or_path: str | Mapping[str, Any]) -> _Seen:
        """Load a machine for this level, of a preset or a TOML file. Raises `MachineError`, with one line."""
        name = name_or_path if isinstance(name_or_path, str) else GIVEN
        try:
            content = read(name_or_path)
        except NoSuchMachine as error:
            raise MachineError(f"machine {shown(str(error))} is neither a file nor one of "
                               f"{', '.join(self.presets())}{_elsewhere(str(error), self)}") from None
        return self._load(name, content)

    def presets(self) -> list[str]:
        """Return the machines of the package that this level can take."""
        return [name for name in PRESETS if _is_whole(self.kind, content := read(name))
                or self.made_of is not None and _is_whole(CYCLE.kind, content)]

    def has(self, name_or_path: str) -> bool:
        """Say whether there is such a machine, with every section that this level needs."""
        try:
            return self._has_sections(read(name_or_path))
        except NoSuchMachine:
            return False

    @property
    def sections(self) -> tuple[str, ...]:
        """The sections that it needs."""
        return tuple(name for name, field in self.kind.model_fields.items()
                     if field.is_required() and section_of(field))

    def _has_sections(self, content: dict[str, Any]) -> bool:
        return all(name in content for name, field in self.kind.model_fields.items() if field.is_required())

    def _load(self, name: str, content: dict[str, Any]) -> _Seen:
        if self.made_of is not None and not self._has_sections(content) and CYCLE._has_sections(content):
            return self.made_of(CYCLE._load(name, content), name)
        self._check_others(name, content, ())
        try:
            seen = self.kind.model_validate(_seen_by(self.kind, content))
        except ValidationError as error:
            missing = f", which {self.called} needs; " + (
                f"machines that have all are {choices(name, self.presets())}" if name in PRESETS else
                f"a file with `extends = \"{self.example}\"` needs only what differs")
            lacking = [f"[{one}]" for one in self.sections if one not in content]
            if lacking and all(fault["type"] == "missing" for fault in error.errors()):
                raise MachineError(f"{name}: {', '.join(lacking)} {'is' if len(lacking) == 1 else 'are'} "
                                   f"missing{missing}") from None
            raise MachineError(f"{name}: {explain(self.kind, error, missing)}") from None
        for one, other in _SAME:
            values = _at(content, one), _at(content, other)
            if None not in values and values[0] != values[1]:
                raise MachineError(f"{name}: {_named(one)} = {values[0]} and {_named(other)} = {values[1]} must agree")
        return seen

    def _check_others(self, name: str, content: dict[str, Any], sections: Place) -> None:
        """Refuse what no level knows, and values that those other levels for which they are would not take."""
        mine = fields_at(self.kind, sections)
        for key, value in content.items():
            known = [field for level in LEVELS if (field := fields_at(level.kind, sections).get(key))]
            if not known:
                allowed = mine or [one for level in LEVELS for one in fields_at(level.kind, sections)]
                raise MachineError(f"{name}: {unknown((*sections, key), allowed)}")
            if any(section_of(field) for field in known) and isinstance(value, dict):
                self._check_others(name, value, (*sections, key))
            elif key not in mine:
                _check_value(f"{name}: {brackets(sections)}{key} = {shown(value)}", value, known)


def _elsewhere(name: str, asked: Level) -> str:
    """Say which machines of other levels a name could mean, and by which commands they run."""
    mine, found = asked.presets(), []
    for level in LEVELS:
        if names := [one for one in level.presets() if name and one.startswith(name[:4].lower()) and one not in mine]:
            found.append(f"{', '.join(names)} by `{level.command}`")
    return f"; others: {'; '.join(found)} (t3 machines lists all)" if found else ""


def _check_value(place: str, value: object, fields: list) -> None:
    """Refuse a value that none of these fields may have."""
    fault = "a section is needed"
    for field in fields:
        if section_of(field):
            continue
        try:
            # A field's own type with its bounds, which nothing but the running schema knows.
            kind: Any = Annotated[field.annotation, field]  # pyright: ignore[reportInvalidTypeForm]
            TypeAdapter(kind, config=_STRICT).validate_python(value)
            return
        except ValidationError as error:
            fault = said(error.errors(include_url=False)[0], field)
    raise MachineError(f"{place}: {fault}")


def _is_whole(kind: type[Section], content: dict[str, Any]) -> bool:
    """Say whether a file has every key that a schema needs."""
    return all(name in content and ((inner := section_of(field)) is None or _is_whole(inner, content[name]))
               for name, field in kind.model_fields.items() if field.is_required())


def _seen_by(kind: type[Section], content: dict[str, Any]) -> dict[str, Any]:
    """Return what a schema takes of a file."""
    seen = {}
    for name, field in kind.model_fields.items():
        if name in content:
            inner, value = section_of(field), content[name]
            seen[name] = _seen_by(inner, value) if inner is not None and isinstance(value, dict) else value
    return seen


def _at(content: dict[str, Any], where: str) -> object:
    section, key = where.split(".")
    return content.get(section, {}).get(key)


def _named(where: str) -> str:
    section, key = where.split(".")
    return f"[{section}] {key}"


_STRICT = ConfigDict(strict=True, allow_inf_nan=False)

#: Keys of different levels that say the same about the hardware.
_SAME = (("gpu.compute_units", "accelerator.cores"), ("memory.bandwidth_gb_per_s", "accelerator.memory_gb_per_s"),
         ("link.bandwidth_gb_per_s", "intra.bandwidth_gb_per_s"),
         ("network.bandwidth_gb_per_s", "inter.bandwidth_gb_per_s"))

CYCLE = Level(cycle.Machine, "the cycle level", DEFAULT, "t3 run")
ENGINES = Level(engines.Node, "the event level of DMA engines", "mi300x", "t3 dma")
INITIATORS = Level(engines.Initiators, "a collective by the RTL's command queue", DEFAULT, "t3 dma --level cycle")
TILES = Level(tiles.Node, "the event level of tiles", "a100-nvlink", "t3 run --level event",
              lambda machine, name: tiles.node_of(machine))
NETWORK = Level(network.ScaleOut, "the event level of networks", "torus-128", "t3 collective")
CLUSTER = Level(cluster.Cluster, "the closed form", "dgx-a100", "t3 end-to-end", cluster.of_machine)
COMMERCIAL = Level(commercial.Commercial, "models of libraries on GPUs that are sold", "h100-sxm", "t3 validate")
LEVELS: tuple[Level, ...] = (CYCLE, INITIATORS, ENGINES, TILES, NETWORK, CLUSTER, COMMERCIAL)


def load_machine(name_or_path: str | Path | Mapping[str, Any] = DEFAULT) -> cycle.Machine:
    """Load a machine for the cycle level, by the name of a preset, from a TOML file, or of what stands for one.

    A file either has every key that is needed, or starts with `extends = "NAME"` and has only those that differ.
    Raises `MachineError`, with one line that names the file, the section, the key and what is allowed.
    """
    return CYCLE.load(name_or_path if isinstance(name_or_path, Mapping) else str(name_or_path))


def load_engines(name_or_path: str) -> engines.Node:
    """Load a machine for the event level of DMA engines. Raises `MachineError`."""
    return ENGINES.load(name_or_path)


def load_initiators(name_or_path: str) -> engines.Initiators:
    """Load what starts copies on the cycle level. Raises `MachineError`."""
    return INITIATORS.load(name_or_path)


def load_tiles(name_or_path: str | Mapping[str, Any]) -> tiles.Node:
    """Load a machine for the event level of tiles; one of the cycle level is eight GPUs. Raises `MachineError`."""
    return TILES.load(name_or_path)


def load_network(name_or_path: str) -> network.ScaleOut:
    """Load a machine for the event level of networks. Raises `MachineError`."""
    return NETWORK.load(name_or_path)


def load_cluster(name_or_path: str) -> cluster.Cluster:
    """Load a machine for the closed form; one of the cycle level is a ring. Raises `MachineError`."""
    return CLUSTER.load(name_or_path)


def load_commercial(name_or_path: str) -> commercial.Commercial:
    """Load a machine for the models of libraries on GPUs that are sold. Raises `MachineError`."""
    return COMMERCIAL.load(name_or_path)
