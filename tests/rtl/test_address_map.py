"""The channel hash: numbers and hardware agree, and it spreads what it has to spread."""

import random

import pytest
from amaranth.hdl import Module, Signal, Value
from amaranth.sim import Simulator

from t3sim.rtl.address_map import channel_of, channel_of_value
from t3sim.rtl.geometry import ChannelGeometry, Geometry, TrackerGeometry
from tests.support.tiers import on_one

pytestmark = pytest.mark.builds_rtl

GEOMETRIES = [
    Geometry(),
    Geometry(channel=ChannelGeometry(channels=1)),
    Geometry(channel=ChannelGeometry(channels=2, interleave_bytes=64), tracker=TrackerGeometry(address_bits=33)),
    Geometry(channel=ChannelGeometry(channels=64, interleave_bytes=4096), tracker=TrackerGeometry(address_bits=64)),
    Geometry(channel=ChannelGeometry(channels=128), tracker=TrackerGeometry(address_bits=41)),
    *(Geometry(channel=ChannelGeometry(channels=channels)) for channels in (3, 6, 7, 40, 80, 96, 160, 255)),
]


def folded_bit_by_bit(address, geometry):
    """Independent restatement: bit i of the block number goes to bit i mod b of the channel's lowest b bits.

    What is above the lowest b bits, modulo the channels' odd part, is above them.
    """
    channels = geometry.channel.channels
    bits = next(b for b in range(8) if channels >> b & 1)
    block = (address % (1 << geometry.tracker.address_bits)) // geometry.channel.interleave_bytes
    channel = 0
    for i, digit in enumerate(reversed(f"{block:b}")):
        if digit == "1" and bits:
            channel ^= 1 << (i % bits)
    return channel + ((block >> bits) % (channels >> bits) << bits)


@pytest.mark.parametrize("geometry", on_one(GEOMETRIES, GEOMETRIES[0], GEOMETRIES[-3]))
def test_numbers_and_hardware_agree(geometry):
    """Random addresses have the same channel in the model's arithmetic and in the hardware."""
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
@pytest.mark.parametrize("channels", [32, 80, 96, 128, 160])
def test_power_of_two_pitches_use_every_channel(pitch, channels):
    """Rows that are a power of two apart do not all meet in one channel."""
    geometry = Geometry(channel=ChannelGeometry(channels=channels))
    assert {channel_of(i * pitch, geometry) for i in range(4096)} == set(range(channels))


@pytest.mark.parametrize("channels", [0, 256])
def test_other_numbers_of_channels_are_refused(channels):
    """0 and 256 channels raise a ValueError."""
    with pytest.raises(ValueError, match=rf"channels.*{channels}.*1 to 255"):
        ChannelGeometry(channels=channels)


def test_interleave_unit_stays_on_one_channel():
    """256 adjacent bytes have one channel, and the next bytes another."""
    geometry = Geometry()
    assert len({channel_of(0x12345600 + i, geometry) for i in range(256)}) == 1
    assert channel_of(0x12345600, geometry) != channel_of(0x12345700, geometry)


@pytest.mark.parametrize("channels", [1, 2, 6])
def test_interleave_units_that_leave_a_channel_nothing_are_refused(channels):
    """The largest unit is built, and spreads over all channels; one twice as large is refused in words."""
    tracker = TrackerGeometry(address_bits=32)
    unit = 1 << (32 - (channels - 1).bit_length())
    geometry = Geometry(tracker, ChannelGeometry(channels=channels, interleave_bytes=unit))
    assert len(Value.cast(channel_of_value(Signal(32), geometry))) == geometry.channel.channel_bits
    assert {channel_of(block * unit, geometry) for block in range((1 << 32) // unit)} == set(range(channels))
    with pytest.raises(ValueError, match=rf"interleave_bytes={2 * unit} is impossible: each of channels={channels}"):
        Geometry(tracker, ChannelGeometry(channels=channels, interleave_bytes=2 * unit))
