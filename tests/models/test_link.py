"""Links: serialisation, latency, order; and the neighbour that mirrored mode makes of one's own traffic."""

import math
import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rtl.geometry import Geometry
from sim_models import bits
from sim_models import link as links
from sim_models.tiling import Tiling

B = bits.request_bits(Geometry())
BASE = 3 << 20


def arrivals(link, device: int = 0) -> list[tuple[int, int, int]]:
    """(time, lo, hi) of all packets on the link, in order; takes them off."""
    flight, taken = link.flight, []
    at, size = int(flight.head[device]), flight.lo.shape[1]
    for _ in range(int(flight.count[device])):
        taken.append((int(flight.time[device, at]), int(flight.lo[device, at]), int(flight.hi[device, at])))
        at = (at + 1) % size
    flight.head[device], flight.count[device] = at, 0
    return taken


@pytest.mark.parametrize("bandwidth, latency", [(75.0, 500), (16.0, 0), (192.5, 3)])
def test_serialisation_latency_and_order(bandwidth, latency, seed):
    generator = random.Random(seed)
    shape = links.LinkShape(bandwidth, latency, 4096.0)
    link = links.make_link(2, shape)
    free = [0.0, 0.0]
    expected = [[], []]
    now = total = 0
    for number in range(600):
        device = generator.randrange(2)
        size = generator.choice([64, 64, 64, 2, 48])
        jitter = generator.choice([0, 0, 0, 40])
        links.send(link, shape, device, now, size, jitter, number, -number)
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
    shape = links.LinkShape(75.0, 500, 1024.0)
    link = links.make_link(1, shape)
    times = []
    for now in range(4000):
        for _ in range(2):
            if links.can_send(link, shape, 0, now):
                links.send(link, shape, 0, now, 64, 0, 0, 0)
            assert (link.free_time[0] - now) * 75.0 < 1024 + 64
        times += [time for time, _, _ in arrivals(link)]
    received = np.array(times)
    assert received[0] == 501
    assert (np.diff(received) >= 0).all()
    for window in (10, 100, 1000):
        ends = np.searchsorted(received, received + window)
        assert (ends - np.arange(len(received))).max() * 64 <= window * 75.0 + 64
    assert 64 * len(received) == pytest.approx(75.0 * 4000, abs=1024 + 128)


def lines_of(tiling: Tiling, tile: int, wf: int):
    """(address, bytes) of the lines of a wavefront tile, in the order of a DMA engine."""
    row, column = tile % tiling.tile_rows * tiling.tile_m, tile // tiling.tile_rows * tiling.tile_n
    size = int(tiling.rows[tile]) * 2
    for c in range(tiling.wf_tile_columns(tile, wf)):
        start = BASE + (column + wf * tiling.wf_columns + c) * tiling.pitch_bytes + row * 2
        for first in range(0, size, 64):
            yield start + first, min(64, size - first)


def check_mirror(tiling: Tiling, device: int) -> None:
    """Lines of positions 0 to N-2 go out; those of positions 1 to N-1 arrive, each once and under its own ids."""
    shape = links.LinkShape(75.0, 500, 65536.0)
    link, mirror = links.make_link(1, shape), links.make_mirror(tiling, device, BASE)
    tiles, positions, slices = tiling.order(device)
    region = np.arange(tiling.tiles * tiling.wavefronts).reshape(tiling.tiles, tiling.wavefronts) % 7 + 1
    lines_out = 0
    expected, arrived = Counter(), Counter()
    for q, (tile, position, s) in enumerate(zip(tiles, positions, slices)):
        for wf in range(tiling.wf_tiles(int(tile))):
            op, source = (bits.UPDATE, bits.DMA) if position else (bits.STORE, bits.REMOTE)
            for address, size in lines_of(tiling, int(tile), wf):
                if position:
                    expected[address, size, int(region[q, wf]), wf, q] += 1
                if position == tiling.devices - 1:
                    continue
                there = q + tiling.wg_offset(device, int(s))  # as the egress lane translates it
                lo, hi = bits.pack(B, address, size, op, source, 0, wf, there)
                links.send_mirrored(link, shape, mirror, B, region, 0, size, lo, hi)
                lines_out += 1
                for _, lo, hi in arrivals(link):
                    assert bits.get(lo, hi, B.op, 2) == op and bits.get(lo, hi, B.source, 2) == source
                    arrived[bits.address_of(lo, B), bits.get(lo, hi, B.bytes, 7), bits.get(lo, hi, B.region, 4),
                            bits.get(lo, hi, B.wf, B.wf_bits), bits.get(lo, hi, B.wg, B.wg_bits)] += 1
    assert arrived == expected
    assert link.sent_packets[0] >= max(lines_out, len(expected))
    assert link.sent_bytes[0] >= sum(size for _, size, *_ in expected)


def same_offsets(tiling: Tiling, device: int) -> bool:
    return len({tiling.wg_offset(device, s) for s in range(tiling.slices)}) == 1


@settings(max_examples=25, deadline=None)
@given(m=st.integers(1, 220), n=st.integers(1, 130), devices=st.integers(2, 5), slices=st.integers(1, 2),
       wavefronts=st.sampled_from([1, 4, 8]), data=st.data())
def test_every_line_of_the_neighbour_arrives_once(m, n, devices, slices, wavefronts, data):
    assume(-(-m // 32) * -(-n // 16) >= devices * slices)
    tiling = Tiling(m, n, devices, tile_m=32, tile_n=16, wavefronts=wavefronts, slices=slices)
    device = data.draw(st.integers(0, devices - 1))
    assume(same_offsets(tiling, device))
    check_mirror(tiling, device)


@pytest.mark.parametrize("tiling", [
    Tiling(256, 256, 4, tile_m=64, tile_n=32, wavefronts=4),  # even
    Tiling(256, 128, 2, tile_m=64, tile_n=32, wavefronts=4),  # no DMA position
    Tiling(250, 131, 4, tile_m=64, tile_n=32, wavefronts=4),  # positions of different line counts
    Tiling(256, 256, 4, tile_m=64, tile_n=32, wavefronts=4, slices=2),
], ids=["even", "two devices", "ragged", "slices"])
def test_mirror_of_known_shapes(tiling):
    check_mirror(tiling, 0)


def test_mirror_of_slices_of_different_size():
    tiling = Tiling(256, 11 * 32, 4, tile_m=64, tile_n=32, wavefronts=4, slices=3)
    assert not same_offsets(tiling, 0)
    check_mirror(tiling, 0)
