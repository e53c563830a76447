"""One block's figures. What is large is put together from its parts: each distinct module is mapped once."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field

from t3sim.area import fpga as ecp5
from t3sim.area.liberty import Library
from t3sim.area.memories import MemoryUse, memories_of
from t3sim.area.node import ProcessNode
from t3sim.area.synthesis import (
    EFFORTS,
    MOST_SWEPT,
    SWEEPING,
    TARGET_GATE_DELAYS,
    Netlist,
    instances,
    modules,
    synthesise,
    with_children,
)
from t3sim.area.timing import Timing
from t3sim.base.errors import BadInput, Failure
from t3sim.cosim.designs import readable_verilog
from t3sim.rtl.geometry import Geometry

TOP = "gpu_top"  #: Track & Trigger of a GPU
COMPOSED = (TOP, "switch")  #: blocks that are too large to be mapped in one piece

Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class Silicon:
    """Figures that only a standard-cell library gives."""

    gate_equivalents: float  #: NAND2 gates, flip-flops included, memories not
    logic_gate_equivalents: float  #: the same without the flip-flops
    gate_delay_ns: float  #: an inverter that drives four
    timing: Timing

    @property
    def logic_depth(self) -> float:
        """The longest path between registers in gate delays."""
        return self.timing.logic_ns / self.gate_delay_ns

    @property
    def period(self) -> float:
        """Gate delays of a clock cycle: with flip-flop and memory access."""
        return self.timing.period_ns / self.gate_delay_ns

    def to_json(self) -> dict:
        path = self.timing.path
        return {
            "gate_equivalents": round(self.gate_equivalents, 1),
            "logic_gate_equivalents": round(self.logic_gate_equivalents, 1),
            "logic_depth": round(self.logic_depth, 2),
            "logic_levels": path.levels,
            "longest_path": {"start": path.start, "end": path.end, "gates": list(path.gates)},
            "period_gate_delays": round(self.period, 2),
            "library_clock_mhz": round(1e3 / self.timing.period_ns, 1) if self.timing.period_ns else None,
        }


@dataclass(frozen=True)
class Part:
    """A module that the top is put together from."""

    count: int
    gate_equivalents: float  #: of one


@dataclass(frozen=True)
class BlockArea:
    name: str
    memories: tuple[MemoryUse, ...]
    memory_gate_equivalents: float  #: of register files, and of writing through around macros; not mapped, estimated
    flip_flops: int
    clock_gates: int
    silicon: Silicon
    fpga: ecp5.Fpga | None  #: None: not asked for
    parts: dict[str, Part] = field(default_factory=dict)  #: by module

    @property
    def memory_bits(self) -> int:
        return sum(memory.bits for memory in self.memories)

    @property
    def macro_bits(self) -> int:
        """Bits of SRAM macros, copies included."""
        return sum(memory.macro_bits for memory in self.memories)

    def area_um2(self, node: ProcessNode) -> float:
        gates = self.silicon.gate_equivalents + self.memory_gate_equivalents
        return gates * node.gate_um2 + self.macros_um2(node)

    def macros_um2(self, node: ProcessNode) -> float:
        return sum(memory.macro_um2(node) for memory in self.memories)

    def to_json(self, node: ProcessNode) -> dict:
        clock = node.clock_ghz(self.silicon.period)
        return {
            "memory_bits": self.memory_bits,
            "macro_bits": self.macro_bits,
            "memory_gate_equivalents": round(self.memory_gate_equivalents, 1),
            "memories": [asdict(memory) | {"kind": memory.kind} for memory in self.memories],
            "flip_flops": self.flip_flops,
            "clock_gates": self.clock_gates,
            **self.silicon.to_json(),
            "estimate": {"node": node.name, "area_um2": round(self.area_um2(node), 1),
                         "macros_um2": round(self.macros_um2(node), 1),
                         "cycle_ns": node.cycle_ns(self.silicon.period), "clock_ghz": clock and round(clock, 3)},
            "fpga": self.fpga.to_json() if self.fpga else {},
            "parts": {name: asdict(part) for name, part in self.parts.items()},
        }


def measure(block: str, geometry: Geometry, library: Library, *, fpga: bool = True,
            progress: Progress = lambda name, fraction: None) -> BlockArea:
    """Measure everything about one block that can be had."""
    text, _ = readable_verilog(block, geometry)
    memories = memories_of(block, geometry)
    memory_gates = sum(memory.gate_equivalents(library) for memory in memories)
    if block in COMPOSED:
        return _compose(block, text, library, fpga, progress, memories, memory_gates)
    netlist, timing = map_block(block, geometry, library)
    progress(block, 0.5)
    silicon = Silicon(netlist.gate_equivalents(), netlist.gate_equivalents(flip_flops=False), library.gate_delay[0],
                      timing)
    result = BlockArea(block, memories, memory_gates, netlist.flip_flops, netlist.clock_gates, silicon,
                       ecp5.place_and_route(text, block) if fpga else None)
    progress(block, 1.0)
    return result


def map_block(block: str, geometry: Geometry, library: Library) -> tuple[Netlist, Timing]:
    """Map a block in one piece, or of `BLOCK.INSTANCE` what is in it under that name. Raises BadInput."""
    name, _, instance = block.partition(".")
    text, _ = readable_verilog(name, geometry)
    texts = modules(text)
    module_of = {"": name} | instances(texts[name], texts)
    if instance not in module_of:
        raise BadInput(f"block {block} is unknown: allowed are "
                       f"{', '.join(f'{name}.{path}' for path in module_of if path)}")
    # In the order of a part of the top: ABC's result depends on it.
    return _map_module(with_children(texts, module_of[instance]), module_of[instance], library)


def _map_module(text: str, top: str, library: Library,
                parts: dict[str, Netlist] | None = None) -> tuple[Netlist, Timing]:
    """Map a module with the first effort that meets the target, or with the one that comes closest.

    The last effort is not tried on a module that is too large for it (`MOST_SWEPT`).
    What is in `parts` is mapped already; the paths through it count, and if the longest has no other cells, another
    effort is of no use.
    """
    best = None
    for effort in EFFORTS:
        if effort == SWEEPING and best is not None and best[0].gate_equivalents() > MOST_SWEPT:
            break
        try:
            netlist = synthesise(text, top, library, tuple(parts or ()), effort)
        except Failure:  # ABC needs a buffer among the cells to size with
            if best is None:
                raise
            continue
        timing = Timing(netlist, parts)
        if best is None or timing.logic_ns < best[1].logic_ns:
            best = netlist, timing
        if timing.logic_ns <= TARGET_GATE_DELAYS * library.gate_delay[0] or parts and timing.path.in_parts:
            break
    return best


def map_parts(block: str, geometry: Geometry, library: Library, progress: Callable[[float], None],
              ) -> tuple[Netlist, dict[str, Netlist], dict[str, str]]:
    """Map a large block in parts: what is left of itself, each module in it, and the module of each instance."""
    text, _ = readable_verilog(block, geometry)
    glue, _, parts, children = _map_in_parts(block, text, library, lambda count, total: progress(count / (total + 1)))
    return glue, parts, children


def _map_in_parts(block: str, text: str, library: Library, progress: Callable[[int, int], None],
                  ) -> tuple[Netlist, Timing, dict[str, Netlist], dict[str, str]]:
    texts = modules(text)
    children = instances(texts[block], texts)
    kinds = sorted(set(children.values()))
    parts = {}
    for count, kind in enumerate(kinds, 1):
        parts[kind] = _map_module(with_children(texts, kind), kind, library)[0]
        progress(count, len(kinds))
    return *_map_module(text, block, library, parts), parts, children


def _compose(block: str, text: str, library: Library, fpga: bool, progress: Progress,
             memories: tuple[MemoryUse, ...], memory_gates: float) -> BlockArea:
    texts = modules(text)
    glue, timing, parts, children = _map_in_parts(
        block, text, library, lambda count, total: progress(block, count / (total + 3)))
    kinds = list(parts)
    counts = {kind: sum(module == kind for module in children.values()) for kind in kinds}
    netlist_counts = [(glue, 1), *((parts[kind], counts[kind]) for kind in kinds)]
    silicon = Silicon(sum(netlist.gate_equivalents() * count for netlist, count in netlist_counts),
                      sum(netlist.gate_equivalents(flip_flops=False) * count for netlist, count in netlist_counts),
                      library.gate_delay[0], timing)
    shares = {kind: Part(counts[kind], parts[kind].gate_equivalents()) for kind in kinds}
    shares["wiring, counters"] = Part(1, glue.gate_equivalents())
    fpga_sum = None
    if fpga:
        pieces = [(ecp5.count(with_children(texts, kind), kind), counts[kind]) for kind in kinds]
        pieces.append((ecp5.count(text, block, tuple(kinds)), 1))
        fpga_sum = ecp5.Fpga(*(sum(getattr(piece, name) * count for piece, count in pieces)
                               for name in ("luts", "flip_flops", "block_rams")), None, "sum of its parts")
    progress(block, 1.0)
    return BlockArea(block, memories, memory_gates,
                     sum(netlist.flip_flops * count for netlist, count in netlist_counts),
                     sum(netlist.clock_gates * count for netlist, count in netlist_counts), silicon, fpga_sum, shares)
