"""Cycle-exact model of the watchdog."""

from t3sim.rtl.registers import WATCHDOG_PERIOD


class WatchDogModel:
    """A model to be asked once per cycle: `step` takes a cycle's inputs and returns its (`told`, `waited`).

    That is whether the error is reported in it, and what waited then, as a number.
    """

    def __init__(self) -> None:
        self._calm: list[bool] = []  #: of the period under way: whether nothing moved, by cycle
        self._still = 0  #: periods
        self._shown = False, 0
        self._told = False

    def counts(self, limit: int) -> tuple[bool, bool]:
        """Say whether `moves` and `waits` are looked at in the cycle of the next `step`."""
        on = limit != 0 and not self._told
        return on and all(self._calm), on and len(self._calm) == WATCHDOG_PERIOD - 1

    def step(self, *, limit: int, moves: int, waits: int, clear: int) -> tuple[bool, int]:
        shown = self._shown
        self._shown = False, shown[1]
        if clear:
            self._told, self._shown = False, (False, 0)
        if clear or not limit:
            self._calm, self._still = [], 0
        elif not self._told:
            self._calm.append(not moves)
            if len(self._calm) == WATCHDOG_PERIOD:
                self._still = self._still + 1 if all(self._calm) and waits else 0
                self._calm = []
                if self._still >= limit:
                    self._told, self._shown, self._still = True, (True, waits), 0
        return shown
