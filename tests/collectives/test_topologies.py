"""Topologies: links lead somewhere, and next hops reach every node on a shortest way."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim_models.topologies import Link, Topology, TopologyError, ring
from sim_models.topologies.fully_connected import fully_connected


def hops(topology: Topology, source: int, destination: int) -> int:
    count = 0
    while source != destination:
        source, count = topology.next_hop(source, destination), count + 1
        assert count <= topology.nodes
    return count


@settings(max_examples=15, deadline=None)
@given(nodes=st.integers(2, 40), data=st.data())
def test_shortest_ways(nodes, data):
    source, destination = data.draw(st.permutations(range(nodes)))[:2]
    around = (destination - source) % nodes
    assert hops(ring(nodes), source, destination) == min(around, nodes - around)
    assert hops(fully_connected(nodes), source, destination) == 1
    assert ring(nodes).invariant_under_shift() and fully_connected(nodes).invariant_under_shift()


def test_one_way_and_chords():
    one_way = Topology("one way", 5, tuple(Link(node, (node + 1) % 5) for node in range(5)))
    assert hops(one_way, 1, 0) == 4 and one_way.invariant_under_shift()
    chord = Topology("chord", 5, (*one_way.links, Link(1, 4)))
    assert hops(chord, 1, 0) == 2 and chord.next_hop(1, 0) == 4
    assert not chord.invariant_under_shift()


def test_no_way_is_one_line():
    apart = Topology("apart", 4, (Link(0, 1), Link(1, 0), Link(2, 3), Link(3, 2)))
    with pytest.raises(TopologyError, match="apart: no way leads from 0 to 3"):
        apart.next_hop(0, 3)


@pytest.mark.parametrize("link", [Link(0, 2), Link(-1, 0), Link(1, 1)])
def test_impossible_links_are_refused(link):
    with pytest.raises(TopologyError, match="is impossible with nodes 0 to 1"):
        Topology("broken", 2, (link,))
