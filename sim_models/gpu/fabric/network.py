"""The network: ports, each with its link; in mirrored mode a GPU's own packets also act as its neighbour's.

A packet goes to the port that leads to its `gpu`, waits in the port's egress buffer, is serialised at the link's
bandwidth and arrives a latency later, in order. A node that is not its destination sends it on through a port of its
own. Ports share nothing, so a slow link delays only its own packets.
The heads of dispatch windows take the same routes. They overtake packets in egress buffers and never wait for memory
at a link's end, where data may be waiting for them.
Source: T3 paper, Table 1 (75 GB/s per direction, 500 ns); headers are not charged to the payload's bandwidth.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from t3sim.base.compiled.jit import inlined
from t3sim.base.line import LINE_BYTES, LINE_SHIFT, lines_of
from t3sim.collectives.schedule.mirror import NO_MIRROR, Mirror
from t3sim.gpu.fabric import bits, queues
from t3sim.gpu.fabric.bits import RequestBits
from t3sim.gpu.fabric.state import Network

NO_PORT = -1
_SPARE_PACKETS = 64  #: places that stay free among those under way: a mirrored packet may become several
_SPARE_HEADS = 64  #: heads under way besides one for each cycle of a link's latency
_lines_of = inlined(lines_of)


class LinkShape(NamedTuple):
    bytes_per_cycle: float
    latency_cycles: int
    buffer_bytes: float
    head_bytes: float  #: of a dispatch window's head on it


class LinkPort(NamedTuple):
    """Port of a link: its two nodes, and its rate, latency and buffer."""

    source: int  #: node
    target: int  #: node
    shape: LinkShape


def make_network(ports: Sequence[LinkPort], next_port: np.ndarray, one_for_all: bool = False, groups: int = 0,
                 planes: int = 1) -> Network:
    """Build a network without traffic; arguments as in `Network`, `groups`: of the columns of `next_port`.

    `next_port` names the first of links that are side by side, which follow each other in `ports`.
    """
    nodes, shapes = len(next_port), [port.shape for port in ports]
    # Twice the latency: news of a place that is free takes as long as a packet.
    in_flight = max(int(2 * shape.latency_cycles * shape.bytes_per_cycle + shape.buffer_bytes) for shape in shapes)
    packets = max(1024, in_flight // 8)  # a packet may be as short as one element
    heads = 2 * max(shape.latency_cycles for shape in shapes) + _SPARE_HEADS

    def by_node(node_of: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        order = np.argsort(node_of, kind="stable")
        return np.searchsorted(np.array(node_of)[order], np.arange(nodes + 1)), order.astype(np.int64)

    def each(count: int, dtype: type = np.int64) -> np.ndarray:
        return np.zeros(count, dtype)
    count = len(ports)
    return Network._make((
        *(np.array(column, np.int64 if name == "latency_cycles" else np.float64)
          for name, column in zip(LinkShape._fields, zip(*shapes))),
        np.array([port.target for port in ports]),
        np.ascontiguousarray(next_port, np.int64), *by_node([port.source for port in ports]),
        *by_node([port.target for port in ports]), one_for_all, next_port.shape[1] - groups, planes,
        queues.make_wires(count, packets),
        each(count, np.float64), each(count), each(count), each(count), each(count, np.float64), each(count),
        queues.make_wires(count, heads), each(count), each(count), queues.timed_queue(nodes, heads),
        each(nodes), each(nodes), each(nodes), False, NO_MIRROR))


def outgoing(network: Network, node: int) -> np.ndarray:
    """Return a node's ports."""
    return network.ports_out[network.first_out[node]:network.first_out[node + 1]]


@inlined
def destination_of(hi: int, fields: RequestBits) -> int:
    """Return the node that a packet goes to."""
    return hi >> (fields.device - 64)


@inlined
def port_to(network: Network, node: int, destination: int) -> int | np.int64:
    """Return the port through which a node's packets for another one leave, or NO_PORT; the first side by side."""
    known = destination < network.next_port.shape[1]
    return network.next_port[node, destination] if known else np.int64(NO_PORT)


@inlined
def plane_at(address: int, planes: int) -> int:
    """Return which of links side by side, a power of two of them, a line at an address takes."""
    return address >> LINE_SHIFT & (planes - 1)


@inlined
def plane_of(network: Network, lo: int, fields: RequestBits) -> int:
    """Return which of the links that are side by side a packet takes."""
    return plane_at(bits.address_of(lo, fields), network.planes)


@inlined
def port_for(network: Network, node: int, destination: int, lo: int, fields: RequestBits) -> int | np.int64:
    """Return the port through which a packet leaves a node for another one, or NO_PORT."""
    port = port_to(network, node, destination)
    return port if port == NO_PORT else port + plane_of(network, lo, fields)


@inlined
def bound_for(hi: int, node: int, fields: RequestBits) -> int:
    """Return the high word of a request as that of a packet for a node."""
    return hi | node << (fields.device - 64)


@inlined
def backlog(network: Network, port: int, now: int) -> float:
    """Return the bytes in a port's egress buffer; below 0 when it has been empty."""
    return (network.free_time[port] - now) * network.bytes_per_cycle[port]


@inlined
def can_send(network: Network, port: int, now: int) -> bool:
    """Return whether a port's egress buffer takes another packet."""
    return (backlog(network, port, now) < network.buffer_bytes[port]
            and queues.has_room(network.flight, port, now, network.latency_cycles[port], _SPARE_PACKETS))


@inlined
def serialise(network: Network, port: int, now: int, byte_count: int) -> None:
    """Let a port be busy with a packet."""
    network.free_time[port] = max(network.free_time[port], now) + byte_count / network.bytes_per_cycle[port]
    network.busy_cycles[port] += byte_count / network.bytes_per_cycle[port]
    network.sent_bytes[port] += byte_count
    network.sent_packets[port] += 1


@inlined
def send(network: Network, port: int, now: int, byte_count: int, delay: int, lo: int, hi: int, tag: int) -> None:
    """Send a packet through a port; `delay` is extra latency (random tests), `tag` as in `queues.tag_of`."""
    serialise(network, port, now, byte_count)
    arrival = max(np.int64(np.ceil(network.free_time[port])) + network.latency_cycles[port] + delay,
                  network.last_arrival[port])
    network.last_arrival[port] = arrival
    queues.put(network.flight, port, arrival, lo, hi, tag)


@inlined
def can_send_head(network: Network, port: int, now: int) -> bool:
    """Return whether a port takes another head in this cycle."""
    return queues.has_room(network.heads, port, now, network.latency_cycles[port], 0)


@inlined
def send_head(network: Network, port: int, now: int, delay: int, head: int, fields: RequestBits) -> None:
    """Send a dispatch window's head through a port, ahead of packets in its buffer; `delay` as for `send`.

    With a representative GPU the head returns to it, as the head of the GPU that is equally far away in the other
    direction.
    """
    cycles = network.head_bytes[port] / network.bytes_per_cycle[port]
    network.free_time[port] = max(network.free_time[port], now) + cycles
    network.busy_cycles[port] += cycles
    network.sent_heads[port] += 1
    arrival = max(np.int64(np.ceil(now + cycles)) + network.latency_cycles[port] + delay, network.last_head[port])
    network.last_head[port] = arrival
    if network.one_for_all and network.target[port] == 0:  # the last link on its way
        head = come_back(head, network.gpus, fields)
    queues.put(network.heads, port, arrival, head, 0, 0)


@inlined
def head_arrival(head: int, fields: RequestBits) -> int:
    """Return a head with its sender, which the link adds, so that no GPU can forge it."""
    return head | bits.get(head, 0, fields.head_source, fields.device_bits) << fields.head_device + fields.device_bits


@inlined
def come_back(head: int, gpus: int, fields: RequestBits) -> int:
    """Return a representative GPU's head as the head of the GPU equally far away in the other direction."""
    source = bits.get(head, 0, fields.head_source, fields.device_bits)
    comes_from = (2 * source + gpus - head_destination(head, fields)) % gpus
    return head + (comes_from - source << fields.head_source)


@inlined
def head_destination(head: int, fields: RequestBits) -> int:
    """Return the GPU that a dispatch window's head is sent to."""
    return bits.get(head, 0, fields.head_device, fields.device_bits)


@inlined
def mirrored_lines(mirror: Mirror, b: RequestBits, lo: int, hi: int) -> tuple[int, int, int]:
    """Return the lines that the upstream GPU sends when this GPU sends a line: group, first, one past the last."""
    destination, there = destination_of(hi, b), bits.get(lo, hi, b.wg, b.wg_bits)
    row, route = mirror.sender[destination, there], mirror.route[destination, there]
    wf = bits.get(lo, hi, b.wf, b.wf_bits)
    offset = bits.address_of(lo, b) - mirror.base[row, wf]
    per_column = _lines_of(mirror.column_bytes[row])
    group = mirror.group[row]
    becomes = mirror.becomes[group, route]
    rank = mirror.rank[row, wf] + offset // mirror.pitch * per_column + offset % mirror.pitch // LINE_BYTES
    first = rank * mirror.lines[becomes] // mirror.lines[group]
    last = (rank + 1) * mirror.lines[becomes] // mirror.lines[group]
    return int(becomes), first, last


@inlined
def mirrored_line(mirror: Mirror, b: RequestBits, becomes: int, target: int, lo: int,
                  hi: int) -> tuple[int, int, int]:
    """Return one of `mirrored_lines`, as (bytes, lo, hi); `lo`, `hi`: of this GPU's own packet."""
    at = mirror.list_start[becomes]
    end = mirror.list_start[becomes + 1]
    while end - at > 1:
        middle = (at + end) // 2
        if mirror.list_rank[middle] <= target:
            at = middle
        else:
            end = middle
    to_row, to_wf = mirror.list_row[at], mirror.list_wf[at]
    within = target - mirror.list_rank[at]
    per = _lines_of(mirror.column_bytes[to_row])
    address = mirror.base[to_row, to_wf] + within // per * mirror.pitch + within % per * LINE_BYTES
    size = min(LINE_BYTES, mirror.column_bytes[to_row] - within % per * LINE_BYTES)
    new_lo, new_hi = bits.pack(b, address, size, bits.get(lo, hi, b.op, 2), bits.get(lo, hi, b.source, 2),
                               mirror.region[to_row, to_wf], to_wf, mirror.id[to_row])
    return size, new_lo, new_hi


@inlined
def send_mirrored(network: Network, b: RequestBits, port: int, now: int, byte_count: int, lo: int, hi: int,
                  tag: int) -> None:
    """Send a packet as this GPU's upstream GPU would now: lines of equal rank (schedule/mirror.py)."""
    becomes, first, last = mirrored_lines(network.mirror, b, lo, hi)
    if first == last:  # there are fewer lines to receive: the link is busy all the same
        serialise(network, port, now, byte_count)
        network.taken[port] += 1
    for target in range(first, last):
        size, new_lo, new_hi = mirrored_line(network.mirror, b, becomes, target, lo, hi)
        send(network, port, now, size, 0, new_lo, new_hi, tag)
