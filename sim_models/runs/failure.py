"""The end of a run, and what one raises that does not end well."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from t3sim.base.errors import Failure

if TYPE_CHECKING:
    from t3sim.gpu.engine.loop import Lockstep


class SimulationError(Failure):
    """A run that broke a rule or came to a stop; the message says which and where.

    `gpus`: what waits where, by GPU, if it stands still (`diagnosis.waits`).
    """

    def __init__(self, message: str, gpus: Sequence[Mapping[str, str]] = ()) -> None:
        super().__init__(message)
        self.gpus = gpus


def to_end(run: "Lockstep", what: str, after_batch: Callable[[], object] = lambda: None,
           batch_cycles: int = 0) -> None:
    """Run a kernel without hardware to its end; `batch_cycles`: 0, the loop's own. Raises SimulationError if stuck."""
    from t3sim.gpu.engine.end import IDLE_LIMIT, STUCK
    from t3sim.gpu.engine.loop import BATCH_CYCLES

    if run.to_end(after_batch, batch_cycles or BATCH_CYCLES) == STUCK:
        raise SimulationError(f"the {what} did not move for {IDLE_LIMIT} cycles")
