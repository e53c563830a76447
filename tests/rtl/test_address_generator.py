"""Lines of 2-D blocks: against the reference, at full rate, within the mapped range."""

import random
from collections import Counter

import pytest

from t3sim.rtl.dma.address_generator import AddressGenerator
from t3sim.rtl.geometry import DmaGeometry, Geometry, TrackerGeometry
from t3sim.rtl.registers import ERRORS
from t3sim.testbenches.reference.address_generator import SOURCE_COPY, SOURCE_DMA, LineError, Request, entry_of, expand
from tests.support.mappings import equal_tables, program, random_tables
from tests.support.stream_bench import StreamBench, as_dict, once
from tests.support.tiers import on_one

pytestmark = pytest.mark.builds_rtl

GEOMETRIES = {
    "default": Geometry(),
    "narrow": Geometry(tracker=TrackerGeometry(sets=1, banks=1, wg_bits=1, wf_bits=1, address_bits=32),
                       dma=DmaGeometry(regions=2, block_shapes=1, buffers=1)),
    "odd": Geometry(dma=DmaGeometry(block_shapes=3, buffers=3)),
    "wide": Geometry(tracker=TrackerGeometry(wg_bits=24, wf_bits=6, address_bits=64)),
    "queued": Geometry(dma=DmaGeometry(queue_commands=4)),
}


def describe(geometry=GEOMETRIES["default"], **changes):
    """Tables of which all regions, blocks and buffers are the same."""
    return equal_tables(geometry, **dict(send_dma=1, tiles_per_block=1, limit=(1 << 32) - 1, row_bytes=256, columns=4,
                                         pitch_bytes=4096) | changes)


def random_mappings(rng, geometry, bad):
    """Regions that share blocks and buffers; some name one after the last. The first of each is usable."""
    tables, bits = random_tables(rng, geometry), geometry.tracker.address_bits
    for index, block in enumerate(tables["block"]):
        tiles = 1 << rng.randint(0, geometry.tracker.wf_bits)
        block |= dict(tiles_per_block=tiles, columns=tiles * rng.choice((1, 1, 2, 3)) if tiles < 16 else tiles,
                      row_bytes=rng.choice((1, 63, 64, 65, 200, 256, rng.randint(1, 900))),
                      pitch_bytes=rng.choice((0, 64, 333, 4096, rng.getrandbits(32))))
        if bad and index and rng.random() < 0.3:
            block |= rng.choice((dict(row_bytes=0), dict(columns=0)))
    for buffer in tables["buffer"]:
        base = rng.choice((0, *3 * [rng.getrandbits(bits)]))
        buffer |= dict(base=base, limit=min(base + rng.choice((1000, 1 << 20, 1 << 36)), (1 << bits) - 1))
    for index, region in enumerate(tables["region"]):
        region |= dict(send_dma=1, send_stores=0, event=0)
        if not index:
            region |= dict(block=0, buffer=0)
        elif bad and rng.random() < 0.3:
            region |= rng.choice((dict(send_dma=0), dict(send_dma=0, send_stores=1, event=1),
                                  dict(send_stores=1, event=1)))
    return tables


def random_command(rng, geometry, tables):
    region = rng.randrange(geometry.dma.regions)
    around = entry_of(tables["buffer"], tables["region"][region]["buffer"])[rng.choice(("base", "base", "limit"))]
    if rng.random() < 0.1:
        around = 1 << geometry.tracker.address_bits  # runs out of the address space
    address = (around + rng.randint(-500, 1500)) % (1 << geometry.tracker.address_bits)
    return dict(address=address, region=region, wf=rng.getrandbits(geometry.tracker.wf_bits),
                wg=rng.getrandbits(geometry.tracker.wg_bits),
                **({"copy": rng.getrandbits(1)} if geometry.dma.queue_commands else {}))


class Bench(StreamBench):
    """Records lines and errors, checks that a line is issued only with permission."""

    def __init__(self, geometry, tables, seed, forbid=0.0):
        self.dut = once(AddressGenerator, geometry)
        super().__init__(self.dut, seed)
        self.errors, self.issued, self.failed = [], Counter(), Counter()
        rng = random.Random(seed)

        async def watch(ctx):
            program(ctx, self.dut, tables)
            while True:
                allowed = rng.random() >= forbid
                ctx.set(self.dut.allow, allowed)
                _, _, reset, issued, error, failed, valid, busy = await ctx.tick().sample(
                    self.reset, self.dut.issued, self.dut.error, self.dut.failed, self.dut.lines.valid, self.dut.busy)
                assert allowed or not issued
                assert busy or not valid
                assert bool(failed) == error.valid
                self.issued[issued] += 1
                self.failed[failed] += 1
                if error.valid and not reset:
                    self.errors.append(LineError(error.code.value, **as_dict(error.details)))

        self.process(watch)


def split(items):
    return ([item._asdict() for item in items if isinstance(item, Request)],
            [item for item in items if isinstance(item, LineError)])


@pytest.mark.parametrize("name", on_one(GEOMETRIES))
@pytest.mark.parametrize("seed,idle,pause,forbid", [(1, 0, 0, 0), (2, 0.2, 0.4, 0.3), (3, 0.9, 0.1, 0),
                                                    (4, 0, 0.1, 0.7)])
def test_random_blocks(name, seed, idle, pause, forbid):
    """Random shapes, pitches and alignments: each line once, cut at 64 bytes, as in the model."""
    geometry, rng = GEOMETRIES[name], random.Random(seed)
    tables = random_mappings(rng, geometry, bad=seed % 2)
    commands = [random_command(rng, geometry, tables) for _ in range(25)]
    expected, errors = split([item for c in commands for item in expand(c, tables, geometry)])
    assert expected and errors, "the stimulus is worth something"
    bench = Bench(geometry, tables, seed, forbid)
    bench.source(bench.dut.command, commands, idle=idle)
    lines = bench.sink(bench.dut.lines, idle=pause)
    bench.run(until=lambda: len(lines) >= len(expected) and len(bench.errors) >= len(errors), cycles=30000, settle=20)
    assert lines == expected
    assert bench.errors == errors
    for bit, source in ((1, SOURCE_DMA), (2, SOURCE_COPY)):
        assert bench.issued[bit] == sum(line["source"] == source for line in expected)
        assert (bench.issued[bit] > 0) == (bit == 1 or name == "queued") == (bench.failed[bit] > 0)


def run_one(tables, commands, geometry=GEOMETRIES["default"], cycles=2000):
    bench = Bench(geometry, tables, 1)
    times = []
    bench.source(bench.dut.command, commands)
    lines = bench.sink(bench.dut.lines, on_transfer=lambda _: times.append(bench.cycle))
    expected, errors = split([item for c in commands for item in expand(c, tables, geometry)])
    bench.run(until=lambda: len(lines) + len(bench.errors) >= len(expected) + len(errors), cycles=cycles, settle=20)
    assert lines == expected and bench.errors == errors
    return lines, bench.errors, times


@pytest.mark.parametrize("row_bytes,columns", [(256, 4), (64, 8), (1, 1), (64, 1), (1, 30), (4096, 1)])
def test_no_bubble_between_lines_columns_and_commands(row_bytes, columns):
    """Short rows: the number of cycles equals the number of lines."""
    commands = [dict(address=0x10000 * i, region=1, wf=0, wg=i) for i in range(12)]
    lines, _, times = run_one(describe(row_bytes=row_bytes, columns=columns), commands)
    assert len(lines) == 12 * columns * -(-row_bytes // 64)
    assert times[-1] - times[0] == len(lines) - 1


def test_a_ragged_tile_is_cut_at_boundaries():
    """Rows that neither begin nor end at a multiple of 64 bytes give the model's lines."""
    command = dict(address=0x1030, region=3, wf=2, wg=9)
    lines, _, _ = run_one(describe(row_bytes=100, columns=2, pitch_bytes=1000), [command])
    assert [(line["address"], line["bytes"]) for line in lines] == [
        (0x1030, 16), (0x1040, 64), (0x1080, 20), (0x1418, 40), (0x1440, 60)]


def test_each_line_carries_its_tiles_wavefront():
    """In a block of several tiles, every field of every line is compared."""
    command = dict(address=0, region=1, wf=4, wg=9)
    lines, _, _ = run_one(describe(row_bytes=64, columns=12, tiles_per_block=4), [command])
    assert [line["wf"] for line in lines] == [4] * 3 + [5] * 3 + [6] * 3 + [7] * 3


@pytest.mark.parametrize("base,limit,inside", [(0x1000, 0x1080, 2), (0x1001, 0x1080, 1), (0x1000, 0x107F, 1),
                                               (0x1040, 0x1080, 1), (0x1000, 0x1040, 1), (0x1080, 0x2000, 0)])
def test_range_is_tight(base, limit, inside):
    """A region whose limit is one byte too small reports its last line as an error and does not issue it."""
    command = dict(address=0x1000, region=1, wf=0, wg=3)
    lines, errors, _ = run_one(describe(base=base, limit=limit, row_bytes=128, columns=1), [command])
    assert (len(lines), len(errors)) == (inside, 2 - inside)
    assert all(error.code == ERRORS["address_out_of_range"] and error.wg == 3 for error in errors)


def test_addresses_do_not_wrap_around():
    """A block that crosses the top of memory is an error; no line appears at address 0."""
    # Columns at 0xC..., then beyond the end of a 32-bit address space, where the remainders would be mapped again.
    command = dict(address=0xC000_0000, region=1, wf=0, wg=1)
    geometry = GEOMETRIES["narrow"]
    lines, errors, _ = run_one(describe(geometry, row_bytes=200, columns=9, pitch_bytes=0x4000_0000), [command],
                               geometry)
    assert (len(lines), len(errors)) == (4, 32)
    command["address"] = 0xFFFF_FF80  # the first row runs out of it
    lines, errors, _ = run_one(describe(geometry, row_bytes=400, columns=1), [command], geometry)
    assert [line["address"] for line in lines] == [0xFFFF_FF80] and len(errors) == 6


@pytest.mark.parametrize("change", [
    dict(send_dma=0), dict(send_dma=0, send_stores=1), dict(send_dma=0, event=1), dict(row_bytes=0), dict(columns=0)])
def test_unusable_region_is_one_error(change):
    """A command for a region of the wrong kind, or without bytes, gives one error and no line."""
    commands = [dict(address=0x40 * i, region=1, wf=1, wg=i) for i in range(3)]
    _, errors, _ = run_one(describe(**change), commands)
    assert [(error.code, error.wg) for error in errors] == [(ERRORS["region_unconfigured"], i) for i in range(3)]


def test_regions_share_blocks_and_buffers():
    """Regions that share a block shape or a buffer entry give the model's lines, in every combination."""
    geometry = GEOMETRIES["default"]
    tables = describe()
    tables["block"] = [entry | {"row_bytes": 64 + 64 * number, "columns": 1}
                       for number, entry in enumerate(tables["block"])]
    tables["buffer"] = [entry | {"limit": 64 * (1 + number)} for number, entry in enumerate(tables["buffer"])]
    tables["region"] = [entry | {"block": number % 4, "buffer": number // 4}
                        for number, entry in enumerate(tables["region"])]
    commands = [dict(address=0, region=region, wf=0, wg=region) for region in range(geometry.dma.regions)]
    lines, errors, _ = run_one(tables, commands)
    for region in range(16):
        inside = min(1 + region % 4, 1 + region // 4)
        assert sum(line["region"] == region for line in lines) == inside
        assert sum(error.region == region for error in errors) == 1 + region % 4 - inside


@pytest.mark.parametrize("change, code", [
    ({"block": 3}, "region_unconfigured"), ({"buffer": 3}, "address_out_of_range")])
def test_an_entry_behind_the_last_one_reads_nothing(change, code):
    """An entry number past a table's end reads as zeros, so the command is one error."""
    geometry = GEOMETRIES["odd"]
    command = dict(address=0x1000, region=1, wf=0, wg=3)
    lines, errors, _ = run_one(describe(geometry, row_bytes=64, columns=1, **change), [command], geometry)
    assert not lines and [error.code for error in errors] == [ERRORS[code]]


@pytest.mark.parametrize("moment", [1, 2, 3, 4, 7, 20])
def test_reset_in_flight(moment):
    """After a reset in the middle of a block no further line appears."""
    geometry = GEOMETRIES["default"]
    tables = describe()
    bench = Bench(geometry, tables, moment)
    dut, lost, after = bench.dut, dict(address=0x8000, region=1, wf=1, wg=1), dict(address=0x40, region=2, wf=2, wg=2)
    expected, _ = split(expand(after, tables, geometry))
    lines = bench.sink(dut.lines, idle=0.3)

    async def drive(ctx):
        ctx.set(dut.command.valid, 1)
        ctx.set(dut.command.payload, lost)
        await ctx.tick().repeat(moment)
        ctx.set(dut.command.valid, 0)
        await bench.pulse_reset(ctx)
        assert not ctx.get(dut.busy) and not ctx.get(dut.lines.valid)
        lines.clear()
        ctx.set(dut.command.valid, 1)
        ctx.set(dut.command.payload, after)
        await ctx.tick().until(dut.command.ready)
        ctx.set(dut.command.valid, 0)
        while ctx.get(dut.busy):
            await ctx.tick()

    bench.process(drive, background=False)
    bench.run(cycles=500, settle=5)
    assert lines == expected


def test_copies_are_inside_until_their_last_line_is_issued_whatever_triggers_follow():
    """Checked in every cycle, with commands of both kinds back to back."""
    geometry, rng = GEOMETRIES["queued"], random.Random(1)
    tables = random_mappings(rng, geometry, bad=True)
    commands = [random_command(rng, geometry, tables) for _ in range(40)]
    of_copies = [len(expand(command, tables, geometry)) for command in commands if command["copy"]]
    bench, seen = Bench(geometry, tables, 1, 0.3), Counter()

    async def watch(ctx):
        entered = left = 0
        while True:
            _, _, accepted, command, issued, failed, copies = await ctx.tick().sample(
                bench.dut.command.valid & bench.dut.command.ready, bench.dut.command.payload, bench.dut.issued,
                bench.dut.failed, bench.dut.copies)
            assert copies == (left < sum(of_copies[:entered]))
            seen[copies] += 1
            left += (issued | failed) >> 1
            entered += accepted and command.copy

    bench.process(watch)
    bench.source(bench.dut.command, commands, idle=0.1)
    lines = bench.sink(bench.dut.lines, idle=0.3)
    every, errors = split([item for command in commands for item in expand(command, tables, geometry)])
    bench.run(until=lambda: len(lines) >= len(every) and len(bench.errors) >= len(errors), cycles=30000, settle=20)
    assert min(seen.values()) > 100 and len(seen) == 2
