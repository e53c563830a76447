"""What is refused among arrivals, against the reference, and a packet for each reason."""

import pytest

from t3sim.rtl.geometry import ChannelGeometry, DmaGeometry, Geometry, TrackerGeometry
from t3sim.rtl.layouts import ErrorCode, Op, Source
from t3sim.rtl.link.ingress import Ingress, groups
from t3sim.testbenches.reference.ingress import OpenRange, is_lawful
from tests.support.stream_bench import once, simulation
from tests.support.tiers import on_one

pytestmark = pytest.mark.builds_rtl

GEOMETRIES = {
    "default": Geometry(),
    "narrow": Geometry(tracker=TrackerGeometry(sets=1, banks=1, wg_bits=1, wf_bits=1, address_bits=32),
                       channel=ChannelGeometry(channels=1), dma=DmaGeometry(regions=2, engines=1, egress_lanes=1)),
    "wide": Geometry(tracker=TrackerGeometry(wg_bits=24, wf_bits=6, address_bits=64), dma=DmaGeometry(regions=64)),
}
BASE, LAST = 0x4_0000, 0x4_FFFF
HEAD, END, TILES = 20, 30, 3
LAWFUL = {"address": BASE, "bytes": 64, "op": Op.UPDATE, "source": Source.DMA, "region": 3, "wf": 1, "wg": 25}
UNLAWFUL = {
    "it is a read": {"op": Op.READ}, "its operation does not exist": {"op": 3},
    "it says that it is of this GPU": {"source": Source.LOCAL}, "its source does not exist": {"source": 3},
    "it has no bytes": {"bytes": 0}, "it has more than a line": {"bytes": 65}, "it has far more": {"bytes": 127},
    "its address is below": {"address": BASE - 1, "bytes": 1}, "it begins below": {"address": BASE - 1},
    "its address is above": {"address": LAST + 1}, "it ends above": {"address": LAST, "bytes": 2},
    "its address is far above": {"address": BASE | 1 << 47},
    "its region is not open": {"region": 2}, "its region is not open at all": {"region": 0},
    "its region is open for other memory": {"region": 5},
    "it crosses into the next line": {"address": BASE + 1}, "it crosses by a byte": {"address": BASE + 60, "bytes": 5},
    "its wavefront is beyond the last": {"wf": TILES}, "its wavefront is far beyond": {"wf": 7},
    "its workgroup is finished": {"wg": HEAD - 1}, "its workgroup is not in the window yet": {"wg": END},
}
ALSO_LAWFUL = {
    "a store": {"op": Op.STORE}, "of a compute unit": {"source": Source.REMOTE}, "a byte": {"bytes": 1},
    "the last byte": {"address": LAST, "bytes": 1}, "the last line": {"address": LAST - 63},
    "the end of a line": {"address": BASE + 33, "bytes": 31}, "the oldest workgroup": {"wg": HEAD},
    "the last workgroup": {"wg": END - 1}, "the last wavefront": {"wf": TILES - 1},
    "another range": {"address": 0, "region": 5},
}


def set_up(ctx, dut, opened, head, end, tiles, any_tile=0):
    for regions, base, last, values in zip(dut.open, dut.base, dut.last, opened):
        ctx.set(regions, sum(1 << region for region in values.regions))
        ctx.set(base, values.base)
        ctx.set(last, values.last)
    ctx.set(dut.head, head)
    ctx.set(dut.limit, end)
    ctx.set(dut.tiles, tiles)
    ctx.set(dut.any_tile, any_tile)


def offer(ctx, port, packet):
    """Bit by bit, for a packet may have codes that no operation or source has."""
    layout = port.payload.shape()
    assert packet.keys() == dict(layout).keys()
    ctx.set(port.payload.as_value(), sum(int(getattr(value, "value", value)) << layout[name].offset
                                         for name, value in packet.items()))


def simulate(dut, process):
    simulated = simulation(dut)
    simulated.add_testbench(process)
    simulated.run()


RANGES = [OpenRange(frozenset({3, 4}), BASE, LAST), OpenRange(frozenset({5}), 0, 63)]


def offered(change, *, any_tile=0, opened=RANGES, head=HEAD, end=END):
    """One packet in channel 2: whether it passes; and the error of the next cycle, its details or None."""
    dut, seen = once(Ingress, Geometry()), {}

    async def process(ctx):
        set_up(ctx, dut, opened, head, end, TILES, any_tile)
        offer(ctx, dut.arriving[2], LAWFUL | change)
        ctx.set(dut.arriving[2].valid, 1)
        ctx.set(dut.accepted[2].ready, 1)
        seen["taken"], seen["passes"] = ctx.get(dut.arriving[2].ready), ctx.get(dut.accepted[2].valid)
        assert not ctx.get(dut.error.valid)
        await ctx.tick()
        ctx.set(dut.arriving[2].valid, 0)
        seen["refused"], seen["error"] = ctx.get(dut.refused), None
        if ctx.get(dut.error.valid):
            assert ctx.get(dut.error.code) == ErrorCode.ARRIVAL_REFUSED
            details = ctx.get(dut.error.details)
            seen["error"] = {name: details[name] for name in ("address", "region", "wf", "wg")}
        await ctx.tick()
        assert not ctx.get(dut.error.valid) and not ctx.get(dut.refused), "told once"

    simulate(dut, process)
    return seen


@pytest.mark.parametrize("why", UNLAWFUL)
def test_what_is_not_lawful_is_taken_told_and_goes_nowhere(why):
    """One packet for each reason: one error with its details in the next cycle."""
    packet = LAWFUL | UNLAWFUL[why]
    assert offered(UNLAWFUL[why]) == {
        "taken": 1, "passes": 0, "refused": 0b100, "error": {name: packet[name] for name in (
            "address", "region", "wf", "wg")}}


@pytest.mark.parametrize("what", ALSO_LAWFUL)
def test_what_is_lawful_passes_at_once(what):
    """One packet of each lawful kind passes in the cycle in which it is offered, without an error."""
    assert offered(ALSO_LAWFUL[what]) == {"taken": 1, "passes": 1, "refused": 0, "error": None}


@pytest.mark.parametrize("refused", range(1, 16))
def test_of_several_in_one_cycle_the_lowest_channel_is_told(refused):
    """Every subset of the four channels; the report has the lowest one's address."""
    dut = once(Ingress, Geometry())

    async def process(ctx):
        set_up(ctx, dut, RANGES, HEAD, END, TILES)
        for c, (arriving, accepted) in enumerate(zip(dut.arriving, dut.accepted)):
            offer(ctx, arriving, LAWFUL | {"address": BASE + 64 * c} | ({"bytes": 0} if refused >> c & 1 else {}))
            ctx.set(arriving.valid, 1)
            ctx.set(accepted.ready, 1)
        await ctx.tick()
        lowest = (refused & -refused).bit_length() - 1
        assert ctx.get(dut.refused) == refused and ctx.get(dut.error.details.address) == BASE + 64 * lowest

    simulate(dut, process)


def test_every_bit_of_the_windows_end_counts():
    """The end may be past all ids."""
    ids = 1 << Geometry().tracker.wg_bits
    for end in (1, ids // 2, ids, 2 * ids):
        assert offered({"wg": min(end, ids) - 1}, head=0, end=end)["passes"] == 1
        if end < ids:
            assert offered({"wg": end}, head=0, end=end)["passes"] == 0


def test_what_is_not_tracked_may_name_any_tile():
    """Region 0, and all arrivals after a soft reset, may name any workgroup and wavefront."""
    opened = [OpenRange(frozenset({0, 3}), BASE, LAST), *RANGES[1:]]
    for other in ({"wg": 7}, {"wf": 7}):
        assert offered({"region": 0, **other}, opened=opened)["passes"] == 1
        assert offered({"region": 3, **other}, opened=opened)["passes"] == 0
        assert offered({"region": 3, **other}, any_tile=1)["passes"] == 1


@pytest.mark.parametrize("name", on_one(GEOMETRIES))
def test_random_arrivals(name, rng):
    """Every channel against the model, at the borders of ranges and window."""
    g = GEOMETRIES[name]
    dut = once(Ingress, g)
    assert [c for channels in groups(g) for c in channels] == list(range(g.channel.channels))
    top, ids = (1 << g.tracker.address_bits) - 1, (1 << g.tracker.wg_bits) - 1
    found = {True: 0, False: 0}

    async def process(ctx):
        for cycle in range(500 // len(dut.arriving)):
            opened = []
            for _ in dut.base:
                base = rng.getrandbits(g.tracker.address_bits)
                opened.append(OpenRange(frozenset(r for r in range(g.dma.regions) if rng.random() < 0.7), base,
                                        min(top, base + rng.choice((0, 63, 64, 1000)))))
            head = rng.randrange(ids + 2)
            end, any_tile = head + rng.randrange(g.tracker.window_slots + 1), rng.random() < 0.1
            tiles = rng.randint(0, 1 << g.tracker.wf_bits)
            set_up(ctx, dut, opened, head, end, tiles, any_tile)
            refused = 0
            for c, (arriving, accepted) in enumerate(zip(dut.arriving, dut.accepted)):
                near = rng.choice(opened)
                address = min(top, max(0, rng.choice((near.base, near.last)) + rng.randint(-70, 70)))
                rest = 64 - address % 64
                packet = {
                    "address": address, "bytes": rng.choice((0, 1, rest, rest, rest, rest + 1, rng.randrange(128))),
                    "op": rng.choice((1, 2, 1, 2, rng.randrange(4))), "source": rng.choice((1, 2, rng.randrange(4))),
                    "region": rng.randrange(g.dma.regions),
                    "wf": rng.choice((tiles, rng.randrange(max(1, tiles)), 0)) % (1 << g.tracker.wf_bits),
                    "wg": min(ids, max(0, rng.choice((head, end - 1, head, head - 1, end))))}
                valid, ready = rng.random() < 0.8, rng.random() < 0.8
                offer(ctx, arriving, packet)
                ctx.set(arriving.valid, valid)
                ctx.set(accepted.ready, ready)
                lawful = is_lawful(packet, opened, range(head, end), tiles, any_tile, g)
                found[lawful] += 1
                assert ctx.get(accepted.valid) == (valid and lawful), f"cycle {cycle}: {packet} {opened} {head} {end}"
                assert ctx.get(arriving.ready) == ready
                refused |= (valid and ready and not lawful) << c
            await ctx.tick()
            assert ctx.get(dut.refused) == refused and ctx.get(dut.error.valid) == (refused != 0)

    simulate(dut, process)
    assert min(found.values()) > 30, found
