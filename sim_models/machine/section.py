"""Base of every section of a machine file."""

from functools import cache
from types import UnionType
from typing import Annotated, Any, get_args

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer
from pydantic.fields import FieldInfo

from t3sim.machine.levels import Level


class Section(BaseModel):
    """A section of a machine file. Unknown keys, text for numbers, NaN and infinity are refused.

    It is frozen and has no defaults: numbers live in the TOML files, each beside its source.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, defer_build=True)

    @model_serializer(mode="wrap")
    def _what_it_says(self, write: SerializerFunctionWrapHandler) -> dict[str, Any] | None:
        """Leave out keys that the file does not set: they are None, although no value of the key is."""
        if self is None:  # pydantic also calls this for a missing section
            return None
        fields = type(self).model_fields
        return {key: value for key, value in write(self).items() if value is not None or may_be_none(fields[key])}


def within(low: float, high: float) -> Any:
    """Limit a number, both limits included: `Annotated[int, within(1, 64)]`."""
    return Field(ge=low, le=high)


def needed_by(*levels: Level) -> Any:
    """Make a key that some levels require, and that other levels of the same section do not read.

    The key is None in a file without it, and `Machine.lacks` reports it for those levels.
    """
    return _marked(None, levels, True)


def read_by(*levels: Level, default: Any = None) -> Any:
    """Make an optional key that only some levels read."""
    return _marked(default, levels, False)


def _marked(default: Any, levels: tuple[Level, ...], needed: bool) -> Any:
    marks: dict[str, Any] = {"levels": levels, "needed": needed}
    return Field(default=default, json_schema_extra=marks)


def left_out() -> Any:
    """Make a section, or a key outside of all sections, that only some levels require (`Level.needs`)."""
    return Field(default=None)


def _marks(field: FieldInfo) -> dict[str, Any]:
    return field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}


def is_read(field: FieldInfo, level: Level) -> bool:
    """Say whether a level that reads the section reads this key."""
    levels = _marks(field).get("levels", (level,))
    return level in levels or level.on in levels


@cache
def needed_keys(section: type[Section], level: Level) -> list[str]:
    """List the keys that a level requires if it reads the section."""
    return [key for key, field in section.model_fields.items()
            if is_read(field, level) and _marks(field).get("needed", field.is_required())]


def section_of(field: FieldInfo | None) -> type[Section] | None:
    """Return a field's section, also of an optional one; None for a key."""
    kinds = get_args(field.annotation) if field and isinstance(field.annotation, UnionType) else (
        field and field.annotation,)
    return next((one for one in kinds if isinstance(one, type) and issubclass(one, Section)), None)


def may_be_none(field: FieldInfo) -> bool:
    """Say whether a key has None among its values."""
    return type(None) in get_args(field.annotation)


# For closed forms, which no value makes slow. Simulated levels have limits of their own.
Count = Annotated[int, within(1, 1 << 40)]
Positive = Annotated[float, within(1e-9, 1e12)]  # a smaller rate would run for ever
NotNegative = Annotated[float, within(0, 1e12)]
Share = Annotated[float, Field(gt=0, le=1)]

#: One wait in ns: at most 100 times the latency across a data centre, and short enough that at the fastest memory clock
#: no run reports it as a deadlock (`engine.end.IDLE_LIMIT`).
Wait = Annotated[float, within(0, 10_000)]
#: 1e9 bytes per second, which is bytes per ns; from Ethernet to NVLink x 10.
Bandwidth = Annotated[float, within(0.1, 10_000)]
