"""Cycle-exact model of the ring monitor."""


class RingMonitorModel:
    """Call `step` once per cycle with the inputs of that cycle; it returns `late` of the same cycle."""

    def __init__(self) -> None:
        self._started = 0  #: workgroups since the last cycle in which no command waited
        self._late = 0

    def step(self, *, pending: int, started: int, stage: int, restart: int) -> int:
        late, self._late = self._late, int(self._started > stage)
        self._started = self._started + started if pending and not restart else 0
        return late
