"""The order argument, on schedules of every kind: windows larger than the slack never leave all GPUs waiting.

A GPU is reduced to what its window can see. Requests for tiles come in the schedule's order; one is admitted when every
id that its tile touches, here and where it goes, is inside the window of the GPU that has it. What is admitted may
finish at any time: updates arrive in an order drawn at random. A complete tile is sent on once it is admitted here,
too: without a workgroup (all-gather) it may be complete before, and where it goes its id may be outside the window.
The hardware's counterpart, for GPUs in a ring, is proved in testbenches/formal/forward_progress.py.
"""

import random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from t3sim.collectives import ring
from t3sim.collectives.schedule import Action, Schedule, ScheduleOptions
from t3sim.machine.topologies import ring as ring_topology
from t3sim.rtl.order import may_start
from t3sim.workload.operators.tiling import Tiling
from tests.collectives.test_schedule import schedules

WINDOW_OVERFLOW = "a Tracker holds more tiles than its window"


class Gpu:
    """One device: tiles by id, what each still waits for, and the requests that are not admitted yet."""

    def __init__(self, schedule: Schedule, device: int) -> None:
        self.requests, self.missing, self.routes = [], {}, {}
        for share in schedule.shares(device):
            firsts = [(to, int(schedule.first_ids(to)[share.slice_index, there])) for to, there in share.role.routes]
            for offset in range(len(share.tiles)):
                own = share.first_id + offset if share.first_id >= 0 else None
                routes = [(to, first + offset) for to, first in firsts]
                self.requests.append((own, routes, share.role))
                if own is not None:
                    self.missing[own] = share.role.updates
                    self.routes[own] = routes if Action.SEND_DMA in share.role.actions else []
        self.requests = [self.requests[row] for row in schedule.order(device)][::-1]  # the next one is last
        self.admitted: set[int] = set()
        self.touched: set[int] = set()  #: ids with an update that are not complete
        self.head = 0

    def advance(self) -> None:
        """Move the head past ids that were admitted and are complete."""
        while self.head in self.admitted and not self.missing[self.head]:
            self.head += 1


class Machine:
    """All GPUs under one schedule."""

    def __init__(self, schedule: Schedule, window: int, seed: int, held_back: bool = True) -> None:
        self.rng, self.window, self.held_back = random.Random(seed), window, held_back
        self.gpus = [Gpu(schedule, device) for device in range(schedule.gpus)]
        self.flying: list[tuple[int, int]] = []  #: (device, id) of updates under way, the device's own included

    def may_start(self, device: int) -> bool:
        gpu = self.gpus[device]
        if not gpu.requests:
            return False
        own, routes, _ = gpu.requests[-1]
        near = gpu.head + self.window
        return all(may_start(own is not None, True, own or 0, there, near, self.gpus[to].head + self.window)
                   for to, there in routes or [(device, -1)])

    def start(self, device: int) -> None:
        gpu = self.gpus[device]
        own, routes, role = gpu.requests.pop()
        if own is not None:
            gpu.admitted.add(own)
            if role.contributes and role.updates:
                self.flying.append((device, own))
            elif not gpu.missing[own] and self.held_back:
                self.flying += gpu.routes[own]
        if Action.SEND_STORES in role.actions:
            self.flying += routes
        gpu.advance()

    def land(self, index: int) -> None:
        """An update arrives; one that completes its tile sends it on."""
        device, tile = self.flying.pop(index)
        gpu = self.gpus[device]
        assert gpu.head <= tile < gpu.head + self.window, WINDOW_OVERFLOW
        gpu.missing[tile] -= 1
        assert gpu.missing[tile] >= 0, "a tile gets no more than its schedule says"
        gpu.touched.add(tile)
        if not gpu.missing[tile]:
            gpu.touched.remove(tile)
            if tile in gpu.admitted or not self.held_back:
                self.flying += gpu.routes[tile]
        assert len({one % self.window for one in gpu.touched}) == len(gpu.touched), WINDOW_OVERFLOW
        gpu.advance()

    def run(self) -> bool:
        """Whether everything ends; False if all wait for each other."""
        while True:
            able = [device for device in range(len(self.gpus)) if self.may_start(device)]
            if not able and not self.flying:
                return not any(gpu.requests for gpu in self.gpus)
            if able and (not self.flying or self.rng.random() < 0.5):
                self.start(self.rng.choice(able))
            else:
                self.land(self.rng.randrange(len(self.flying)))


@pytest.mark.long
@settings(max_examples=150, deadline=None)
@given(schedule=schedules(most_devices=9), more=st.sampled_from([1, 1, 2, 7]), seed=st.integers(0, 2**32))
def test_a_window_above_the_slack_lets_every_schedule_end(schedule, more, seed):
    window = schedule.slack + more
    assume(schedule.tiling.tiles <= 400 and schedule.is_live(window))
    assert Machine(schedule, window, seed).run()


@pytest.mark.long
@settings(max_examples=150, deadline=None)
@given(schedule=schedules(most_devices=9), seed=st.integers(0, 2**32))
def test_small_outputs_end_in_a_window_that_holds_them_causal_or_not(schedule, seed):
    """Nothing waits for a window then. With fewer tiles than chunks, ids need not be causal."""
    window = max(schedule.rows(device).ids for device in range(schedule.gpus))
    assume(window <= 40 and schedule.slack < window)
    assert schedule.is_live(window) and Machine(schedule, window, seed).run()


def ring_of(devices: int, tiles: int, **policy) -> Schedule:
    return Schedule(Tiling(32 * tiles, 16, 32, 16, 4), ring.reduce_scatter(devices), ring_topology(devices),
                    ScheduleOptions(**policy))


@pytest.mark.parametrize("devices", [2, 3, 4, 7])
@pytest.mark.parametrize("staged", [False, True])
def test_a_window_no_larger_than_the_slack_stops_a_ring(devices, staged, seed):
    """The rule is sharp where every tile has an id: no workgroup of the first chunk may start."""
    schedule = ring_of(devices, 5 * devices, staged=staged)
    assert schedule.slack == 5
    assert not Machine(schedule, schedule.slack, seed).run()
    assert Machine(schedule, schedule.slack + 1, seed).run()


def test_a_tile_that_is_sent_on_before_it_is_admitted_overflows_a_window():
    """An all-gather's chunk runs through GPUs that have not come so far."""
    schedule = Schedule(Tiling(32 * 20, 16, 32, 16, 4), ring.all_gather(4), ring_topology(4))
    with pytest.raises(AssertionError, match=WINDOW_OVERFLOW):
        for seed in range(50):
            Machine(schedule, schedule.slack + 1, seed, held_back=False).run()
    assert all(Machine(schedule, schedule.slack + 1, seed).run() for seed in range(50))
