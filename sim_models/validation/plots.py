"""Plots of measured times and ours."""

from collections.abc import Sequence

from ..study import plots
from .comparison import Compared


def draw_all(rows: Sequence[Compared]):
    """Draw ours over measured against the measured time, a colour per machine."""
    drawn, axes = plots.figure(4.0)
    colours = (plots.BLUE, plots.ORANGE, plots.GREEN, plots.RED, plots.PURPLE, plots.SKY, plots.BLACK, plots.GREY)
    for place, machine in enumerate(sorted({one.machine for one in rows})):
        some = [one for one in rows if one.machine == machine]
        axes.plot([one.row.ns / 1e3 for one in some], [one.ours_ns / one.row.ns for one in some],
                  "o" if place < len(colours) else "^", color=colours[place % len(colours)], markersize=3,
                  label=machine)
    axes.axhline(1, color=plots.BLACK, linewidth=0.8)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("measured (µs)")
    axes.set_ylabel("ours over measured")
    if rows:
        axes.legend(ncols=4, fontsize=7)
    return drawn
