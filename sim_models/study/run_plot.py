"""One run as a plot: where each technique's time goes."""

from typing import TYPE_CHECKING

from t3sim.base import plots

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from t3sim.study.results import RunResult


def draw_run(result: "RunResult") -> "Figure":
    """Draw a bar per technique: its producer as it ran, what of the collective it does not hide, all-gather (µs)."""
    drawn, axes = plots.figure(0.9 + 0.34 * len(result.techniques), width=0.8)
    names = list(result.techniques)
    hides = result.exchange.hides
    fused = hides[0] if len(hides) == 1 else "collective"
    packs = any(one.packing_ns for one in result.techniques.values())
    parts = {result.workload.producer: [], f"{fused} after it": []}
    parts |= {} if result.exchange.of_parts else {"packing before it" if packs else "all-gather": []}
    for one in result.techniques.values():
        follows = 0.0 if result.exchange.of_parts else one.loss_ns.get("all_gather", one.packing_ns)  # as the table's
        gemm = min(one.gemm_ns, one.total_ns - follows)
        for part, ns in zip(parts.values(), (gemm, one.total_ns - follows - gemm, follows)):
            part.append(ns / 1e3)
    left = [0.0] * len(names)
    for (title, widths), colour in zip(parts.items(), (plots.BLUE, plots.ORANGE, plots.LIGHT)):
        axes.barh(names, widths, 0.7, left=left, color=colour, label=title)
        left = [a + b for a, b in zip(left, widths)]
    for name, end in zip(names, left):
        speedup = result.speedup.get(name)
        axes.annotate(f" {end:,.0f}" + (f", {speedup:.3f}x" if speedup else ""), (end, name), va="center", fontsize=8)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.16 * max(left))
    axes.grid(axis="y", visible=False)
    axes.grid(axis="x")
    axes.set_xlabel(plots.plain(f"µs, {result.workload.title}, machine {result.machine.name}"))
    axes.legend(loc="lower center", ncols=3, bbox_to_anchor=(0.5, 1.0))
    return drawn
