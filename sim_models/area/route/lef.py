"""The technology and its cells as a LEF file has them: layers, sizes and where pins are."""

from dataclasses import dataclass
from pathlib import Path

from t3sim.base.bounded import read_bounded, reading

UNITS_PER_UM = 100  #: of placement, DEF and everything here: centimicrons

Rect = tuple[str, int, int, int, int]  #: layer, left, bottom, right, top


@dataclass(frozen=True)
class Layer:
    """A layer of wires."""

    name: str
    horizontal: bool
    pitch: int
    width: int
    ohm_per_square: float
    pf_per_um2: float
    edge_pf_per_um: float

    @property
    def ohm_per_um(self) -> float:
        return self.ohm_per_square / (self.width / UNITS_PER_UM)

    @property
    def pf_per_um(self) -> float:
        """Capacitance to the ground below and beside a wire, without neighbours."""
        return self.pf_per_um2 * self.width / UNITS_PER_UM + 2 * self.edge_pf_per_um


@dataclass(frozen=True)
class Macro:
    """A cell: its size, and the rectangles of its signal pins."""

    name: str
    width: int
    height: int
    pins: dict[str, tuple[Rect, ...]]


@dataclass(frozen=True)
class Technology:
    layers: dict[str, Layer]  #: from the lowest up
    macros: dict[str, Macro]
    site: tuple[int, int]  #: width and height of a place in a row
    vias: dict[str, tuple[str, ...]]  #: the layers of wires that each joins


def load_lef(path: Path) -> Technology:
    """Read a LEF file. Raises BadInput."""
    with reading(f"LEF file {str(path)!r}", "a LEF file"):
        return parse_lef(read_bounded(path).decode(errors="replace"))


def _units(text: str) -> int:
    return round(float(text) * UNITS_PER_UM)


def parse_lef(text: str) -> Technology:
    """Parse layers, the site and the cells. Raises ValueError."""
    lines = [words for line in text.splitlines() if (words := line.partition("#")[0].replace(";", " ").split())]
    layers, macros, vias, site, place = {}, {}, {}, None, 0
    while place < len(lines):
        words = lines[place]
        if words[0] in ("LAYER", "SITE", "MACRO", "VIA", "VIARULE") and len(words) > 1:
            last = next((i for i in range(place + 1, len(lines)) if lines[i] == ["END", words[1]]), None)
            if last is None:
                raise ValueError(f"{words[0]} {words[1]} has no END")
            body = lines[place + 1:last]
            if words[0] == "MACRO":
                macros[words[1]] = _macro(words[1], body)
            elif words[0] == "LAYER" and ["TYPE", "ROUTING"] in body:
                layers[words[1]] = _layer(words[1], {line[0]: line[1:] for line in body})
            elif words[0] == "VIA":
                vias[words[1]] = tuple(line[1] for line in body if line[0] == "LAYER" and line[1] in layers)
            elif words[0] == "SITE":
                site = _size(body)
            place = last
        place += 1
    if not layers or not macros or site is None:
        raise ValueError("layers of wires, a site and cells are needed")
    return Technology(layers, macros, site, vias)


def _size(body: list[list[str]]) -> tuple[int, int]:
    size = next((line for line in body if line[0] == "SIZE" and len(line) == 4), None)
    if size is None:
        raise ValueError("a SIZE is missing")
    return _units(size[1]), _units(size[3])


def _layer(name: str, values: dict[str, list[str]]) -> Layer:
    def last(key: str) -> float:
        if not values.get(key):
            raise ValueError(f"layer {name[:40]} has no {key}")
        return float(values[key][-1])

    return Layer(name, values.get("DIRECTION") == ["HORIZONTAL"], round(last("PITCH") * UNITS_PER_UM),
                 round(last("WIDTH") * UNITS_PER_UM), last("RESISTANCE"), last("CAPACITANCE"),
                 last("EDGECAPACITANCE"))


def _macro(name: str, body: list[list[str]]) -> Macro:
    pins: dict[str, list[Rect]] = {}
    pin, layer, supply = None, "", False
    for words in body:
        if words[0] == "PIN":
            pin, supply = words[1], False
            pins[pin] = []
        elif words[0] == "USE" and pin:
            supply = words[1] in ("POWER", "GROUND")
        elif words[0] == "END" and words[1:] == [pin]:
            if supply:
                del pins[pin]
            pin = None
        elif words[0] == "LAYER":
            layer = words[1]
        elif words[0] == "RECT" and pin:
            pins[pin].append((layer, *map(_units, words[1:5])))
    return Macro(name, *_size(body), {pin: tuple(rects) for pin, rects in pins.items()})
