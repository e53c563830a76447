"""Times of a collective's algorithms in closed form.

The forms include links, latencies and the last addition of a reduce-scatter, but no memory that delays a step. Along a
ring of 2, 6, 10, ... messages for the opposite node cannot be split evenly over both directions: there the form of the
hierarchical all-to-all is a bound.
"""

from collections.abc import Callable

from t3sim.analytic.costs import KernelCosts
from t3sim.analytic.rings import ring_pass_ns
from t3sim.collectives import Program
from t3sim.machine.topologies import MultiNode, Topology, Torus

#: Of the costs and the array's bytes per GPU: the time.
Form = Callable[[KernelCosts, float], float]


def closed_form_ns(collective: str, topology: Topology, algorithm: str, costs: KernelCosts,
                   size_bytes: float) -> float:
    """Return the time of one of `algorithms(collective, topology)` if each GPU's array has `size_bytes`."""
    if isinstance(topology, Torus):
        forms = _torus_exchanges(topology) if collective == "a2a" else _torus_rings(collective, topology)
    elif isinstance(topology, MultiNode):
        forms = _of_nodes(collective, topology)
    elif collective == "a2a":
        forms = {"direct": _direct_exchange(topology)}
    else:
        forms = {"direct": _direct(collective, topology), **_rings(collective, topology.gpus)}
    return forms[algorithm](costs, size_bytes)


def chunk_bytes(collective: str, program: Program, size_bytes: float) -> float:
    """Return the bytes of one chunk if each GPU's array has `size_bytes`; a chunk of an all-to-all is for one pair."""
    return size_bytes * (program.ranks if collective == "a2a" else 1) / program.chunks


def _passes(collective: str) -> int:
    """Count a collective's passes: an all-reduce is a reduce-scatter and an all-gather."""
    return 2 if collective == "ar" else 1


def _start_ns(costs: KernelCosts) -> float:
    return costs.launch_ns + costs.step_ns


def _addition_ns(costs: KernelCosts, collective: str, ranks: int, arrivals: int, size_bytes: float) -> float:
    """Return the time of the last pass of a reduce-scatter at each owner."""
    if collective != "rs":
        return 0.0
    return costs.step_ns + (2 + arrivals) * size_bytes / ranks / costs.memory_bytes_per_ns + costs.last_writes_ns


def _ring_ns(costs: KernelCosts, length: int, size_bytes: float) -> float:
    return ring_pass_ns(length, costs.step_ns + costs.link_ns, size_bytes, costs.link_bytes_per_ns)


def _rings(collective: str, ranks: int) -> dict[str, Form]:
    def closed(parts: int) -> Form:
        return lambda costs, size: (
            _start_ns(costs) + _passes(collective) * _ring_ns(costs, ranks, size / parts)
            + _addition_ns(costs, collective, ranks, 1, size))

    return {"ring": closed(1), "both-rings": closed(2)}


def _direct(collective: str, topology: Topology) -> Form:
    """Return the form in which all send to all; at a switch, a GPU's messages share one link."""
    ranks, link_messages = topology.gpus, topology.gpus - 1 if topology.switches else 1
    return lambda costs, size: _start_ns(costs) + _passes(collective) * (
        costs.step_ns + costs.link_ns + link_messages * size / ranks / costs.link_bytes_per_ns
    ) + _addition_ns(costs, collective, ranks, ranks - 1, size)


def _of_nodes(collective: str, topology: MultiNode) -> dict[str, Form]:
    """Return the forms of the direct algorithm, and of the hierarchical one: within nodes, then between nodes."""
    groups, per_group, ranks = topology.groups, topology.per_group, topology.gpus

    def flat_ns(costs: KernelCosts, size: float) -> float:
        """Return the time of direct messages between all pairs.

        A message to another node crosses its own node first, unless it starts at its destination's position.
        """
        part = size / ranks
        link_ns = max(groups * part / costs.link_bytes_per_ns if per_group > 1 else 0.0,
                      per_group * (groups - 1) * part / costs.network_bytes_per_ns)
        latency_ns = costs.network_ns + (costs.link_ns if per_group > 1 else 0.0)
        return (_start_ns(costs) + _passes(collective) * (costs.step_ns + latency_ns + link_ns)
                + _addition_ns(costs, collective, ranks, ranks - 1, size))

    def hierarchical_ns(costs: KernelCosts, size: float) -> float:
        within = costs.step_ns + costs.link_ns + size / per_group / costs.link_bytes_per_ns if per_group > 1 else 0.0
        between = costs.step_ns + costs.network_ns + (groups - 1) * size / ranks / costs.network_bytes_per_ns
        return (_start_ns(costs) + _passes(collective) * (within + between)
                + _addition_ns(costs, collective, ranks, groups - 1 + (per_group > 1) * (per_group - 1), size))

    return {"direct": flat_ns, "hierarchical": hierarchical_ns}


def _torus_rings(collective: str, topology: Torus) -> dict[str, Form]:
    """Return the time of one ring per row, then one per column; or of four programs that share the data."""
    rows, columns = topology.rows, topology.columns

    def addition_ns(costs: KernelCosts, size: float) -> float:
        return _addition_ns(costs, collective, topology.nodes, (rows > 1) + (columns > 1), size)

    def hierarchical_ns(costs: KernelCosts, size: float) -> float:
        one_pass = _ring_ns(costs, columns, size) + _ring_ns(costs, rows, size / columns)
        return _start_ns(costs) + _passes(collective) * one_pass + addition_ns(costs, size)

    def all_rings_ns(costs: KernelCosts, size: float) -> float:
        """Return the time of four rings: rows first and columns first, either way around a quarter of the data.

        When one has finished its first dimension, it shares the links of its second with the other.
        """
        quarter_ns, latency_ns = size / 4 / costs.link_bytes_per_ns, costs.step_ns + costs.link_ns

        def work(length: int, share: int) -> float:
            return quarter_ns / share * (length - 1) / length

        rows_first = [("rows", work(columns, 1)), ("columns", work(rows, columns))]
        columns_first = [("columns", work(rows, 1)), ("rows", work(columns, rows))]
        if collective == "ag":
            rows_first, columns_first = rows_first[::-1], columns_first[::-1]
        if collective == "ar":
            rows_first, columns_first = rows_first + rows_first[::-1], columns_first + columns_first[::-1]
        return (_start_ns(costs) + _passes(collective) * (rows + columns - 2) * latency_ns
                + _side_by_side_ns(rows_first, columns_first) + addition_ns(costs, size))

    return {"hierarchical": hierarchical_ns, "all-rings": all_rings_ns}


def _side_by_side_ns(*jobs: list[tuple[str, float]]) -> float:
    """Return the time until both jobs, each a list of (resource, ns that it takes alone), are done.

    On the same resource each has half of it.
    """
    now_ns, remaining = 0.0, [list(job) for job in jobs]
    while any(remaining):
        users = [job[0][0] for job in remaining if job]
        step_ns = min(job[0][1] * users.count(job[0][0]) for job in remaining if job)
        now_ns += step_ns
        for job in remaining:
            if job:
                resource, ns = job[0]
                job[0] = resource, ns - step_ns / users.count(resource)
        for job in remaining:
            while job and job[0][1] <= 1e-9 * now_ns:
                del job[0]
    return now_ns


def _torus_exchanges(topology: Torus) -> dict[str, Form]:
    """Return the exchanges: every pair by itself on the network's routes; or along the rows, then along the columns."""
    rows, columns = topology.rows, topology.columns

    def carried_ns(costs: KernelCosts, size: float) -> tuple[float, float]:
        """Return the time that a row's and a column's links are busy."""
        pair_ns = size / topology.nodes / costs.link_bytes_per_ns
        return rows * _messages_per_link(columns) * pair_ns, columns * _messages_per_link(rows) * pair_ns

    def direct_ns(costs: KernelCosts, size: float) -> float:
        return (_start_ns(costs) + costs.step_ns + (columns // 2 + rows // 2) * costs.link_ns
                + max(carried_ns(costs, size)))

    def hierarchical_ns(costs: KernelCosts, size: float) -> float:
        """Return the time of exchanges along the rows, then along the columns.

        Messages that start in their column need not wait for the rows; the nearest arrivals from the rows then keep the
        columns busy.
        """
        along_rows, along_columns = carried_ns(costs, size)
        early = min(along_rows, along_columns / columns)
        hops = rows // 2 + (min(1, columns // 2) if rows > 1 else columns // 2)
        return _start_ns(costs) + 2 * costs.step_ns + hops * costs.link_ns + along_rows + along_columns - early

    return {"direct": direct_ns, "hierarchical": hierarchical_ns}


def _messages_per_link(length: int, ties_both_ways: bool = True) -> int:
    """Return the messages over the busiest links of a ring if all pairs exchange one, the shorter way around.

    Of those half-way around, nodes of even position send one way and the others the other, or all the same way.
    """
    near = (length - 1) // 2
    far = 0 if length % 2 else -(-length // 4) if ties_both_ways else length // 2
    return near * (near + 1) // 2 + far


def _direct_exchange(topology: Topology) -> Form:
    ranks = topology.gpus
    hops, link_messages = {"full": (1, 1), "switch": (1, ranks - 1)}.get(
        topology.name, (ranks // 2, _messages_per_link(ranks, ties_both_ways=False)))

    def closed(costs: KernelCosts, size: float) -> float:
        return _start_ns(costs) + costs.step_ns + hops * costs.link_ns + (
            link_messages * size / ranks / costs.link_bytes_per_ns)

    return closed
