"""The channel hash: numbers and hardware agree, and it spreads what it has to spread."""

import random

import pytest
from amaranth.hdl import Module, Signal
from amaranth.sim import Simulator

from t3sim.rtl.address_map import channel_of, channel_of_value
from t3sim.rtl.geometry import ChannelGeometry, Geometry, TrackerGeometry

GEOMETRIES = [
    Geometry(),
    Geometry(channel=ChannelGeometry(channels=1)),
    Geometry(channel=ChannelGeometry(channels=2, interleave_bytes=64), tracker=TrackerGeometry(address_bits=33)),
    Geometry(channel=ChannelGeometry(channels=64, interleave_bytes=4096), tracker=TrackerGeometry(address_bits=64)),
]


def folded_bit_by_bit(address, geometry):
    """Independent restatement: bit i of the block number goes to bit i mod channel_bits of the channel."""
    bits = geometry.channel.channel_bits
    block = (address % (1 << geometry.tracker.address_bits)) // geometry.channel.interleave_bytes
    channel = 0
    for i, digit in enumerate(reversed(f"{block:b}")):
        if digit == "1" and bits:
            channel ^= 1 << (i % bits)
    return channel


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_numbers_and_hardware_agree(geometry):
    rng = random.Random(1)
    address = Signal(geometry.tracker.address_bits)
    channel = Signal(8)
    m = Module()
    m.d.comb += channel.eq(channel_of_value(address, geometry))

    async def bench(ctx):
        for _ in range(300):
            value = rng.getrandbits(rng.randint(1, geometry.tracker.address_bits))
            ctx.set(address, value)
            assert channel_of(value, geometry) == folded_bit_by_bit(value, geometry) == ctx.get(channel), hex(value)

    sim = Simulator(m)
    sim.add_testbench(bench)
    sim.run()


@pytest.mark.parametrize("pitch", [256, 1024, 4096, 8192, 65536, 1 << 20])
def test_power_of_two_pitches_use_every_channel(pitch):
    geometry = Geometry()
    assert {channel_of(i * pitch, geometry) for i in range(1024)} == set(range(32))


def test_interleave_unit_stays_on_one_channel():
    geometry = Geometry()
    assert len({channel_of(0x12345600 + i, geometry) for i in range(256)}) == 1
    assert channel_of(0x12345600, geometry) != channel_of(0x12345700, geometry)
