"""Energy as tables for people, and as the page `docs/results/energy.md`."""

from collections.abc import Sequence

from rich.console import Console

from t3sim.area.energy.measured import TECHNIQUE, LayerEnergy, ModuleEnergy
from t3sim.area.energy.price import NOTHING, SHRINK_ERROR, TREE_PER_FLIP_FLOP, WIRES_OVER_PINS, Range, shrink
from t3sim.area.energy.recorded import BATCH, SAMPLED
from t3sim.area.liberty import Library
from t3sim.area.measure import TOP
from t3sim.area.node import ProcessNode
from t3sim.area.report import Section, page
from t3sim.base.console import print_table
from t3sim.rtl.geometry import Geometry

_MOST_ROWS = 12
_RANGE = ("low", "typical", "high")


def _figures(value: Range, scale: float = 1.0) -> tuple[str, ...]:
    return tuple(_number(bound * scale) for bound in vars(value).values())


def _number(value: float) -> str:
    """Write three digits that mean something."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}" if value else "0"


def sections(energy: LayerEnergy) -> list[Section]:
    """Return (title, columns, rows), for a terminal as for Markdown."""
    shares = energy.shares
    total_pj = sum((pj.typical for name, pj in shares.items()), 0.0)
    return [
        ("The layer on a GPU", ("where", *(f"{name}\nmJ" for name in _RANGE), "share of\ntypical"), [
            (name, *_figures(pj, 1e-9), f"{pj.typical / total_pj:.2%}") for name, pj in shares.items()]),
        ("Energy of an action", ("action", "number", *(f"{name}\npJ" for name in _RANGE)), [
            (name, f"{count:,}", *_figures(pj)) for name, (count, pj) in energy.actions.items()]),
        _power(energy),
        _classes(energy),
    ]


def _largest_first(energy: LayerEnergy) -> list[tuple[str, ModuleEnergy]]:
    return sorted(energy.modules.items(), key=lambda item: -item[1].pj.typical)


def _power(energy: LayerEnergy) -> Section:
    rows = []
    for name, module in _largest_first(energy)[:_MOST_ROWS]:
        title = "wiring, counters" if name == TOP else name
        rows.append((title, str(module.instances), f"{100 * module.changes:.3g}", f"{module.clocked_share:.1%}",
                     *_figures(energy.milliwatts(module.pj))))
    small_modules = [module for _, module in _largest_first(energy)[_MOST_ROWS:]]
    if small_modules:
        rows.append((f"{len(small_modules)} others", str(sum(module.instances for module in small_modules)), "", "",
                     *_figures(energy.milliwatts(sum((module.pj for module in small_modules), NOTHING)))))
    rows.append(("the top", "1", "", "", *_figures(energy.milliwatts(energy.top_pj))))
    return ("Power of the top", ("module", "instances", "changes of a net\nin 100 cycles", "flip-flops\nclocked",
                                 *(f"{name}\nmW" for name in _RANGE)), rows)


def _classes(energy: LayerEnergy) -> Section:
    total_pj = energy.top_pj.typical
    return ("Power of the top by part", ("part", *(f"{name}\nmW" for name in _RANGE), "share of\ntypical"), [
        (kind, *_figures(energy.milliwatts(pj)), f"{pj.typical / total_pj:.1%}")
        for kind, pj in energy.by_class.items()])


def remarks(energy: LayerEnergy, library: Library, node: ProcessNode) -> list[str]:
    """Say what the figures are."""
    wires = " to ".join(f"{share:g}" for share in (WIRES_OVER_PINS.low, WIRES_OVER_PINS.high))
    end = "the whole fused kernel" if energy.whole else "the first part of the fused kernel"
    cells = f"{SHRINK_ERROR.low:.2f} to {SHRINK_ERROR.high:.2f}"
    return list(map(" ".join, (
        (f"Run: {energy.layer}, machine {energy.machine}, {TECHNIQUE}; {end}, {energy.cycles:,} cycles at",
         f"{energy.clock_ghz:g} GHz, one GPU, without the all-gather."),
        ("Activity: the recorded ports of every instance drive its mapped netlist, whose outputs must equal the RTL's",
         "in every cycle. Every change of a net, gated clock edge and memory access is counted."),
        (f"Energy: the library's pins, internal energy and leakage ({library.name}, {library.volts:g} V), divided by",
         f"{1 / shrink(library, node):.0f} for {node.name} at {node.volts:g} V, because capacitance scales with the",
         "side of a NAND2 and energy with the square of the voltage. By single cells of both libraries the energy is",
         f"{cells} times that, which is the range."),
        (f"Wires: {WIRES_OVER_PINS.typical:g} times the pins' capacitance, {wires} in the range",
         f"(docs/results/area-routed.md). Clock tree: {TREE_PER_FLIP_FLOP:g} buffers per flip-flop. Low: the tree is",
         "gated with the flip-flops. High: it always runs. Typical: only the inputs of its buffers do."),
        (f"Glitches are measured in {SAMPLED} of {BATCH:,} cycles, with one delay for all gates: the high figure",
         "includes all of them, the typical one half, the low one none."),
        ("Memories: the macro model of `t3 area`. The low figure scales a read to an ASAP7 macro's, and leaves out",
         "repeated reads of a word. Leakage: at 25 °C, of cells only."),
        ("Energy of an action: all energy of the modules that take part, over the whole run, divided by the number of",
         "actions. It includes their clocks and other reads."),
        ("Matrix units: a card's power limit over its peak rate, DRAM included, of an A100 (low) and a V100 (typical);",
         "high: a V100 at its limit for the whole kernel. DRAM: HBM (low) and HBM2. Link: NVLink-C2C (low), a serial",
         "link (typical), a link across a board (high). Sources: `sim_models/area/energy/measured.py`."),
        (f"The near-memory ALUs are in the memory and add {energy.reduced_bytes / 1e6:,.0f} MB of fp16 sums. Their",
         "row includes the cycles in which they wait. DRAM's energy for these sums is in DRAM's row."),
    )))


def headline(energy: LayerEnergy) -> str:
    top = energy.milliwatts(energy.top_pj)
    shares = energy.shares
    total_pj = sum(pj.typical for pj in shares.values())
    share = (shares["Track & Trigger"].typical + shares["near-memory ALUs"].typical) / total_pj
    return (f"Track & Trigger takes {_number(top.typical)} mW ({_number(top.low)} to {_number(top.high)}) a GPU, and "
            f"with its near-memory ALUs {share:.2%} of the layer's energy.")


def print_energy(energy: LayerEnergy, library: Library, node: ProcessNode, console: Console) -> None:
    for title, columns, rows in sections(energy):
        print_table(title, columns, rows, console)
    for remark in remarks(energy, library, node):
        console.print(remark, style="dim", highlight=False)
    console.print(headline(energy), highlight=False)


def markdown(energy: LayerEnergy, geometry: Geometry, library: Library, node: ProcessNode,
             command: Sequence[str]) -> str:
    """Write the page."""
    return page("Energy", " ".join(command), geometry, [headline(energy), *remarks(energy, library, node)],
                sections(energy))
