"""Agent protocol: a kernel that runs on a GPU is to the loop a named tuple with these methods (see `by_type`)."""

from t3sim.base.compiled.by_type import by_type
from t3sim.gpu.engine.hardware import Hardware
from t3sim.gpu.state import Sim


@by_type
def cycle(agent: tuple, sim: Sim, hardware: Hardware | None, gpu: int, now: int) -> None:
    """Act in cycle `now`."""


@by_type
def returned(agent: tuple, sim: Sim, gpu: int, tag: int, now: int) -> None:
    """Take a read that has returned; `tag`: its request's."""


@by_type
def done(agent: tuple, sim: Sim, gpu: int) -> bool:
    """Return whether the agent has finished."""
    return True


@by_type
def progress(agent: tuple, gpu: int) -> int:
    """Return a number that changes while the agent makes progress."""
    return 0
