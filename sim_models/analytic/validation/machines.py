"""Which machine a row is of, and from which rows a machine's constants come: `[[measured.fitted]]` of its file."""

import re
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from operator import attrgetter
from typing import Any

from t3sim.analytic.validation.requests import Measured, NotExpressible
from t3sim.machine import Machine, load_machine
from t3sim.machine.files import extended_files
from t3sim.machine.levels import COMMERCIAL, ITERATIONS
from t3sim.machine.libraries import Fit
from t3sim.machine.load import serves

#: Looked for in this order, in what the row says.
_NAMES = (("gh200", "gh200"), ("gb200", "gb200"), ("b300", "b300"), ("b200", "b200"), ("h200", "h200-sxm"),
          ("h800", "h800-sxm"), (r"h100(?!.*(pcie|nvl))", "h100-sxm"), ("a100.*pcie", "a100-pcie"),
          ("a100", "a100-sxm"),
          ("v100", "dgx-v100"), (r"\bl20\b|nvidia l20", "l20-pcie"), (r"mi35\d|gfx950", "mi355x"), ("mi325", "mi325x"),
          ("mi308", "mi308x"), (r"mi300x|gfx942", "mi300x"))

#: Machines that have rows.
MACHINES = tuple(sorted({machine for _, machine in _NAMES}))


def machine_of(gpu: str) -> str:
    """Return the machine that has these GPUs. Raises `NotExpressible`."""
    preset = next((machine for name, machine in _NAMES if re.search(name, gpu.lower())), None)
    if preset is None:
        raise NotExpressible(f"no machine has GPUs called {gpu[:60]!r}")
    return preset


@cache
def loaded(machine: str) -> Machine:
    """Load a machine once, with what whole iterations need if it has that."""
    return load_machine(machine, ITERATIONS if serves(machine, ITERATIONS) else COMMERCIAL)


def is_fitted(row: Measured, machine: str) -> bool:
    """Say whether a constant of the machine comes from this row."""
    return any(gave(row, one) for one in own_fits(machine))


@cache
def own_fits(machine: str) -> tuple[Fit, ...]:
    """Return what a machine's own file says of rows and constants: those of a file that it extends are not its."""
    (_, content), *_ = extended_files(machine)
    return loaded(machine).measured.fitted if "fitted" in content.get("measured", {}) else ()


def gave(row: Measured, one: Fit) -> bool:
    """Say whether a row of the machine whose file has this fit gave its constants."""
    return one.file == row.file and re.search(one.rows, row.scenario) is not None


@cache
def _machines_of(key: str, value: str) -> tuple[str, ...]:
    """Return the machines whose files name rows for a constant of this value."""
    return tuple(name for name in MACHINES for one in own_fits(name)
                 if one.key == key and _value(loaded(name), key) == value)


def _value(machine: Machine, key: str) -> str:
    """Return a constant, or several: `rings.call_ns, rings.launch_ns`, or a whole section."""
    return ", ".join(str(attrgetter(path)(machine)) for path in key.split(", "))


def constant(machine: Machine, key: str) -> Any:
    """Return a constant, or a section; None if the machine has none."""
    value: Any = machine
    for name in key.split("."):
        value = getattr(value, name, None)
    return value


def constants(rows: Iterable[tuple[Measured, str]]) -> dict[tuple[str, str], int]:
    """Return by machines and key how many of these rows, each with its machine, gave a constant.

    A constant that machines share comes from the rows of all of them.
    """
    row_counts: dict[tuple[str, str], int] = defaultdict(int)
    for row, machine in rows:
        for key in {one.key for one in own_fits(machine) if gave(row, one)}:
            machines = _machines_of(key, _value(loaded(machine), key))
            row_counts[", ".join(dict.fromkeys(machines)), key] += 1
    return dict(sorted(row_counts.items()))
