"""A geometry in words: `ways=4,channels=8` changes those two sizes of the default (or of a machine's) geometry."""

from dataclasses import fields, replace

from rtl.geometry import Geometry
from sim_models.errors import BadInput

_FIELDS = [(part, size) for part in fields(Geometry()) for size in fields(getattr(Geometry(), part.name))]
#: Size: the part of the geometry that it belongs to. The names are unique over all parts.
SIZES = {size.name: part.name for part, size in _FIELDS}
_WORDS = {size.name for _, size in _FIELDS if size.type is str}  #: sizes that are not numbers


def changed(geometry: Geometry, sizes: dict[str, int | str]) -> Geometry:
    """Raises GeometryError or BadInput."""
    parts: dict[str, dict[str, int | str]] = {}
    for name, value in sizes.items():
        if name not in SIZES:
            raise BadInput(f"{name!r} is no size of the hardware: allowed are {', '.join(SIZES)}")
        parts.setdefault(SIZES[name], {})[name] = value
    return replace(geometry, **{part: replace(getattr(geometry, part), **values) for part, values in parts.items()})


def parse_sizes(text: str | None) -> dict[str, int | str]:
    """`ways=4,protection=secded`. Raises BadInput."""
    sizes = {}
    for item in filter(None, (text or "").split(",")):
        name, _, value = item.partition("=")
        sizes[name.strip()] = _value(name.strip(), value.strip())
    return sizes


def parse_sweep(text: str) -> tuple[str, list[int | str]]:
    """`ways=2,4,8,16`. Raises BadInput."""
    name, equals, values = text.partition("=")
    if not equals or name.strip() not in SIZES:
        raise BadInput(f"--sweep {text!r}: a size and its values are needed, for example ways=2,4,8,16; "
                       f"sizes are {', '.join(SIZES)}")
    swept = [_value(name.strip(), value.strip()) for value in values.split(",")]
    return name.strip(), list(dict.fromkeys(swept))


def _value(name: str, value: str) -> int | str:
    if name in _WORDS:
        return value
    try:
        return int(value)
    except ValueError:
        raise BadInput(f"{name}={value!r} is not a whole number") from None
