"""Which machine has the GPUs that a row names."""

import re

from .requests import NotExpressible

#: Looked for in this order, in what the row says.
_NAMES = (("h800", "h800-nvlink"), (r"h100(?!.*pcie)", "h100-nvlink"), (r"a100(?!.*pcie)", "a100-nvlink"),
          ("v100", "dgx-v100"), (r"mi35\d|gfx950", "mi355x"), ("mi300x", "mi300x"))


def machine_of(gpu: str) -> str:
    """Return the machine that has these GPUs. Raises `NotExpressible`."""
    found = next((machine for name, machine in _NAMES if re.search(name, gpu.lower())), None)
    if found is None:
        raise NotExpressible(f"no machine has GPUs called {gpu[:60]!r}")
    return found


#: Machines that have rows.
MACHINES = tuple(sorted({machine for _, machine in _NAMES}))
