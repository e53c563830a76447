"""Machine descriptions: TOML files that all levels of simulation share, with a source beside each number."""

from t3sim.machine.cycle import Machine
from t3sim.machine.levels import load_machine
from t3sim.machine.loader import PRESETS, MachineError

__all__ = ["PRESETS", "Machine", "MachineError", "load_machine"]
