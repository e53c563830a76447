"""GPUs that stand for others: what is simulated of them against the simulation of every one, and what is not alike."""

from dataclasses import replace

import pytest

from t3sim.analytic.closed_forms import chunk_bytes, closed_form_ns
from t3sim.analytic.costs import load_costs
from t3sim.collectives.algorithms import COLLECTIVES, algorithms
from t3sim.event.flow.collective import run_program
from t3sim.event.flow.folding import folded
from t3sim.machine.topologies import Alike, Topology, Torus, named_topology

pytestmark = pytest.mark.builds_loops

COSTS, NODES = (load_costs(name)[1] for name in ("torus-128", "mi210-2x4"))
SMALL = ("ring:2", "ring:7", "ring:8", "full:5", "switch:2", "switch:6", "torus:4x4", "torus:3x5", "torus:2x6",
         "torus:1x8", "torus:6x1", "nodes:2x4", "nodes:3x2", "nodes:4x1")


def costs_of(text):
    return NODES if text.startswith("nodes") else COSTS


@pytest.mark.parametrize("text", SMALL)
@pytest.mark.parametrize("kind", COLLECTIVES)
def test_those_that_stand_for_all_take_what_every_gpu_takes(kind, text):
    """Bit for bit: copies of a message share a link with each other as every message does with others."""
    topology = named_topology(text)
    for name, one in algorithms(kind, topology).items():
        program, part = folded(one.program, topology), one.program()
        assert program.alike.copies * len(program.transfers) == len(part.transfers)
        for size in (12345.0, 64e6):
            for near_memory in (False, True):
                few, every = (run_program(which, topology, lambda chunk, size=chunk_bytes(kind, which, size): size,
                                          costs_of(text), near_memory) for which in (program, part))
                assert (few.ns, few.messages) == (every.ns, every.messages), name
                assert few.simulated < every.simulated == topology.gpus
                assert (few.link_bytes, few.memory_bytes, few.busiest_link) == pytest.approx(
                    (every.link_bytes, every.memory_bytes, every.busiest_link), rel=1e-12)


def test_what_transfers_wait_for_grows_with_the_nodes_not_with_their_square():
    few, more = (folded(algorithms("ar", topology)["hierarchical"].program, topology).table
                 for topology in map(named_topology, ("nodes:64x8", "nodes:256x8")))
    assert len(more.members) / len(more) < 1.1 * len(few.members) / len(few)


@pytest.mark.parametrize("text", SMALL)
@pytest.mark.parametrize("kind", COLLECTIVES)
def test_every_gpu_sends_what_the_one_that_stands_for_it_sends(kind, text):
    """All GPUs of the whole program, not only those that `folded` compares."""
    topology = named_topology(text)
    for one in algorithms(kind, topology).values():
        few = folded(one.program, topology)

        def sent(program, alike=few.alike, gpus=topology.gpus):
            """List what leaves each GPU, to whom as seen by the one that stands for it."""
            found = {gpu: [] for gpu in range(gpus)}
            for transfer in program.transfers:
                at = transfer.source if program.alike is None else alike.home(transfer.source)
                found[at].append((alike.seen(transfer.source, transfer.destination), transfer.op.value,
                                  len(transfer.after)))
            return {gpu: sorted(transfers) for gpu, transfers in found.items()}

        every, standing = sent(one.program()), sent(few)
        assert every == {gpu: standing[few.alike.home(gpu)] for gpu in every}


def test_a_torus_of_even_length_has_every_second_gpu_alike():
    """Messages for the GPU half-way around go up from even positions and down from odd ones."""
    def period(kind, text):
        topology = named_topology(text)
        return folded(next(iter(algorithms(kind, topology).values())).program, topology).alike.period

    assert period("a2a", "torus:4x6") == (2, 2)
    assert period("a2a", "torus:3x6") == (1, 2)
    assert period("a2a", "torus:3x5") == (1, 1)
    assert period("ar", "torus:4x6") == (1, 1)  # to neighbours only


def test_a_link_more_leaves_every_gpu_to_itself():
    """In the dimension in which it breaks what is alike."""
    on = named_topology("torus:3x3")
    whole_row = tuple(type(on.links[0])(row * 3, 9) for row in range(3)) + tuple(
        type(on.links[0])(9, row * 3) for row in range(3))
    chord = Torus("torus", 9, on.links[:-1], 3, 3)
    one = algorithms("ar", on)["hierarchical"]
    assert folded(one.program, chord).alike.period == (3, 3)
    spine = Torus("torus", 10, on.links + whole_row, 3, 3, switches=1)
    assert folded(one.program, spine).alike.period == (1, 3)


def test_a_gpu_that_goes_another_way_is_not_alike():
    class Detour(Torus):
        def next_hop(self, node, destination):
            return 3 if (node, destination) == (0, 4) else super().next_hop(node, destination)

    on = named_topology("torus:3x3")
    one, detour = algorithms("a2a", on)["direct"], Detour("torus", 9, on.links, 3, 3)
    assert folded(one.program, on).alike.period == (1, 1)
    assert folded(one.program, detour).alike.period == (3, 3)


def test_a_rank_that_sends_something_else_is_not_alike():
    on = named_topology("ring:6")
    ring = algorithms("ag", on)["ring"]

    def unlike(alike):
        """Let what rank 1 makes wait for nothing on its second hop."""
        made = ring.program(alike)
        return replace(made, transfers=tuple(one._replace(after=()) if (one.chunk, one.source) == (1, 0) else one
                                             for one in made.transfers))

    assert folded(ring.program, on).alike.period == (1,)
    assert folded(unlike, on).alike.period == (6,)


def test_a_topology_without_dimensions_is_one():
    star = Topology("star", 5, named_topology("switch:4").links, switches=1)
    assert star.shape == (4,)
    one = algorithms("ag", named_topology("switch:4"))["direct"]
    assert folded(one.program, star).alike == Alike((4,), (1,))


@pytest.mark.parametrize(("kind", "name", "text"), [
    ("ar", "all-rings", "torus:32x32"), ("a2a", "direct", "torus:32x32"), ("a2a", "hierarchical", "torus:32x32"),
    ("a2a", "direct", "nodes:128x72"), ("ar", "ring", "ring:4096"), ("ar", "direct", "switch:4096"),
    ("a2a", "direct", "switch:4096")])
def test_thousands_of_gpus_take_what_the_closed_form_says(kind, name, text):
    topology = named_topology(text)
    program = folded(algorithms(kind, topology)[name].program, topology)
    part = chunk_bytes(kind, program, 192e6)
    run = run_program(program, topology, lambda chunk: part, costs_of(text))
    assert run.ns == pytest.approx(closed_form_ns(kind, topology, name, costs_of(text), 192e6), rel=0.03)
    assert run.simulated in (1, 4)
