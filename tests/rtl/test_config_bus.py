"""Register map, APB protocol and the first error, against the reference model."""

import gc
import random

import pytest
from amaranth.hdl import Value

from t3sim.rtl import layouts, registers
from t3sim.rtl.control.config_bus import ConfigBus
from t3sim.rtl.formats import NUMBERS
from t3sim.rtl.geometry import ChannelGeometry, DmaGeometry, Geometry, GeometryError, TrackerGeometry
from t3sim.rtl.registers import STATUS_BITS, WAITS, counters, register_map
from t3sim.testbenches.reference.config_bus import ConfigBusModel, ErrorReport, FaultReport
from tests.support.stream_bench import once, simulation
from tests.support.tiers import on_one

pytestmark = pytest.mark.builds_rtl

GEOMETRIES = {
    "default": Geometry(),
    "smallest": Geometry(tracker=TrackerGeometry(sets=1, ways=1, banks=1, wg_bits=1, wf_bits=1, address_bits=32,
                                                 count_bits=8, protection="parity"),
                         channel=ChannelGeometry(channels=1), dma=DmaGeometry(
                             regions=2, block_shapes=1, buffers=1, routes=1, engines=1, egress_lanes=1)),
    "odd": Geometry(dma=DmaGeometry(regions=4, block_shapes=3, buffers=3, routes=5, copies=3, queue_commands=4),
                    channel=ChannelGeometry(sums="bf16-in-fp32+bf16-in-fixed")),
    "widest": Geometry(tracker=TrackerGeometry(wg_bits=24, wf_bits=6, address_bits=64, count_bits=32,
                                               protection="secded"),
                       dma=DmaGeometry(regions=64, copies=16, device_bits=10)),
}


class Bench:
    """Drives APB transfers, and checks the protocol in each."""

    def __init__(self, geometry, reporters=3):
        self.dut = once(ConfigBus, geometry, reporters=reporters)
        self.map = register_map(geometry)
        self.simulation = simulation(self.dut)
        self.reset = self.simulation.reset

    def run(self, testbench):
        self.simulation.add_testbench(testbench)
        self.simulation.run()

    async def transfer(self, ctx, offset, write=None):
        """One transfer; (pslverr, prdata)."""
        dut = self.dut
        ctx.set(dut.paddr, offset)
        ctx.set(dut.pwrite, write is not None)
        ctx.set(dut.pwdata, 0xFFFFFFFF if write is None else write)  # whatever a read's request carries
        ctx.set(dut.psel, 1)
        ctx.set(dut.penable, 0)
        await ctx.tick()
        ctx.set(dut.penable, 1)
        waits = 0
        while not ctx.get(dut.pready):
            waits += 1
            await ctx.tick()
        result = ctx.get(dut.pslverr), ctx.get(dut.prdata)
        stores = write is not None and not result[0] and any(
            offset == at for at, _, entry in self.map.all_registers() if entry is not None)
        assert waits == 1 + stores, "one wait state, two of what a table stores"
        await ctx.tick()
        ctx.set(dut.psel, 0)
        ctx.set(dut.penable, 0)
        return result


def check_levels(ctx, dut, model):
    for name, _ in dut.levels.shape():
        assert ctx.get(dut.levels[name]) == model.value(name), name
    for table in layouts.mapping_tables(dut._geometry):
        for index, entry in enumerate(getattr(dut, table)):
            for name, value in model.entry(table, index).items():
                assert ctx.get(Value.cast(getattr(entry, name))) == value, (table, index, name)


@pytest.mark.parametrize("name", on_one(GEOMETRIES, "odd"))
def test_random_transfers(name):
    """Random transfers follow the APB protocol and get the model's answers."""
    geometry = GEOMETRIES[name]
    bench, model, rng = Bench(geometry), ConfigBusModel(geometry), random.Random(name)
    dut = bench.dut
    offsets = [offset for offset, _, _ in bench.map.all_registers()]
    seen = set()

    async def testbench(ctx):
        for step in range(500):
            live = {field: rng.getrandbits(1) for field, _ in STATUS_BITS}
            counts = {field: rng.getrandbits(32) for field, _ in counters(geometry)}
            ctx.set(dut.status, live)
            waited = {field: rng.getrandbits(1) for field, _ in WAITS}
            ctx.set(dut.waited, waited)
            ctx.set(dut.counters, counts)
            live |= {f"count_{field}": value for field, value in counts.items()}
            live |= {f"waits_{field}": value for field, value in waited.items()}
            live |= {"chosen_threshold": rng.getrandbits(7), "monitor_mean": rng.getrandbits(16)}
            ctx.set(dut.chosen_threshold, live["chosen_threshold"])
            ctx.set(dut.monitor_mean, live["monitor_mean"])
            offset = rng.choice(offsets) if rng.random() < 0.9 else rng.getrandbits(bench.map.address_bits)
            seen.add(offset)
            if rng.random() < 0.6:
                value = rng.getrandbits(32)
                expected_error, _ = model.write(offset, value)
                error, _ = await bench.transfer(ctx, offset, value)
                assert error == expected_error, hex(offset)
            else:
                assert await bench.transfer(ctx, offset) == model.read(offset, live), hex(offset)
            if step % 20 == 0:
                check_levels(ctx, dut, model)
        check_levels(ctx, dut, model)

    bench.run(testbench)
    assert len(seen) > 100 or len(seen) > len(offsets) // 2


def test_every_register_is_stored_and_read_back():
    """Every register of the map, by APB."""
    geometry = Geometry(dma=DmaGeometry(regions=4))
    bench, model, rng = Bench(geometry), ConfigBusModel(geometry), random.Random(3)

    async def testbench(ctx):
        check_levels(ctx, bench.dut, model)  # reset values
        for offset, register, _ in bench.map.all_registers():
            if register.access == "rw":
                value = rng.getrandbits(32)
                model.write(offset, value)
                assert (await bench.transfer(ctx, offset, value))[0] == 0
        check_levels(ctx, bench.dut, model)
        for offset, register, _ in bench.map.all_registers():
            assert await bench.transfer(ctx, offset) == model.read(offset), register.name

    bench.run(testbench)


def test_illegal_transfers_change_nothing():
    """Unknown, unaligned and read-only addresses, also between and behind table entries: pslverr, no change."""
    geometry = GEOMETRIES["odd"]
    bench, model = Bench(geometry), ConfigBusModel(geometry)
    mapped = {offset for offset, _, _ in bench.map.all_registers()}
    around = {offset for table in bench.map.tables for offset in (
        table.base + 1, table.base + 2, table.offset(0) + 0xC, table.offset(table.entries) - 4,
        *range(table.offset(table.entries), table.offset(table.entries + 2), 4), table.base + 0x200,
        table.base + 0x3FC)}

    async def testbench(ctx):
        for offset in (*range(0, 0x100, 4), 0x101, 0x3FC, *sorted(around), 0x1400, 0x1800, 0x1FFC):
            register = bench.map.fixed
            writable = any(r.offset == offset and r.access != "ro" for r in register)
            if offset in mapped and (writable or offset >= 0x400):
                continue
            assert (await bench.transfer(ctx, offset, 0xFFFFFFFF))[0] == 1, hex(offset)
            error, value = await bench.transfer(ctx, offset)
            assert error == (offset not in mapped) and (offset in mapped or value == 0), hex(offset)
        check_levels(ctx, bench.dut, model)

    bench.run(testbench)


def test_the_doorbell_rings_when_it_is_written_and_a_soft_reset_clears_it():
    """Each write is one pulse, the same value twice included."""
    bench = Bench(GEOMETRIES["odd"])
    dut, control, doorbell = bench.dut, bench.map["CONTROL"].offset, bench.map["DOORBELL"].offset
    rung = []

    async def count(ctx):
        async for _, _reset, rings, place in ctx.tick().sample(dut.rung, dut.levels.doorbell):
            rung.extend([place] if rings else [])

    async def testbench(ctx):
        for write in (3, 3, 5):
            await bench.transfer(ctx, doorbell, write)
            assert await bench.transfer(ctx, doorbell) == (0, write)
        for field in bench.map["CONTROL"].fields:
            await bench.transfer(ctx, control, field.mask << field.lsb)
            await ctx.tick().repeat(2)
            assert await bench.transfer(ctx, doorbell) == (0, 0 if field.name == "soft_reset" else 5)
            await bench.transfer(ctx, doorbell, 5)
        assert rung == [3, 3, *[5] * (1 + len(bench.map["CONTROL"].fields))]

    bench.simulation.add_testbench(count, background=True)
    bench.run(testbench)


def test_pulses_last_one_cycle():
    """A command written to CONTROL is active for one cycle."""
    bench = Bench(Geometry(dma=DmaGeometry(regions=2)))
    dut, counts = bench.dut, {"restart": 0, "clear_counters": 0}

    async def count(ctx):
        async for _, _reset, restart, clear in ctx.tick().sample(dut.restart, dut.clear_counters):
            counts["restart"] += restart
            counts["clear_counters"] += clear

    async def testbench(ctx):
        await bench.transfer(ctx, 0x010, 0b0010)
        assert counts == {"restart": 1, "clear_counters": 0}
        await bench.transfer(ctx, 0x010, 0b1000)
        await bench.transfer(ctx, 0x010, 0b1010)
        await ctx.tick().repeat(3)
        assert counts == {"restart": 2, "clear_counters": 2}
        assert await bench.transfer(ctx, 0x010) == (0, 0)
        await ctx.tick().repeat(3)
        assert counts == {"restart": 2, "clear_counters": 2}

    bench.simulation.add_testbench(count, background=True)
    bench.run(testbench)


@pytest.mark.parametrize("reporters", [1, 2, 7])
def test_first_error_is_latched(reporters):
    """Several reporters in one cycle, errors during clearing: the first stays with its details, others are counted."""
    geometry = Geometry(dma=DmaGeometry(regions=2))
    bench, model, rng = Bench(geometry, reporters), ConfigBusModel(geometry), random.Random(reporters)
    dut, m = bench.dut, bench.map
    layout = layouts.error(geometry)

    async def report(ctx, reports):
        for port, item in zip(dut.reports, reports):
            details = {} if item is None else {f: getattr(item, f) for f, _ in layout}
            ctx.set(port, {"valid": item is not None, "code": layouts.ErrorCode(item.code if item else 0),
                           "details": details})
        await ctx.tick()
        for port in dut.reports:
            ctx.set(port, {"valid": 0, "code": layouts.ErrorCode.NONE, "details": {}})

    async def testbench(ctx):
        for _ in range(40):
            reports = [ErrorReport(rng.randint(1, 5), **{f: rng.getrandbits(s) for f, s in layout_widths(layout)})
                       if rng.random() < 0.4 else None for _ in range(reporters)]
            model.report(reports)
            await report(ctx, reports)
            for name in ("STATUS", "ERROR_CODE", "ERROR_TILE", "ERROR_WG", "ERROR_ADDRESS_LO", "ERROR_ADDRESS_HI"):
                assert await bench.transfer(ctx, m[name].offset) == model.read(m[name].offset), name
            assert ctx.get(dut.error) == (model.first_error is not None)
            if rng.random() < 0.4:
                model.write(0x010, 0b0100)
                await bench.transfer(ctx, 0x010, 0b0100)
                assert ctx.get(dut.error) == 0

    bench.run(testbench)


@pytest.mark.parametrize("name", ["smallest", "widest"])
def test_the_first_fault_of_the_tracker_is_latched_and_the_first_uncorrectable_one(name):
    """Random reports of all banks; an uncorrectable fault replaces a corrected one."""
    geometry = GEOMETRIES[name]
    bench, model, rng = Bench(geometry), ConfigBusModel(geometry), random.Random(name)
    dut, layout = bench.dut, layouts.fault_report(geometry)
    offset, kinds = bench.map["TRACKER_FAULT"].offset, set()

    async def testbench(ctx):
        for _ in range(200):
            drawn = [FaultReport(int(rng.random() < 0.2), **{
                field: rng.getrandbits(layout[field].width) for field in ("in_entry", "way", "set")})
                if rng.random() < 0.2 else None for _ in dut.faults]
            model.report_faults(drawn)
            for port, item in zip(dut.faults, drawn):
                ctx.set(port, {"valid": 1, **item._asdict()} if item else {})
            await ctx.tick()
            for port in dut.faults:
                ctx.set(port, {})
            assert await bench.transfer(ctx, offset) == model.read(offset)
            assert ctx.get(dut.error) == 0, "an error is what a block reports as one"
            kinds.add((model.first_fault.uncorrectable + 1) if model.first_fault else 0)
            if rng.random() < 0.2:
                model.write(0x010, 0b0100)
                await bench.transfer(ctx, 0x010, 0b0100)
                assert await bench.transfer(ctx, offset) == (0, 0)

    bench.run(testbench)
    assert kinds == {0, *registers.FAULTS.values()}
    assert "TRACKER_FAULT" not in [register.name for register in register_map(Geometry()).fixed]


def layout_widths(layout):
    return [(name, field.width) for name, field in layout]


@pytest.mark.parametrize("together", [0, 1, 2, 3])
def test_errors_in_the_cycle_of_the_clearing_count_anew(together):
    """Two errors in that cycle: one is latched and the other shows as lost."""
    bench = Bench(Geometry(dma=DmaGeometry(regions=2)), reporters=3)
    dut = bench.dut
    overflow = next(field.lsb for field in bench.map["STATUS"].fields if field.name == "error_overflow")

    async def testbench(ctx):
        def report(count):
            for number, port in enumerate(dut.reports):
                ctx.set(port, {"valid": number < count, "code": layouts.ErrorCode.ID_REUSED, "details": {}})
        report(3)
        await ctx.tick()
        report(0)
        assert (await bench.transfer(ctx, bench.map["STATUS"].offset))[1] >> overflow & 1
        for name, value in (("paddr", 0x010), ("psel", 1), ("pwrite", 1), ("pwdata", 0b0100)):
            ctx.set(getattr(dut, name), value)
        await ctx.tick()
        ctx.set(dut.penable, 1)
        await ctx.tick()
        assert ctx.get(dut.clear_error)
        report(together)
        await ctx.tick()
        report(0)
        ctx.set(dut.psel, 0)
        ctx.set(dut.penable, 0)
        await ctx.tick()
        assert ctx.get(dut.error) == (together > 0)
        assert (await bench.transfer(ctx, bench.map["STATUS"].offset))[1] >> overflow & 1 == (together > 1)

    bench.run(testbench)


def test_error_in_the_cycle_of_its_clearing_is_kept():
    """An error that is reported while the latch is cleared is the next one to be read."""
    bench = Bench(Geometry(dma=DmaGeometry(regions=2)), reporters=1)
    dut, code = bench.dut, layouts.ErrorCode.ID_REUSED

    async def testbench(ctx):
        await bench.transfer(ctx, 0x010, 0b0100)
        ctx.set(dut.reports[0], {"valid": 1, "code": layouts.ErrorCode.THRESHOLD_EXCEEDED, "details": {}})
        await ctx.tick()
        ctx.set(dut.reports[0], {"valid": 1, "code": code, "details": {}})
        for _ in range(4):  # held through the clearing
            assert ctx.get(dut.error) == 1
            await ctx.tick()
        assert await bench.transfer(ctx, 0x040) == (0, layouts.ErrorCode.THRESHOLD_EXCEEDED.value)
        await bench.transfer(ctx, 0x010, 0b0100)
        assert ctx.get(dut.error) == 1
        assert await bench.transfer(ctx, 0x040) == (0, code.value)

    bench.run(testbench)


@pytest.mark.parametrize("late", [0, 1])
def test_status_shows_an_error_a_cycle_before_the_latch(late):
    """A read includes an error reported in its cycle, but not one reported later."""
    bench = Bench(Geometry(dma=DmaGeometry(regions=2)), reporters=2)
    dut, status = bench.dut, bench.map["STATUS"]
    error = next(field.lsb for field in status.fields if field.name == "error")

    async def testbench(ctx):
        ctx.set(dut.paddr, status.offset)
        ctx.set(dut.psel, 1)
        await ctx.tick()
        ctx.set(dut.penable, 1)
        for cycle in range(2):
            ctx.set(dut.reports[1], {"valid": cycle == late, "code": layouts.ErrorCode.ID_REUSED, "details": {}})
            await ctx.tick()
            if ctx.get(dut.pready):
                answer = ctx.get(dut.prdata)
        assert answer >> error & 1 == (not late)

    bench.run(testbench)


@pytest.mark.parametrize("moment", range(4))
@pytest.mark.parametrize("offset", [0x030, 0x410])
def test_reset_in_the_middle_of_a_transfer(offset, moment):
    """Of a plain register, and of a table entry, which is written a cycle later."""
    geometry = Geometry(dma=DmaGeometry(regions=2))
    bench, model = Bench(geometry), ConfigBusModel(geometry)
    dut = bench.dut

    async def testbench(ctx):
        await bench.transfer(ctx, 0x404, 0x1234)
        ctx.set(dut.reports[1], {"valid": 1, "code": layouts.ErrorCode.ID_REUSED, "details": {}})
        await ctx.tick()
        ctx.set(dut.reports[1].valid, 0)
        ctx.set(dut.paddr, offset)
        ctx.set(dut.pwdata, 5)
        ctx.set(dut.pwrite, 1)
        ctx.set(dut.psel, 1)
        for cycle in range(4):
            ctx.set(bench.reset, cycle == moment)
            ctx.set(dut.psel, cycle <= moment)
            ctx.set(dut.penable, 1 <= cycle <= moment)
            await ctx.tick()
        ctx.set(bench.reset, 0)
        ctx.set(dut.psel, 0)
        await ctx.tick()
        assert ctx.get(dut.pready) == 0 and ctx.get(dut.error) == 0
        check_levels(ctx, dut, model)
        assert await bench.transfer(ctx, offset, 5) == (0, model.read(offset)[1])
        assert await bench.transfer(ctx, offset) == (0, 5)

    bench.run(testbench)


@pytest.mark.parametrize("name", GEOMETRIES)
def test_map_is_sound(name):
    """In all geometries no two registers overlap."""
    m = register_map(GEOMETRIES[name])
    offsets = [offset for offset, _, _ in m.all_registers()]
    assert offsets == sorted(set(offsets)) and all(offset % 4 == 0 for offset in offsets)
    assert offsets[-1] < 1 << m.address_bits
    for _, register, _ in m.all_registers():
        top = 0
        for field in register.fields:
            assert field.lsb >= top and field.lsb + field.width <= 32, (register.name, field.name)
            assert field.reset <= field.mask, (register.name, field.name)
            top = field.lsb + field.width
    assert m["CONTROL"].offset == 0x010 and m["WINDOW"].offset == 0x030 and m["STATUS"].offset == 0x03C
    assert [table.offset(1) for table in m.tables] == [0x410, 0x808, 0xC10, 0x1010]
    assert all(table.entries * table.stride <= registers.SPACE_BYTES for table in m.tables)
    assert all(register.offset < table.stride for table in m.tables for register in table.registers)
    assert m["ID"].reset.to_bytes(4, "big") == b"T3TT"


@pytest.mark.parametrize("name", GEOMETRIES)
def test_map_covers_the_tables_and_the_codes_of_the_layouts(name):
    """The driver's tables and codes equal those of the hardware."""
    geometry = GEOMETRIES[name]
    tables = layouts.mapping_tables(geometry)
    assert [table.name for table in register_map(geometry).tables] == list(tables)
    for table in register_map(geometry).tables:
        mapped = {}
        for register in table.registers:
            for field in register.fields:
                base = field.name.removesuffix("_lo").removesuffix("_hi")
                mapped[base] = mapped.get(base, 0) + field.width
        assert (mapped, table.entries) == (dict(layout_widths(tables[table.name][0])), tables[table.name][1])
    assert all(tables["region"][0][name].width == 1 for name in registers.REGION_ACTIONS)
    assert registers.ERRORS == {code.name.lower(): code.value for code in layouts.ErrorCode}
    writing = [op.name.lower() for op in layouts.Op if op.value]
    assert registers.OPERATIONS == {name: code for code, name in enumerate(writing)}


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
def test_reporters_are_needed():
    """A bus without error reporters raises a GeometryError."""
    with pytest.raises(GeometryError, match="reporters=0 is impossible: at least 1 is needed"):
        ConfigBus(Geometry(), reporters=0)
    gc.collect()  # the half-made block warns here, where the filter is, rather than later


def test_a_sum_that_the_hardware_lacks_is_an_error_and_not_written():
    """Every number is tried; the error names the region, and other registers hold any bits."""
    bench = Bench(GEOMETRIES["odd"])
    region = bench.map.table("region")
    actions = region.offset(3) + bench.map["REGION_ACTIONS"].offset
    known = {NUMBERS[name] for name in ("fp16", "bf16", "fp32", "bf16-in-fp32", "bf16-in-fixed")}
    clear = bench.map["CONTROL"].field("clear_error").encode(1)

    async def testbench(ctx):
        for number in range(16):
            field, held = bench.map["REGION_ACTIONS"].field("sum"), ctx.get(bench.dut.region[3].sum)
            refused, _ = await bench.transfer(ctx, actions, field.encode(number))
            await ctx.tick()
            assert refused == (number not in known)
            assert ctx.get(bench.dut.region[3].sum) == (number if number in known else held)
            _, code = await bench.transfer(ctx, bench.map["ERROR_CODE"].offset)
            _, tile = await bench.transfer(ctx, bench.map["ERROR_TILE"].offset)
            assert code == (0 if number in known else registers.ERRORS["sum_unknown"])
            assert number in known or bench.map["ERROR_TILE"].field("error_region").decode(tile) == 3
            await bench.transfer(ctx, bench.map["CONTROL"].offset, clear)
        for offset in (region.offset(3) + 4, bench.map.table("block").offset(0) + 4):
            refused, _ = await bench.transfer(ctx, offset, 0xFFFF_FFFF)
            assert not refused

    bench.run(testbench)


@pytest.mark.parametrize("corrected, lost", [(0, 1), (1, 0), (0, 7), (6, 7)])
@pytest.mark.parametrize("before", [False, True])
def test_an_uncorrectable_fault_is_not_hidden_by_a_corrected_one_of_its_cycle(corrected, lost, before):
    """Attack: two things in one cycle. Of whichever banks, also when one that was corrected is latched already."""
    bench = Bench(Geometry(tracker=TrackerGeometry(protection="secded")))

    async def testbench(ctx):
        for reports in ([{corrected: {"way": 1}}] if before else []) + [
                {corrected: {"way": 2}, lost: {"way": 5, "uncorrectable": 1}}]:
            for bank, port in enumerate(bench.dut.faults):
                ctx.set(port, {"valid": 1, **reports[bank]} if bank in reports else {})
            await ctx.tick()
        for port in bench.dut.faults:
            ctx.set(port, {})
        _, word = await bench.transfer(ctx, bench.map["TRACKER_FAULT"].offset)
        fields = {f.name: f.decode(word) for f in bench.map["TRACKER_FAULT"].fields}
        assert fields["fault_kind"] == registers.FAULTS["uncorrectable"] and fields["fault_way"] == 5

    bench.run(testbench)
