"""Figure 15 of the DMA collectives paper: power of an all-gather by engines and by kernels. An estimate."""

from itertools import product

from t3sim.flow.commands import POSSIBLE
from t3sim.flow.dma import run_collective
from t3sim.flow.power import Watts, engine_watts, kernel_watts
from t3sim.machine.engines import Node
from t3sim.machine.levels import load_engines
from t3sim.reproduce.figure import Figure, Findings, Results, Setup, Table
from t3sim.reproduce.paper import Target

_MB = 1 << 20
_SIZES = [1 << bits for bits in range(26, 33)]  # 64 MB to 4 GB
#: What is not known of the inputs: compute dies' share of the power at rest, and compute units that a kernel occupies.
_IDLE_SHARES, _UNITS = (0.1, 0.3), (28, 112)


def _best(node: Node, size: int) -> Watts:
    """Return the power of the fastest variant."""
    runs = [run_collective(node, "ag", variant, size, initiator)
            for variant in POSSIBLE["ag"] for initiator in ("host", "poll")]
    return engine_watts(node, min(runs, key=lambda run: run.ns))


def _ratios(node: Node, sizes: list[int]) -> dict[str, float]:
    pairs = [(_best(node, size), kernel_watts(node, size)) for size in sizes]
    return {"power_lower_percent": 100 * sum(1 - a.total / b.total for a, b in pairs) / len(pairs),
            "compute_share_percent": 100 * sum(a.compute / b.compute for a, b in pairs) / len(pairs)}


def _varied(node: Node, idle_share: float, units: int) -> Node:
    """Return a node with the same power at rest, shared otherwise."""
    power, whole = node.power, node.power.compute_idle_w + node.power.io_idle_w + node.power.memory_idle_w
    rest = (1 - idle_share) * whole / (power.io_idle_w + power.memory_idle_w)
    return node.model_copy(update={
        "kernel": node.kernel.model_copy(update={"compute_units": units}),
        "power": power.model_copy(update={"compute_idle_w": idle_share * whole, "io_idle_w": rest * power.io_idle_w,
                                          "memory_idle_w": rest * power.memory_idle_w})})


def _below_pcpy(node: Node, variant: str, sizes: list[int]) -> float:
    """Return the power of a prelaunched variant below that of one engine per copy, percent, mean over sizes."""
    ratios = [_prelaunched(node, variant, size).total / _prelaunched(node, "pcpy", size).total for size in sizes]
    return 100 * (1 - sum(ratios) / len(ratios))


def _prelaunched(node: Node, variant: str, size: int) -> Watts:
    return engine_watts(node, run_collective(node, "ag", variant, size, "poll"))


def evaluate(setup: Setup, results: Results) -> Findings:
    node = load_engines("mi300x")
    ours = _ratios(node, _SIZES)
    varied = [_ratios(_varied(node, *case), _SIZES[:1]) for case in product(_IDLE_SHARES, _UNITS)]
    ranges = {key: (min(one[key] for one in varied), max(one[key] for one in varied)) for key in ours}
    ours |= {"b2b_lower_percent": _below_pcpy(node, "b2b", [16 << 10, 32 << 10, 64 << 10]),
             "bcst_lower_percent": _below_pcpy(node, "bcst", [2 * _MB, 4 * _MB, 8 * _MB, 16 * _MB, 32 * _MB])}
    rows = []
    for size in _SIZES:
        for title, watts in (("engines", _best(node, size)), ("kernels", kernel_watts(node, size))):
            rows.append((f"{size // _MB} MB, {title}", f"{watts.compute:.0f}", f"{watts.io:.0f}", f"{watts.memory:.0f}",
                         f"{watts.total:.0f}"))
    return Findings(
        text=f"An estimate: DMA engines take {ours['power_lower_percent']:.0f} % less power than kernels from 64 MB, "
             f"and their compute dies {100 / ours['compute_share_percent']:.1f} times less. Energies per bit are "
             "published ones of other chips; how power at rest is shared by dies, and how many compute units the "
             "library's kernels occupy, is not published: the ranges are over a tenth to three tenths of it, and 28 to "
             "112 units. What a DMA engine draws beyond its data is not published either: fewer engines save nothing.",
        ours=ours, ranges=ranges, targets={
            "power_lower_percent": Target("power of engines lower, from 64 MB", "%", 32, "5.4", 10),
            "compute_share_percent": Target("compute dies' power, of that with kernels", "%", 100 / 3.7, "5.4", 10),
            "b2b_lower_percent": Target("prelaunch-b2b below prelaunch-pcpy, 16 to 64 KB", "%", 3.5, "5.4", 2.5),
            "bcst_lower_percent": Target("prelaunch-bcst below prelaunch-pcpy, 2 to 32 MB", "%", 7.5, "5.4", 2.5)},
        tables=[Table("Power of one GPU (W)", ("all-gather", "compute dies", "I/O dies", "memory", "all"), rows,
                      folded=True)])


POWER = Figure("dma-power", "Power of an all-gather (figure 15)", lambda setup: (), evaluate, short="power",
               paper="dma")
