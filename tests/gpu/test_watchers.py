"""Watchers see each cycle twice, before and after the hardware's edge; the loop is compiled once whoever watches."""

from typing import NamedTuple

import numpy as np
import pytest
from numba.core import event

from t3sim.gpu.engine.end import DONE
from t3sim.gpu.engine.loop import Lockstep, advance
from t3sim.gpu.engine.observers import Observer
from t3sim.machine import load_machine
from t3sim.runs import build
from t3sim.workload.operators.kernel_table import GROUP, LOAD, STEP, STORE, KernelTable, rows_of
from tests.support.variants import Watches

pytestmark = pytest.mark.builds_loops


class SeesCycles(NamedTuple):
    """A watcher that writes into a log, which it may share with another, what it is called for."""

    log: np.ndarray  # int64 [call, (watcher, 0: before or 1: after the edge, cycle)]
    calls: np.ndarray
    name: int

    def before_edge(self, sim, kernel, hardware, device, now):
        self.log[self.calls[0], 0] = self.name
        self.log[self.calls[0], 1] = 0
        self.log[self.calls[0], 2] = now
        self.calls[0] += 1

    def after_edge(self, sim, kernel, hardware, device, now):
        self.log[self.calls[0], 0] = self.name
        self.log[self.calls[0], 1] = 1
        self.log[self.calls[0], 2] = now
        self.calls[0] += 1


class HaltsAt(NamedTuple):
    """A watcher that cannot go on after a cycle."""

    cycle: int

    def before_edge(self, sim, kernel, hardware, device, now):
        pass

    def after_edge(self, sim, kernel, hardware, device, now):
        if now == self.cycle:
            sim.control.halt[0] = 1


class Asks(Observer):
    """One that looks at no single cycle, but after every seventh."""

    def __init__(self) -> None:
        self.seen = []

    def before(self, now, end):
        return None, min(end, now + 7)

    def after(self, now):
        self.seen.append(now)


def run(*observers: Observer) -> Lockstep:
    table = KernelTable(rows_of(GROUP, 1, workgroups=2, steps=1), rows_of(STEP, 1, repeats=1, compute_cycles=100.0),
                        np.zeros(0, LOAD), np.zeros(0, STORE))
    made = Lockstep(build.table_sim(load_machine(), table))
    made.observers += observers
    return made


def test_every_watcher_sees_every_cycle_in_turn():
    log, calls = np.zeros((1000, 3), np.int64), np.zeros(1, np.int64)
    watched = run(Watches(SeesCycles(log, calls, 5)), Asks(), Watches(SeesCycles(log, calls, 6)))
    watched.advance(50)
    assert log[:calls[0]].tolist() == [
        [name, edge, cycle] for cycle in range(50) for edge in (0, 1) for name in (5, 6)]
    assert watched.observers[1].seen == [7, 14, 21, 28, 35, 42, 49, 50]


def test_a_watched_run_is_the_same_and_its_loop_is_not_compiled_again():
    plain = run()
    assert plain.advance(100_000) == DONE
    loops = len(advance.overloads)
    log = np.zeros((10 * plain.now, 3), np.int64)
    watched = run(Watches(SeesCycles(log, np.zeros(1, np.int64), 1)))
    with event.install_recorder("numba:compile") as compiled:
        assert watched.advance(100_000) == DONE
        again = run(Watches(SeesCycles(log, np.zeros(1, np.int64), 2)))
        so_far = len(compiled.buffer)
        assert again.advance(100_000) == DONE
    assert plain.now == watched.now == again.now
    assert plain.sim.kernel.state.accounted.tolist() == watched.sim.kernel.state.accounted.tolist()
    assert len(advance.overloads) == loops
    assert len(compiled.buffer) == so_far, "the same watcher is compiled once"


def test_a_watcher_halts_the_loop_when_all_have_come_to_one_cycle():
    halted = run(Watches(HaltsAt(70)))
    halted.advance(71)
    assert halted.now == 71
    assert halted.sim.control.halt[0] == 1
