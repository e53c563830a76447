"""Scenarios from files, and single keys that are set beside them."""

import tomllib
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from t3sim.base.bounded import read_toml, reading
from t3sim.base.custom import check_installed
from t3sim.base.errors import BadInput, InFile, choices, shown
from t3sim.study.scenario.scenario import Scenario, ScenarioSection

_ALLOWED = {"bool_type": "true or false", "int_type": "a whole number", "int_from_float": "a whole number",
            "string_type": "a word", "float_type": "a number", "finite_number": "a finite number",
            "tuple_type": "a list of words", "too_short": "one or more", "greater_than_equal": "0 or more",
            "less_than_equal": "a number of 63 bits"}


def keys() -> list[str]:
    """Return every key that a file can have, with its section: `exchange.topology`."""
    return [*(name for name in Scenario.model_fields if name not in sections()),
            *(f"{name}.{key}" for name, section in sections().items() for key in section.model_fields
              if key != "workload")]


def sections() -> dict[str, type[ScenarioSection]]:
    """Return the sections by name."""
    return {name: field.annotation for name, field in Scenario.model_fields.items()
            if isinstance(field.annotation, type) and issubclass(field.annotation, ScenarioSection)}


def read_scenario(path: str) -> dict[str, Any]:
    """Return the content of a scenario's file. Raises BadInput in one line that names it."""
    with reading(f"scenario {shown(path)}", "TOML"):
        return read_toml(Path(path))


def scenario_of(content: Mapping[str, Any], changes: Mapping[str, Any],
                code: Collection[str] | None = None) -> Scenario:
    """Make the scenario of a file's content and of keys that are said beside it, each by its whole name.

    `code`: keys that may name any function, those of `changes` if not given; others may name installed parts only.
    Raises BadInput for the first key that is unknown or whose value is not possible.
    """
    sections_of_file = {name: dict(value) if isinstance(value, dict) else value for name, value in content.items()}
    for key, value in changes.items():
        _put(sections_of_file, key, value)
    if isinstance(names := sections_of_file.get("techniques"), list):
        sections_of_file["techniques"] = tuple(names)
    try:
        scenario = Scenario.model_validate(sections_of_file)
    except ValidationError as error:
        is_unknown = error.errors(include_url=False)[0]["type"] == "extra_forbidden"
        raise (InFile if is_unknown else BadInput)(_fault_text(error)) from None
    code_keys = changes if code is None else code
    check_installed({key: name for key, name in scenario.custom().items() if key not in code_keys})
    return scenario


def value_of(text: str) -> Any:
    """Read a value as TOML does; what is none there is a word."""
    try:
        return tomllib.loads(f"value = {text}")["value"] if "\n" not in text else text
    except (ValueError, RecursionError):
        return text


def _put(content: dict[str, Any], key: str, value: Any) -> None:
    """Set a key. Raises BadInput with those that come close if it is unknown."""
    if key.startswith("machine."):
        if not isinstance(content.get("machine", {}), dict):
            content["machine"] = {"extends": content["machine"]}
        _, *names, last = key.split(".")
        inner = content.setdefault("machine", {"extends": Scenario.model_fields["machine"].default})
        for name in names:
            inner = inner.setdefault(name, {})
            if not isinstance(inner, dict):
                raise InFile(f"{shown(key)} is unknown: machine.{name} is no section")
        inner[last] = value
        return
    if key not in keys():
        raise InFile(f"{shown(key)} is unknown: allowed are {choices(key, keys())}")
    section, _, name = key.rpartition(".")
    if not section:
        content[name] = value
    elif isinstance(inner := content.setdefault(section, {}), dict):
        inner[name] = value


def _fault_text(error: ValidationError) -> str:
    """Explain the first fault: what is wrong with which key, and what is allowed."""
    fault = error.errors(include_url=False)[0]
    section, *inner = map(str, fault["loc"])
    section_types = sections()
    key = ".".join((section, *inner[:1])) if section in section_types else section
    match fault["type"]:
        case "extra_forbidden":
            if "." not in key and (close := get_close_matches(key, Scenario.model_fields, 1)):
                return f"{shown(key)} is unknown: did you mean {close[0]}?"
            allowed = keys() if "." in key else Scenario.model_fields
            return f"{shown(key)} is unknown: allowed are {choices(key, allowed)}"
        case "model_type" if section in section_types:
            return f"{section} = {shown(fault['input'])}: a section is allowed, [{section}]"
        case "literal_error":
            expected = fault["ctx"]["expected"].replace("'", "").replace(" or ", ", ")
            return f"{key} = {shown(fault['input'])} is unknown: allowed are {expected}"
        case "value_error":
            error = fault["ctx"]["error"]
            return str(error)
        case kind:
            return f"{key} = {shown(fault['input'])}: {_ALLOWED.get(kind, fault['msg'].lower())} is allowed"
