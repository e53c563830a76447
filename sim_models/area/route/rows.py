"""Places of cells and pins: rows of one length with fill between the cells, pins on tracks around them."""

from dataclasses import dataclass

from t3sim.area.route.design import Design
from t3sim.area.route.lef import Technology
from t3sim.area.route.placement import FILL, Rows
from t3sim.base.errors import Failure

MARGIN_TRACKS = 6  #: between the cells and the pins around them
CROWDED_TRACKS = 16  #: the same, where pins have every track: wires must change layers before they come to the cells
_CLEAR_TRACKS = 3  #: of these, where wires only come straight from the pins; of the former all
_SIDES = (("metal3", "metal5"), ("metal2", "metal4"))  #: of pins left and right, and of pins below and above


@dataclass(frozen=True)
class Placed:
    cell: str
    kind: str
    x: int
    y: int
    flipped: bool  #: a row of which the supply is above and the ground below


@dataclass(frozen=True)
class Floorplan:
    """A die with its corner at 0, 0; centimicrons."""

    width: int
    height: int
    clear: tuple[int, int]  #: from left and from below, and as far from the other edges: only wires from pins
    core_width: int
    core_height: int
    cells: tuple[Placed, ...]  #: fill among them
    pins: dict[str, tuple[str, int, int]]  #: layer and place
    cell_area: int  #: of all but fill


def floorplan(design: Design, technology: Technology, rows: Rows, utilisation: float) -> Floorplan:
    """Give each cell its place, so that of the rows `utilisation` is used. Raises Failure."""
    site, row_height = technology.site
    width = {name: technology.macros[kind].width for name, (kind, _) in design.cells.items()}
    lines = [list(row) for row in rows.rows]
    used = [sum(width[name] for name in row) for row in lines]
    total = sum(width.values())
    length = -(-max(total / len(lines) / utilisation, max(used)) // site) * site
    placed = {name for row in lines for name in row}
    for name in sorted(design.cells.keys() - placed, key=lambda name: (-width[name], name)):
        x, y = rows.centres[name]
        fitting = [row for row in range(len(lines)) if used[row] + width[name] <= length]
        if not fitting:
            raise Failure(f"placement: no row has room for {name}")
        row = min(fitting, key=lambda row: abs(rows.row_y[row] - y))
        before = next((i for i, other in enumerate(lines[row]) if rows.centres[other][0] > x), len(lines[row]))
        lines[row].insert(before, name)
        used[row] += width[name]
    pitch_x, pitch_y = technology.layers["metal2"].pitch, technology.layers["metal3"].pitch
    core_height = len(lines) * row_height
    crowded = len(rows.pins) > int(length) // pitch_x + core_height // pitch_y
    margin = CROWDED_TRACKS if crowded else MARGIN_TRACKS
    left, bottom = margin * pitch_x + pitch_x // 2, margin * pitch_y + pitch_y // 2
    cells = []
    for row, line in enumerate(lines):
        free, x, y = int(length - used[row]) // site, left, bottom + row * row_height
        filled = 0
        for place, name in enumerate([*line, ""], 1):
            if name:
                cells.append(Placed(name, design.cells[name][0], x, y, row % 2 == 1))
                x += width[name]
            fill = free * place // (len(line) + 1) - filled if name else free - filled
            for _ in range(fill):
                cells.append(Placed(f"fill_{row}_{filled}", FILL, x, y, row % 2 == 1))
                x += site
                filled += 1
    die_width = _up(left + int(length) + margin * pitch_x, pitch_x)
    die_height = _up(bottom + core_height + margin * pitch_y, pitch_y)
    pins = _pins(rows, die_width, die_height, range(_up(left, pitch_x), left + int(length), pitch_x),
                 range(_up(bottom, pitch_y), bottom + core_height, pitch_y), crowded)
    clear = (_CLEAR_TRACKS * pitch_x, _CLEAR_TRACKS * pitch_y) if crowded else (left, bottom)
    return Floorplan(die_width, die_height, clear, int(length), core_height, tuple(cells), pins, total * row_height)


def _up(value: int, step: int) -> int:
    return -(-value // step) * step


def _pins(rows: Rows, width: int, height: int, xs: range, ys: range,
          crowded: bool) -> dict[str, tuple[str, int, int]]:
    """Give each pin a track's end at the edge near where graywolf has it, in its order around the block."""
    wanted = rows.pins
    if not wanted:
        return {}
    corner_x, corner_y = (min(centre[axis] for centre in rows.centres.values()) for axis in (0, 1))
    span_x, span_y = (max(centre[axis] for centre in rows.centres.values()) - corner
                      for axis, corner in ((0, corner_x), (1, corner_y)))

    def around(x: float, y: float) -> float:
        """Say how far along the edge a place is, from 0 at the lower left corner, against the clock, to 4."""
        u, v = (x - corner_x) / max(span_x, 1), (y - corner_y) / max(span_y, 1)
        u, v = min(max(u, 0.0), 1.0), min(max(v, 0.0), 1.0)
        return min((v, u), (1 - u, 1 + v), (1 - v, 3 - u), (u, 4 - v))[1]

    sides = [[(x, 0) for x in xs], [(width, y) for y in ys], [(x, height) for x in reversed(xs)],
             [(0, y) for y in reversed(ys)]]
    places = []
    full = len(wanted) > 2 * (len(xs) + len(ys))
    for side, row in enumerate(sides):
        for track, (x, y) in enumerate(row):
            layers = _SIDES[(side + 1) % 2]
            chosen = layers if full else (layers[track % 2],) if crowded else layers[:1] if track % 2 == 0 else ()
            places += [(side + track / len(row), layer, x, y) for layer in chosen]
    if len(wanted) > len(places):
        raise Failure(f"placement: {len(wanted)} pins, but the edge has room for {len(places)}")
    order = sorted((around(*centre), name) for name, centre in wanted.items())
    if crowded:  # too many for the place that each would like
        return {name: places[index * len(places) // len(order)][1:] for index, (_, name) in enumerate(order)}
    slots: list[int] = []
    for position, _ in order:
        near = min(range(len(places)), key=lambda i: abs(places[i][0] - position)) if len(places) else 0
        slots.append(max(near, slots[-1] + 1 if slots else 0))
    for index in range(len(slots) - 1, -1, -1):
        most = len(places) - 1 if index == len(slots) - 1 else slots[index + 1] - 1
        slots[index] = min(slots[index], most)
    return {name: places[slot][1:] for (_, name), slot in zip(order, slots, strict=True)}
