"""Machine descriptions: TOML files, checked on loading, with a source beside each number."""

from t3sim.machine.schema import PRESETS, Machine, MachineError, load_machine

__all__ = ["PRESETS", "Machine", "MachineError", "load_machine"]
