"""One-line messages for faults of a machine file: the section, the key, its value, and the allowed values."""

import difflib
import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from t3sim.base.errors import choices, shown
from t3sim.machine.section import Section, section_of
from t3sim.rtl.geometry import GeometryError

#: Path of a value: sections, then a key, or an index into a list behind it.
Place = tuple[str | int, ...]


@cache
def fields_at(schema: type[Section], sections: Place) -> dict[str, FieldInfo]:
    """Return the fields of a schema's section; none if it has no such section."""
    for name in sections:
        inner = section_of(schema.model_fields.get(str(name)))
        if inner is None:
            return {}
        schema = inner
    return dict(schema.model_fields)


_LONGEST_KEY = 30  #: characters of an unknown key that a message repeats


def is_lack(fault: ErrorDetails) -> bool:
    """Say whether a fault is a missing key, and not a missing element of a list."""
    return fault["type"] == "missing" and not isinstance(fault["loc"][-1], int)


def explain(schema: type[Section], error: ValidationError, allowed: Callable[[Place], Iterable[str]],
            missing_text: Callable[[Place], str]) -> str:
    """Choose the fault to report, and explain it: first unknown keys, then wrong values, then missing keys.

    `allowed`: keys of a section that a message may name; `missing_text`: words that follow "is missing".
    """
    faults_by_place: dict[Place, list[ErrorDetails]] = {}  # pydantic reports a fault for each type of a union
    for fault in sorted(error.errors(include_url=False),
                        key=lambda fault: (fault["type"] != "extra_forbidden", is_lack(fault))):
        faults_by_place.setdefault(_place(schema, fault["loc"]), []).append(fault)
    (path, faults), *others = faults_by_place.items()
    more = f" ({len(others)} more of this kind or others)" if others else ""
    return _explain_one(schema, path, faults, allowed, missing_text) + more


def unknown(path: Place, allowed: Iterable[str]) -> str:
    """Write that no machine has such a key, and which key was probably meant."""
    *sections, key = path
    allowed = [*allowed, *([] if sections else ["extends"])]
    close = _closest(str(key), allowed)
    return f"{brackets(sections)}{_key(key)} is unknown; " + (
        f"did you mean {close}?" if close else f"allowed are {choices(str(key), sorted(allowed))}")


def brackets(sections: Sequence[str | int]) -> str:
    """Write the sections of a key, for the beginning of a message."""
    return f"[{'.'.join(map(str, sections))}] " if sections else ""


def _place(schema: type[Section], loc: Place) -> Place:
    """Return the path without the names of types that pydantic tried."""
    keys = next((length for length in range(1, len(loc))
                 if (field := _field(schema, loc[:length])) and not section_of(field)), len(loc))
    return loc[:keys] + tuple(part for part in loc[keys:] if isinstance(part, int))


def _field(schema: type[Section], path: Place) -> FieldInfo | None:
    return fields_at(schema, path[:-1]).get(str(path[-1]))


def _explain_one(schema: type[Section], path: Place, faults: list[ErrorDetails],
                 allowed: Callable[[Place], Iterable[str]], missing_text: Callable[[Place], str]) -> str:
    fault = faults[0]
    *sections, key = path or ("",)
    is_section = path and section_of(_field(schema, path)) is not None
    if sections and isinstance(key, int):  # an element of a list: name the list
        sections, key = sections[:-1], sections[-1] if fault["type"] == "missing" else f"{sections[-1]}[{key}]"
    prefix = brackets(sections)
    match fault["type"]:
        case "missing" if not is_lack(fault):
            return f"{prefix}{key} = {shown(fault['input'])}: element {fault['loc'][-1]} is missing"
        case "missing":
            return f"{brackets(path).strip() if is_section else prefix + str(key)} is missing{missing_text(path)}"
        case "extra_forbidden":
            return unknown(path, allowed(tuple(sections)))
        case "value_error":
            error = fault.get("ctx", {})["error"]
            if isinstance(error, GeometryError):
                return f"{_section_named(schema, str(error).partition('=')[0])}{error}"
            return brackets(path) + str(error)
        case "model_type":
            return f"{prefix}{key} = {shown(fault['input'])} must be a section, [{key}]"
        case _:
            may_be = " or ".join(dict.fromkeys(allowed_values(one, _field(schema, path)) for one in faults))
            return f"{prefix}{key} = {shown(fault['input'])}: {may_be}"


def allowed_values(fault: ErrorDetails, field: FieldInfo | None) -> str:
    """Describe the values that a key allows, given the fault of its value."""
    limits = {name: _number(value) for item in (field.metadata if field else ())
              for name in ("ge", "gt", "le") if (value := getattr(item, name, None)) is not None}
    match fault["type"], limits:
        case "greater_than_equal" | "less_than_equal", {"ge": low, "le": high}:
            return f"{low} to {high} is allowed"
        case "greater_than" | "less_than_equal", {"gt": low, "le": high}:
            return f"above {low}, at most {high} is allowed"
    return f"{fault['msg'][0].lower()}{fault['msg'][1:]}"


def _number(value: float) -> str:
    """Write a limit briefly: 10000 for 10000.0, 1e12 for 1000000000000.0."""
    if not isinstance(value, float):
        return str(value)
    return re.sub(r"e\+?(-?)0*", r"e\1", f"{value:g}") if value % 1 or value >= 1e7 else f"{value:.0f}"


def _key(key: str | int) -> str:
    """Write a key for a message: quoted and shortened if it is not a plain word."""
    return str(key) if re.fullmatch(r"\w{1,40}", str(key)) else shown(str(key)[:_LONGEST_KEY])


def _section_named(schema: type[Section], size: str) -> str:
    """Name the section that sets a size of the geometry, in brackets; empty if no key sets it."""
    return next((f"[{name}] " for name, field in schema.model_fields.items()
                 if size in getattr(section_of(field), "model_fields", ())), "")


_UNITS = {"ns", "us", "ms", "s", "cycles", "bytes", "kb", "mb", "gb", "tb", "kib", "mib", "gib", "hz", "mhz", "ghz",
          "gbps", "gbit", "per"}


def _stem(key: str) -> str:
    words = key.split("_")
    while len(words) > 1 and words[-1].lower() in _UNITS:
        words.pop()
    return "_".join(words)


def _closest(key: str, allowed: list[str]) -> str | None:
    for other in allowed:
        if _stem(other) == _stem(key):
            return other
    matches = difflib.get_close_matches(key, allowed, n=1, cutoff=0.6)
    return matches[0] if matches else None
