"""One block's figures. The top is put together from its parts: each distinct module is mapped once."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace

from rtl.geometry import Geometry
from sim_models.cosim.designs import readable_verilog

from . import fpga as ecp5
from .liberty import Library
from .node import Node
from .synthesis import EFFORTS, TARGET_GATE_DELAYS, Memory, Netlist, instances, modules, synthesise, with_children
from .timing import Timing, analyse

COMPOSED = "gpu_top"  #: the block that is too large to be mapped in one piece
WITHOUT_TOP = ("nmc_alu",)  #: near-memory ALUs sit in DRAM, not in the top

Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class BlockArea:
    name: str
    memories: tuple[Memory, ...]
    flip_flops: int
    clock_gates: int
    gate_equivalents: float  #: NAND2 gates, flip-flops included, memories not
    logic_gate_equivalents: float  #: the same without the flip-flops
    gate_delay_ns: float  #: an inverter that drives four
    timing: Timing
    fpga: ecp5.Fpga | None
    parts: dict[str, tuple[int, float]] = field(default_factory=dict)  #: module: (how often, gate equivalents of one)

    @property
    def memory_bits(self) -> int:
        return sum(memory.bits for memory in self.memories)

    @property
    def logic_depth(self) -> float:
        """The longest path between registers in gate delays."""
        return self.timing.logic_ns / self.gate_delay_ns

    @property
    def period(self) -> float:
        """Gate delays of a clock cycle: with flip-flop and memory access."""
        return self.timing.period_ns / self.gate_delay_ns

    def to_json(self, node: Node) -> dict:
        return {
            "memory_bits": self.memory_bits,
            "memories": [asdict(memory) for memory in self.memories],
            "flip_flops": self.flip_flops,
            "clock_gates": self.clock_gates,
            "gate_equivalents": round(self.gate_equivalents, 1),
            "logic_gate_equivalents": round(self.logic_gate_equivalents, 1),
            "logic_depth": round(self.logic_depth, 2),
            "logic_levels": self.timing.path.levels,
            "longest_path": {"start": self.timing.path.start, "end": self.timing.path.end,
                             "gates": list(self.timing.path.gates)},
            "period_gate_delays": round(self.period, 2),
            "library_clock_mhz": round(1e3 / self.timing.period_ns, 1) if self.timing.period_ns else None,
            "estimate": node.to_json(self.gate_equivalents, self.memory_bits, self.period),
            "fpga": self.fpga.to_json() if self.fpga else {},
            "parts": {name: {"count": count, "gate_equivalents": round(area, 1)}
                      for name, (count, area) in self.parts.items()},
        }


def measure(block: str, geometry: Geometry, library: Library, *, fpga: bool = True,
            progress: Progress = lambda name, fraction: None) -> BlockArea:
    """Everything about one block."""
    text, _ = readable_verilog(block, geometry)
    if block == COMPOSED:
        return _compose(block, text, library, fpga, progress)
    netlist, timing = _mapped(text, block, library)
    progress(block, 0.5)
    result = BlockArea(block, netlist.memories, netlist.flip_flops, netlist.clock_gates, netlist.gate_equivalents(),
                       netlist.gate_equivalents(flip_flops=False), library.gate_delay[0], timing,
                       ecp5.place_and_route(text, block) if fpga else None)
    progress(block, 1.0)
    return result


def _mapped(text: str, top: str, library: Library, black_boxes: tuple[str, ...] = ()) -> tuple[Netlist, Timing]:
    """With the first effort that meets the target, or the one that comes closest."""
    best = None
    for effort in EFFORTS:
        netlist = synthesise(text, top, library, black_boxes, effort)
        timing = analyse(netlist)
        if best is None or timing.logic_ns < best[1].logic_ns:
            best = netlist, timing
        if timing.logic_ns <= TARGET_GATE_DELAYS * library.gate_delay[0]:
            break
    return best


def _compose(block: str, text: str, library: Library, fpga: bool, progress: Progress) -> BlockArea:
    known = modules(text)
    children = instances(known[block], known)
    kinds = sorted(set(children.values()))
    parts = {}
    for done, kind in enumerate(kinds):
        parts[kind] = _mapped(with_children(known, kind), kind, library)[0]
        progress(block, (done + 1) / (len(kinds) + 3))
    glue, _ = _mapped(text, block, library, tuple(kinds))
    counts = {kind: sum(module == kind for module in children.values()) for kind in kinds}
    timing = analyse(glue, parts)
    placed = None
    if fpga:
        pieces = [(ecp5.count(with_children(known, kind), kind), counts[kind]) for kind in kinds]
        pieces.append((ecp5.count(text, block, tuple(kinds)), 1))
        placed = ecp5.Fpga(*(sum(getattr(piece, name) * count for piece, count in pieces)
                             for name in ("luts", "flip_flops", "block_rams")), None, "sum of its parts, not placed")
    everything = [(glue, 1), *((parts[kind], counts[kind]) for kind in kinds)]
    memories = tuple(replace(memory, name=f"{name}.{memory.name}")
                     for name, kind in sorted(children.items()) for memory in parts[kind].memories)
    progress(block, 1.0)
    return BlockArea(
        block, memories, sum(netlist.flip_flops * count for netlist, count in everything),
        sum(netlist.clock_gates * count for netlist, count in everything),
        sum(netlist.gate_equivalents() * count for netlist, count in everything),
        sum(netlist.gate_equivalents(flip_flops=False) * count for netlist, count in everything),
        library.gate_delay[0], timing, placed,
        {**{kind: (counts[kind], parts[kind].gate_equivalents()) for kind in kinds},
         "wiring, counters": (1, glue.gate_equivalents())})
