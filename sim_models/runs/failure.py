"""What a run that does not end well raises."""

from collections.abc import Mapping, Sequence

from ..errors import Failure


class SimulationError(Failure):
    """A run that broke a rule or came to a stop; the message says which and where.

    `gpus`: what waits where, by GPU, if it stands still (`diagnosis.waits`).
    """

    def __init__(self, message: str, gpus: Sequence[Mapping[str, str]] = ()) -> None:
        super().__init__(message)
        self.gpus = gpus
