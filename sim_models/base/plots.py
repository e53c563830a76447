"""Look of plots: one palette that colour-blind readers can tell apart, thin frames, the page's type sizes."""

import io
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any
from xml.etree import ElementTree

import matplotlib

matplotlib.use("Agg")  # no window, whatever the machine has

from matplotlib import pyplot as plt
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

WIDTH_INCHES = 9.6  #: of the report's column
GROUP_WIDTH = 0.84  #: of bars side by side, where groups are 1 apart

# Okabe and Ito's palette.
BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, RED, PURPLE = (
    "#000000", "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7")
GREY, LIGHT = "#8A8A8A", "#C8C8C8"

_SVG = "http://www.w3.org/2000/svg"
ElementTree.register_namespace("", _SVG)
ElementTree.register_namespace("xlink", "http://www.w3.org/1999/xlink")

TECHNIQUE_COLOURS = {"sequential": BLACK, "t3": ORANGE, "t3-mca": BLUE, "t3-mca+": GREEN,
                     "ideal-overlap": LIGHT, "ideal-rs-nmc": GREY}
#: By who moved the bytes; writes are hatched.
STREAM_STYLES = {
    "gemm_read": ("GEMM reads", BLUE, ""), "gemm_write": ("GEMM writes", SKY, "////"),
    "rs_read": ("RS reads", RED, ""), "rs_write": ("RS writes", ORANGE, "////"),
    "ag_read": ("AG reads", GREY, ""), "ag_write": ("AG writes", LIGHT, "////")}

_STYLE = {
    "font.family": "sans-serif", "font.size": 9, "axes.titlesize": 10, "axes.labelsize": 9, "legend.fontsize": 8.5,
    "axes.spines.top": False, "axes.spines.right": False, "axes.linewidth": 0.7, "axes.axisbelow": True,
    "axes.grid": True, "axes.grid.axis": "y", "grid.color": "#E4E4E4", "grid.linewidth": 0.7,
    "xtick.major.width": 0.7, "ytick.major.width": 0.7, "legend.frameon": False, "hatch.linewidth": 0.5,
    "figure.dpi": 100, "savefig.dpi": 150, "svg.hashsalt": "t3"}


def figure(height_inches: float, rows: int = 1, columns: int = 1, width: float = 1.0, **options: Any) -> Any:
    """Make a matplotlib figure of the report's width, or of a part of it, and its axes."""
    return plt.subplots(rows, columns, figsize=(width * WIDTH_INCHES, height_inches), layout="constrained", **options)


def log_axis(axes, name: str, ticks: Sequence[float] = ()) -> None:
    """Make axis "x" or "y" logarithmic, with decimal numbers at `ticks`, without them at 1, 2 and 5 of each decade."""
    getattr(axes, f"set_{name}scale")("log")
    axis = getattr(axes, f"{name}axis")
    axis.set_major_locator(FixedLocator(ticks) if ticks else LogLocator(subs=(1, 2, 5)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, place: f"{value:,.6g}"))


def scatter_pairs(pairs: list[tuple[float, float]], across: str, up: str) -> Any:
    """Draw pairs of numbers on logarithmic axes, and the line on which both are equal."""
    picture, axes = figure(3.6, width=0.6)
    axes.plot(*zip(*pairs), "o", color=BLUE, markersize=4)
    span = min(map(min, pairs)), max(map(max, pairs))
    axes.plot(span, span, color=BLACK, linewidth=0.8, label="equal")
    log_axis(axes, "x")
    log_axis(axes, "y")
    axes.grid(axis="x")
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.legend()
    return picture


def plain(text: object) -> str:
    """Return a name from outside such that a plot shows it as it is: between dollars, matplotlib reads TeX."""
    return str(text).replace("$", r"\$")


def render(name: str, draw: Callable[[], Any]) -> tuple[str, bytes]:
    """Draw an SVG to be put into a page, and a PNG. The same figure gives the same bytes."""
    with plt.rc_context(_STYLE):
        picture = draw()
        svg, png = io.StringIO(), io.BytesIO()
        picture.savefig(svg, format="svg", metadata={"Date": None})
        picture.savefig(png, format="png")
        plt.close(picture)
    return _for_page(name, svg.getvalue()), png.getvalue()


def _for_page(name: str, svg: str) -> str:
    """Return a plot without the file's head, in few bytes, and with ids of its own: a page has several plots.

    A hundredth of a point is as near as anybody sees; ids that nothing refers to and groups of one say nothing.
    """
    svg = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", svg[svg.index("<svg"):], flags=re.DOTALL)
    used = set(re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', svg))
    short = {one or other: f"{name}-{place}" for place, (one, other) in enumerate(sorted(used))}
    svg = re.sub(r' id="([^"]+)"', lambda found: f' id="{short[found[1]]}"' if found[1] in short else "", svg)
    svg = re.sub(r'href="#([^"]+)"', lambda found: f'href="#{short[found[1]]}"', svg)
    svg = re.sub(r"url\(#([^)]+)\)", lambda found: f"url(#{short[found[1]]})", svg)
    svg = re.sub(r"scale\([^)]*\)|-?\d+\.\d{3,}(?=[^<>]*>)", lambda found: found[0] if found[0][0] == "s" else
                 f"{float(found[0]):.2f}".rstrip("0").rstrip("."), svg)
    svg = re.sub(r' transform="rotate\(-?0 [^)]*\)"', "", svg)
    svg = re.sub(r"(font-family: '[^']*')[^;\"]*sans-serif", r"\1, sans-serif", svg)  # that, or what the reader has
    root = ElementTree.fromstring(svg)
    _lift(root)
    ElementTree.indent(root, "")
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def _lift(element: ElementTree.Element) -> None:
    """Put what is in a group that says nothing into its place, drop empty groups; a style that all share is theirs."""
    for child in list(element):
        _lift(child)
        if len(child) > 1 and child.tag == f"{{{_SVG}}}g" and "style" not in child.attrib:
            styles = {one.get("style") for one in child}
            if len(styles) == 1 and None not in styles:
                child.set("style", styles.pop())
                for one in child:
                    del one.attrib["style"]
        if child.tag == f"{{{_SVG}}}g" and (not child.attrib or not len(child)):
            place = list(element).index(child)
            element[place:place + 1] = list(child)


def legend_above(axes, columns: int, **options: Any) -> None:
    """Put the legend above the axes, in so many columns."""
    axes.legend(loc="lower center", ncols=columns, bbox_to_anchor=(0.5, 1.0), **options)


def grouped_bars(axes, groups: list[str], series: dict[str, list[float]], colours: dict[str, str],
                 titles: dict[str, str], baseline: float = 0.0) -> None:
    """Draw bars side by side, one group after the other, growing from `baseline`."""
    width = GROUP_WIDTH / len(series)
    for place, (name, values) in enumerate(series.items()):
        x = [group - GROUP_WIDTH / 2 + (place + 0.5) * width for group in range(len(groups))]
        axes.bar(x, [value - baseline for value in values], width * 0.92, bottom=baseline, color=colours[name],
                 label=titles[name])
    axes.set_xticks(range(len(groups)), groups)
    axes.set_xlim(-0.6, len(groups) - 0.4)
    axes.tick_params(axis="x", length=0)


def stacked_bars(axes, places: list[float], parts: Iterable[tuple[str | None, str, str, list[float]]],
                 width: float = 0.7, **style: Any) -> list[float]:
    """Draw each part (label, colour, hatch, heights) on top of those before it; return where the bars end."""
    tops = [0.0] * len(places)
    for label, colour, hatch, heights in parts:
        axes.bar(places, heights, width, bottom=tops, color=colour, hatch=hatch, label=label, **style)
        tops = [below + height for below, height in zip(tops, heights)]
    return tops


def name_groups(axes, names: Iterable[str], below: float) -> None:
    """Write a name once under all neighbouring places (0, 1, ...) that have it, and draw a line between the groups.

    `below`: distance under the axis, relative to the height of the axes.
    """
    first = 0
    for name, members in groupby(names):
        count = len(list(members))
        if first:
            axes.axvline(first - 0.5, color="#999999", linewidth=0.6)
        axes.text(first + (count - 1) / 2, -below, name, transform=axes.get_xaxis_transform(), ha="center", va="top",
                  fontsize=8.5)
        first += count


def range_bars(entries: list[dict[str, Any]]):
    """Draw quantities with their ranges over uncertain inputs, relative to the paper's or, if it has none, to ours."""
    picture, axes = figure(0.8 + 0.28 * len(entries))
    places = range(len(entries))
    scales = [100 / abs(entry["paper"] or entry["ours"]) for entry in entries]
    low, high = ([abs(entry["ours"] - entry["range"][end]) * scale for entry, scale in zip(entries, scales)]
                 for end in (0, 1))
    axes.errorbar([entry["ours"] * scale for entry, scale in zip(entries, scales)], places, xerr=(low, high), fmt="o",
                  color=BLUE, capsize=3, label="ours, with its range over uncertain inputs")
    axes.axvline(100, color=RED, linewidth=1, label="the paper's number")
    axes.set_yticks(places, [entry["title"] for entry in entries])
    axes.set_ylim(len(entries) - 0.5, -0.5)
    axes.grid(axis="x")
    axes.set_xlabel("% of the paper's number")
    legend_above(axes, 2)
    return picture
