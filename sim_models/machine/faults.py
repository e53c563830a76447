"""Faults of a machine file, each in one line: the section, the key, its value, and what is allowed."""

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

#: Where something is: sections, then a key, or an index into a list behind it.
Place = tuple[str | int, ...]


@cache
def fields_at(kind: type[Section], sections: Place) -> dict[str, FieldInfo]:
    """Return the fields of a schema's section; none if it has no such section."""
    for name in sections:
        inner = section_of(kind.model_fields.get(str(name)))
        if inner is None:
            return {}
        kind = inner
    return dict(kind.model_fields)


_LONGEST_KEY = 30  #: of a key that no machine file has, beside the list of those that are allowed


def is_lack(fault: ErrorDetails) -> bool:
    """Say whether a fault is a missing key, and not a missing element of a list."""
    return fault["type"] == "missing" and not isinstance(fault["loc"][-1], int)


def explain(kind: type[Section], error: ValidationError, allowed: Callable[[Place], Iterable[str]],
            missing: Callable[[Place], str]) -> str:
    """Choose the fault to report, and explain it: an unknown key, a wrong value, a missing key.

    `allowed`: keys of a section that a message may name; `missing`: the words for a key that is missing there.
    """
    places: dict[Place, list[ErrorDetails]] = {}  # what may be of several types has a fault for each
    for fault in sorted(error.errors(include_url=False),
                        key=lambda fault: (fault["type"] != "extra_forbidden", is_lack(fault))):
        places.setdefault(_place(kind, fault["loc"]), []).append(fault)
    (place, faults), *others = places.items()
    more = f" ({len(others)} more of this kind or others)" if others else ""
    return _explain_one(kind, place, faults, allowed, missing) + more


def unknown(place: Place, allowed: Iterable[str]) -> str:
    """Say that no machine has such a key, and which one was meant."""
    *sections, key = place
    allowed = [*allowed, *([] if sections else ["extends"])]
    close = _closest(str(key), allowed)
    return f"{brackets(sections)}{_key(key)} is unknown; " + (
        f"did you mean {close}?" if close else f"allowed are {choices(str(key), sorted(allowed))}")


def brackets(sections: Sequence[str | int]) -> str:
    """Write the sections that a key is in, for the beginning of a message."""
    return f"[{'.'.join(map(str, sections))}] " if sections else ""


def _place(kind: type[Section], loc: Place) -> Place:
    """Return sections, key and place in a list, without the names of types that pydantic tried."""
    keys = next((length for length in range(1, len(loc))
                 if (field := _field(kind, loc[:length])) and not section_of(field)), len(loc))
    return loc[:keys] + tuple(part for part in loc[keys:] if isinstance(part, int))


def _field(kind: type[Section], where: Place) -> FieldInfo | None:
    return fields_at(kind, where[:-1]).get(str(where[-1]))


def _explain_one(kind: type[Section], where: Place, faults: list[ErrorDetails],
                 allowed: Callable[[Place], Iterable[str]], missing: Callable[[Place], str]) -> str:
    fault = faults[0]
    *sections, key = where or ("",)
    is_section = where and section_of(_field(kind, where)) is not None
    if sections and isinstance(key, int):  # an element of a list: name the list
        sections, key = sections[:-1], sections[-1] if fault["type"] == "missing" else f"{sections[-1]}[{key}]"
    place = brackets(sections)
    match fault["type"]:
        case "missing" if not is_lack(fault):
            return f"{place}{key} = {shown(fault['input'])}: element {fault['loc'][-1]} is missing"
        case "missing":
            return f"{brackets(where).strip() if is_section else place + str(key)} is missing{missing(where)}"
        case "extra_forbidden":
            return unknown(where, allowed(tuple(sections)))
        case "value_error":
            error = fault.get("ctx", {})["error"]
            if isinstance(error, GeometryError):
                return f"{_section_named(kind, str(error).partition('=')[0])}{error}"
            return brackets(where) + str(error)
        case "model_type":
            return f"{place}{key} = {shown(fault['input'])} must be a section, [{key}]"
        case _:
            may_be = " or ".join(dict.fromkeys(said(one, _field(kind, where)) for one in faults))
            return f"{place}{key} = {shown(fault['input'])}: {may_be}"


def said(fault: ErrorDetails, field: FieldInfo | None) -> str:
    """Say what a key allows whose value has this fault."""
    limits = {name: _number(value) for item in (field.metadata if field else ())
              for name in ("ge", "gt", "le") if (value := getattr(item, name, None)) is not None}
    match fault["type"], limits:
        case "greater_than_equal" | "less_than_equal", {"ge": low, "le": high}:
            return f"{low} to {high} is allowed"
        case "greater_than" | "less_than_equal", {"gt": low, "le": high}:
            return f"above {low}, at most {high} is allowed"
    return f"{fault['msg'][0].lower()}{fault['msg'][1:]}"


def _number(value: float) -> str:
    """Write a limit as a person does: 10000 for 10000.0, 1e12 for 1000000000000.0."""
    if not isinstance(value, float):
        return str(value)
    return re.sub(r"e\+?(-?)0*", r"e\1", f"{value:g}") if value % 1 or value >= 1e7 else f"{value:.0f}"


def _key(key: str | int) -> str:
    """Write a key as a message repeats it: one that no machine file would have is quoted and shortened."""
    return str(key) if re.fullmatch(r"\w{1,40}", str(key)) else shown(str(key)[:_LONGEST_KEY])


def _section_named(kind: type[Section], size: str) -> str:
    """Name the section whose key a size of the geometry comes from, in brackets; empty for one that no key sets."""
    return next((f"[{name}] " for name, field in kind.model_fields.items()
                 if size in getattr(section_of(field), "model_fields", ())), "")


_UNITS = {"ns", "us", "ms", "s", "cycles", "bytes", "kb", "mb", "gb", "tb", "kib", "mib", "gib", "hz", "mhz", "ghz",
          "gbps", "gbit", "per"}


def _stem(key: str) -> str:
    """Return the key without its unit."""
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
