"""Requests in two words are in the RTL's own bit order."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t3sim.gpu.fabric import bits
from t3sim.rtl import layouts
from t3sim.rtl.geometry import ChannelGeometry, DmaGeometry, Geometry, TrackerGeometry

pytestmark = pytest.mark.builds_loops

GEOMETRIES = {
    "default": Geometry(),
    "small": Geometry(TrackerGeometry(sets=16, ways=2, banks=2, wg_bits=9, wf_bits=1),
                      ChannelGeometry(channels=4, guard_buckets=1), DmaGeometry(regions=4, device_bits=3)),
    "large": Geometry(TrackerGeometry(wg_bits=24, wf_bits=6, address_bits=57), ChannelGeometry(guard_buckets=256),
                      DmaGeometry(regions=64, device_bits=10)),
    "short-addresses": Geometry(TrackerGeometry(address_bits=32)),
}
WORD = (1 << 64) - 1
FIELDS = ("bytes", "op", "source", "region", "wf", "wg")


def geometries():
    return pytest.mark.parametrize("g", GEOMETRIES.values(), ids=list(GEOMETRIES))


def signed(word: int) -> int:
    """As int64, in which the models keep words."""
    return word - (1 << 64) if word >> 63 else word


def split(value: int) -> tuple[int, int]:
    return signed(value & WORD), signed(value >> 64)


def join(lo: int, hi: int) -> int:
    return (lo & WORD) | (hi & WORD) << 64


@geometries()
def test_positions_are_those_of_the_rtl(g):
    b = bits.request_bits(g)
    request, packet, command = layouts.request(g), layouts.packet(g), layouts.dram_command(g)
    for layout in (request, packet):
        assert layout["address"].offset == 0 and layout["address"].width == b.address_bits
        for name in FIELDS:
            assert layout[name].offset == getattr(b, name), name
        for name in ("region", "wf", "wg"):
            assert layout[name].width == getattr(b, f"{name}_bits"), name
        assert layout["bytes"].width == b.op - b.bytes
        assert layout["op"].width == layout["source"].width == 2
    assert (packet["device"].offset, packet["device"].width) == (b.device, b.device_bits)
    assert request.size == b.device, "a request ends where a packet's device begins"
    assert command["request"].offset == 0
    assert command["communication"].offset == b.dram_communication and command["communication"].width == 1
    assert (command["bucket"].offset, command["bucket"].width) == (b.dram_bucket, b.bucket_bits)
    assert max(packet.size, command.size) <= 128


def test_codes_are_those_of_the_rtl():
    assert [bits.READ, bits.STORE, bits.UPDATE] == [op.value for op in
                                                    (layouts.Op.READ, layouts.Op.STORE, layouts.Op.UPDATE)]
    assert [bits.LOCAL, bits.REMOTE, bits.DMA] == [source.value for source in
                                                   (layouts.Source.LOCAL, layouts.Source.REMOTE, layouts.Source.DMA)]


@geometries()
def test_packed_requests_read_back(g, seed):
    """Through the RTL's layout and through `get`, whatever lies in the bits above the request."""
    b, layout = bits.request_bits(g), layouts.request(g)
    generator = random.Random(seed)
    for number in range(200):
        highest = number < 2
        values = {name: (1 << layout[name].width) - 1 if highest else generator.getrandbits(layout[name].width)
                  for name in ("address", *FIELDS)}
        values["op"], values["source"] = generator.randrange(3), generator.randrange(3)
        lo, hi = bits.pack(b, *(values[name] for name in ("address", *FIELDS)))
        whole = join(lo, hi)
        assert whole == sum(values[name] << layout[name].offset for name in ("address", *FIELDS))
        assert whole >> layout.size == 0
        lo, hi = split(whole | generator.getrandbits(128 - layout.size) << layout.size)
        assert bits.address_of(lo, b) == values["address"]
        for name in FIELDS:
            assert bits.get(lo, hi, layout[name].offset, layout[name].width) == values[name], name



def test_the_places_of_a_head_on_the_links():
    g = Geometry()
    for one in (g, replace(g, tracker=replace(g.tracker, wg_bits=24), dma=replace(g.dma, device_bits=10))):
        b, layout = bits.request_bits(one), layouts.head_packet(one)
        assert layout.size < 64
        assert (b.head_source, b.head_device, b.device_bits) == (
            layout["source"].offset, layout["device"].offset, layout["device"].width)


@settings(max_examples=300, deadline=None)
@given(value=st.integers(0, (1 << 128) - 1), lsb=st.integers(0, 127), width=st.integers(1, 62))
def test_get_is_a_shift_and_a_mask(value, lsb, width):
    width = min(width, 128 - lsb)
    assert bits.get(*split(value), lsb, width) == value >> lsb & ((1 << width) - 1)


def test_fields_at_the_edge_of_a_word(seed):
    generator = random.Random(seed)
    for lsb in range(44, 68):
        for width in range(1, 26):
            value = generator.getrandbits(128)
            assert bits.get(*split(value), lsb, width) == value >> lsb & ((1 << width) - 1), (lsb, width)
