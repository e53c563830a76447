"""Which machine has the GPUs that a row names."""

import re
from functools import cache

from t3sim.analytic.validation.requests import NotExpressible
from t3sim.machine import Machine, load_machine
from t3sim.machine.levels import COMMERCIAL

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
    found = next((machine for name, machine in _NAMES if re.search(name, gpu.lower())), None)
    if found is None:
        raise NotExpressible(f"no machine has GPUs called {gpu[:60]!r}")
    return found


@cache
def loaded(machine: str) -> Machine:
    """Load a machine once."""
    return load_machine(machine, COMMERCIAL)
