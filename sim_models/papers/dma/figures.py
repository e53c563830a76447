"""Figures 6, 13, 14 and 16 and tables 1 and 2 of the DMA collectives paper, and copies as others measured them."""

from t3sim.analytic.rings import kernel_collective_ns
from t3sim.base import plots
from t3sim.base.csv_rows import csv_rows
from t3sim.event.flow.commands import POSSIBLE, Command, Queue
from t3sim.event.flow.dma import PHASES, run_collective, run_queues
from t3sim.machine import Machine, load_machine
from t3sim.machine.levels import ENGINES
from t3sim.papers.figure import Figure, Findings, Quantities, Results, Scope, Table
from t3sim.papers.paper import geomean

# Figures 6, 13 and 14 and tables 1 and 2: phases of a copy, variants over sizes.

_KB, _MB, _GB = 1 << 10, 1 << 20, 1 << 30
_SIZES = [1 << bits for bits in range(10, 33)]  # 1 KB to 4 GB

#: Largest size (bytes) up to which each variant is the fastest (tables 1 and 2).
_FASTEST = {"ag": (("prelaunch-b2b", 256 * _KB), ("prelaunch-bcst", _MB), ("prelaunch-pcpy", 512 * _MB)),
            "a2a": (("prelaunch-b2b", 64 * _KB), ("prelaunch-swap", 4 * _MB), ("prelaunch-pcpy", _GB))}
_TITLES = {"ag": "all-gather", "a2a": "all-to-all"}


def evaluate_figure6(setup: Scope, results: Results) -> Findings:
    node, rows, ours = load_machine("mi300x", ENGINES), [], Quantities()
    for size in (4 * _KB, 64 * _KB, _MB, 2 * _MB):
        run = run_queues(node, [Queue(0, (Command(0, (1,)),))], size)
        shares = {name: 100 * run.phases_ns[name] / run.ns for name in PHASES}
        rows.append((f"{size // _KB} KB", f"{run.ns / 1e3:.2f}", *(f"{shares[name]:.0f} %" for name in PHASES)))
        if size == 4 * _KB:
            ours.add("not_copying_4k_percent", 100 - shares["copy"], "%", "not copying, 4 KB", 60, "3.3", 5)
            ours.add("control_schedule_4k_percent", shares["control"] + shares["schedule"], "%",
                     "control and schedule, 4 KB", section="4.1.1", at_least=10, at_most=40)
        if size == 2 * _MB:
            ours.add("not_copying_2m_percent", 100 - shares["copy"], "%", "not copying, 2 MB", section="3.3",
                     at_most=20)
    return Findings(
        text=f"A copy of 4 KB spends {ours['not_copying_4k_percent']:.0f} % of its time in other phases than the copy "
             f"itself, a copy of 2 MB {ours['not_copying_2m_percent']:.0f} %. Three constants of the model were "
             "derived from these statements of the paper, so only the other figures test the model.",
        ours=ours,
        tables=[Table("Phases of one copy", ("size", "time (µs)", *PHASES), rows)])


def _times(collective: str) -> dict[str, dict[int, float]]:
    """Return times by variant and size, kernels on compute units among them."""
    node = load_machine("mi300x", ENGINES)
    times = {"kernels": {size: kernel_collective_ns(node, size) for size in _SIZES}}
    for variant in POSSIBLE[collective]:
        for initiator, prefix in (("host", ""), ("poll", "prelaunch-")):
            times[prefix + variant] = {size: run_collective(node, collective, variant, size, initiator).ns
                                       for size in _SIZES}
    return times


def _evaluate(collective: str, numbers: dict[str, float]) -> Findings:
    """Evaluate the figures; `numbers`: the paper's speed factors by key."""
    times, third_variant = _times(collective), "bcst" if collective == "ag" else "swap"

    def factor(slow, fast, low: int, high: int) -> float:
        """Return the geomean over sizes from `low` to below `high` of the best of `slow` over the best of `fast`."""
        return geomean(min(times[name][size] for name in slow) / min(times[name][size] for name in fast)
                       for size in _SIZES if low <= size < high)

    host = POSSIBLE[collective]
    engine_variants = [name for name in times if name != "kernels"]
    factors = {
        "pcpy_slower_small": factor(["pcpy"], ["kernels"], _KB, 32 * _MB),
        "pcpy_faster_large": factor(["kernels"], ["pcpy"], 64 * _MB, 8 * _GB),
        "other_over_pcpy": factor(["pcpy"], [third_variant], _KB, 8 * _MB),
        "gap_with_other": factor(["pcpy", third_variant], ["kernels"], _KB, 32 * _MB),
        "b2b_over_pcpy": factor(["pcpy"], ["b2b"], _KB, _MB),
        "b2b_over_other": factor([third_variant], ["b2b"], _KB, _MB),
        "other_over_b2b": factor(["b2b"], [third_variant], _MB, 8 * _MB),
        "gap_with_b2b": factor(host, ["kernels"], _KB, 32 * _MB),
        "prelaunch_pcpy": factor(["pcpy"], ["prelaunch-pcpy"], _KB, 8 * _GB),
        "prelaunch_other": factor([third_variant], [f"prelaunch-{third_variant}"], _KB, 8 * _GB),
        "prelaunch_b2b": factor(["b2b"], ["prelaunch-b2b"], _KB, 8 * _GB),
        "best_small": factor(["kernels"], engine_variants, _KB, 32 * _MB),
        "best_large": factor(["kernels"], engine_variants, 32 * _MB, 2 * _GB),
    }
    ours = Quantities()
    for key, value in factors.items():
        ours.add(key, value, "x", _WORDS[key].format(other=third_variant), numbers[key], "5.3",
                 round(0.25 * numbers[key], 2))
    for name, paper in _FASTEST[collective]:
        fastest = [size for size in _SIZES if min(engine_variants, key=lambda variant: times[variant][size]) == name]
        ours.add(f"fastest_until_{name.removeprefix('prelaunch-')}_mb", 2 * max(fastest, default=0) / _MB, "MB",
                 f"{name} fastest below", paper / _MB, "5.3.5", at_least=paper / _MB / 2, at_most=2 * paper / _MB)

    gain = 100 * (ours["best_small"] - 1)

    def draw():
        figure, axes = plots.figure(3.2)
        colours = dict(zip(host, (plots.BLUE, plots.ORANGE, plots.GREEN)))
        for variant in host:
            for prefix, style in (("", "--"), ("prelaunch-", "-")):
                variant_times = times[prefix + variant]
                axes.plot([size / _MB for size in _SIZES],
                          [times["kernels"][size] / variant_times[size] for size in _SIZES],
                          style, color=colours[variant], label=prefix + variant)
        axes.axhline(1, color=plots.BLACK, linewidth=0.8)
        plots.log_axis(axes, "x")
        tick_sizes = _SIZES[::3]
        axes.set_xticks([size / _MB for size in tick_sizes], [
            f"{size // _KB} KB" if size < _MB else f"{size // _MB} MB" if size < _GB else f"{size // _GB} GB"
            for size in tick_sizes])
        axes.set_xlabel("size of the buffer")
        axes.set_ylabel("speedup over kernels on compute units")
        figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=6)
        return figure

    rows = [(f"{size / _MB:g} MB", *(f"{by_size[size] / 1e3:,.1f}" for by_size in times.values())) for size in _SIZES]
    return Findings(
        text="Below 32 MB DMA engines with one engine per copy (pcpy) take "
             f"{ours['pcpy_slower_small']:.1f} times as long as kernels. With the best variant for each size they are "
             f"{abs(gain):.0f} % {'faster' if gain > 0 else 'slower'}. Times of kernels are computed from a library's "
             "published constants, with one hop between any two GPUs.",
        ours=ours, plots={f"dma-{collective}": draw},
        tables=[Table("Time (µs)", ("size", *times), rows, folded=True)])


_WORDS = {
    "pcpy_slower_small": "pcpy slower than kernels below 32 MB", "pcpy_faster_large": "pcpy faster above 32 MB",
    "other_over_pcpy": "{other} over pcpy up to 4 MB", "gap_with_other": "gap to kernels with {other}",
    "b2b_over_pcpy": "b2b over pcpy below 1 MB", "b2b_over_other": "b2b over {other} below 1 MB",
    "other_over_b2b": "{other} over b2b, 1 to 4 MB", "gap_with_b2b": "gap to kernels with b2b as well",
    "prelaunch_pcpy": "prelaunch makes pcpy faster", "prelaunch_other": "prelaunch makes {other} faster",
    "prelaunch_b2b": "prelaunch makes b2b faster", "best_small": "best variant over kernels below 32 MB",
    "best_large": "best variant over kernels, 32 MB to 1 GB"}

#: Section 5.3's speed factors, as ratios.
_ALL_GATHER = {
    "pcpy_slower_small": 4.5, "pcpy_faster_large": 1.14, "other_over_pcpy": 1.7, "gap_with_other": 3.0,
    "b2b_over_pcpy": 2.7, "b2b_over_other": 1.5, "other_over_b2b": 1.4, "gap_with_b2b": 2.3, "prelaunch_pcpy": 1.9,
    "prelaunch_other": 1.5, "prelaunch_b2b": 1.2, "best_small": 1 / 1.3, "best_large": 1.2}
_ALL_TO_ALL = {
    "pcpy_slower_small": 2.5, "pcpy_faster_large": 1.18, "other_over_pcpy": 1.7, "gap_with_other": 1.6,
    "b2b_over_pcpy": 2.5, "b2b_over_other": 1.4, "other_over_b2b": 1.7, "gap_with_b2b": 1.3, "prelaunch_pcpy": 1.9,
    "prelaunch_other": 1.5, "prelaunch_b2b": 1.2, "best_small": 1.2, "best_large": 1.2}

COPY = Figure("copy-phases", "Phases of one copy (figure 6)", lambda setup: (), evaluate_figure6, short="phases",
              paper="dma")
ALL_GATHER = Figure("dma-all-gather", "All-gather by DMA engines (figure 13, table 1)", lambda setup: (),
                    lambda setup, results: _evaluate("ag", _ALL_GATHER), short="all-gather", paper="dma")
ALL_TO_ALL = Figure("dma-all-to-all", "All-to-all by DMA engines (figure 14, table 2)", lambda setup: (),
                    lambda setup, results: _evaluate("a2a", _ALL_TO_ALL), short="all-to-all", paper="dma")


# Figure 16: a GEMM, then an all-gather of what it made, the host between them.

#: Extents of the square GEMMs, and sizes of the all-gather; the paper names its cases this way, but not in its text.
_EXTENTS = (1024, 4096, 8192)
_GATHER_SIZES = [1 << bits for bits in range(18, 29)]  # 256 KB to 256 MB


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


def evaluate_after_gemm(setup: Scope, results: Results) -> Findings:
    node, rows, ratios = load_machine("mi300x", ENGINES), [], {}
    for extent in _EXTENTS:
        for size in _GATHER_SIZES:
            kernels, engines = with_kernels_ns(node, extent, size), with_engines_ns(node, extent, size)
            ratios[extent, size] = kernels / engines
            rows.append((f"g{extent}_c{size / _MB:g}M", f"{kernels / 1e3:,.1f}", f"{engines / 1e3:,.1f}",
                         f"{kernels / engines:.3f}"))
    large = [ratio for (_, size), ratio in ratios.items() if size > 4 * _MB]
    ours = Quantities()
    ours.add("least_speedup_above_4_mb", min(large), "x", "GEMM and all-gather by engines, above 4 MB", section="5.5",
             at_least=1)
    ours["least_speedup"] = min(ratios.values())
    return Findings(
        text=f"Above 4 MB a GEMM and the all-gather of its output are {100 * (min(large) - 1):+.1f} % to "
             f"{100 * (max(large) - 1):+.1f} % faster with DMA engines than with kernels, although the host has to see "
             "the GEMM's signal and set the engines' flags in between.",
        ours=ours,
        tables=[Table("Time (µs)", ("case", "kernels", "DMA engines", "speedup"), rows, folded=True)])


AFTER_GEMM = Figure("gemm-all-gather", "A GEMM, then an all-gather (figure 16)", lambda setup: (), evaluate_after_gemm,
                    short="after a GEMM", paper="dma")


# Copies by one engine of an MI355X as others measured them, beside constants that were not taken from them.

def interval_ns(node: Machine, size_bytes: float) -> float:
    """Return the time from copy to copy in a queue that a kernel fills with copies of the same buffer."""
    few, many = (run_queues(node, [Queue(0, (Command(0, (1,), in_order=True),) * count)], size_bytes, "gpu").ns
                 for count in (10, 20))
    return (many - few) / 10


def evaluate_copies(setup: Scope, results: Results) -> Findings:
    node, rows, errors = load_machine("mi355x", ENGINES), [], []
    for row in csv_rows("t3sim.event.flow.measured", "sdma_copies"):
        size, measured_rate = int(row["bytes"]), float(row["gb_per_s"])
        ours = size / interval_ns(node, size)
        errors.append(100 * (ours / measured_rate - 1))
        rows.append((f"{size // _KB} KB", f"{measured_rate:.0f}", f"{ours:.1f}", f"{errors[-1]:+.1f} %"))
    round_trip_us = run_queues(node, [Queue(0, (Command(0, (1,)),))], _KB, "gpu").ns / 1e3
    small = Queue(0, (Command(0, (1,)),) * 64)
    scattered_us = run_queues(node, [small], 4 * _KB, "gpu").ns / 1e3
    worst = max(errors, key=abs)
    ours = Quantities()
    ours.add("copy_error_max_percent", abs(worst), "%", "copies on MI355X, largest error", at_most=10)
    ours.add("round_trip_us", round_trip_us, "µs", "copy of 1 KB started by a kernel, MI355X", 6, tolerance=0.6)
    ours.add("scattered_copies_us", scattered_us, "µs", "64 copies of 4 KB, MI355X", 138, tolerance=13.8)
    return Findings(
        text="With the constants of an MI300X and the data sheet's link, copies of 64 KB to 8 MB are within "
             f"{abs(worst):.1f} % of the times measured on an MI355X, from which no constant was taken. A copy of 1 KB "
             f"that a kernel starts and waits for takes {round_trip_us:.1f} µs (measured: about 6). One measurement "
             f"does not fit: 64 copies of 4 KB to different places take {scattered_us:.0f} µs in the model, because "
             "independent copies of a queue overlap, as the paper says of the MI300X. On the MI355X they took 138 µs, "
             "one after the other.",
        ours=ours,
        tables=[Table("Rate (GB/s)", ("size", "measured", "ours", "difference"), rows)])


COPIES = Figure("sdma-copies", "Copies by one engine of an MI355X", lambda setup: (), evaluate_copies, short="copies",
                paper="dma")
