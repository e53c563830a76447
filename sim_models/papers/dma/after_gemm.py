"""Figure 16 of the DMA collectives paper: a GEMM, then an all-gather of what it made, the host between them."""

from t3sim.analytic.rings import kernel_collective_ns
from t3sim.event.flow.commands import POSSIBLE
from t3sim.event.flow.dma import run_collective
from t3sim.machine import Machine, load_machine
from t3sim.machine.levels import ENGINES
from t3sim.papers.figure import Figure, Findings, Results, Scope, Table
from t3sim.papers.paper import Target

_MB = 1 << 20
#: Extents of the square GEMMs, and sizes of the all-gather; the paper names its cases this way, but not in its text.
_EXTENTS = (1024, 4096, 8192)
_SIZES = [1 << bits for bits in range(18, 29)]  # 256 KB to 256 MB


def gemm_ns(node: Machine, extent: int) -> float:
    """Return the time of a square GEMM."""
    return 2e-3 * extent**3 / node.stream.gemm_tflop_per_s


def with_kernels_ns(node: Machine, extent: int, size_bytes: float) -> float:
    """Return the time from the GEMM's start until the host sees the end of an all-gather by kernels.

    The all-gather follows the GEMM in its stream.
    """
    return gemm_ns(node, extent) + kernel_collective_ns(node, size_bytes) + node.stream.signal_ns + node.host.observe_ns


def with_engines_ns(node: Machine, extent: int, size_bytes: float) -> float:
    """Return the time from the GEMM's start until the host sees the end of an all-gather by DMA engines.

    It takes the best prelaunched variant: the stream signals, the host sees it and sets the flags that the engines
    poll.
    """
    gather_ns = min(run_collective(node, "ag", variant, size_bytes, "poll").ns for variant in POSSIBLE["ag"])
    return gemm_ns(node, extent) + node.stream.signal_ns + node.host.observe_ns + gather_ns


def evaluate(setup: Scope, results: Results) -> Findings:
    node, rows, ratios = load_machine("mi300x", ENGINES), [], {}
    for extent in _EXTENTS:
        for size in _SIZES:
            kernels, engines = with_kernels_ns(node, extent, size), with_engines_ns(node, extent, size)
            ratios[extent, size] = kernels / engines
            rows.append((f"g{extent}_c{size / _MB:g}M", f"{kernels / 1e3:,.1f}", f"{engines / 1e3:,.1f}",
                         f"{kernels / engines:.3f}"))
    large = [ratio for (_, size), ratio in ratios.items() if size > 4 * _MB]
    return Findings(
        text=f"Above 4 MB a GEMM and the all-gather of its output end {100 * (min(large) - 1):+.1f} % to "
             f"{100 * (max(large) - 1):+.1f} % sooner with DMA engines, though the host must see the GEMM's signal and "
             "set the engines' flags between them.",
        ours={"least_speedup_above_4_mb": min(large), "least_speedup": min(ratios.values())},
        targets={"least_speedup_above_4_mb": Target("GEMM and all-gather by engines, above 4 MB", "x", None, "5.5",
                                                    at_least=1)},
        tables=[Table("Time (µs)", ("case", "kernels", "DMA engines", "speedup"), rows, folded=True)])


AFTER_GEMM = Figure("gemm-all-gather", "A GEMM, then an all-gather (figure 16)", lambda setup: (), evaluate,
                    short="after a GEMM", paper="dma")
