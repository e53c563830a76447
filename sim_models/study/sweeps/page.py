"""A study's report: its plots, and a table of what they show."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from jinja2 import Environment, PackageLoader

from t3sim.base.output import write_whole
from t3sim.study.sweeps.comparisons import BEST, Regime, regimes, regrets, short_names, winners
from t3sim.study.sweeps.point import Row, Scalar
from t3sim.study.sweeps.study import Map, Plot, Study

FILE = "report.html"
_COLUMNS = 8
_PLOT_INCHES = 3.4
_PANELS, _PANEL_INCHES = 3, 2.4
_MOST_TICKS = 8  #: of a logarithmic axis at the points' own values
#: Endings of keys and columns that are units; longer ones first.
_UNITS = {"bytes_per_ns": "bytes/ns", "gb_per_s": "GB/s", "percent": "%", "cycles": "cycles", "bytes": "bytes",
          "ghz": "GHz", "gb": "GB", "ns": "ns"}
_SECTIONS = ("machine", "techniques", "layer", "exchange", "runs")  #: of names, which say nothing beside a plot
_TIMES = ("s", "ms", "µs", "ns")  #: labels that are no more than a unit


def write_page(study: Study, rows: Sequence[Row], failures: Sequence[tuple[str, str]], points: int,
               folder: Path) -> None:
    """Write `folder`/report.html and its plots as files. `failures`: (point, message); `points`: of the whole study."""
    from t3sim.base.plots import render

    plots = []
    drawings = [*((f"plot{number}", plot.title, partial(_draw, plot, rows)) for number, plot in enumerate(study.plots)),
                *((f"map{number}", winner_map.title, partial(_draw_map, winner_map, rows))
                  for number, winner_map in enumerate(study.maps))]
    regime_rows = regimes(study.regimes, rows, study.varied_settings) if study.regimes else []
    if study.regimes and regime_rows:
        drawings.append(("regimes", f"Loss of each {study.regimes.over}", partial(_draw_regimes, regime_rows)))
    for name, title, draw in drawings:
        svg, png = render(name, draw)
        write_whole(folder / f"{name}.svg", '<?xml version="1.0" encoding="utf-8"?>\n' + svg)
        write_whole(folder / f"{name}.png", png)
        plots.append((title, svg))
    regret_rows = regrets(study.compare, rows, study.varied_settings, study.compared_settings) if study.compare else []
    plotted_columns = [*(name for plot in study.plots for name in plot.y),
                       *(name for winner_map in study.maps for name in winner_map.least_of)]
    columns = list(dict.fromkeys([*study.varied_settings, *(plotted_columns or _times(study, rows))]))
    cells = [[_text(row.get(name)) for name in columns] for row in rows]
    page = Environment(loader=PackageLoader(__package__, "."), autoescape=True).get_template("page.html.j2")
    write_whole(folder / FILE, page.render(study=study, plots=plots, columns=columns, rows=cells, failures=failures,
                                           points=points, done=len(rows),
                                           compared=regret_rows, regimes=regime_rows))


def _times(study: Study, rows: Sequence[Row]) -> list[str]:
    """List the columns that a report without plots shows: total times, else other times, else what differs."""
    result_columns = sorted({name for row in rows for name in row} - set(study.varied_settings))
    totals = [name for name in result_columns if name.rpartition(".")[2] in ("total_ns", "ns")]
    times = [name for name in result_columns if name.endswith("_ns")]
    return (totals or times or [name for name in result_columns if len({row.get(name) for row in rows}) > 1])[:_COLUMNS]


def _words_and_unit(name: str) -> tuple[str, str]:
    """Return words for a setting or a column, and its unit: "link bandwidth" and "GB/s"."""
    *sections, last = name.split(".")
    ending = next((part for part in _UNITS if last.endswith(f"_{part}")), "")
    words = [*(part for part in sections if part not in _SECTIONS and not part.isdigit()),
             last.removesuffix(f"_{ending}")]
    return " ".join(words).replace("_", " "), _UNITS.get(ending, "")


def _axis(name: str, label: str = "") -> str:
    """Return the words beside an axis, with the unit: "link bandwidth (GB/s)"; of a label that is no more, "time"."""
    from t3sim.base.plots import plain

    words, unit = _words_and_unit(name)
    if label in _TIMES:
        words, unit = "time", label
    elif label:
        words, unit = label, ""
    return plain(f"{words} ({unit})" if unit else words)


def _draw(plot: Plot, rows: Sequence[Row]):
    from t3sim.base.plots import BLACK, BLUE, GREEN, ORANGE, PURPLE, RED, SKY, figure, log_axis, plain

    colours = (BLUE, ORANGE, GREEN, RED, PURPLE, SKY, BLACK)
    picture, axes = figure(_PLOT_INCHES)
    values = list(dict.fromkeys(row.get(plot.series) for row in rows)) if plot.series else [None]
    numbers = not any(isinstance(row[plot.x], str | bool) for row in rows)
    lines = [(value, name, points) for value in values for name in plot.y if (points := [
        (row[plot.x] if numbers else plain(row[plot.x]), row[name] / plot.scale) for row in rows
        if row.get(name) is not None and (plot.series is None or row.get(plot.series) == value)])]
    for index, (value, name, points) in enumerate(lines):
        if numbers:
            points.sort()
        labels = (_words_and_unit(name)[0] if len(plot.y) > 1 else "",
                  _setting(plot.series, value) if plot.series else "")
        label = ", ".join(filter(None, labels))
        axes.plot(*zip(*points), marker="o", markersize=4, label=plain(label),
                  color=colours[index % len(colours)])
    axes.set_xlabel(_axis(plot.x))
    axes.set_ylabel(_axis(plot.y[0], plot.label))
    if plot.log_x and numbers and all(row[plot.x] > 0 for row in rows):
        values = sorted({row[plot.x] for row in rows})
        log_axis(axes, "x", values if len(values) <= _MOST_TICKS else ())
    if len(lines) > 1:
        axes.legend()
    return picture


def _setting(name: str, value: Scalar | None) -> str:
    """Return a setting's value for a legend: "link bandwidth 75 GB/s"."""
    words, unit = _words_and_unit(name)
    return f"{words} {f'{value:g}' if isinstance(value, float) else value} {unit}".strip()


def _draw_map(winner_map: Map, rows: Sequence[Row]):
    """Draw a square per pair of settings: the fastest by name and colour, and how much slower the next one is."""
    from matplotlib.patches import Rectangle

    from t3sim.base.plots import BLACK, BLUE, GREEN, ORANGE, PURPLE, RED, SKY, figure, plain

    names = short_names(winner_map.least_of)
    colours = dict(zip(names, (SKY, ORANGE, GREEN, BLUE, PURPLE, RED, BLACK)))
    xs, ys = ([*dict.fromkeys(row[name] for row in rows)] for name in (winner_map.x, winner_map.y))
    picture, axes = figure(_PLOT_INCHES)
    cells = winners(winner_map, rows)
    for cell in cells:
        x, y = xs.index(cell.x), ys.index(cell.y)
        axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=colours[cell.best], alpha=0.75,
                                 edgecolor="white", label=cell.best))
        ahead = "" if cell.ahead_percent is None else f"\n{cell.ahead_percent:.1f} %"
        axes.text(x, y, f"{cell.best}{ahead}", ha="center", va="center", fontsize=7)
    axes.set_xlim(-0.5, len(xs) - 0.5)
    axes.set_ylim(-0.5, len(ys) - 0.5)
    axes.set_xticks(range(len(xs)), [plain(x) for x in xs])
    axes.set_yticks(range(len(ys)), [plain(y) for y in ys])
    axes.set_xlabel(_axis(winner_map.x))
    axes.set_ylabel(_axis(winner_map.y))
    axes.grid(False)
    return picture


def _draw_regimes(regime_rows: Sequence[Regime]):
    """Draw a panel per grouping of the cases, with a line of mean losses for each value and for the best."""
    from t3sim.base.plots import BLACK, BLUE, GREEN, ORANGE, PURPLE, RED, SKY, figure, plain

    alongs = [*dict.fromkeys(regime.along for regime in regime_rows)]
    names = list(regime_rows[0].mean_percent)
    rows = -(-len(alongs) // _PANELS)
    picture, axes = figure(_PANEL_INCHES * rows + 0.4, rows, min(_PANELS, len(alongs)), squeeze=False, sharey=True)
    colours = {**dict(zip(names, (ORANGE, SKY, BLUE, GREEN, PURPLE, RED))), BEST: BLACK}
    for panel in axes.flat[len(alongs):]:
        panel.set_axis_off()
    for panel, along in zip(axes.flat, alongs):
        groups = [regime for regime in regime_rows if regime.along == along]
        for name in names:
            panel.plot(range(len(groups)), [regime.mean_percent[name] for regime in groups], marker="o", markersize=4,
                       color=colours[name], linestyle="--" if name == BEST else "-", label=name)
        panel.set_xticks(range(len(groups)), [plain(regime.group) for regime in groups], fontsize=7)
        panel.set_xlabel(_axis(along), fontsize=8)
    for first in axes[:, 0]:
        first.set_ylabel("mean loss (%)")
    picture.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=len(names))
    return picture


def _text(value: Scalar | None) -> str:
    if isinstance(value, float):
        return f"{value:,.6g}" if abs(value) < 1e6 else f"{value:,.0f}"
    return "–" if value is None else str(value)
