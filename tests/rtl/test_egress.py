"""Translation of outbound lines, against the reference."""

import random

import pytest

from t3sim.reference.address_generator import LineError
from t3sim.reference.egress import Packet, packets_of
from t3sim.rtl.egress import Egress
from t3sim.rtl.geometry import DmaGeometry, Geometry, TrackerGeometry
from t3sim.rtl.layouts import Op, Source
from t3sim.rtl.layouts import descriptor as descriptor_layout
from tests.rtl.stream_bench import StreamBench, as_dict

GEOMETRIES = {
    "default": Geometry(),
    "narrow": Geometry(tracker=TrackerGeometry(sets=1, banks=1, wg_bits=1, wf_bits=1, address_bits=32),
                       dma=DmaGeometry(regions=2, device_bits=1)),
    "wide": Geometry(tracker=TrackerGeometry(wg_bits=24, wf_bits=6, address_bits=64), dma=DmaGeometry(device_bits=10)),
    "queue": Geometry(dma=DmaGeometry(queue_commands=4)),
}


def random_descriptors(rng, geometry):
    widths = {name: field.width for name, field in descriptor_layout(geometry)}
    return [{name: rng.getrandbits(width) for name, width in widths.items()}
            | {"op": rng.choice((1, 2))} | ({} if index else {"send_stores": 1, "send_dma": 0})
            for index in range(geometry.dma.regions)]


def random_line(rng, geometry, descriptors):
    region = rng.randrange(len(descriptors))
    fitting = Source.DMA if descriptors[region]["send_dma"] else Source.LOCAL
    source = fitting if rng.random() < 0.8 else rng.choice(list(Source))
    return dict(address=rng.getrandbits(geometry.tracker.address_bits), bytes=rng.randint(1, 64),
                op=rng.choice(list(Op)), source=source, region=region, wf=rng.getrandbits(geometry.tracker.wf_bits),
                wg=rng.getrandbits(geometry.tracker.wg_bits))


class Bench(StreamBench):
    def __init__(self, geometry, descriptors, seed):
        self.dut = Egress(geometry)
        super().__init__(self.dut, seed)
        self.errors = []
        self.refused_dma = 0

        async def watch(ctx):
            for port, values in zip(self.dut.descriptors, descriptors):
                ctx.set(port, values | {"op": Op(values["op"])})
            inside = 0
            while True:
                _, _, reset, error, busy, entered, left, refused, forget, repeated = await ctx.tick().sample(
                    self.reset, self.dut.error, self.dut.busy,
                    self.dut.line.valid & self.dut.line.ready & ~self.dut.forget,
                    self.dut.packet.valid & self.dut.packet.ready, self.dut.refused_dma, self.dut.forget,
                    getattr(self.dut, "repeated", 0))
                self.refused_dma += refused and not reset
                assert forget or busy == (inside > 0)
                inside = 0 if reset else inside + entered + repeated - left - error.valid
                if error.valid and not reset:
                    self.errors.append(LineError(error.code.value, **as_dict(error.details)))

        self.process(watch)


def expect(lines, descriptors, geometry):
    results = [one for line in lines
               for one in packets_of(line | {"source": line["source"].value}, descriptors, geometry)]
    return ([item._asdict() for item in results if isinstance(item, Packet)],
            [item for item in results if isinstance(item, LineError)])


@pytest.mark.parametrize("name", GEOMETRIES)
@pytest.mark.parametrize("seed,idle,pause", [(1, 0, 0), (2, 0.3, 0.3), (3, 0, 0.7), (4, 0.8, 0)])
def test_random_lines(name, seed, idle, pause):
    geometry, rng = GEOMETRIES[name], random.Random(seed)
    descriptors = random_descriptors(rng, geometry)
    lines = [random_line(rng, geometry, descriptors) for _ in range(200)]
    expected, errors = expect(lines, descriptors, geometry)
    assert expected and errors
    bench = Bench(geometry, descriptors, seed)
    bench.source(bench.dut.line, lines, idle=idle)
    packets = bench.sink(bench.dut.packet, idle=pause)
    bench.run(until=lambda: len(packets) >= len(expected) and len(bench.errors) >= len(errors), settle=10)
    assert packets == expected
    assert bench.errors == errors
    if name != "queue":
        assert bench.refused_dma == sum(line["source"] == Source.DMA for line in lines) - sum(
            packet["source"] == Source.DMA.value for packet in expected)


@pytest.mark.parametrize("send_stores", [0, 1])
@pytest.mark.parametrize("send_dma", [0, 1])
@pytest.mark.parametrize("event", [0, 1])
@pytest.mark.parametrize("source", list(Source))
def test_which_sources_fit_which_actions(send_stores, send_dma, event, source):
    geometry = GEOMETRIES["default"]
    descriptor = dict.fromkeys((name for name, _ in descriptor_layout(geometry)), 0) | {
        "send_stores": send_stores, "send_dma": send_dma, "event": event, "op": 1}
    bench = Bench(geometry, [descriptor] * geometry.dma.regions, 1)
    bench.source(bench.dut.line, [dict(address=5, bytes=1, op=Op.STORE, source=source, region=3, wf=1, wg=2)])
    packets = bench.sink(bench.dut.packet)
    bench.run(settle=10)
    fits = {Source.LOCAL: send_stores, Source.DMA: send_dma}.get(source, 0)
    assert (len(packets), len(bench.errors)) == (fits, not fits)


def regions_in_a_row(geometry, following):
    """Every region to a device of its number; `following` says what else is sent of a region."""
    names = dict.fromkeys((name for name, _ in descriptor_layout(geometry)), 0)
    return [names | {"send_dma": 1, "op": 1, "device": region, "address_offset": 100 * region,
                     "also": following.get(region, 0)} for region in range(geometry.dma.regions)]


@pytest.mark.parametrize(("region", "devices"), [(1, [1, 2]), (2, [2]), (3, [3, 5, 7]), (5, [5, 7]), (7, [7])])
def test_what_is_read_once_goes_to_all_regions_in_a_row(region, devices):
    """A number that is not larger than the region's own ends the row: there is no way around in a circle."""
    geometry = GEOMETRIES["queue"]
    bench = Bench(geometry, regions_in_a_row(geometry, {1: 2, 2: 1, 3: 5, 5: 7, 7: 3, 4: 4}), 1)
    line = dict(address=64, bytes=64, op=Op.READ, source=Source.DMA, region=region, wf=1, wg=2)
    bench.source(bench.dut.line, [line, line | {"address": 128}])
    packets = bench.sink(bench.dut.packet, idle=0.3)
    bench.run(settle=20)
    assert [(packet["device"], packet["address"]) for packet in packets] == [
        (device, address + 100 * device) for address in (64, 128) for device in devices]


def test_stores_of_compute_units_are_not_repeated():
    geometry = GEOMETRIES["queue"]
    descriptors = [one | {"send_stores": 1} for one in regions_in_a_row(geometry, {1: 2})]
    bench = Bench(geometry, descriptors, 1)
    bench.source(bench.dut.line, [dict(address=0, bytes=64, op=Op.STORE, source=Source.LOCAL, region=1, wf=0, wg=0)])
    packets = bench.sink(bench.dut.packet)
    bench.run(settle=20)
    assert [packet["device"] for packet in packets] == [1]


@pytest.mark.parametrize("share_of_errors", [0, 1])
def test_full_rate(share_of_errors):
    geometry = GEOMETRIES["default"]
    descriptor = dict.fromkeys((name for name, _ in descriptor_layout(geometry)), 0) | {"send_stores": 1, "op": 1}
    bench = Bench(geometry, [descriptor] * geometry.dma.regions, 1)
    lines = [dict(address=i, bytes=64, op=Op.STORE, source=Source.DMA if share_of_errors and i % 2 else Source.LOCAL,
                  region=1, wf=0, wg=i) for i in range(100)]
    times, accepted = [], []
    bench.source(bench.dut.line, lines, on_transfer=lambda _: accepted.append(bench.cycle))
    bench.sink(bench.dut.packet, on_transfer=lambda _: times.append(bench.cycle))
    bench.run(until=lambda: len(times) >= (50 if share_of_errors else 100))
    assert accepted[-1] - accepted[0] == 99
    assert times[-1] - times[0] == (98 if share_of_errors else 99)


@pytest.mark.parametrize("source", [Source.LOCAL, Source.DMA, Source.REMOTE])
def test_what_comes_while_it_is_to_forget_vanishes_and_what_was_inside_leaves(source):
    geometry = GEOMETRIES["default"]
    action = "send_dma" if source == Source.DMA else "send_stores"
    descriptor = dict.fromkeys((name for name, _ in descriptor_layout(geometry)), 0) | {action: 1, "op": 1}
    bench = Bench(geometry, [descriptor] * geometry.dma.regions, 1)
    fitting = Source.DMA if source == Source.DMA else Source.LOCAL
    dut, packets = bench.dut, bench.sink(bench.dut.packet, idle=0.5)

    async def drive(ctx):
        for number in range(40):
            ctx.set(dut.forget, 10 <= number < 30)
            ctx.set(dut.line.payload, dict(address=number, bytes=64, op=Op.STORE, region=1, wf=0, wg=0,
                                           source=source if 10 <= number < 30 else fitting))
            ctx.set(dut.line.valid, 1)
            await ctx.tick().until(dut.line.ready)
            ctx.set(dut.line.valid, 0)
            await ctx.tick().repeat(20)

    bench.process(drive, background=False)
    bench.run(cycles=2000, settle=20)
    assert [packet["address"] for packet in packets] == [*range(10), *range(30, 40)] and not bench.errors


@pytest.mark.parametrize("moment", range(1, 6))
def test_reset_in_flight(moment):
    geometry, rng = GEOMETRIES["default"], random.Random(moment)
    descriptors = [values | {"send_stores": 1} for values in random_descriptors(rng, geometry)]
    bench = Bench(geometry, descriptors, moment)
    dut = bench.dut
    lines = [random_line(rng, geometry, descriptors) | {"source": Source.LOCAL} for _ in range(20)]
    packets = bench.sink(dut.packet, idle=0.8)

    async def drive(ctx):
        for index in range(moment):  # whatever is taken is lost
            ctx.set(dut.line.valid, 1)
            ctx.set(dut.line.payload, lines[index])
            await ctx.tick()
        ctx.set(dut.line.valid, 0)
        await bench.pulse_reset(ctx)
        assert not ctx.get(dut.busy) and not ctx.get(dut.packet.valid)
        packets.clear()
        for line in lines:
            ctx.set(dut.line.valid, 1)
            ctx.set(dut.line.payload, line)
            await ctx.tick().until(dut.line.ready)
        ctx.set(dut.line.valid, 0)
        while ctx.get(dut.busy):
            await ctx.tick()

    bench.process(drive, background=False)
    bench.run(settle=5)
    assert packets == expect(lines, descriptors, geometry)[0]
