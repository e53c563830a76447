"""A study's report: its plots, and a table of what they show."""

from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, PackageLoader

from t3sim.study.results import write_whole
from t3sim.sweeps.regret import regrets
from t3sim.sweeps.settings import Scalar
from t3sim.sweeps.study import Plot, Study

Row = dict[str, Scalar | None]
FILE = "report.html"
_PLOT_INCHES = 3.4


def write_page(study: Study, rows: Sequence[Row], failures: Sequence[tuple[str, str]], points: int,
               folder: Path) -> None:
    """Write `folder`/report.html and its plots as files. `failures`: (point, message); `points`: of the whole study."""
    from t3sim.study.plots import render

    plots = []
    for number, plot in enumerate(study.plots):
        svg, png = render(f"plot{number}", lambda plot=plot: _draw(plot, rows))
        write_whole(folder / f"plot{number}.svg", '<?xml version="1.0" encoding="utf-8"?>\n' + svg)
        write_whole(folder / f"plot{number}.png", png)
        plots.append((plot.title, svg))
    compared = regrets(study.compare, rows, study.varied) if study.compare else []
    shown = list(dict.fromkeys([*study.varied, *(name for plot in study.plots for name in plot.y)]))
    cells = [[_text(row.get(name)) for name in shown] for row in rows]
    page = Environment(loader=PackageLoader(__package__, "."), autoescape=True).get_template("page.html.j2")
    write_whole(folder / FILE, page.render(study=study, plots=plots, columns=shown, rows=cells, failures=failures,
                                           points=points, done=len(rows),
                                           compared=compared))


def _draw(plot: Plot, rows: Sequence[Row]):
    from t3sim.study.plots import BLACK, BLUE, GREEN, ORANGE, PURPLE, RED, SKY, figure

    colours = (BLUE, ORANGE, GREEN, RED, PURPLE, SKY, BLACK)
    drawn, axes = figure(_PLOT_INCHES)
    values = list(dict.fromkeys(row.get(plot.series) for row in rows)) if plot.series else [None]
    lines = [(value, name) for value in values for name in plot.y]
    for place, (value, name) in enumerate(lines):
        points = [(row[plot.x], row[name] / plot.scale) for row in rows
                  if row.get(name) is not None and (plot.series is None or row.get(plot.series) == value)]
        if points and isinstance(points[0][0], (int, float)):
            points.sort()
        label = ", ".join(filter(None, (name if len(plot.y) > 1 else "",
                                        f"{plot.series} = {value}" if plot.series else "")))
        axes.plot(*zip(*points) if points else ([], []), marker="o", markersize=4, label=label,
                  color=colours[place % len(colours)])
    axes.set_xlabel(plot.x)
    axes.set_ylabel(plot.label or plot.y[0])
    if plot.log_x:
        axes.set_xscale("log", base=2)
    if len(lines) > 1:
        axes.legend()
    return drawn


def _text(value: Scalar | None) -> str:
    if isinstance(value, float):
        return f"{value:,.6g}" if abs(value) < 1e6 else f"{value:,.0f}"
    return "–" if value is None else str(value)
