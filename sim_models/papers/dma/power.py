"""Figure 15 of the DMA collectives paper: power of an all-gather by engines and by kernels.

Power of a GPU by its dies is an estimate from energies per bit and what is occupied.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import product

from t3sim.analytic.rings import kernel_collective_ns
from t3sim.event.flow.commands import POSSIBLE
from t3sim.event.flow.dma import DmaRun, run_collective
from t3sim.machine import Machine, load_machine
from t3sim.machine.levels import ENGINES
from t3sim.papers.figure import Figure, Findings, Quantities, Results, Scope, Table

_MB = 1 << 20
_SIZES = [1 << bits for bits in range(26, 33)]  # 64 MB to 4 GB


@dataclass(frozen=True)
class Watts:
    """Mean power of one GPU."""

    compute: float  #: compute dies
    io: float  #: links, caches, memory controllers, DMA engines
    memory: float

    @property
    def total(self) -> float:
        return self.compute + self.io + self.memory


def engine_watts(node: Machine, run: DmaRun) -> Watts:
    """Return the power while DMA engines run a collective.

    They read each source, and what goes over a link is written.
    """
    return _watts(node, run.ns, run.link_bytes, memory_bytes=run.read_bytes + run.link_bytes, compute_bytes=0.0,
                  engine_bytes=run.read_bytes + run.link_bytes, compute_units=0)


def kernel_watts(node: Machine, size_bytes: float) -> Watts:
    """Return the power while kernels run an all-gather or all-to-all.

    What arrives goes through a buffer of their library, from which it is copied to where it belongs (DMA collectives
    paper, sections 5.4 and 6.4).
    """
    link_bytes = size_bytes * (node.gpus - 1)
    return _watts(node, kernel_collective_ns(node, size_bytes), link_bytes, memory_bytes=4 * link_bytes,
                  compute_bytes=4 * link_bytes, engine_bytes=0.0, compute_units=node.kernel.compute_units)


def _watts(node: Machine, ns: float, link_bytes: float, memory_bytes: float, compute_bytes: float, engine_bytes: float,
           compute_units: int) -> Watts:
    """Return the power of one GPU; bytes are those of all."""
    power = node.power

    def traffic_w(size_bytes: float, pj_per_bit: float) -> float:
        return 8e-3 * pj_per_bit * size_bytes / node.gpus / ns  # 1 pJ/ns is 1 mW

    return Watts(
        compute=(power.compute_idle_w + compute_units * power.compute_unit_w
                 + traffic_w(compute_bytes, power.compute_pj_per_bit)),
        io=(power.io_idle_w + traffic_w(link_bytes, power.link_pj_per_bit)
            + traffic_w(engine_bytes, power.engine_pj_per_bit)),
        memory=power.memory_idle_w + traffic_w(memory_bytes, power.memory_pj_per_bit))


@cache
def run_once(node: Machine, collective: str, variant: str, size: int, initiator: str) -> DmaRun:
    return run_collective(node, collective, variant, size, initiator)


def _fastest(size: int) -> DmaRun:
    """Return the run of the fastest variant, which does not depend on power."""
    node = load_machine("mi300x", ENGINES)
    runs = [run_once(node, "ag", variant, size, initiator)
            for variant in POSSIBLE["ag"] for initiator in ("host", "poll")]
    return min(runs, key=lambda run: run.ns)


def _ratios(node: Machine, sizes: list[int]) -> dict[str, float]:
    pairs = [(engine_watts(node, _fastest(size)), kernel_watts(node, size)) for size in sizes]
    return {"power_lower_percent": 100 * sum(1 - a.total / b.total for a, b in pairs) / len(pairs),
            "compute_share_percent": 100 * sum(a.compute / b.compute for a, b in pairs) / len(pairs)}


def _with_inputs(node: Machine, inputs: Mapping[str, float]) -> Machine:
    """Return a node with other inputs of the estimate, those of `PowerRange`, and the same power at rest in all."""
    power, inputs = node.power, dict(inputs)
    if (units := inputs.pop("kernel_units", None)) is not None:
        node = node.changed(kernel=dict(compute_units=units))
    if (share := inputs.pop("compute_idle_share", None)) is not None:
        idle_w = power.compute_idle_w + power.io_idle_w + power.memory_idle_w
        rest = (1 - share) * idle_w / (power.io_idle_w + power.memory_idle_w)
        inputs |= {"compute_idle_w": share * idle_w, "io_idle_w": rest * power.io_idle_w,
                   "memory_idle_w": rest * power.memory_idle_w}
    return node.changed(power=inputs)


def _default_input(node: Machine, name: str) -> float:
    """Return what the estimate takes for an input."""
    power = node.power
    if name == "kernel_units":
        return node.kernel.compute_units
    if name == "compute_idle_share":
        return power.compute_idle_w / (power.compute_idle_w + power.io_idle_w + power.memory_idle_w)
    return getattr(power, name)


def engine_watt_savings(node: Machine, engine_w: float = 0.0) -> tuple[float, float]:
    """Return the power of prelaunched b2b and bcst below that of one engine per copy, percent, mean over sizes.

    `engine_w`: what an engine takes while it is awake.
    """
    def watts(variant: str, size: int) -> float:
        run = run_once(node, "ag", variant, size, "poll")
        return engine_watts(node, run).total + engine_w * run.engines / node.gpus

    def below(variant: str, sizes: list[int]) -> float:
        ratios = [watts(variant, size) / watts("pcpy", size) for size in sizes]
        return 100 * (1 - sum(ratios) / len(ratios))
    return below("b2b", [1 << bits for bits in (14, 15, 16)]), below("bcst", [2 * _MB << step for step in range(5)])


def evaluate(setup: Scope, results: Results) -> Findings:
    node = load_machine("mi300x", ENGINES)
    ours, ratios = Quantities(), _ratios(node, _SIZES)
    ours.add("power_lower_percent", ratios["power_lower_percent"], "%", "power saved by engines, from 64 MB", 32, "5.4",
             10)
    ours.add("compute_share_percent", ratios["compute_share_percent"], "%",
             "compute dies' power, share of that with kernels", 100 / 3.7, "5.4", 10)
    input_ranges = node.power.range.model_dump()
    ratio_samples = [_ratios(_with_inputs(node, dict(zip(input_ranges, case))), _SIZES[:1])
                     for case in product(*input_ranges.values())]
    input_rows = []
    for name, ends in input_ranges.items():
        low, high = (_ratios(_with_inputs(node, {name: end}), _SIZES[:1]) for end in ends)
        input_rows.append((name, *(f"{value:g}" for value in (ends[0], round(_default_input(node, name), 2), ends[1])),
                           *(f"{low[key]:.0f} to {high[key]:.0f} %" for key in low)))
    ranges = {key: (min(sample[key] for sample in ratio_samples), max(sample[key] for sample in ratio_samples))
              for key in ratios}
    back_to_back, broadcast = engine_watt_savings(node)
    ours.add("b2b_lower_percent", back_to_back, "%", "prelaunch-b2b below prelaunch-pcpy, 16 to 64 KB", 3.5, "5.4", 2.5)
    ours.add("bcst_lower_percent", broadcast, "%", "prelaunch-bcst below prelaunch-pcpy, 2 to 32 MB", 7.5, "5.4", 2.5)
    rows = []
    for size in _SIZES:
        for title, watts in (("engines", engine_watts(node, _fastest(size))), ("kernels", kernel_watts(node, size))):
            rows.append((f"{size // _MB} MB, {title}", f"{watts.compute:.0f}", f"{watts.io:.0f}", f"{watts.memory:.0f}",
                         f"{watts.total:.0f}"))
    return Findings(
        text=f"This is an estimate: from 64 MB DMA engines take {ours['power_lower_percent']:.0f} % less power than "
             f"kernels, and the compute dies take {100 / ours['compute_share_percent']:.1f} times less. Energies per "
             "bit are published values of other chips. The division of idle power among the dies and the number of "
             "compute units that the library's kernels occupy are not published. Each input has a smallest and a "
             "largest value, with a source; the ranges cover all combinations of these at 64 MB. The power that a DMA "
             "engine takes in addition to its data is not published either, so fewer engines save nothing here.",
        ours=ours, ranges=ranges,
        tables=[Table("Uncertain inputs, one at a time, 64 MB", (
            "input", "smallest", "default", "largest", "power saved",
            "compute dies' power, share of that with kernels"), input_rows),
                Table("Power of one GPU (W)", ("all-gather", "compute dies", "I/O dies", "memory", "all"), rows,
                      folded=True)])


POWER = Figure("dma-power", "Power of an all-gather (figure 15)", lambda setup: (), evaluate, short="power",
               paper="dma")
