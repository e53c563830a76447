"""The models' address map is the hardware's, and no two lines of memory share a place."""

import random

import pytest

from t3sim.gpu.fabric.bits import channel_of, local_line, memory_map
from t3sim.rtl import address_map
from t3sim.rtl.geometry import ChannelGeometry, Geometry

pytestmark = pytest.mark.builds_loops

GEOMETRIES = [Geometry(channel=ChannelGeometry(channels=channels, interleave_bytes=interleave))
              for channels, interleave in ((1, 256), (2, 64), (4, 256), (32, 256), (32, 4096), (64, 64), (128, 256),
                                             (3, 256), (6, 64), (80, 256), (96, 4096))]


def geometries():
    return pytest.mark.parametrize("g", GEOMETRIES,
                                   ids=lambda g: f"{g.channel.channels}x{g.channel.interleave_bytes}")


@geometries()
def test_channel_is_the_hardwares(g, seed):
    m, generator = memory_map(g.channel), random.Random(seed)
    bits = g.tracker.address_bits
    addresses = [generator.getrandbits(generator.randrange(1, bits + 1)) for _ in range(1000)]
    addresses += [0, (1 << bits) - 1, *(1 << bit for bit in range(bits))]
    for address in addresses:
        assert channel_of(address, m) == address_map.channel_of(address, g)


@geometries()
def test_no_two_lines_share_a_place(g, seed):
    """Not in one piece of memory, nor among lines far apart."""
    m, generator = memory_map(g.channel), random.Random(seed)
    start = generator.randrange(1 << 30) * 64
    lines = {start + 64 * i for i in range(4096)}
    lines |= {generator.randrange(1 << 34) // 64 * 64 for _ in range(4096)}
    places = {(channel_of(line, m), local_line(line, m)) for line in lines}
    assert len(places) == len(lines)
    assert all(channel_of(line, m) == channel_of(line + 63, m) and local_line(line, m) == local_line(line + 63, m)
               for line in list(lines)[:200])


@geometries()
def test_a_channels_memory_is_dense(g):
    """A piece of memory fills the same lines of every channel."""
    m = memory_map(g.channel)
    size = 64 * g.channel.interleave_bytes * g.channel.channels
    places = [set() for _ in range(g.channel.channels)]
    for address in range(0, size, 64):
        places[channel_of(address, m)].add(int(local_line(address, m)))
    assert all(place == set(range(size // 64 // g.channel.channels)) for place in places)


@geometries()
def test_powers_of_two_do_not_fall_on_one_channel(g):
    """Columns of a matrix whose leading dimension is a power of two."""
    m = memory_map(g.channel)
    if m.channels == 1:
        pytest.skip("one channel")
    for shift in range(m.interleave_shift, 20):
        used = [len({int(channel_of(i << shift, m)) for i in range(times * m.channels)}) for times in (4, 64)]
        assert used[1] == m.channels and used[0] >= (m.channels if m.odd_channels == 1 else 0.8 * m.channels)
