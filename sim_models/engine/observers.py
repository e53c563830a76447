"""Whoever watches a run: recorders, the ledger of data mode, counters of traffic. Any number at once.

An observer has two sides. From Python it says what it wants before the loop goes on, and looks afterwards. Inside the
loop its state, a named tuple with the methods `before_edge` and `after_edge`, is called in every cycle of every GPU.
"""

from typing import NamedTuple

from ..compiled.by_type import by_type


class Observer:
    """Python's side. Methods that are not overridden do nothing."""

    interleaved = False  #: whether its state must see all GPUs' cycle n before any GPU's cycle n+1

    def before(self, now: int, end: int) -> tuple[tuple | None, int]:
        """Return the state for the cycles from `now` on, and the cycle, at most `end`, in which to ask again.

        The state is None if the observer does not look at single cycles. If both cycles are equal nothing runs, and the
        loop is compiled.
        """
        return None, end

    def after(self, now: int) -> None:
        """Look at a run that has come to cycle `now`. Raises what is wrong with it."""

    def check(self) -> None:
        """Check a run that has come to its end, after its own self-checks. Raises SimulationError."""

    def close(self) -> None:
        """Free what it holds."""


@by_type
def before_edge(state, sim, kernel, hardware, device, now):
    """Look at a GPU whose models have acted and whose hardware still shows what they saw."""


@by_type
def after_edge(state, sim, kernel, hardware, device, now):
    """Look at a GPU after its hardware's clock edge."""


class Both(NamedTuple):
    """Two states as one."""

    first: tuple
    second: tuple

    def before_edge(self, sim, kernel, hardware, device, now):
        before_edge(self.first, sim, kernel, hardware, device, now)
        before_edge(self.second, sim, kernel, hardware, device, now)

    def after_edge(self, sim, kernel, hardware, device, now):
        after_edge(self.first, sim, kernel, hardware, device, now)
        after_edge(self.second, sim, kernel, hardware, device, now)


def together(states: list[tuple | None]) -> tuple | None:
    """Make one state that stands for all of them."""
    whole = None
    for state in reversed(states):
        whole = state if whole is None else whole if state is None else Both(state, whole)
    return whole
