"""Placement: graywolf's rows, then what is added to them, spread over rows of one length."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from t3sim.area.route.design import Design
from t3sim.area.route.lef import Macro, Technology
from t3sim.area.route.tools import Tools
from t3sim.base.cache import cached, digest
from t3sim.base.errors import Failure

FILL = "FILL"
_NAME = "block"


@dataclass
class Rows:
    """Cells of each row from left to right, the lowest row first; and where pins lie around them."""

    rows: list[list[str]]
    centres: dict[str, tuple[float, float]]  #: of cells, in graywolf's coordinates
    pins: dict[str, tuple[float, float]]  #: their middles
    row_y: list[float]  #: of the rows' middles, in the same


def place(design: Design, technology: Technology, tools: Tools) -> Rows:
    """Place all cells in rows; from the cache if nothing changed. Raises Failure."""
    inputs = {"cel": _cells(design, technology), "par": tools.placer_settings.read_text()}

    def make(folder: Path) -> None:
        work = folder / "work"
        work.mkdir()
        for ending, text in inputs.items():
            (work / f"{_NAME}.{ending}").write_text(text)
        tools.place(work, _NAME)
        shutil.move(work / f"{_NAME}.pl1", folder / f"{_NAME}.pl1")
        shutil.rmtree(work)

    folder = cached("placement-" + digest(*inputs.values(), tools.versions), make)
    return read_rows((folder / f"{_NAME}.pl1").read_text(), design)


def _cells(design: Design, technology: Technology) -> str:
    """Write graywolf's netlist: each cell with its pins around its middle, and a pad for each pin of the edge."""
    nets = design.nets()
    pitch = technology.site[0]
    lines = []
    for number, (name, (kind, pins)) in enumerate(design.cells.items()):
        macro = technology.macros[kind]
        right, top = macro.width // 2, macro.height // 2
        edges = f"left {-right} right {macro.width - right} bottom {-top} top {macro.height - top}"
        lines += [f"cell {number} {name}", edges]
        for feed, x in enumerate(range(pitch // 2 - right, macro.width - right, pitch), 1):
            lines += [f"pin name twfeed{feed} signal TW_PASS_THRU layer 1 {x} {-top}",
                      f"   equiv name twfeed{feed} layer 1 {x} {macro.height - top}"]
        for pin, net in pins.items():
            if net in nets and net >= 0:
                x, y = middle(macro, pin)
                lines.append(f"pin name {pin} signal {design.net_name(net)} layer 1 {x - right} {y - top}")
    for number, pin in enumerate(design.pins, 1):
        if pin.net in nets:
            lines += [f"pad {number} name twpin_{pin.name}", "corners 4 -40 -50 -40 50 40 50 40 -50",
                      f"pin name {pin.name} signal {pin.name} layer 1 0 0", ""]
    return "\n".join(lines) + "\n"


def middle(macro: Macro, pin: str) -> tuple[int, int]:
    """Return the middle of the last rectangle of a pin, from the cell's corner."""
    if not macro.pins.get(pin):
        raise Failure(f"cell {macro.name} of the LEF file has no pin {pin}")
    _, left, bottom, right, top = macro.pins[pin][-1]
    return (left + right) // 2, (bottom + top) // 2


def read_rows(text: str, design: Design) -> Rows:
    """Read what graywolf placed: `cell left bottom right top orientation row`. Raises Failure."""
    cells: dict[float, list[tuple[float, str]]] = {}
    centres, pins = {}, {}
    for line in text.splitlines():
        words = line.split()
        if len(words) < 7:
            continue
        left, bottom, right, top = map(float, words[1:5])
        centre = ((left + right) / 2, (bottom + top) / 2)
        if words[0].startswith("twpin_"):
            pins[words[0].removeprefix("twpin_")] = centre
        elif words[0] in design.cells:
            centres[words[0]] = centre
            cells.setdefault(bottom, []).append((left, words[0]))
    if lacks := design.cells.keys() - centres.keys():
        raise Failure(f"placement: {len(lacks)} of {len(design.cells)} cells have no place, {min(lacks)} among them")
    order = sorted(cells)
    height = (order[1] - order[0]) if len(order) > 1 else 0.0
    return Rows([[name for _, name in sorted(cells[y])] for y in order], centres, pins, [y + height / 2 for y in order])
