"""A geometry in words: `ways=4,channels=8` changes those two sizes of the default (or of a machine's) geometry."""

from dataclasses import fields, replace

from rtl.geometry import Geometry
from sim_models.errors import BadInput

#: Size: the part of the geometry that it belongs to. The names are unique over all parts.
SIZES = {size.name: part.name for part in fields(Geometry()) for size in fields(getattr(Geometry(), part.name))}


def changed(geometry: Geometry, sizes: dict[str, int]) -> Geometry:
    """Raises GeometryError or BadInput."""
    parts: dict[str, dict[str, int]] = {}
    for name, value in sizes.items():
        if name not in SIZES:
            raise BadInput(f"{name!r} is no size of the hardware: allowed are {', '.join(SIZES)}")
        parts.setdefault(SIZES[name], {})[name] = value
    return replace(geometry, **{part: replace(getattr(geometry, part), **values) for part, values in parts.items()})


def parse_sizes(text: str | None) -> dict[str, int]:
    """`ways=4,channels=8`. Raises BadInput."""
    sizes = {}
    for item in filter(None, (text or "").split(",")):
        name, _, value = item.partition("=")
        sizes[name.strip()] = _number(name.strip(), value)
    return sizes


def parse_sweep(text: str) -> tuple[str, list[int]]:
    """`ways=2,4,8,16`. Raises BadInput."""
    name, equals, values = text.partition("=")
    if not equals or name.strip() not in SIZES:
        raise BadInput(f"--sweep {text!r}: a size and its values are needed, for example ways=2,4,8,16; "
                       f"sizes are {', '.join(SIZES)}")
    numbers = [_number(name.strip(), value) for value in values.split(",")]
    return name.strip(), list(dict.fromkeys(numbers))


def _number(name: str, value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise BadInput(f"{name}={value!r} is not a whole number") from None
