"""Schedules: every tile has one owner, updates and routes agree, ids are causal, and slack is what it is said to be."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from t3sim.collectives import direct, ring, torus
from t3sim.collectives.all_reduce import all_reduce
from t3sim.collectives.all_to_all import all_to_all
from t3sim.collectives.schedule import (
    Action,
    Ids,
    Limits,
    Schedule,
    ScheduleError,
    ScheduleOptions,
    Shuffle,
    roles_of,
    sliced_schedule,
)
from t3sim.machine import load_machine
from t3sim.machine.topologies import Link, Topology, named_topology
from t3sim.machine.topologies import ring as ring_topology
from t3sim.machine.topologies.shapes import fully_connected
from t3sim.runs.plan import Plan
from t3sim.workload.operators.tiling import Tiling
from t3sim.workload.workloads import paper_workloads

#: Collectives with their topologies, by name.
COLLECTIVES = {
    "ring rs": (ring.reduce_scatter, ring_topology), "ring ag": (ring.all_gather, ring_topology),
    "ring rs up": (lambda ranks: ring.reduce_scatter(ranks, step=1), ring_topology),
    "ring ar": (lambda ranks: all_reduce(ring.reduce_scatter(ranks), ring.all_gather(ranks)), ring_topology),
    "direct rs": (direct.reduce_scatter, fully_connected), "direct ag": (direct.all_gather, fully_connected),
    "direct ar": (lambda ranks: all_reduce(direct.reduce_scatter(ranks), direct.all_gather(ranks)), fully_connected),
    "all-to-all": (all_to_all, fully_connected),
}


@st.composite
def schedules(draw, names=tuple(COLLECTIVES), most_devices=64, staged=(False, True), ids=tuple(Ids),
              shuffled=(False, True)) -> Schedule:
    program, topology = COLLECTIVES[draw(st.sampled_from(names))]
    devices = draw(st.integers(2, draw(st.sampled_from([4, 9, most_devices]))))
    tiling = Tiling(draw(st.integers(1, 1500)), draw(st.integers(1, 1500)), 32, 16, 4)
    shuffle = Shuffle(draw(st.integers(0, 40)), draw(st.integers(0, 99))) if draw(st.sampled_from(shuffled)) else None
    policy = ScheduleOptions(draw(st.integers(1, 4)), draw(st.sampled_from(staged)), draw(st.sampled_from(ids)),
                             Limits.EXACT,
                    shuffle)
    return Schedule(tiling, program(devices), topology(devices), policy)


def no_chunk_is_empty(schedule: Schedule) -> bool:
    return schedule.tiling.tiles >= schedule.program.chunks * schedule.policy.slices


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(schedules())
def test_who_sends_is_who_is_heard(schedule):
    """Routes and `fed_by` are one relation; a tile expects one update from each child and one of its own."""
    for device, roles in enumerate(schedule.roles):
        for index, role in enumerate(roles):
            for route in role.routes:
                there = schedule.roles[route.gpu][route.role]
                assert (device, index) in there.fed_by and there.chunk == role.chunk and there.level > role.level
            for source in role.fed_by:
                assert (device, index) in schedule.roles[source.gpu][source.role].routes
            if role.tracked:
                assert role.updates == len(role.fed_by) + role.contributes
                assert role.actions & (Action.SEND_DMA | Action.EVENT)
            assert bool(role.routes) == bool(role.actions & (Action.SEND_DMA | Action.SEND_STORES))
            assert not (Action.SEND_STORES in role.actions and role.fed_by), "what is stored away at once is made here"


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(schedules())
def test_every_chunk_ends_where_the_collective_wants_it(schedule):
    for device, roles in enumerate(schedule.roles):
        last = {role.chunk: role for role in roles}  # of an all-reduce's two, the copy
        for role in roles:
            wanted = (device, role.chunk) in schedule.program.goal and role is last[role.chunk]
            assert (Action.EVENT in role.actions) == (wanted and role.tracked)
            if wanted and not role.tracked:
                assert Action.STORE in role.actions, "made here, and here it stays"
        assert {chunk for rank, chunk in schedule.program.goal if rank == device} <= set(last)


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(schedules(names=("ring rs", "ring rs up", "direct rs")))
def test_a_reduce_scatter_gives_each_tile_one_owner(schedule):
    owners = np.zeros(schedule.tiling.tiles, int)
    for device in range(schedule.gpus):
        rows = schedule.rows(device)
        np.testing.assert_array_equal(np.sort(rows.tile), np.arange(schedule.tiling.tiles))
        assert rows.contributes.all()
        owners[rows.tile[rows.actions & Action.EVENT != 0]] += 1
    assert (owners == 1).all()


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(schedules())
def test_ids_are_counted_in_order_and_routes_lead_to_the_same_tile(schedule):
    tables = [schedule.rows(device) for device in range(schedule.gpus)]
    for device, rows in enumerate(tables):
        counted = rows.id[np.argsort(schedule.order(device))]
        numbered = counted[counted >= 0]
        np.testing.assert_array_equal(numbered, np.arange(len(numbered)))
        assert (rows.id[rows.updates > 0] >= 0).all(), "what is tracked has an id"
        if schedule.policy.ids is Ids.TRACKED:
            assert (rows.updates[rows.id >= 0] > 0).all()
        goes = np.argwhere(rows.to_id >= 0)
        for row, route in goes[:: max(1, len(goes) // 20)]:
            there = tables[rows.to_gpu[row, route]]
            (arrival,) = np.flatnonzero(there.id == rows.to_id[row, route])
            assert there.tile[arrival] == rows.tile[row] and there.slice_index[arrival] == rows.slice_index[row]
    if schedule.policy.slices == 1 and no_chunk_is_empty(schedule):
        assert schedule.is_causal()


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(schedules(names=("ring rs", "ring rs up", "direct rs", "ring ag", "direct ag")))
def test_a_tile_becomes_part_of_one_with_a_larger_id(schedule):
    assume(schedule.policy.ids is Ids.TOUCHED and no_chunk_is_empty(schedule))
    assert schedule.is_causal()


def test_ragged_slices_may_break_causality_and_that_is_seen():
    """Seven tiles in two slices of three chunks: before the second, devices have tracked different numbers of tiles."""
    tiling = Tiling(32, 16 * 7, 32, 16, 4)
    found = {Schedule(tiling, ring.reduce_scatter(3), ring_topology(3),
                      ScheduleOptions(2, ids=ids, limits=Limits.EXACT)).is_causal() for ids in Ids}
    assert found == {True, False}


def touched(schedule: Schedule, device: int) -> list[set[int]]:
    """Ids that each tile of a device touches anywhere, in its order of dispatch."""
    sets = []
    for share in schedule.shares(device):
        routes = [int(schedule.first_ids(to)[share.slice_index, there]) for to, there in share.role.routes]
        firsts = [first for first in (share.first_id, *routes) if first >= 0]
        sets += [{first + offset for first in firsts} for offset in range(len(share.tiles))]
    return [sets[row] for row in schedule.order(device) if sets[row]]


@settings(max_examples=60, deadline=None)
@given(schedules(most_devices=12))
def test_slack_is_its_definition(schedule):
    for device in range(schedule.gpus):
        ahead, worst = -1, 0
        for ids in touched(schedule, device):
            ahead = max(ahead, *ids)
            worst = max(worst, ahead - min(ids))
        assert schedule.slack_of(device) == worst
    assert schedule.slack == max(map(schedule.slack_of, range(schedule.gpus)))


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(schedules(names=("ring rs", "ring rs up"), shuffled=(False,)))
def test_the_slack_of_a_ring_is_the_next_devices_first_chunk(schedule):
    assume(schedule.policy.ids is Ids.TOUCHED and no_chunk_is_empty(schedule))
    for device in range(schedule.gpus):
        assert schedule.slack_of(device) == max(len(schedule.chunk(s, device)) for s in range(schedule.policy.slices))


@settings(max_examples=40, deadline=None)
@given(schedules(names=("direct rs",), staged=(False,), ids=(Ids.TRACKED,), shuffled=(False,)))
def test_the_slack_of_a_star_is_a_sub_chunk(schedule):
    lengths = [[len(schedule.chunk(s, c)) for c in range(schedule.gpus)] for s in range(schedule.policy.slices)]
    if schedule.policy.slices == 1:
        assert schedule.slack == max(lengths[0]) - 1
    # Several slices: each device counts its own ids, so ragged ones shift them against each other, too.
    assert schedule.slack < sum(map(max, lengths))


@pytest.mark.parametrize("workload", {(w.m, w.n, w.tp): w for w in paper_workloads()}.values(), ids=lambda w: w.title)
def test_the_papers_layers(workload):
    schedule = Plan(load_machine(), workload).schedule
    assert schedule.slack < 256, "the hardware takes slack only below its window: 256 sets of 8 ways"
    # On 8 devices a chunk has 192 and 136 workgroups; beside one and a half stages the 256 sets hold 136.
    assert schedule.policy.slices == (2 if (workload.n, workload.m, workload.tp) == (3072, 16384, 8) else 1)
    for device in range(workload.tp):  # each starts one chunk after the device that it sends to
        first = [share.role.chunk for share in schedule.shares(device)][:workload.tp]
        assert first == [(device + 1 + position) % workload.tp for position in range(workload.tp)]
        assert schedule.peers(device) == ((device - 1) % workload.tp,)
        assert schedule.feeders(device) == ((device + 1) % workload.tp,)


@pytest.mark.long
@settings(max_examples=50, deadline=None)
@given(schedule=schedules())
def test_what_waits_for_an_engine_is_open_at_so_many_peers(schedule):
    """Of every device's peers some set of that size holds one of each tile that DMA sends."""
    for device in range(schedule.gpus):
        waiting = [{route.gpu for route in role.routes} for role in schedule.roles[device]
                   if Action.SEND_DMA in role.actions]
        sets = combinations(schedule.peers(device), schedule.waits_for(device))
        assert any(all(peers & set(held) for peers in waiting) for held in sets)


@pytest.mark.parametrize(("program", "held"), [
    (ring.reduce_scatter(8), 1), (direct.reduce_scatter(8), 0), (direct.all_gather(8), 0), (ring.all_gather(8), 1),
    (all_reduce(direct.reduce_scatter(8), direct.all_gather(8)), 1), (all_to_all(8), 0)])
def test_known_collectives_wait_for_so_many_peers(program, held):
    schedule = Schedule(Tiling(8192, 4256), program, fully_connected(8),
                        ScheduleOptions(ids=Ids.TRACKED, limits=Limits.EXACT))
    assert {schedule.waits_for(device) for device in range(8)} == {held}


@settings(max_examples=60, deadline=None)
@given(m=st.integers(1, 9000), n=st.integers(1, 9000), devices=st.integers(2, 16), window=st.integers(8, 600),
       concurrent=st.integers(1, 160))
def test_slices_are_the_fewest_that_fit(m, n, devices, window, concurrent):
    tiling = Tiling(m, n)
    assume(tiling.tiles >= devices)
    room = window - concurrent - concurrent // 2
    if room < 1:
        room = max(1, window // 2)
    program, topology = ring.reduce_scatter(devices), ring_topology(devices)
    cut = sliced_schedule(Schedule(tiling, program, topology), window, concurrent)

    def fits(schedule):
        return schedule.slack_of(0) <= room and schedule.slack < window
    assert fits(cut) or tiling.tiles < 2 * devices * (cut.policy.slices + 1)
    if cut.policy.slices > 1:
        assert not fits(Schedule(tiling, program, topology, ScheduleOptions(slices=cut.policy.slices - 1)))


def test_an_all_reduce_has_two_roles_for_a_chunk():
    program = all_reduce(ring.reduce_scatter(3), ring.all_gather(3))
    roles = Schedule(Tiling(384, 128), program, ring_topology(3)).roles[1]
    assert sorted(role.chunk for role in roles) == [0, 0, 1, 2, 2], "its own chunk's sum needs no copy"
    (summed,) = (role for role in roles if role.chunk == 1)
    assert summed.actions == Action.STORE | Action.SEND_DMA | Action.EVENT and summed.updates == 2
    (copied,) = (role for role in roles if role.chunk == 2 and not role.contributes)
    assert copied.updates == 1 and Action.EVENT in copied.actions and Action.STORE not in copied.actions


def test_a_gather_that_waits_for_other_chunks_has_one_role_for_each():
    """Within a row of a torus a GPU waits for all that comes along its column; its own chunk is no copy for that."""
    for device, roles in enumerate(roles_of(torus.all_gather(2, 2))):
        assert sorted(role.chunk for role in roles) == [0, 1, 2, 3]
        own, *others = sorted(roles, key=lambda role: role.chunk != device)
        assert own.contributes and len(own.routes) == 2 and not own.fed_by
        assert all(len(role.fed_by) == role.updates == 1 and not role.contributes for role in others)



@pytest.mark.parametrize(("make", "words"), [
    (lambda: Schedule(Tiling(2048, 2048), ring.reduce_scatter(4), ring_topology(5)), "4 ranks do not fit 5 GPUs"),
    (lambda: Schedule(Tiling(2048, 2048), direct.reduce_scatter(5), ring_topology(5)),
     r"topology 'ring': the links .* could wait for each other in a circle"),
    (lambda: Schedule(Tiling(2048, 2048), direct.reduce_scatter(4), Topology("line", 4, (Link(0, 1), Link(1, 2)))),
     r"chunk \d from \d to \d .*topology 'line' has no route for it"),
])
def test_what_does_not_fit_is_refused_in_one_line(make, words):
    with pytest.raises(ScheduleError, match=words) as raised:
        make()
    assert "\n" not in str(raised.value)


def test_one_device_stands_for_all_only_where_all_are_alike():
    tiling = Tiling(2048, 2048)
    assert Schedule(tiling, ring.reduce_scatter(4), ring_topology(4)).is_symmetric()
    around_a_switch = named_topology("switch:4")
    assert Schedule(tiling, direct.reduce_scatter(4), around_a_switch).is_symmetric()
    chord = Topology("chord", 4, (*ring_topology(4).links, Link(0, 2)))
    assert not Schedule(tiling, ring.reduce_scatter(4), chord).is_symmetric()
