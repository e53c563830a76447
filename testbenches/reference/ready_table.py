"""Cycle-exact model of the ready table."""

from collections import Counter
from typing import NamedTuple


class Ask(NamedTuple):
    """Fields of `t3sim.rtl.layouts.ready_ask`."""

    group: int
    tiles: int


class ReadyTableModel:
    """Call `step` once per cycle with the inputs of that cycle; it returns `asks.ready` of the same cycle.

    `count_bits`: of a counter.
    """

    def __init__(self, groups: int, count_bits: int = 12) -> None:
        self._groups, self._most = groups, (1 << count_bits) - 1
        self._forget()

    def _forget(self) -> None:
        self.complete: Counter[int] = Counter()  #: complete tiles of each group, as the counters show them
        self._counting: int | None = None  # group of a completion of the cycle before
        self._seen: int | None = None  # complete tiles of the group that was asked for in the cycle before
        self._ready = 0

    def step(self, *, shift: int, completed: int | None, ask: Ask | None, restart: int) -> int:
        """`completed`: id of a tile that is complete; `ask`: what is asked for, held until it is taken."""
        ready, seen = self._ready, self._seen
        self._ready = int(seen is not None and not ready and ask is not None and seen >= ask.tiles)
        self._seen = self.complete[ask.group] if ask is not None and not ready else None
        if self._counting is not None:
            self.complete[self._counting] = min(self.complete[self._counting] + 1, self._most)
        group = None if completed is None else completed >> shift
        self._counting = None if group is None or group >= self._groups else group
        if restart:
            self._forget()
        return ready
