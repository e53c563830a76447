"""Translation of outbound lines, against the reference."""

import random
from collections import Counter

import pytest
from amaranth.hdl import Const

from t3sim.rtl.geometry import DmaGeometry, Geometry, TrackerGeometry
from t3sim.rtl.layouts import ErrorCode, Op, Source
from t3sim.rtl.link.egress import Egress
from t3sim.testbenches.reference.address_generator import LineError
from t3sim.testbenches.reference.egress import Packet, data_sources, packets_of
from tests.support.mappings import equal_tables, program, random_tables
from tests.support.stream_bench import StreamBench, as_dict, once
from tests.support.tiers import on_one

pytestmark = pytest.mark.builds_rtl

GEOMETRIES = {
    "default": Geometry(),
    "narrow": Geometry(tracker=TrackerGeometry(sets=1, banks=1, wg_bits=1, wf_bits=1, address_bits=32),
                       dma=DmaGeometry(regions=2, routes=1, device_bits=1)),
    "wide": Geometry(tracker=TrackerGeometry(wg_bits=24, wf_bits=6, address_bits=64), dma=DmaGeometry(device_bits=10)),
    "odd": Geometry(dma=DmaGeometry(routes=5)),
    "copies": Geometry(dma=DmaGeometry(routes=5, copies=3)),
    "all": Geometry(dma=DmaGeometry(regions=8, routes=8, copies=8)),
    "queued": Geometry(dma=DmaGeometry(routes=5, copies=3, queue_commands=4)),
}


def random_mappings(rng, geometry):
    tables = random_tables(rng, geometry)
    tables["region"][0] |= {"send_stores": 1, "send_dma": 0, "route": 0}
    return tables


def random_line(rng, geometry, tables):
    region = rng.randrange(geometry.dma.regions)
    data = Source(rng.choice(data_sources(geometry)))
    fitting = data if tables["region"][region]["send_dma"] else Source.LOCAL
    source = fitting if rng.random() < 0.8 else rng.choice(list(Source))
    return dict(address=rng.getrandbits(geometry.tracker.address_bits), bytes=rng.randint(1, 64),
                op=rng.choice(list(Op)), source=source, region=region, wf=rng.getrandbits(geometry.tracker.wf_bits),
                wg=rng.getrandbits(geometry.tracker.wg_bits))


def results_of(line, tables, geometry):
    return packets_of(line | {"source": line["source"].value}, tables, geometry)


class Bench(StreamBench):
    """Checks that `busy`, and what DMA's credits go by, say exactly when something is inside."""

    def __init__(self, geometry, tables, seed):
        self.dut = dut = once(Egress, geometry)
        super().__init__(self.dut, seed)
        self.errors = []
        self.refused, self.repeated = Counter(), Counter()  # by source
        sources = data_sources(geometry)

        async def watch(ctx):
            program(ctx, dut, tables)
            every, due_of, credits = 0, Counter(), Counter()
            while True:
                _, _, reset, error, busy, entered, line, left, packet, forget, *pulses = await (
                    ctx.tick().sample(
                        self.reset, dut.error, dut.busy, dut.line.valid & dut.line.ready, dut.line.payload,
                        dut.packet.valid & dut.packet.ready, dut.packet.payload, dut.forget,
                        dut.left, dut.refused, getattr(dut, "repeated", Const(0))))
                assert forget or busy == (every > 0)
                assert (pulses[0] != 0) == (left and packet.source == Source.DMA)
                results = len(results_of(as_dict(line) | {"source": line.source}, tables, geometry))
                due = entered * (1 if forget else results)
                every += due * (not forget) - left - error.valid
                for number, source in enumerate(sources):
                    assert (due_of[source] > 0) == (credits[source] > 0)
                    gone, refused, repeated = (pulse >> number & 1 for pulse in pulses)
                    self.refused[source] += refused and not reset
                    self.repeated[source] += repeated and not reset
                    enters = line.source.value == source
                    due_of[source] += due * enters - gone - refused
                    credits[source] += entered * enters + repeated - gone - refused
                if reset:
                    every, due_of, credits = 0, Counter(), Counter()
                if error.valid and not reset:
                    self.errors.append(LineError(error.code.value, **as_dict(error.details)))

        self.process(watch)


def expect(lines, tables, geometry):
    results = [one for line in lines for one in results_of(line, tables, geometry)]
    return ([item._asdict() for item in results if isinstance(item, Packet)],
            [item for item in results if isinstance(item, LineError)])


@pytest.mark.parametrize("name", on_one(GEOMETRIES, "default", "copies"))
@pytest.mark.parametrize("seed,idle,pause", [(1, 0, 0), (2, 0.3, 0.3), (3, 0, 0.7), (4, 0.8, 0)])
def test_random_lines(name, seed, idle, pause):
    """Random tables, negative offsets, routes past the table's end, several routes: each packet as in the model."""
    geometry, rng = GEOMETRIES[name], random.Random(seed)
    tables = random_mappings(rng, geometry)
    lines = [random_line(rng, geometry, tables) for _ in range(200)]
    expected, errors = expect(lines, tables, geometry)
    assert expected and errors
    bench = Bench(geometry, tables, seed)
    bench.source(bench.dut.line, lines, idle=idle)
    packets = bench.sink(bench.dut.packet, idle=pause)
    bench.run(until=lambda: len(packets) >= len(expected) and len(bench.errors) >= len(errors), settle=10)
    assert packets == expected
    assert bench.errors == errors
    for source in data_sources(geometry):
        data = [line for line in lines if line["source"].value == source]
        packets, refused = expect(data, tables, geometry)
        assert bench.refused[source] == len(refused)
        assert bench.repeated[source] == len(packets) - (len(data) - len(refused))
        assert (bench.repeated[source] > 0) == (geometry.dma.copies > 1)


@pytest.mark.parametrize("send_stores", [0, 1])
@pytest.mark.parametrize("send_dma", [0, 1])
@pytest.mark.parametrize("event", [0, 1])
@pytest.mark.parametrize("source", list(Source))
def test_which_sources_fit_which_actions(send_stores, send_dma, event, source):
    """Every kind of region with every source gives a packet or an error."""
    geometry = GEOMETRIES["default"]
    bench = Bench(geometry, equal_tables(geometry, send_stores=send_stores, send_dma=send_dma, event=event), 1)
    bench.source(bench.dut.line, [dict(address=5, bytes=1, op=Op.STORE, source=source, region=3, wf=1, wg=2)])
    packets = bench.sink(bench.dut.packet)
    bench.run(settle=10)
    fits = {Source.LOCAL: send_stores, Source.DMA: send_dma}.get(source, 0)
    assert (len(packets), len(bench.errors)) == (fits, not fits)


def numbered_routes(geometry, region):
    """Every route to a device of its number and one; all regions are as `region` says."""
    tables = equal_tables(geometry, send_dma=1, send_stores=1, **region)
    tables["route"] = [entry | {"device": number + 1, "address_offset": 100 * (number + 1)}
                       for number, entry in enumerate(tables["route"])]
    return tables


@pytest.mark.parametrize("source", [Source.LOCAL, Source.DMA])
@pytest.mark.parametrize(("route", "more", "devices"), [
    (0, 0, [1]), (0, 2, [1, 2, 3]), (2, 2, [3, 4, 5]), (4, 0, [5]), (4, 1, []), (3, 3, []), (6, 3, []), (5, 0, []),
    (7, 0, []), (7, 1, [])])
def test_a_line_leaves_on_each_route_of_its_region(route, more, devices, source):
    """One to four routes, in table order; if one lies past the table's end there is one error and no packet."""
    geometry = GEOMETRIES["copies"]
    bench = Bench(geometry, numbered_routes(geometry, {"route": route, "more_routes": more}), 1)
    line = dict(address=64, bytes=64, op=Op.READ, source=source, region=1, wf=1, wg=2)
    bench.source(bench.dut.line, [line, line | {"address": 128, "region": 2}])
    packets = bench.sink(bench.dut.packet, idle=0.3)
    bench.run(settle=30)
    assert [(packet["device"], packet["address"]) for packet in packets] == [
        (device, address + 100 * device) for address in (64, 128) for device in devices]
    assert bench.repeated.total() == (2 * more if source == Source.DMA and devices else 0), "data of DMA have credits"
    assert [error.code for error in bench.errors] == [] if devices else 2 * [ErrorCode.REGION_UNCONFIGURED.value]
    assert bench.refused.total() == len(bench.errors) * (source == Source.DMA)


@pytest.mark.parametrize("name", ["default", "copies"])
def test_regions_share_a_route(name):
    """Several regions use one route; what each does with its tiles stays its own."""
    geometry = GEOMETRIES[name]
    tables = numbered_routes(geometry, {"route": 3})
    tables["region"] = [entry | {"send_stores": number % 2, "send_dma": number // 2 % 2}
                        for number, entry in enumerate(tables["region"])]
    bench = Bench(geometry, tables, 1)
    lines = [dict(address=0, bytes=64, op=Op.READ, source=source, region=region, wf=0, wg=region)
             for region in range(geometry.dma.regions) for source in (Source.LOCAL, Source.DMA)]
    bench.source(bench.dut.line, lines)
    packets = bench.sink(bench.dut.packet)
    bench.run(settle=60)
    assert [(packet["wg"], packet["source"], packet["device"]) for packet in packets] == [
        (region, source.value, 4) for region in range(geometry.dma.regions)
        for source, bit in ((Source.REMOTE, 1), (Source.DMA, 2)) if region & bit]
    assert len(bench.errors) == len(lines) - len(packets)


def test_a_line_on_several_routes_holds_the_next_one_up_for_a_cycle_each():
    """The next line waits one cycle for each further route."""
    geometry = GEOMETRIES["copies"]
    bench, times = Bench(geometry, numbered_routes(geometry, {"more_routes": 2}), 1), []
    lines = [dict(address=i, bytes=64, op=Op.READ, source=Source.DMA, region=1, wf=0, wg=i) for i in range(30)]
    bench.source(bench.dut.line, lines)
    bench.sink(bench.dut.packet, on_transfer=lambda _: times.append(bench.cycle))
    bench.run(until=lambda: len(times) >= 90)
    assert times[-1] - times[0] == 89


@pytest.mark.parametrize("operation, op", [(0, Op.STORE), (1, Op.UPDATE)])
def test_a_packet_has_the_operation_of_its_route(operation, op):
    """Whatever operation the line itself names."""
    geometry = GEOMETRIES["default"]
    bench = Bench(geometry, equal_tables(geometry, send_stores=1, operation=operation), 1)
    bench.source(bench.dut.line, [dict(address=0, bytes=64, op=each, source=Source.LOCAL, region=1, wf=0, wg=0)
                                  for each in Op])
    packets = bench.sink(bench.dut.packet)
    bench.run(settle=20)
    assert [packet["op"] for packet in packets] == [op.value] * len(Op)


@pytest.mark.parametrize("share_of_errors", [0, 1])
def test_full_rate(share_of_errors):
    """One line per cycle, with and without errors."""
    geometry = GEOMETRIES["default"]
    bench = Bench(geometry, equal_tables(geometry, send_stores=1), 1)
    lines = [dict(address=i, bytes=64, op=Op.STORE, source=Source.DMA if share_of_errors and i % 2 else Source.LOCAL,
                  region=1, wf=0, wg=i) for i in range(100)]
    times, accepted = [], []
    bench.source(bench.dut.line, lines, on_transfer=lambda _: accepted.append(bench.cycle))
    bench.sink(bench.dut.packet, on_transfer=lambda _: times.append(bench.cycle))
    bench.run(until=lambda: len(times) >= (50 if share_of_errors else 100))
    assert accepted[-1] - accepted[0] == 99
    assert times[-1] - times[0] == (98 if share_of_errors else 99)


@pytest.mark.parametrize("name, more", [("default", 0), ("copies", 2)])
@pytest.mark.parametrize("source", [Source.LOCAL, Source.DMA, Source.REMOTE])
def test_what_comes_while_it_is_to_forget_vanishes_and_what_was_inside_leaves(name, more, source):
    """Lines of every source before, during and after `forget`: no error."""
    geometry = GEOMETRIES[name]
    action = "send_dma" if source == Source.DMA else "send_stores"
    bench = Bench(geometry, equal_tables(geometry, **{action: 1}, more_routes=more), 1)
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
    assert [packet["address"] for packet in packets] == [
        address for address in (*range(10), *range(30, 40)) for _ in range(1 + more)] and not bench.errors


@pytest.mark.parametrize("first", range(4))
@pytest.mark.parametrize("cycles", range(1, 4))
def test_a_line_that_does_not_fit_is_an_error_if_its_turn_is_not_forgotten(first, cycles):
    """`forget` lasts 1 to 3 cycles from each cycle around the line's turn, one cycle after it was taken."""
    geometry = GEOMETRIES["default"]
    dut = once(Egress, geometry)
    bench, told = StreamBench(dut, 1), Counter()

    async def drive(ctx):
        program(ctx, dut, equal_tables(geometry, send_stores=1))
        ctx.set(dut.line.payload, dict(address=5, bytes=1, op=Op.STORE, source=Source.DMA, region=3, wf=1, wg=2))
        for cycle in range(8):
            ctx.set(dut.line.valid, cycle == 0)
            ctx.set(dut.forget, first <= cycle < first + cycles)
            told.update(errors=ctx.get(dut.error.valid), refused=ctx.get(dut.refused),
                        packets=ctx.get(dut.packet.valid))
            await ctx.tick()

    bench.process(drive, background=False)
    bench.run()
    assert told == {"errors": not first <= 1 < first + cycles, "refused": 1, "packets": 0}


@pytest.mark.parametrize("name", ["default", "copies"])
@pytest.mark.parametrize("moment", range(1, 6))
def test_reset_in_flight(name, moment):
    """A reset under traffic: empty, then as new."""
    geometry, rng = GEOMETRIES[name], random.Random(moment)
    tables = random_tables(rng, geometry, region={"send_stores": 1})
    bench = Bench(geometry, tables, moment)
    dut = bench.dut
    lines = [random_line(rng, geometry, tables) | {"source": Source.LOCAL} for _ in range(20)]
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
    assert packets == expect(lines, tables, geometry)[0]
