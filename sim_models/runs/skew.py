"""GPUs that are not alike: a late start, a slow clock, compute units that do not work, links of their own bandwidth."""

import re
from dataclasses import dataclass

from t3sim.base.errors import BadInput, shown
from t3sim.gpu.setup import Condition
from t3sim.machine import Machine
from t3sim.machine.links import LinkSection
from t3sim.machine.topologies import Topology

_LATE = re.compile(r"late:(\d{1,3}):([\d.]{1,12})", re.ASCII)
_LINK = re.compile(r"link:(\d{1,3})-(\d{1,3}):([\d.]{1,12})", re.ASCII)
_CLOCK = re.compile(r"clock:(\d{1,3}):([\d.]{1,12})", re.ASCII)
_DEAD = re.compile(r"dead:(\d{1,3}):(\d{1,6})", re.ASCII)
_ALLOWED = ("a comma between late:GPU:NS, clock:GPU:SHARE, dead:GPU:UNITS and link:FROM-TO:GB/S, as in "
            "late:3:20000,clock:1:0.9,link:1-0:30")
_LEAST_CLOCK = 0.05  #: share of the machine's clock


@dataclass(frozen=True)
class Skew:
    """Differences between GPUs; without anything in it, every GPU is simulated and all are alike."""

    late_ns: tuple[tuple[int, float], ...] = ()  #: GPU, and how much later than the others its kernel starts
    links_gb_per_s: tuple[tuple[int, int, float], ...] = ()  #: source, destination, bandwidth
    clocks: tuple[tuple[int, float], ...] = ()  #: GPU, and its clock as a share of the machine's
    dead_units: tuple[tuple[int, int], ...] = ()  #: GPU, and how many of its compute units do not work

    @classmethod
    def of(cls, text: str, gpus: int) -> "Skew":
        """Read the text of a skew for this many GPUs; "": all are alike. Raises BadInput."""
        if not text:
            return cls()
        late: dict[int, float] = {}
        links: dict[tuple[int, int], float] = {}
        clocks: dict[int, float] = {}
        dead: dict[int, int] = {}
        for part in (one.strip() for one in text.split(",")):
            if match := _LATE.fullmatch(part):
                _set(late, _gpu(match[1], gpus, part), _number(match[2], 0.0, part), part)
            elif match := _CLOCK.fullmatch(part):
                _set(clocks, _gpu(match[1], gpus, part), _number(match[2], _LEAST_CLOCK, part, 1.0), part)
            elif match := _DEAD.fullmatch(part):
                _set(dead, _gpu(match[1], gpus, part), int(match[2]), part)
            elif match := _LINK.fullmatch(part):
                ends = _gpu(match[1], gpus, part), _gpu(match[2], gpus, part)
                if ends[0] == ends[1]:
                    raise BadInput(f"gpus.skew = {part}: a GPU has no link to itself")
                _set(links, ends, _number(match[3], 1e-3, part), part)
            else:
                raise BadInput(f"gpus.skew = {shown(part)} is unknown: allowed is {_ALLOWED}")
        return cls(tuple(sorted(late.items())), tuple((*ends, gb) for ends, gb in sorted(links.items())),
                   tuple(sorted(clocks.items())), tuple(sorted(dead.items())))

    def __str__(self) -> str:
        parts = [f"GPU {gpu} {ns:g} ns late" for gpu, ns in self.late_ns]
        parts += [f"GPU {gpu} at {share:.4g} of its clock" for gpu, share in self.clocks]
        parts += [f"GPU {gpu} without {count} compute units" for gpu, count in self.dead_units]
        parts += [f"link {source} to {target} at {gb:g} GB/s" for source, target, gb in self.links_gb_per_s]
        return ", ".join(parts) or "all alike"

    @property
    def name(self) -> str:
        """The skew as part of a file's name."""
        return "-".join(["every-gpu", *(f"late-{gpu}-{ns:g}" for gpu, ns in self.late_ns),
                         *(f"clock-{gpu}-{share:g}" for gpu, share in self.clocks),
                         *(f"dead-{gpu}-{count}" for gpu, count in self.dead_units),
                         *(f"link-{source}-{target}-{gb:g}" for source, target, gb in self.links_gb_per_s)])

    @property
    def slows_collectives(self) -> bool:
        """Say whether a collective alone takes another time: everything but a late start does that."""
        return bool(self.links_gb_per_s or self.clocks or self.dead_units)

    def check(self, topology: Topology, machine: Machine) -> None:
        """Refuse a link that the topology does not have, and a GPU without a unit that works. Raises BadInput."""
        for gpu, count in self.dead_units:
            if not 1 <= count < machine.gpu.compute_units:
                raise BadInput(f"gpus.skew = dead:{gpu}:{count}: of {machine.gpu.compute_units} compute units 1 to "
                               f"{machine.gpu.compute_units - 1} may not work")
        known_links = {(link.source, link.destination) for link in topology.links}
        for source, target, gb in self.links_gb_per_s:
            if (source, target) not in known_links:
                allowed_links = [f"{source}-{end}" for begin, end in sorted(known_links)
                                 if begin == source and end < topology.gpus]
                allowed = (f"allowed from GPU {source} are {', '.join(allowed_links)}" if allowed_links else
                           "only links between two GPUs can differ")
                raise BadInput(f"gpus.skew = link:{source}-{target}:{gb:g}: topology {topology.name!r} has no such "
                               f"link: {allowed}")

    def start_cycles(self, machine: Machine, gpus: int) -> tuple[int, ...]:
        """Return the first cycle of each GPU's kernel."""
        late = dict(self.late_ns)
        return tuple(round(late.get(gpu, 0.0) * machine.memory_clock_ghz) for gpu in range(gpus))

    def conditions(self, machine: Machine) -> dict[int, Condition]:
        """Return the condition of each GPU whose compute units are not the machine's."""
        units, clocks, dead = machine.gpu.compute_units, dict(self.clocks), dict(self.dead_units)
        return {gpu: Condition(units - dead.get(gpu, 0), clocks.get(gpu, 1.0)) for gpu in sorted(clocks | dead)}

    def links(self, machine: Machine) -> dict[tuple[int, int], LinkSection]:
        """Return the links that are not the machine's."""
        return {(source, target): machine.link.model_copy(update={"bandwidth_gb_per_s": gb})
                for source, target, gb in self.links_gb_per_s}


def _gpu(text: str, gpus: int, part: str) -> int:
    if int(text) >= gpus:
        raise BadInput(f"gpus.skew = {part} names GPU {int(text)}: there are 0 to {gpus - 1}")
    return int(text)


def _set(values: dict, key: object, value: float, part: str) -> None:
    if key in values:
        raise BadInput(f"gpus.skew = {part}: it is given twice")
    values[key] = value


def _number(text: str, least: float, part: str, most: float = 1e9) -> float:
    try:
        value = float(text)
    except ValueError:
        raise BadInput(f"gpus.skew = {part}: {text} is no number") from None
    if not least <= value <= most:
        raise BadInput(f"gpus.skew = {part}: {text} is not possible: {least:g} to {most:g}")
    return value
