"""Machine descriptions: TOML files that all levels of simulation share, with a source beside each number."""

from t3sim.machine.files import PRESETS, MachineError
from t3sim.machine.load import load_machine
from t3sim.machine.machine import Machine

__all__ = ["PRESETS", "Machine", "MachineError", "load_machine"]
