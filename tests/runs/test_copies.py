"""Copies read off programs: flags alone put them into an order in which every chunk ends where it must."""

import random
from dataclasses import replace

import pytest

from t3sim.collectives.algorithms import algorithms, one_ring
from t3sim.machine.topologies.shapes import multi_node
from t3sim.runs.copies import COLLECTIVES, CopyExchange, plan_exchange, read_off


def end_of(exchange: CopyExchange, seed: int) -> list[dict[int, set[int]]]:
    """Return whose parts lie at each place of each GPU when the queues' stages are done in an order at random."""
    rng, size = random.Random(seed), exchange.chunk_bytes
    held = [{place: {gpu} for place in produced} for gpu, produced in enumerate(exchange.produced)]
    flags = [dict.fromkeys(range(64), 0) for _ in held]
    left = [list(stages) for stages in exchange.stages]
    while any(left):
        ready = [gpu for gpu, stages in enumerate(left)
                 if stages and all(flags[gpu][flag] == value for flag, value in stages[0].waits)]
        assert ready, "all queues wait"
        gpu = rng.choice(ready)
        stage = left[gpu].pop(0)
        for copy in stage.copies:
            sent, there = held[gpu][copy.source // size], held[copy.peer].get(copy.to // size, set())
            assert not copy.adds or not sent & there, "added twice"
            held[copy.peer][copy.to // size] = sent | (there if copy.adds else set())
        for peer, flag, adds in stage.signals:
            flags[peer][flag] = flags[peer][flag] + 1 if adds else 1
    return held


@pytest.mark.parametrize("gpus", [2, 3, 8])
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_all_that_must_be_somewhere_is_there(collective, gpus):
    everybody = set(range(gpus))
    for seed in range(5):
        held = end_of(plan_exchange(collective, gpus, 256), seed)
        for gpu, places in enumerate(held):
            match collective:
                case "ag":
                    assert places == {0: {gpu}} | {1 + peer: {peer} for peer in everybody - {gpu}}
                case "ag-ring":
                    assert places == {peer: {peer} for peer in everybody}
                case "a2a":
                    assert {gpus + peer: {peer} for peer in everybody - {gpu}}.items() <= places.items()
                case "rs" | "rs-ring":
                    assert places[gpu if collective == "rs" else (gpu + 1) % gpus] == everybody
                case _:
                    assert places == dict.fromkeys(everybody, everybody)


@pytest.mark.parametrize("program", [
    *(algorithms(collective, multi_node(2, 4))["hierarchical"].program() for collective in ("ag", "rs", "ar")),
    one_ring("ar", 5)], ids=["ag", "rs", "ar", "ring to the GPU before"])
def test_any_program_is_read(program):
    for seed in range(5):
        held = end_of(read_off(program, 256), seed)
        assert all(held[gpu][chunk] == whose for (gpu, chunk), whose in program.goal.items())


def test_a_wait_left_out_is_found():
    exchange = plan_exchange("rs-ring", 4, 256)
    hasty = CopyExchange(tuple(tuple(stage._replace(waits=()) for stage in stages) for stages in exchange.stages),
                         exchange.produced, 256, exchange.size_bytes, True)
    assert any(end_of(hasty, seed)[0][1] != {0, 1, 2, 3} for seed in range(5))


def swapped_in(exchange: CopyExchange, seed: int, early: bool) -> list[dict[int, frozenset]]:
    """Return what each GPU holds after a swap when producers' stores and queues' stages come in an order at random.

    A store replaces what memory holds, an arrival leaves the exclusive or: chunks are sets of (GPU, place). `early`: a
    queue runs before its producer has ended, and waits for the chunks that a stage needs, as a chain does.
    """
    rng, size = random.Random(seed), exchange.chunk_bytes
    held = [{} for _ in exchange.stages]
    flags = [dict.fromkeys(range(64), 0) for _ in held]
    stores, left = [list(produced) for produced in exchange.produced], [list(stages) for stages in exchange.stages]

    def may_go(gpu: int) -> bool:
        stage = left[gpu][0]
        needed = {*stage.stored, *(copy.source for copy in stage.copies)} if early else {
            place * size for place in exchange.produced[gpu]}
        return (not any(place * size in needed for place in stores[gpu])
                and all(flags[gpu][flag] == value for flag, value in stage.waits))
    while any(left) or any(stores):
        can = [(gpu, True) for gpu, places in enumerate(stores) if places] + [
            (gpu, False) for gpu, stages in enumerate(left) if stages and may_go(gpu)]
        assert can, "all queues wait"
        gpu, stores_next = rng.choice(can)
        if stores_next:
            place = stores[gpu].pop(0)
            held[gpu][place] = frozenset({(gpu, place)})
            continue
        stage = left[gpu].pop(0)
        for copy in stage.copies:
            there = held[copy.peer].get(copy.to // size, frozenset())
            held[copy.peer][copy.to // size] = there ^ held[gpu][copy.source // size]
        for peer, flag, _ in stage.signals:
            flags[peer][flag] += 1
    return held


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("gpus", [2, 3, 4, 5, 8])
def test_a_swap_is_right_however_late_a_producer_is(gpus, early):
    """What arrives before the store of what it is kept with is lost: a peer says that it has stored its chunk."""
    exchange = plan_exchange("a2a", gpus, 256, swaps=True)
    right = [{place: frozenset({(place, gpu)}) for place in range(gpus)} for gpu in range(gpus)]
    assert all(swapped_in(exchange, seed, early) == right for seed in range(100))
    for broken in ({"waits": ()}, {"stored": ()}) if early else ({"waits": ()},):
        hasty = replace(exchange, stages=tuple((first._replace(**{"stored": broken.get("stored", first.stored)}), *(
            stage._replace(**broken) for stage in others)) for first, *others in exchange.stages))
        assert any(swapped_in(hasty, seed, early) != right for seed in range(100)), broken


def test_a_swap_hands_over_in_three_rounds():
    exchange = plan_exchange("a2a", 4, 256, swaps=True)
    assert exchange.size_bytes == 4 * 256
    for gpu, (there, *stages) in enumerate(exchange.stages):
        first, second, third = ([copy.peer for copy in stage.copies] for stage in stages)
        assert first == third and sorted(first + second) == [peer for peer in range(4) if peer != gpu]
        assert not there.copies and not there.waits
        assert [one.peer for one in there.signals] == second == [start // 256 for start in there.stored]
        assert [stage.waits for stage in stages] == [
            ((flag, len(peers)),) if peers else () for flag, peers in ((1, first), (2, second), (3, first))]
