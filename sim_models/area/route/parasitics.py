"""Wires as a routed DEF has them, and what they load and delay: resistance, capacitance, Elmore's delay."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from t3sim.area.route.design import Design
from t3sim.area.route.lef import UNITS_PER_UM, Rect, Technology
from t3sim.area.route.rows import Floorplan
from t3sim.area.timing import Wires
from t3sim.base.errors import Failure

#: Of one cut: what the tests of TSMC's 180 nm in the package's SCN6M_SUBM.10.tech have from a layer to the next.
VIA_OHM = 5.0
#: Half of a via's square: so far from a pin's edge, or from another via, its middle may lie. The router shifts some.
_TOUCHES = 20
EDGE = ""  #: stands for the cell where a pin is the block's own

Point = tuple[str, int, int]  #: layer and place
Segment = tuple[Point, Point]  #: of one layer, or a via of two

_NET = re.compile(r"^- (\S+)\s*\n(.*?);", re.MULTILINE | re.DOTALL)
_TOKEN = re.compile(r"\(([^)]*)\)|(\S+)")


def read_wires(text: str, technology: Technology) -> dict[str, tuple[Segment, ...]]:
    """Read the wires and vias of each net of a routed DEF. Raises Failure."""
    _, _, nets = text.partition("\nNETS ")
    found = {}
    for name, body in _NET.findall(nets.partition("END NETS")[0]):
        _, routed, wires = body.partition("+ ROUTED")
        try:
            found[name] = tuple(_segments(wires, technology)) if routed else ()
        except (ValueError, KeyError, IndexError):
            raise Failure(f"routing: net {name} of the DEF cannot be read") from None
    return found


def _segments(wires: str, technology: Technology) -> Iterable[Segment]:
    for path in re.split(r"\bNEW\b", wires):
        layer, *rest = path.split(maxsplit=1)
        technology.layers[layer]
        at: tuple[int, int] | None = None
        for place, word in _TOKEN.findall(rest[0] if rest else ""):
            if place:
                x, y = (old if new == "*" else int(new)
                        for new, old in zip(place.split()[:2], at or (0, 0), strict=True))
                if at is not None and at != (x, y):
                    yield (layer, *at), (layer, x, y)
                at = x, y
            elif word in technology.vias:
                one, other = technology.vias[word]
                yield (one, *at), (other, *at)
            elif word not in ("+", "TAPER"):
                raise ValueError(word)


@dataclass(frozen=True)
class Net:
    """A net's wires as nodes with capacitance, and resistances between them; its ends are nodes of no place."""

    name: str
    capacitance_pf: dict[Point, float]
    resistances_ohm: dict[tuple[Point, Point], float]
    ends: dict[tuple[str, str], Point]  #: cell and pin: the node that it is on
    length_um: float
    vias: int
    delays_ns: dict[tuple[str, str], float]  #: from the driver to each end

    @property
    def total_pf(self) -> float:
        return sum(self.capacitance_pf.values())


def extract(design: Design, technology: Technology, plan: Floorplan,
            wires: dict[str, tuple[Segment, ...]]) -> dict[int, Net]:
    """Extract every net. Raises Failure where a pin has no wire, or where wires of two nets meet."""
    cells = {cell.cell: cell for cell in plan.cells}
    pins = design.netlist.library.cells
    edge = {pin.net: pin for pin in design.pins}
    found: dict[int, Net] = {}
    lines: dict[tuple[str, int, int], list[tuple[int, int, str]]] = {}
    for net, ends in design.nets().items():
        if net < 0:
            continue
        name = design.net_name(net)
        places = {}
        for cell, pin in ends:
            placed = cells[cell]
            macro = technology.macros[placed.kind]
            places[cell, pin] = [
                (layer, placed.x + left, placed.y + (macro.height - top if placed.flipped else bottom),
                 placed.x + right, placed.y + (macro.height - bottom if placed.flipped else top))
                for layer, left, bottom, right, top in macro.pins[pin]]
        if net in edge and name in plan.pins:
            layer, x, y = plan.pins[name]
            places[EDGE, name] = [(layer, x, y, x, y)]
        segments = _split(wires.get(name, ()), [place for taps in places.values() for place in taps])
        _lay(lines, name, segments)
        loads = {(cell, pin): pins[design.cells[cell][0]].loads.get(pin, 0.0) for cell, pin in ends}
        driver = next(((cell, pin) for cell, pin in ends if pin not in pins[design.cells[cell][0]].loads),
                      (EDGE, name))
        found[net] = _net(name, segments, places, loads, driver, technology)
    for (layer, axis, at), wires_there in lines.items():
        end, last = -1, ""
        for start, stop, name in sorted(wires_there):
            if start <= end and name != last:
                x, y = (start, at) if axis == 0 else (at, start)
                raise Failure(f"routing: nets {last} and {name} meet on {layer} at {x}, {y}")
            if stop >= end:
                end, last = stop, name
    return found


def _lay(lines: dict[tuple[str, int, int], list[tuple[int, int, str]]], name: str, segments: list[Segment]) -> None:
    """Note where on which line each wire lies, and on both lines through it each point."""
    for one, other in segments:
        for layer, x, y in (one, other):
            lines.setdefault((layer, 0, y), []).append((x, x, name))
            lines.setdefault((layer, 1, x), []).append((y, y, name))
        if one[0] == other[0]:
            axis = 0 if one[2] == other[2] else 1
            low, high = sorted((one[1 + axis], other[1 + axis]))
            lines.setdefault((one[0], axis, one[2 - axis]), []).append((low, high, name))


def _split(segments: Iterable[Segment], pins: Iterable[Rect]) -> list[Segment]:
    """Cut wires where others of the net end on them, and in front of the middle of a pin on which they lie."""
    segments = list(segments)
    points: dict[str, set[tuple[int, int]]] = {}
    for segment in segments:
        for layer, x, y in segment:
            points.setdefault(layer, set()).add((x, y))
    cut: dict[Segment, None] = {}
    for one, other in segments:
        if one[0] != other[0]:
            cut[one, other] = None
            continue
        (left, right), (low, high) = sorted((one[1], other[1])), sorted((one[2], other[2]))
        on = sorted({(min(max(x, left), right), min(max(y, low), high)) for x, y in points[one[0]]
                     if left - _TOUCHES <= x <= right + _TOUCHES and low - _TOUCHES <= y <= high + _TOUCHES}
                    | {(min(max((x1 + x2) // 2, left), right), min(max((y1 + y2) // 2, low), high))
                       for layer, x1, y1, x2, y2 in pins if layer == one[0]
                       and x1 - _TOUCHES <= right and left <= x2 + _TOUCHES
                       and y1 - _TOUCHES <= high and low <= y2 + _TOUCHES})
        cut |= {((one[0], *a), (one[0], *b)): None for a, b in zip(on, on[1:])}
    return list(cut)


def _touching(points: Iterable[Point]) -> Iterable[Segment]:
    """Give the pairs of points whose metal overlaps although they differ."""
    rows: dict[tuple[str, int], list[Point]] = {}
    for point in sorted(points):
        for row in (point[2] // _TOUCHES - 1, point[2] // _TOUCHES, point[2] // _TOUCHES + 1):
            for other in rows.get((point[0], row), ()):
                if abs(other[1] - point[1]) <= _TOUCHES and abs(other[2] - point[2]) <= _TOUCHES:
                    yield other, point
        rows.setdefault((point[0], point[2] // _TOUCHES), []).append(point)


def _net(name: str, segments: list[Segment], places: dict, loads: dict, driver: tuple[str, str],
         technology: Technology) -> Net:
    capacitance: dict[Point, float] = {point: 0.0 for segment in segments for point in segment}
    resistances: dict[tuple[Point, Point], float] = {}
    length, vias = 0.0, 0
    for one, other in segments:
        if one[0] != other[0]:
            vias += 1
            resistances[one, other] = VIA_OHM
            continue
        layer = technology.layers[one[0]]
        um = (abs(one[1] - other[1]) + abs(one[2] - other[2])) / UNITS_PER_UM
        length += um
        resistances[one, other] = um * layer.ohm_per_um
        for point in (one, other):
            capacitance[point] += um * layer.pf_per_um / 2
    for pair in _touching(capacitance):
        resistances.setdefault(pair, 0.0)
    ends: dict[tuple[str, str], Point] = {}
    for end, rectangles in places.items():
        touching = [point for point in capacitance if any(
            point[0] == layer and left - _TOUCHES <= point[1] <= right + _TOUCHES
            and bottom - _TOUCHES <= point[2] <= top + _TOUCHES for layer, left, bottom, right, top in rectangles)]
        if not touching:
            raise Failure(f"routing: no wire of net {name} reaches {' '.join(filter(None, end))}")
        ends[end] = touching[0]
        for other in touching[1:]:  # the pin's own metal joins them
            resistances.setdefault((touching[0], other), 0.0)
    if driver not in ends:
        raise Failure(f"routing: nothing drives net {name}")
    delays = _elmore(name, capacitance, resistances, ends, loads, driver)
    return Net(name, capacitance, resistances, ends, length, vias, delays)


def _elmore(name: str, capacitance: dict, resistances: dict, ends: dict, loads: dict,
            driver: tuple[str, str]) -> dict[tuple[str, str], float]:
    """Follow a tree from the driver: each resistance delays by all capacitance beyond it. Of loops one way is left."""
    beside: dict[Point, list[tuple[Point, float]]] = {}
    for (one, other), ohm in resistances.items():
        beside.setdefault(one, []).append((other, ohm))
        beside.setdefault(other, []).append((one, ohm))
    root = ends[driver]
    order, above = [root], {root: (root, 0.0)}
    for point in order:
        for other, ohm in beside.get(point, ()):
            if other not in above:
                above[other] = (point, ohm)
                order.append(other)
    beyond = dict(capacitance)
    for end, point in ends.items():
        beyond[point] += loads.get(end, 0.0)
        if point not in above:
            raise Failure(f"routing: net {name} is in two pieces, {' '.join(filter(None, end))} in the second")
    for point in reversed(order[1:]):
        beyond[above[point][0]] += beyond[point]
    delay = {root: 0.0}
    for point in order[1:]:
        parent, ohm = above[point]
        delay[point] = delay[parent] + ohm * beyond[point] * 1e-3  # ohm x pF = ps
    return {end: delay[point] for end, point in ends.items() if end != driver}


def wires_of(nets: dict[int, Net]) -> Wires:
    """Give timing what it needs of extracted nets."""
    return Wires({net: one.total_pf for net, one in nets.items()},
                 {end: delay for one in nets.values() for end, delay in one.delays_ns.items()})
