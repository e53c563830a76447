"""The arbitration policy of a run, and its threshold."""

from dataclasses import dataclass

from t3sim.machine import Machine


@dataclass
class Policy:
    """Arbitration settings (T3 paper, section 4.5)."""

    name: str = "round_robin"
    threshold: str | int | None = "auto"  #: "auto", a number, or None: communication is never held back

    @classmethod
    def of(cls, name: str, machine: Machine) -> "Policy":
        """Return policy `name` with the machine's threshold."""
        threshold = machine.arbiter.threshold
        return cls(name, None if threshold == "none" else threshold)
