"""Plots of measured times and ours."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from textwrap import fill

from matplotlib import rcParams
from matplotlib.ticker import EngFormatter, LogLocator, NullLocator

from t3sim.analytic.validation.comparison import Compared, ComparedRatio
from t3sim.base import plots

FLOP = "FLOP"  #: what lies along a curve of GEMMs
_COLUMNS = 3
_LEAST_SPAN = 4  #: of an axis, as a ratio: between a number and four times that there are two round ones


def draw_all(rows: Sequence[Compared]):
    """Draw ours over measured against the measured time, a colour per machine."""
    figure, axes = plots.figure(4.0)
    colours = (plots.BLUE, plots.ORANGE, plots.GREEN, plots.RED, plots.PURPLE, plots.SKY, plots.BLACK, plots.GREY)
    for index, machine in enumerate(sorted({one.machine for one in rows})):
        machine_rows = [one for one in rows if one.machine == machine]
        axes.plot([one.row.ns / 1e3 for one in machine_rows], [one.ours_ns / one.row.ns for one in machine_rows],
                  "o" if index < len(colours) else "^", color=colours[index % len(colours)], markersize=3,
                  label=machine)
    axes.axhline(1, color=plots.BLACK, linewidth=0.8)
    plots.log_axis(axes, "x")
    plots.log_axis(axes, "y")
    axes.set_xlabel("measured time (µs)")
    axes.set_ylabel("modelled over measured time")
    if rows:
        axes.legend(ncols=4, fontsize=7)
    return figure


def draw_curves(curves: Mapping[str, tuple[str, Sequence[tuple[float, Compared]]]]):
    """Draw measured times and ours along each curve: title to what lies along it and its points.

    Times that gave a constant are filled, all others hollow.
    """
    rcParams["svg.fonttype"] = "none"  # of this drawing alone: `render` restores it
    figure, panels, columns = _panels(len(curves), 2.2)
    for index, (plot, (title, (along, points))) in enumerate(zip(panels, curves.items())):
        xs = [x for x, _ in points]
        is_line = len(set(xs)) > 2 and along != FLOP  # GEMMs of as many operations may have different shapes
        plot.plot(xs, [row.ours_ns / 1e9 for _, row in points], "-" if is_line else "x", color=plots.BLUE,
                  linewidth=1.2, label="ours")
        for fitted, face, label in ((False, "none", "measured"), (True, plots.BLACK, "measured, gave a constant")):
            times = [(x, row.row.ns / 1e9) for x, row in points if row.fitted == fitted]
            plot.plot([x for x, _ in times], [seconds for _, seconds in times], "o", color=plots.BLACK, markersize=3.5,
                      markerfacecolor=face, markeredgewidth=0.8, label=label)
        plot.set_title(plots.plain(fill(title, 46)), fontsize=7.5)
        plot.set_xlabel(along, fontsize=7)
        plot.tick_params(which="both", labelsize=7)
        _round_ticks(plot)
        if index % columns == 0:
            plot.set_ylabel("time", fontsize=7)
        if index == 0:
            figure.legend(*plot.get_legend_handles_labels(), loc="outside upper center", ncols=3)
    return figure


def draw_units(ratios: Sequence[ComparedRatio]):
    """Draw what each kernel loses while another one holds units: measured on each machine, and ours as a line."""
    rcParams["svg.fonttype"] = "none"
    kernels = list(dict.fromkeys(one.row.first.compute for one in ratios))
    machines = list(dict.fromkeys(one.machine for one in ratios))
    figure, panels, columns = _panels(len(kernels), 1.7, sharex=True)
    for index, (one, kernel) in enumerate(zip(panels, kernels)):
        for machine, marker, colour in zip(machines, cycle("os^v"), cycle((plots.BLUE, plots.ORANGE, plots.GREEN))):
            points = sorted((ratio.row.first.units, ratio.row.measured, ratio.ours) for ratio in ratios
                            if (ratio.row.first.compute, ratio.machine) == (kernel, machine))
            units, measured, ours = zip(*points) if points else ((), (), ())
            one.plot(units, ours, "-", color=colour, linewidth=1.0, label=f"ours, {machine}")
            one.plot(units, measured, marker, color=colour, markersize=3, markerfacecolor="none",
                     markeredgewidth=0.8, label=f"measured, {machine}")
        one.set_title(plots.plain(kernel), fontsize=7.5)
        one.set_ylim(min(-5, one.get_ylim()[0]), max(50, one.get_ylim()[1]))
        one.tick_params(labelsize=7)
        one.locator_params(nbins=4)
        if index % columns == 0:
            one.set_ylabel("slowdown (%)", fontsize=7)
        if index // columns == (len(kernels) - 1) // columns:
            one.set_xlabel("units held by the other kernel", fontsize=7)
        if index == 0:
            figure.legend(*one.get_legend_handles_labels(), loc="outside upper center", ncols=4, fontsize=7)
    return figure


def _panels(count: int, inches: float, **options: bool):
    """Return a figure of `count` panels, `inches` high each, row by row, and how many a row has."""
    columns = min(_COLUMNS, count)
    rows = -(-count // columns)
    figure, axes = plots.figure(inches * rows + 0.4, rows, columns, squeeze=False, **options)
    for rest in axes.flat[count:]:
        rest.set_axis_off()
    return figure, axes.flat[:count], columns


def _round_ticks(axes) -> None:
    """Give both axes logarithmic scales with round numbers: powers of ten, on a short axis 2 and 5 between them."""
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis, unit in ((axes.xaxis, ""), (axes.yaxis, "s")):
        low, high = axis.get_view_interval()
        if high / low < _LEAST_SPAN:
            stretched = (_LEAST_SPAN / (high / low)) ** 0.5
            low, high = low / stretched, high * stretched
            (axes.set_xlim if axis is axes.xaxis else axes.set_ylim)(low, high)
        axis.set_major_locator(LogLocator(subs=(1,) if high / low > 100 else (1, 2, 5), numticks=5))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(EngFormatter(unit, sep=" " if unit else ""))
