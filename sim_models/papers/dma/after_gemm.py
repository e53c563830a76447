"""Figure 16 of the DMA collectives paper: a GEMM, then an all-gather of what it made, the host between them."""

from t3sim.machine import load_machine
from t3sim.machine.levels import ENGINES
from t3sim.papers.dma.gemm_then_gather import with_engines_ns, with_kernels_ns
from t3sim.papers.figure import Figure, Findings, Results, Setup, Table
from t3sim.papers.paper import Target

_MB = 1 << 20
#: Extents of the square GEMMs, and sizes of the all-gather; the paper names its cases this way, but not in its text.
_EXTENTS = (1024, 4096, 8192)
_SIZES = [1 << bits for bits in range(18, 29)]  # 256 KB to 256 MB


def evaluate(setup: Setup, results: Results) -> Findings:
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
