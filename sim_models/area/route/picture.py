"""A layout as a picture, from its DEF alone."""

import io
import re

from t3sim.area.route.design import BUFFER, GATE, LATCH
from t3sim.area.route.lef import UNITS_PER_UM, Technology
from t3sim.area.route.parasitics import read_wires
from t3sim.area.route.placement import FILL

_CELL = re.compile(r"^- (\S+) (\S+) \+ PLACED \( (\d+) (\d+) \)", re.MULTILINE)
_PIN = re.compile(r"\+ LAYER (\S+) \([^)]*\) \([^)]*\) \+ PLACED \( (\d+) (\d+) \)")
_DIE = re.compile(r"DIEAREA \( (\d+) (\d+) \) \( (\d+) (\d+) \)")
_COLOURS = {"metal1": "#2b6cb0", "metal2": "#c53030", "metal3": "#2f855a", "metal4": "#b7791f", "metal5": "#6b46c1",
            "metal6": "#0b7285"}
_CELLS = {"flip-flops": "#bcd4ee", "logic": "#e8e8e8", "clock": "#f6c177", "fill": "#fafafa"}


def _kind(name: str, cell: str) -> str:
    if cell == FILL:
        return "fill"
    if name.startswith(("clock_", "gate")) and cell in (BUFFER, GATE, LATCH) or name.endswith("_not"):
        return "clock"
    return "flip-flops" if cell.startswith("DFF") else "logic"


def draw(text: str, technology: Technology, title: str) -> bytes:
    """Draw cells by kind, wires by layer and pins; return a PNG file."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.collections import LineCollection, PatchCollection
    from matplotlib.patches import Patch, Rectangle

    def um(value: str | int) -> float:
        return int(value) / UNITS_PER_UM

    _, _, width, height = map(um, _DIE.search(text).groups())
    size = 9 / max(width, height)
    figure, axes = pyplot.subplots(figsize=(1 + size * width + 1.4, 0.9 + size * height), layout="constrained")
    boxes: dict[str, list[Rectangle]] = {kind: [] for kind in _CELLS}
    for name, cell, x, y in _CELL.findall(text):
        macro = technology.macros[cell]
        boxes[_kind(name, cell)].append(Rectangle((um(x), um(y)), um(macro.width), um(macro.height)))
    for kind, found in boxes.items():
        axes.add_collection(PatchCollection(found, facecolor=_CELLS[kind], edgecolor="#c8c8c8", linewidth=0.2))
    lines: dict[str, list] = {}
    for segments in read_wires(text, technology).values():
        for one, other in segments:
            if one[0] == other[0]:
                lines.setdefault(one[0], []).append([(um(one[1]), um(one[2])), (um(other[1]), um(other[2]))])
    line_width = max(0.15, 0.3 * size * 72 * 0.8)
    for layer in technology.layers:
        if layer in lines:
            axes.add_collection(LineCollection(lines[layer], colors=_COLOURS.get(layer, "black"), linewidths=line_width,
                                               alpha=0.75))
    pins = _PIN.findall(text)
    axes.scatter([um(x) for _, x, _ in pins], [um(y) for _, _, y in pins], s=4, marker="s",
                 c=[_COLOURS.get(layer, "black") for layer, _, _ in pins], zorder=3, clip_on=False)
    axes.set_xlim(0, width)
    axes.set_ylim(0, height)
    axes.set_aspect("equal")
    axes.set_xlabel("µm")
    axes.set_ylabel("µm")
    axes.set_title(title, fontsize=10)
    legend = [Patch(facecolor=colour, edgecolor="#c8c8c8", label=kind) for kind, colour in _CELLS.items()]
    legend += [Patch(facecolor=_COLOURS[layer], label=layer) for layer in technology.layers if layer in lines]
    axes.legend(handles=legend, loc="upper left", bbox_to_anchor=(1.01, 1), fontsize=7, frameon=False)
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=150, metadata={"Software": None})
    pyplot.close(figure)
    return content.getvalue()
