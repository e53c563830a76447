"""Collectives bring every contribution where it must be, for any number of ranks; broken ones are found."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t3sim.collectives import (
    CollectiveError,
    Op,
    Program,
    Transfer,
    Transfers,
    direct,
    in_switch,
    ring,
    torus,
    two_level,
)
from t3sim.collectives.algorithms import algorithms
from t3sim.collectives.all_reduce import all_reduce
from t3sim.collectives.all_to_all import all_to_all
from t3sim.collectives.together import together
from t3sim.machine.topologies import Alike, named_topology

COLLECTIVES = {
    "ring reduce-scatter": ring.reduce_scatter, "ring all-gather": ring.all_gather,
    "other way around": lambda ranks: ring.reduce_scatter(ranks, step=1),
    "direct reduce-scatter": direct.reduce_scatter, "direct all-gather": direct.all_gather,
    "all-to-all": all_to_all,
    "ring all-reduce": lambda ranks: all_reduce(ring.reduce_scatter(ranks), ring.all_gather(ranks)),
    "direct all-reduce": lambda ranks: all_reduce(direct.reduce_scatter(ranks), direct.all_gather(ranks)),
    "in-switch reduce-scatter": in_switch.reduce_scatter, "in-switch all-gather": in_switch.all_gather,
    "in-switch all-reduce": lambda ranks: all_reduce(in_switch.reduce_scatter(ranks), in_switch.all_gather(ranks)),
}
#: Transfers of a chunk, all of them together.
TRANSFERS = {"all-to-all": lambda n: n * (n - 1), "ring all-reduce": lambda n: 2 * n * (n - 1),
             "direct all-reduce": lambda n: 2 * n * (n - 1), "in-switch all-reduce": lambda n: 2 * n * (n - 1)}


@pytest.mark.long
@pytest.mark.parametrize("name", COLLECTIVES)
@settings(max_examples=8, deadline=None)
@given(ranks=st.integers(2, 64))
def test_every_rank_ends_with_what_it_must(name, ranks):
    program = COLLECTIVES[name](ranks)
    program.check()
    assert len(program.transfers) == TRANSFERS.get(name, lambda n: n * (n - 1))(ranks)
    assert program.invariant_under_shift()


@pytest.mark.long
@settings(max_examples=12, deadline=None)
@given(rows=st.integers(1, 8), columns=st.integers(1, 8), step=st.sampled_from([-1, 1]), columns_first=st.booleans())
def test_a_torus_brings_every_rank_what_it_must(rows, columns, step, columns_first):
    ranks = rows * columns
    scatter, gather = (build(rows, columns, step, columns_first) for build in (torus.reduce_scatter, torus.all_gather))
    exchange = torus.all_to_all(rows, columns, columns_first)
    for program in (scatter, gather, all_reduce(scatter, gather), exchange):
        program.check()
    assert len(scatter.transfers) == len(gather.transfers) == ranks * (ranks - 1)
    # A chunk that leaves its row and its column has two messages.
    assert len(exchange.transfers) == ranks * ((rows - 1) + (columns - 1) + 2 * (rows - 1) * (columns - 1))
    both = together([all_reduce(torus.reduce_scatter(rows, columns, way, columns_first),
                                torus.all_gather(rows, columns, way, columns_first)) for way in (-1, 1)])
    both.check()
    assert both.chunks == 2 * ranks


@pytest.mark.long
@settings(max_examples=15, deadline=None)
@given(groups=st.integers(1, 8), places=st.integers(1, 8), data=st.data())
def test_two_levels_bring_every_rank_what_it_must(groups, places, data):
    """Whatever runs within groups and between them, and however ranks are numbered."""
    kinds = [data.draw(st.sampled_from([ring, direct])) for _ in range(2)]
    names = data.draw(st.permutations(range(groups * places)))

    def rank(group, place):
        return np.array(names)[group * places + place]
    scatter, gather = (build(within(places), between(groups), rank) for build, within, between in (
        (two_level.reduce_scatter, kinds[0].reduce_scatter, kinds[1].reduce_scatter),
        (two_level.all_gather, kinds[0].all_gather, kinds[1].all_gather)))
    for program in (scatter, gather, all_reduce(scatter, gather)):
        program.check()
    between_groups = {(one.chunk, one.source) for one in scatter.transfers
                      if names.index(one.source) // places != names.index(one.destination) // places}
    assert len(between_groups) == groups * places * (groups - 1), "one partial sum of each other group"


@settings(max_examples=20, deadline=None)
@given(rows=st.integers(2, 5), columns=st.integers(2, 5), columns_first=st.booleans(), data=st.data())
def test_a_torus_goes_one_dimension_after_the_other(rows, columns, columns_first, data):
    """A chunk has gathered its row's parts before it moves along a column, or the other way around."""
    program = torus.reduce_scatter(rows, columns, columns_first=columns_first)
    chunk = data.draw(st.integers(0, rows * columns - 1))
    along_column = [(program.levels[index], one.source // columns != one.destination // columns)
                    for index, one in enumerate(program.transfers) if one.chunk == chunk]
    length = (rows if columns_first else columns) - 1
    assert all((level < length) == (column == columns_first) for level, column in along_column)


def test_programs_side_by_side_need_the_same_ranks():
    with pytest.raises(CollectiveError, match="the same ranks and chunks"):
        together([ring.all_gather(3), ring.all_gather(4)])


@pytest.mark.long
@settings(max_examples=30, deadline=None)
@given(ranks=st.integers(2, 64), chunk=st.integers(0, 63))
def test_a_ring_is_a_path_and_a_star_has_one_level(ranks, chunk):
    chunk %= ranks
    path, star = ring.reduce_scatter(ranks), direct.reduce_scatter(ranks)
    assert [path.level((chunk - 1 - hop) % ranks, chunk) for hop in range(ranks)] == list(range(ranks))
    assert {star.level(rank, chunk) for rank in range(ranks)} == {0, 1}
    assert [star.level(rank, chunk) for rank in range(ranks)].index(1) == chunk
    away = ring.all_gather(ranks)
    assert [away.level((chunk - hop) % ranks, chunk) for hop in range(ranks)] == list(range(ranks))


@settings(max_examples=60, deadline=None)
@given(name=st.sampled_from(sorted(COLLECTIVES)), ranks=st.integers(2, 9), data=st.data())
def test_a_lost_transfer_is_found(name, ranks, data):
    program = COLLECTIVES[name](ranks)
    lost = data.draw(st.integers(0, len(program.transfers) - 1))
    kept = [transfer for index, transfer in enumerate(program.transfers) if index != lost]
    moved = [transfer._replace(after=tuple(before - (before > lost) for before in transfer.after if before != lost))
             for transfer in kept]
    with pytest.raises(CollectiveError):
        replace(program, transfers=tuple(moved)).check()


@settings(max_examples=60, deadline=None)
@given(name=st.sampled_from(["ring reduce-scatter", "ring all-gather", "ring all-reduce", "direct all-reduce"]),
       ranks=st.integers(3, 9), data=st.data())
def test_a_transfer_that_does_not_wait_is_found(name, ranks, data):
    program = COLLECTIVES[name](ranks)
    waiting = [index for index, transfer in enumerate(program.transfers) if transfer.after]
    hasty = data.draw(st.sampled_from(waiting))
    transfers = list(program.transfers)
    transfers[hasty] = transfers[hasty]._replace(after=())
    with pytest.raises(CollectiveError, match="no order|nothing to send"):
        replace(program, transfers=tuple(transfers)).check()


def test_contributions_are_counted_once():
    program = direct.reduce_scatter(3)
    with pytest.raises(CollectiveError, match=r"the contribution of rank \d is counted twice"):
        replace(program, transfers=(*program.transfers, program.transfers[0])).check()


def test_a_switch_adds_what_does_not_wait_and_copies_what_leaves_at_once():
    """A part may not wait for another one's arrival, nor one copy for what the others do not wait for."""
    with pytest.raises(CollectiveError, match=r"chunk \d from \d to \d .* waits for chunk \d .* the switch sums it"):
        Program(3, 2, (Transfer(0, 1, 0, Op.ADD), Transfer(1, 0, 2, Op.ADD, (0,)), Transfer(0, 2, 0, Op.ADD, (1,))),
                {}, {}, in_switch=True).check()
    gather = in_switch.all_gather(3)
    first, *others = gather.transfers
    arrives = next(index for index, one in enumerate(gather.transfers) if one.destination == first.source)
    with pytest.raises(CollectiveError, match="wait for different transfers: the switch copies one that leaves once"):
        replace(gather, transfers=(first._replace(after=(arrives,)), *others)).check()
    replace(ring.reduce_scatter(3), in_switch=True).check()  # nothing is added there that comes from two


def test_a_circle_is_found():
    program = Program(2, 1, (Transfer(0, 0, 1, Op.ADD, (1,)), Transfer(0, 1, 0, Op.ADD, (0,))), {}, {})
    with pytest.raises(CollectiveError, match="chunk 0 from 0 to 1 .* waits for itself"):
        program.check()


@pytest.mark.parametrize(("transfer", "words"), [
    (Transfer(0, 0, 3, Op.ADD), "ranks 0 to 2"), (Transfer(3, 0, 1, Op.ADD), "chunks 0 to 2"),
    (Transfer(0, 1, 1, Op.ADD), "sends to itself"), (Transfer(0, 0, 1, Op.ADD, (0,)), "does not arrive at 0"),
])
def test_impossible_transfers_are_refused(transfer, words):
    program = ring.reduce_scatter(3)
    with pytest.raises(CollectiveError, match=words) as error:
        replace(program, transfers=(*program.transfers, transfer)).check()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["ring:5", "full:4", "switch:3", "torus:3x4", "torus:1x4", "nodes:2x3", "nodes:3x4"])
@pytest.mark.parametrize("kind", ["rs", "ag", "ar", "a2a"])
def test_arrays_of_a_program_are_those_of_its_transfers_one_by_one(kind, text):
    """Sets of transfers that others wait for differ, and are in the order in which they are first named."""
    topology = named_topology(text)
    for one in algorithms(kind, topology).values():
        for alike in (None, Alike(topology.shape, (1,) * len(topology.shape), topology.gpus - 1)):
            table = one.program(alike).table
            rows = Transfers.of(tuple(table))
            for name in ("chunk", "source", "destination", "adds", "waits", "first", "members"):
                assert getattr(table, name).tolist() == getattr(rows, name).tolist(), name
