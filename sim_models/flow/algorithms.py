"""Which algorithms there are for a collective on a topology, as programs, and their times in closed form.

The closed forms know links, latencies and the last addition of a reduce-scatter, but no memory that holds a step back.
Along a ring of 2, 6, 10, ... messages for the opposite node cannot be split evenly over both ways: there the form of
the hierarchical all-to-all is a bound.
"""

from collections.abc import Callable
from dataclasses import dataclass

from ..collectives import Program, direct, ring, torus, two_level
from ..collectives.all_reduce import all_reduce
from ..collectives.all_to_all import all_to_all
from ..collectives.together import together
from ..errors import BadInput
from ..topologies import MultiNode, Topology, Torus
from .collective import KernelCosts

COLLECTIVES = {"rs": "reduce-scatter", "ag": "all-gather", "ar": "all-reduce", "a2a": "all-to-all"}

_EITHER_WAY = (-1, 1)


@dataclass(frozen=True)
class Algorithm:
    """A way to run a collective on a topology."""

    name: str
    program: Callable[[], Program]
    #: Of the costs and the array's bytes per GPU; None for a plan of somebody's own.
    closed_form_ns: Callable[[KernelCosts, float], float] | None = None


def algorithms(collective: str, topology: Topology) -> dict[str, Algorithm]:
    """Return what is possible by name, the usual one first. Raises `BadInput` for an unknown collective."""
    if collective not in COLLECTIVES:
        raise BadInput(f"--collective {collective[:40]!r} is unknown: allowed are {', '.join(COLLECTIVES)}")
    if isinstance(topology, Torus):
        found = _torus_exchanges(topology) if collective == "a2a" else _torus_rings(collective, topology)
    elif isinstance(topology, MultiNode):
        found = _of_nodes(collective, topology)
    elif collective == "a2a":
        found = [_direct_exchange(topology)]
    elif topology.name == "ring":
        found = _rings(collective, topology.gpus)
    else:
        # A switch's GPUs share one link each: a ring keeps it as busy as everybody at once does.
        shared = topology.gpus - 1 if topology.switches else 1
        found = [_direct(collective, topology.gpus, shared), *_rings(collective, topology.gpus)[:topology.switches]]
    return {one.name: one for one in found}


def chunk_bytes(collective: str, program: Program, size_bytes: float) -> float:
    """Return the bytes of one chunk if each GPU's array has `size_bytes`; a chunk of an all-to-all is for one pair."""
    return size_bytes * (program.ranks if collective == "a2a" else 1) / program.chunks


def _passes(collective: str) -> int:
    """Count a collective's passes: an all-reduce is a reduce-scatter and an all-gather."""
    return 2 if collective == "ar" else 1


def _joined(collective: str, scatter: Callable[..., Program], gather: Callable[..., Program], *arguments) -> Program:
    if collective == "ar":
        return all_reduce(scatter(*arguments), gather(*arguments))
    return (scatter if collective == "rs" else gather)(*arguments)


def _start_ns(costs: KernelCosts) -> float:
    return costs.launch_ns + costs.step_ns


def _addition_ns(costs: KernelCosts, collective: str, ranks: int, arrivals: int, size_bytes: float) -> float:
    """Return the time of the last pass of a reduce-scatter at each owner."""
    if collective != "rs":
        return 0.0
    return costs.step_ns + (2 + arrivals) * size_bytes / ranks / costs.memory_bytes_per_ns + costs.last_writes_ns


def _ring_ns(costs: KernelCosts, length: int, size_bytes: float) -> float:
    """Return the time of the steps of a ring over which an array of `size_bytes` is scattered."""
    return (length - 1) * (costs.step_ns + costs.link_ns + size_bytes / length / costs.link_bytes_per_ns)


def _rings(collective: str, ranks: int) -> list[Algorithm]:
    def closed(parts: int) -> Callable[[KernelCosts, float], float]:
        return lambda costs, size: (
            _start_ns(costs) + _passes(collective) * _ring_ns(costs, ranks, size / parts)
            + _addition_ns(costs, collective, ranks, 1, size))

    one = lambda step: _joined(collective, ring.reduce_scatter, ring.all_gather, ranks, step)  # noqa: E731
    both = [] if ranks == 2 else [  # a ring of two has one link in each direction
        Algorithm("both-rings", lambda: together([one(step) for step in _EITHER_WAY]), closed(2))]
    return [Algorithm("ring", lambda: one(-1), closed(1)), *both]


def _direct(collective: str, ranks: int, shared: int) -> Algorithm:
    """Return the algorithm in which all send to all; `shared`: messages of a GPU over one link."""
    return Algorithm(
        "direct", lambda: _joined(collective, direct.reduce_scatter, direct.all_gather, ranks),
        lambda costs, size: _start_ns(costs) + _passes(collective) * (
            costs.step_ns + costs.link_ns + shared * size / ranks / costs.link_bytes_per_ns)
        + _addition_ns(costs, collective, ranks, ranks - 1, size))


def _of_nodes(collective: str, on: MultiNode) -> list[Algorithm]:
    """Return everybody with everybody; and within nodes, then between GPUs of one place."""
    groups, places, ranks = on.groups, on.per_group, on.gpus

    def flat_ns(costs: KernelCosts, size: float) -> float:
        """Return the time of everybody with everybody.

        A message to another node crosses its own node first, unless it starts at its destination's place.
        """
        part = size / ranks
        carried = max(groups * part / costs.link_bytes_per_ns if places > 1 else 0.0,
                      places * (groups - 1) * part / costs.network_bytes_per_ns)
        latency_ns = costs.network_ns + (costs.link_ns if places > 1 else 0.0)
        return (_start_ns(costs) + _passes(collective) * (costs.step_ns + latency_ns + carried)
                + _addition_ns(costs, collective, ranks, ranks - 1, size))

    def hierarchical_ns(costs: KernelCosts, size: float) -> float:
        within = costs.step_ns + costs.link_ns + size / places / costs.link_bytes_per_ns if places > 1 else 0.0
        between = costs.step_ns + costs.network_ns + (groups - 1) * size / ranks / costs.network_bytes_per_ns
        return (_start_ns(costs) + _passes(collective) * (within + between)
                + _addition_ns(costs, collective, ranks, groups - 1 + (places > 1) * (places - 1), size))

    def build(kind: str) -> Callable[[], Program]:
        levels = getattr(direct, kind)(places), getattr(direct, kind)(groups)
        return lambda: getattr(two_level, kind)(*levels, lambda group, place: group * places + place)

    flat = all_to_all if collective == "a2a" else lambda count: _joined(
        collective, direct.reduce_scatter, direct.all_gather, count)
    found = [Algorithm("direct", lambda: flat(ranks), flat_ns)]
    if collective != "a2a":
        found.insert(0, Algorithm("hierarchical", lambda: _joined(collective, build("reduce_scatter"),
                                                                  build("all_gather")), hierarchical_ns))
    return found


def _torus_rings(collective: str, on: Torus) -> list[Algorithm]:
    """Build one ring per row, then one per column; or four programs that share the data and use every link."""
    rows, columns = on.rows, on.columns

    def one(step: int, columns_first: bool) -> Program:
        return _joined(collective, torus.reduce_scatter, torus.all_gather, rows, columns, step, columns_first)

    def addition_ns(costs: KernelCosts, size: float) -> float:
        return _addition_ns(costs, collective, on.nodes, (rows > 1) + (columns > 1), size)

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

    both = [] if 2 in (rows, columns) else [  # a ring of two has one link in each direction
        Algorithm("all-rings", lambda: together([one(step, order) for order in (False, True) for step in _EITHER_WAY]),
                  all_rings_ns)]
    return [Algorithm("hierarchical", lambda: one(-1, False), hierarchical_ns), *both]


def _side_by_side_ns(*jobs: list[tuple[str, float]]) -> float:
    """Return the time until both jobs, each a list of (resource, ns that it takes alone), are done.

    On the same resource each has half of it.
    """
    now, left = 0.0, [list(job) for job in jobs]
    while any(left):
        users = [job[0][0] for job in left if job]
        wait = min(job[0][1] * users.count(job[0][0]) for job in left if job)
        now += wait
        for job in left:
            if job:
                resource, ns = job[0]
                job[0] = resource, ns - wait / users.count(resource)
        for job in left:
            while job and job[0][1] <= 1e-9 * now:
                del job[0]
    return now


def _torus_exchanges(on: Torus) -> list[Algorithm]:
    """Return the exchanges: every pair by itself on the network's routes; or along the rows, then along the columns."""
    rows, columns = on.rows, on.columns

    def carried_ns(costs: KernelCosts, size: float) -> tuple[float, float]:
        """Return the time that a row's and a column's links are busy."""
        pair_ns = size / on.nodes / costs.link_bytes_per_ns
        return rows * _messages_per_link(columns) * pair_ns, columns * _messages_per_link(rows) * pair_ns

    def direct_ns(costs: KernelCosts, size: float) -> float:
        return (_start_ns(costs) + costs.step_ns + (columns // 2 + rows // 2) * costs.link_ns
                + max(carried_ns(costs, size)))

    def hierarchical_ns(costs: KernelCosts, size: float) -> float:
        """Return the time of exchanges along the rows, then along the columns.

        What is in its column from the start need not wait for the rows; their nearest arrivals then keep the columns
        busy.
        """
        along_rows, along_columns = carried_ns(costs, size)
        early = min(along_rows, along_columns / columns)
        hops = rows // 2 + (min(1, columns // 2) if rows > 1 else columns // 2)
        return _start_ns(costs) + 2 * costs.step_ns + hops * costs.link_ns + along_rows + along_columns - early

    return [Algorithm("direct", lambda: all_to_all(on.nodes), direct_ns),
            Algorithm("hierarchical", lambda: torus.all_to_all(rows, columns), hierarchical_ns)]


def _messages_per_link(length: int, ties_both_ways: bool = True) -> int:
    """Return the messages over the busiest links of a ring if all pairs exchange one, the shorter way around.

    Of those half-way around, nodes of even position send one way and the others the other, or all the same way.
    """
    near = (length - 1) // 2
    far = 0 if length % 2 else -(-length // 4) if ties_both_ways else length // 2
    return near * (near + 1) // 2 + far


def _direct_exchange(topology: Topology) -> Algorithm:
    ranks = topology.gpus
    hops, carried = {"full": (1, 1), "switch": (1, ranks - 1)}.get(
        topology.name, (ranks // 2, _messages_per_link(ranks, ties_both_ways=False)))

    def closed(costs: KernelCosts, size: float) -> float:
        return _start_ns(costs) + costs.step_ns + hops * costs.link_ns + (
            carried * size / ranks / costs.link_bytes_per_ns)

    return Algorithm("direct", lambda: all_to_all(ranks), closed)
