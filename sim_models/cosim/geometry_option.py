"""A geometry in words: `ways=4,channels=8` changes those two sizes of the default (or of a machine's) geometry."""

from dataclasses import fields, replace

from t3sim.base.errors import BadInput, choices
from t3sim.base.numerals import whole
from t3sim.rtl.geometry import Geometry

_FIELDS = [(part, size) for part in fields(Geometry()) for size in fields(getattr(Geometry(), part.name))]
#: Size: the part of the geometry that it belongs to. The names are unique over all parts.
SIZES = {size.name: part.name for part, size in _FIELDS}
_WORDS = {size.name for _, size in _FIELDS if size.type is str}  #: sizes that are not numbers


def changed(geometry: Geometry, sizes: dict[str, int | str]) -> Geometry:
    """Return the geometry with other sizes. Raises GeometryError or BadInput."""
    parts: dict[str, dict[str, int | str]] = {}
    for name, value in sizes.items():
        _check_size("geometry", name)
        parts.setdefault(SIZES[name], {})[name] = value
    return replace(geometry, **{part: replace(getattr(geometry, part), **values) for part, values in parts.items()})


def parse_sizes(text: str | None) -> dict[str, int | str]:
    """Parse `ways=4,protection=secded`; None: no changes. Raises BadInput."""
    sizes: dict[str, int | str] = {}
    for item in text.split(",") if text is not None else ():
        name, equals, value = (part.strip() for part in item.partition("="))
        if not equals:
            raise BadInput(f"geometry = {item!r}: a size and its value are needed, for example ways=4")
        if name in sizes:
            raise BadInput(f"geometry: {name}={value}: {name} is {sizes[name]} already, and can be given once only")
        _check_size("geometry", name)
        sizes[name] = _value(name, value)
    return sizes


def parse_sweep(text: str) -> tuple[str, list[int | str]]:
    """Parse `ways=2,4,8,16`. Raises BadInput."""
    name, equals, values = text.partition("=")
    if not equals:
        raise BadInput(f"sweep = {text!r}: a size and its values are needed, for example ways=2,4,8,16")
    _check_size("sweep", name.strip())
    swept = [_value(name.strip(), value.strip()) for value in values.split(",")]
    return name.strip(), list(dict.fromkeys(swept))


def _check_size(where: str, name: str) -> None:
    if name not in SIZES:
        raise BadInput(f"{where} = {name!r} is not a size of the hardware: allowed are {choices(name, SIZES)}")


def _value(name: str, value: str) -> int | str:
    if name in _WORDS:
        return value
    try:
        return whole(value)
    except ValueError:
        raise BadInput(f"{name}={value!r} is not a whole number") from None
