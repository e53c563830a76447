"""A block from its Verilog to a layout, and what wires, clock tree and rows add to what synthesis says."""

import json
import shutil
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from t3sim.area.liberty import Library
from t3sim.area.measure import COMPOSED, map_block
from t3sim.area.route import clock_tree, files, parasitics, placement, router, rows
from t3sim.area.route.design import GATE, Design, make_design
from t3sim.area.route.lef import UNITS_PER_UM, Technology, load_lef
from t3sim.area.route.picture import draw
from t3sim.area.route.tools import Tools
from t3sim.area.timing import analyse_routed
from t3sim.base.cache import cached, digest
from t3sim.base.errors import BadInput, Failure
from t3sim.rtl.geometry import Geometry

#: What `all` means: blocks that have room for their pins around them, and the two kinds of lanes of the near-memory
#: ALU, which is too large in one piece; minutes at most, the slowest first.
BLOCKS = ("nmc_alu.low0", "nmc_alu.high0", "command_queue", "dma_table", "coalescer", "intensity_monitor",
          "head_exchange", "ready_table", "order_guard", "watchdog", "arbiter", "ring_monitor", "memory_codec")
#: How full rows are: the first with which every net finds a way and is whole.
UTILISATIONS = (0.8, 0.65)
_LAYOUT = 4  #: raised when the steps change, so that old layouts of the cache are not taken


@dataclass(frozen=True)
class Routed:
    """A block's layout in figures; areas of the library's process."""

    block: str
    gate_equivalents: float  #: as mapped
    gates_um2: float  #: the area of as many NAND2
    cells: int  #: placed, fill not counted
    clock_buffers: int  #: and gates
    clock_levels: int
    pins: int
    utilisation: float  #: of the rows
    core_um2: float  #: of all rows
    width_um: float  #: of the die, with the pins' ways
    height_um: float
    wires_um: float
    vias: int
    wires_pf: float
    before_ns: float  #: the cycle as mapped, without wires and with an ideal clock
    after_ns: float  #: with wires and clock tree
    skew_ns: float
    latency_ns: float  #: the longest, from the clock's port to a flip-flop
    start: str  #: of the longest path after routing
    end: str

    @property
    def delay_factor(self) -> float:
        return self.after_ns / self.before_ns

    @property
    def area_factor(self) -> float:
        return self.core_um2 / self.gates_um2

    def to_json(self) -> dict:
        found = {name: round(value, 4) if isinstance(value, float) else value for name, value in asdict(self).items()}
        return found | {"before_mhz": round(1e3 / self.before_ns, 1), "after_mhz": round(1e3 / self.after_ns, 1),
                        "delay_factor": round(self.delay_factor, 4), "area_factor": round(self.area_factor, 4)}


@dataclass(frozen=True)
class Factors:
    """Ratios of layouts to synthesis, over blocks: the median, the least and the most."""

    blocks: int
    delay: float
    delay_least: float
    delay_most: float
    area: float
    area_least: float
    area_most: float


def factors(found: Sequence[Routed]) -> Factors:
    delays, areas = [one.delay_factor for one in found], [one.area_factor for one in found]
    return Factors(len(found), statistics.median(delays), min(delays), max(delays), statistics.median(areas),
                   min(areas), max(areas))


def check_blocks(blocks: Sequence[str]) -> None:
    """Refuse what is too large for one piece. Raises BadInput."""
    for block in blocks:
        if block in (*COMPOSED, "all"):
            raise BadInput(f"{block} is too large for one layout: allowed are its parts, such as "
                           f"{', '.join(BLOCKS[:2])}")


def _wires(texts: Sequence[str], design: Design, technology: Technology,
           plan: rows.Floorplan) -> tuple[str, dict[int, parasitics.Net]]:
    """Extract the first of these layouts in which every net is whole. Raises Failure."""
    for text in texts:
        try:
            return text, parasitics.extract(design, technology, plan, parasitics.read_wires(text, technology))
        except Failure as failure:
            last = failure
    raise last


def route_block(block: str, geometry: Geometry, library: Library, tools: Tools,
                progress: Callable[[float], None] = lambda fraction: None) -> tuple[Routed, Path]:
    """Place and route a block; return its figures and the folder of its files, from the cache if nothing changed."""
    netlist, timing = map_block(block, geometry, library)
    progress(0.05)
    technology = load_lef(tools.lef)

    def make(folder: Path) -> None:
        work = folder / "work"
        work.mkdir()
        design = make_design(netlist)
        placed = placement.place(design, technology, tools)
        progress(0.4)
        levels = clock_tree.grow_clock_tree(design, placed)
        for place, utilisation in enumerate(UTILISATIONS):
            plan = rows.floorplan(design, technology, placed, utilisation)
            try:
                text, nets = _wires(router.route(design, technology, plan, tools, work), design, technology, plan)
                break
            except Failure:
                if place == len(UTILISATIONS) - 1:
                    raise
            progress(0.4 + 0.2 * (place + 1))
        routed = analyse_routed(design.netlist, parasitics.wires_of(nets))
        area = netlist.gate_equivalents() * library.nand2.area
        core = plan.core_width * plan.core_height / UNITS_PER_UM**2
        figures = Routed(
            block, round(netlist.gate_equivalents(), 1), area, len(design.cells),
            sum(name.startswith("clock_") for name in design.cells), levels, len(plan.pins),
            plan.cell_area / (plan.core_width * plan.core_height), core, plan.width / UNITS_PER_UM,
            plan.height / UNITS_PER_UM, sum(one.length_um for one in nets.values()),
            sum(one.vias for one in nets.values()), sum(one.total_pf for one in nets.values()), timing.period_ns,
            routed.period_ns, routed.skew_ns, max(routed.latencies_ns, default=0.0), routed.path.start,
            routed.path.end)
        title = (f"{block}: {figures.width_um:.0f} x {figures.height_um:.0f} µm in 180 nm, "
                 f"{1e3 / figures.after_ns:.0f} MHz, {figures.wires_um / 1e3:.1f} mm of wire")
        contents = {"def": text, "lef": files.write_lef(design, technology, plan), "v": files.write_netlist(design),
                    "spef": files.write_spef(design, nets), "sdf": files.write_sdf(design, nets, routed),
                    "json": json.dumps(asdict(figures))}
        for ending, content in contents.items():
            (folder / f"{block}.{ending}").write_text(content)
        (folder / f"{block}.png").write_bytes(draw(text, technology, title))
        shutil.rmtree(work)

    key = digest(json.dumps(netlist.module, sort_keys=True), library.text, tools.versions, str(_LAYOUT),
                 repr((UTILISATIONS, clock_tree.MOST_ENDS, clock_tree.MOST_GATED, rows.MARGIN_TRACKS, GATE)))
    folder = cached(f"layout-{key}", make)
    progress(1.0)
    return Routed(**json.loads((folder / f"{block}.json").read_text())), folder


