"""Observers of a run: recorders, the ledger of data mode, counters of traffic; any number at once.

An observer has two sides. In Python `before` and `after` are called around each stretch of cycles. Inside the loop the
methods `before_edge` and `after_edge` of its state, a named tuple, are called in every cycle of every GPU. They are
called by address, so the loop is compiled once, with or without observers.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numba import typeof, types

from t3sim.base.compiled.by_reference import Reference
from t3sim.base.compiled.by_type import by_type
from t3sim.base.compiled.hooks import LaidDown, address_of, call_at, lay_down
from t3sim.base.compiled.jit import by_address, merged
from t3sim.gpu.state import Sim


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
        """Inspect a run at cycle `now`. Raises the errors that it finds."""

    def check(self) -> None:
        """Check a finished run, after its self-checks. Raises SimulationError."""

    def close(self) -> None:
        """Free its resources."""


@by_type
def before_edge(state: tuple, sim: Sim, kernel: tuple, hardware: tuple | None, gpu: int,
                now: int) -> None:
    """Inspect a GPU after its models and before its RTL's clock edge."""


@by_type
def after_edge(state: tuple, sim: Sim, kernel: tuple, hardware: tuple | None, gpu: int,
               now: int) -> None:
    """Inspect a GPU after its RTL's clock edge."""


@by_address
def _before(state: tuple, sim: Sim, kernel: tuple, hardware: tuple | None, gpu: int, now: int) -> None:
    before_edge(state, sim, kernel, hardware, gpu, now)


@by_address
def _after(state: tuple, sim: Sim, kernel: tuple, hardware: tuple | None, gpu: int, now: int) -> None:
    after_edge(state, sim, kernel, hardware, gpu, now)


class Watchers(NamedTuple):
    """Observers of single cycles, as the loop calls them: addresses, int64 [observer]."""

    before: np.ndarray
    after: np.ndarray
    state: np.ndarray


@merged
def call_before_edge(watchers: "Watchers", sim: Sim, kernel: tuple, hardware: tuple | None, gpu: int,
                     now: int) -> None:
    for i in range(len(watchers.state)):
        call_at(watchers.before[i], watchers.state[i], sim, kernel, hardware, gpu, now)


@merged
def call_after_edge(watchers: "Watchers", sim: Sim, kernel: tuple, hardware: tuple | None, gpu: int,
                    now: int) -> None:
    for i in range(len(watchers.state)):
        call_at(watchers.after[i], watchers.state[i], sim, kernel, hardware, gpu, now)


def watchers(states: Sequence[tuple], machine: Sequence[tuple | None]) -> tuple[Watchers, list[LaidDown]]:
    """Compile the states' methods for a machine, its kernel and its hardware.

    The caller keeps what is laid down for as long as the loop runs.
    """
    kinds = [types.none if part is None else Reference(typeof(part)) for part in machine] if states else []
    laid_down = [lay_down(state) for state in states]
    rows = [(address_of(_before, own.kind, *kinds), address_of(_after, own.kind, *kinds), own.address)
            for own in laid_down]
    return Watchers(*np.array(rows, np.int64).reshape(-1, 3).T.copy()), laid_down
