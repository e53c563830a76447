"""Machines that differ from a given one in a few parameters."""

from typing import Any

from t3sim.machine import Machine


def variant(machine: Machine, changes: dict[str, Any]) -> Machine:
    """Return `machine` with, for example, {"gpu.compute_units": 160}; its name says so. Raises ValueError."""
    content = machine.model_dump()
    for key, value in changes.items():
        section, name = key.split(".")
        if content[section][name] != value:
            content[section][name] = value
            content["name"] = f"{content['name']}, {name}={value}"[:80]
    return Machine.model_validate(content)
