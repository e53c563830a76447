"""Ports and links: serialisation, latency, order, the way to a node.

And the neighbour that mirrored mode makes of one's own traffic.
"""

import math
import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from t3sim.collectives import ring
from t3sim.collectives.schedule import Action, Schedule, ScheduleError, ScheduleOptions
from t3sim.collectives.schedule.mirror import make_mirror
from t3sim.gpu.fabric import bits
from t3sim.gpu.fabric import network as links
from t3sim.gpu.fabric.state import Network
from t3sim.machine.topologies import Link, Topology
from t3sim.machine.topologies import ring as ring_topology
from t3sim.rtl.geometry import Geometry
from t3sim.rtl.layouts import head_packet
from t3sim.workload.operators.tiling import Tiling

pytestmark = pytest.mark.builds_loops

B = bits.request_bits(Geometry())
BASE = 3 << 20


def arrivals(network: Network, port: int = 0) -> list[tuple[int, int, int]]:
    """(time, lo, hi) of all packets on a port's link, in order; takes them off."""
    flight, taken = network.flight, []
    for packet in range(int(flight.head[port]), int(flight.tail[port])):
        at = packet % flight.lo.shape[1]
        taken.append((int(flight.time[port, at]), int(flight.lo[port, at]), int(flight.hi[port, at])))
    flight.head[port] = flight.freed[port] = flight.tail[port]
    return taken


def pair(*shapes: links.LinkShape) -> Network:
    """A port of such a link at each node, to the next one."""
    nodes = len(shapes)
    return links.make_network([links.LinkPort(node, (node + 1) % nodes, shape) for node, shape in enumerate(shapes)],
                              np.tile(np.arange(nodes)[:, None], nodes), one_for_all=nodes == 1)


@pytest.mark.parametrize("bandwidth, latency", [(75.0, 500), (16.0, 0), (192.5, 3)])
def test_serialisation_latency_and_order(bandwidth, latency, seed):
    generator = random.Random(seed)
    link = pair(*[links.LinkShape(bandwidth, latency, 4096.0, 8.0)] * 2)
    free = [0.0, 0.0]
    expected = [[], []]
    now = total = 0
    for number in range(600):
        device = generator.randrange(2)
        size = generator.choice([64, 64, 64, 2, 48])
        jitter = generator.choice([0, 0, 0, 40])
        links.send(link, device, now, size, jitter, number, -number, 0)
        free[device] = max(free[device], now) + size / bandwidth
        time = math.ceil(free[device]) + latency + jitter
        if expected[device]:
            time = max(time, expected[device][-1][0])
        expected[device].append((time, number, -number))
        total += size
        now += generator.choice([0, 0, 1, 5])
    for device in range(2):
        assert arrivals(link, device) == expected[device]
        assert link.sent_packets[device] == len(expected[device])
    assert link.sent_bytes.sum() == total
    assert link.busy_cycles.sum() == pytest.approx(total / bandwidth)


def test_a_sender_that_never_waits_gets_the_bandwidth():
    """The egress buffer holds the sender back, and is never empty while there is something to send."""
    link = pair(links.LinkShape(75.0, 500, 1024.0, 8.0))
    times = []
    for now in range(4000):
        for _ in range(2):
            if links.can_send(link, 0, now):
                links.send(link, 0, now, 64, 0, 0, 0, 0)
            assert (link.free_time[0] - now) * 75.0 < 1024 + 64
        times += [time for time, _, _ in arrivals(link)]
    received = np.array(times)
    assert received[0] == 501
    assert (np.diff(received) >= 0).all()
    for window in (10, 100, 1000):
        ends = np.searchsorted(received, received + window)
        assert (ends - np.arange(len(received))).max() * 64 <= window * 75.0 + 64
    assert 64 * len(received) == pytest.approx(75.0 * 4000, abs=1024 + 128)


def head(source: int, device: int, place: int = 0, epoch: int = 0) -> int:
    """A dispatch window's head as the hardware's packet."""
    packet = head_packet(Geometry())
    return packet.const({"head": place, "epoch": epoch, "source": source, "device": device}).as_value().value


def heads_under_way(network: Network, port: int = 0) -> list[tuple[int, int]]:
    """(time, head) in order."""
    heads = network.heads
    return [(int(heads.time[port, at]), int(heads.lo[port, at])) for at in range(int(heads.count[port]))]


def test_heads_go_ahead_of_what_waits_and_take_time_from_it():
    """A full buffer: the head overtakes waiting data, which arrive later by the head's time."""
    link = pair(*[links.LinkShape(16.0, 500, 4096.0, 8.0)] * 2)
    for number in range(32):
        links.send(link, 0, 0, 64, 0, number, 0, 0)
    links.send_head(link, 0, 10, 0, head(0, 1, 7), B)
    assert heads_under_way(link) == [(10 + 1 + 500, head(0, 1, 7))]
    assert link.free_time[0] == 32 * 64 / 16 + 8 / 16 and link.busy_cycles[0] == link.free_time[0]
    links.send(link, 0, 10, 64, 0, 99, 0, 0)
    assert arrivals(link)[-1][:2] == (math.ceil(33 * 4 + 0.5) + 500, 99)
    assert link.sent_heads.tolist() == [1, 0] and link.sent_packets[0] == 33


def test_heads_do_not_overtake_each_other(seed):
    """Random delays: heads arrive in the order in which they were sent."""
    generator, link = random.Random(seed), pair(*[links.LinkShape(75.0, 100, 4096.0, 8.0)] * 2)
    for place in range(50):
        links.send_head(link, 0, 2 * place, generator.choice([0, 0, 40]), head(0, 1, place), B)
    times, sent = zip(*heads_under_way(link))
    assert list(times) == sorted(times) and list(sent) == [head(0, 1, place) for place in range(50)]


@pytest.mark.parametrize("gpus, source", [(2, 0), (3, 2), (8, 5)])
def test_one_gpu_for_all_hears_the_one_that_is_as_far_away(gpus, source):
    """The representative GPU receives its own heads as those of the GPU behind it."""
    for way in range(1, gpus):
        link = links.make_network([links.LinkPort(0, 0, links.LinkShape(75.0, 100, 4096.0, 8.0))], np.zeros((1, gpus)),
                                  one_for_all=True)
        links.send_head(link, 0, 0, 0, head(source, (source - way) % gpus, 9, 4), B)
        (_, arrived), = heads_under_way(link)
        assert arrived == head((source + way) % gpus, (source - way) % gpus, 9, 4)


def test_as_many_heads_as_a_link_can_have_under_way_find_room():
    link = pair(*[links.LinkShape(75.0, 100, 4096.0, 8.0)] * 2)
    sent = 0
    while links.can_send_head(link, 0, sent):
        links.send_head(link, 0, sent, 0, head(0, 1, sent), B)
        sent += 1
    assert sent > 100


def scheduled(m: int, n: int, devices: int, slices: int = 1, wavefronts: int = 4, tile_m: int = 64, tile_n: int = 32,
              topology=ring_topology) -> Schedule:
    return Schedule(Tiling(m, n, tile_m, tile_n, wavefronts), ring.reduce_scatter(devices), topology(devices),
                    ScheduleOptions(slices))


def lines_of(tiling: Tiling, tile: int, wf: int):
    """(address, bytes) of the lines of a wavefront tile, in the order of a DMA engine."""
    row, column = tile % tiling.tile_rows * tiling.tile_m, tile // tiling.tile_rows * tiling.tile_n
    size = int(tiling.rows[tile]) * 2
    for c in range(tiling.wf_widths[tile, wf]):
        start = BASE + (column + wf * tiling.wf_columns + c) * tiling.pitch_bytes + row * 2
        for first in range(0, size, 64):
            yield start + first, min(64, size - first)


def check_mirror(schedule: Schedule, device: int) -> None:
    """What is sent goes out; what has a local share beside it arrives, each line once and under its own ids."""
    tiling, rows = schedule.tiling, schedule.rows(device)
    arrivals_of = np.stack([np.arange(len(rows.tile)) % 7 + 1, np.arange(len(rows.tile)) % 5 + 8], axis=1)
    link = pair(links.LinkShape(75.0, 500, 65536.0, 8.0))
    link, lines_out = link._replace(mirror=make_mirror(schedule, device, BASE, arrivals_of)), 0
    expected, arrived = Counter(), Counter()
    for row, tile in enumerate(rows.tile):
        first, last = rows.level[row] == 0, rows.actions[row] & Action.EVENT
        for wf in range(tiling.wf_tiles[tile]):
            op, source = (bits.STORE, bits.REMOTE) if first else (bits.UPDATE, bits.DMA)
            region = int(arrivals_of[row, int(tiling.wf_widths[tile, wf] < tiling.wf_columns)])
            for address, size in lines_of(tiling, int(tile), wf):
                if not first:
                    expected[address, size, region, wf, int(rows.id[row])] += 1
                if last:
                    continue
                peer, there = int(rows.to_gpu[row, 0]), int(rows.to_id[row, 0])
                lo, hi = bits.pack(B, address, size, op, source, 0, wf, there)  # as the egress lane does
                links.send_mirrored(link, B, 0, 0, size, lo, links.bound_for(hi, peer, B), 0)
                lines_out += 1
                for _, lo, hi in arrivals(link):
                    assert bits.get(lo, hi, B.op, 2) == op and bits.get(lo, hi, B.source, 2) == source
                    arrived[bits.address_of(lo, B), bits.get(lo, hi, B.bytes, 7), bits.get(lo, hi, B.region, 4),
                            bits.get(lo, hi, B.wf, B.wf_bits), bits.get(lo, hi, B.wg, B.wg_bits)] += 1
    assert arrived == expected
    assert link.sent_packets[0] >= max(lines_out, len(expected))
    assert link.sent_bytes[0] >= sum(size for _, size, *_ in expected)


@settings(max_examples=25, deadline=None)
@given(m=st.integers(1, 220), n=st.integers(1, 130), devices=st.integers(2, 5), slices=st.integers(1, 2),
       wavefronts=st.sampled_from([1, 4, 8]), data=st.data())
def test_every_line_of_the_neighbour_arrives_once(m, n, devices, slices, wavefronts, data):
    assume(-(-m // 32) * -(-n // 16) >= devices * slices)
    check_mirror(scheduled(m, n, devices, slices, wavefronts, tile_m=32, tile_n=16),
                 data.draw(st.integers(0, devices - 1)))


@pytest.mark.parametrize("schedule", [
    scheduled(256, 256, 4),  # even
    scheduled(256, 128, 2),  # no DMA position
    scheduled(250, 131, 4),  # positions of different line counts
    scheduled(256, 256, 4, slices=2),
], ids=["even", "two devices", "ragged", "slices"])
def test_mirror_of_known_shapes(schedule):
    check_mirror(schedule, 0)


def test_mirror_of_slices_of_different_size():
    schedule = scheduled(256, 11 * 32, 4, slices=3)
    assert len({len(schedule.chunk(s, 0)) for s in range(3)}) > 1
    check_mirror(schedule, 0)


def test_no_mirror_where_devices_differ():
    chord = Topology("chord", 4, (*ring_topology(4).links, Link(0, 2)))
    with pytest.raises(ScheduleError, match="one GPU cannot represent all: .*every GPU must be simulated"):
        make_mirror(scheduled(256, 256, 4, topology=lambda devices: chord), 0, BASE, np.ones((16, 2), np.int64))
