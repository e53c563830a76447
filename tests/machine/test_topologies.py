"""Topologies: links lead somewhere, and next hops reach every node on a shortest way."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t3sim.machine.topologies import Link, Topology, TopologyError, named_topology, ring, torus
from t3sim.machine.topologies.shapes import fully_connected


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


@settings(max_examples=25, deadline=None)
@given(rows=st.integers(1, 9), columns=st.integers(1, 9), data=st.data())
def test_a_torus_is_walked_along_the_row_and_then_along_the_column(rows, columns, data):
    nodes = rows * columns
    source, destination = (data.draw(st.integers(0, nodes - 1)) for _ in range(2))
    one, node, walked = torus(rows, columns), source, []
    while node != destination:
        following = one.next_hop(node, destination)
        assert Link(node, following) in one.links
        walked.append("row" if node // columns == following // columns else "column")
        node = following
    across, down = (abs(destination % columns - source % columns), abs(destination // columns - source // columns))
    assert walked == ["row"] * min(across, columns - across) + ["column"] * min(down, rows - down)


@pytest.mark.parametrize(("rows", "columns", "links"), [(8, 16, 512), (3, 3, 36), (2, 4, 24), (1, 5, 10), (2, 2, 8),
                                                        (1, 1, 0)])
def test_a_torus_has_four_links_per_node_unless_a_ring_is_short(rows, columns, links):
    one = torus(rows, columns)
    assert (one.nodes, len(one.links), len(set(one.links))) == (rows * columns, links, links)


def test_no_direction_of_a_torus_carries_more_than_another():
    """All pairs, each once: a link of a ring of n carries n * n / 8 messages per node of the other ring."""
    one, carried = torus(4, 8), Counter()
    for source in range(32):
        for destination in range(32):
            node = source
            while node != destination:
                carried[Link(node, one.next_hop(node, destination))] += 1
                node = one.next_hop(node, destination)
    assert {carried[link] for link in one.links if link.source // 8 == link.destination // 8} == {4 * 8 * 8 // 8}
    assert {carried[link] for link in one.links if link.source // 8 != link.destination // 8} == {8 * 4 * 4 // 8}


@pytest.mark.parametrize("ends", [(0, 0), (0, 6), (-1, 0), (6, 0)])
def test_a_torus_has_no_way_to_what_it_lacks(ends):
    with pytest.raises(TopologyError, match=f"torus: no route leads from {ends[0]} to {ends[1]}"):
        torus(2, 3).next_hop(*ends)
    with pytest.raises(TopologyError, match="0 rows and 3 columns are impossible"):
        torus(0, 3)


def test_one_way_and_chords():
    one_way = Topology("one way", 5, tuple(Link(node, (node + 1) % 5) for node in range(5)))
    assert hops(one_way, 1, 0) == 4 and one_way.invariant_under_shift()
    chord = Topology("chord", 5, (*one_way.links, Link(1, 4)))
    assert hops(chord, 1, 0) == 2 and chord.next_hop(1, 0) == 4
    assert not chord.invariant_under_shift()


def test_no_way_is_one_line():
    apart = Topology("apart", 4, (Link(0, 1), Link(1, 0), Link(2, 3), Link(3, 2)))
    with pytest.raises(TopologyError, match="apart: no route leads from 0 to 3"):
        apart.next_hop(0, 3)


@pytest.mark.parametrize("link", [Link(0, 2), Link(-1, 0), Link(1, 1)])
def test_impossible_links_are_refused(link):
    with pytest.raises(TopologyError, match="is impossible with nodes 0 to 1"):
        Topology("broken", 2, (link,))


@settings(max_examples=25, deadline=None)
@given(groups=st.integers(2, 6), per_group=st.integers(1, 8), data=st.data())
def test_nodes_are_left_at_the_place_of_the_destination(groups, per_group, data):
    topology = named_topology(f"nodes:{groups}x{per_group}")
    source, destination = (data.draw(st.integers(0, topology.gpus - 1)) for _ in range(2))
    assert (topology.gpus, topology.switches) == (groups * per_group, per_group)
    assert all(len(topology.neighbours[gpu]) == per_group for gpu in range(topology.gpus))
    node, walked = source, []
    while node != destination:
        following = topology.next_hop(node, destination)
        walked.append(next(link.network for link in topology.links if link[:2] == (node, following)))
        node = following
    inside = source % per_group != destination % per_group
    other = source // per_group != destination // per_group
    assert walked == [False] * inside + [True, True] * other


def test_a_switch_joins_all():
    topology = named_topology("switch:5")
    assert (topology.nodes, topology.gpus, len(topology.links)) == (6, 5, 10)
    assert hops(topology, 0, 4) == 2 and topology.next_hop(1, 3) == 5
