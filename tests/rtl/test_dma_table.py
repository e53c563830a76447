"""Blocks of tiles and the queue of ready commands, against the reference."""

import random

import pytest

from t3sim.rtl.dma.dma_table import DmaTable
from t3sim.rtl.geometry import DmaGeometry, Geometry, TrackerGeometry
from t3sim.testbenches.reference.address_generator import entry_of
from t3sim.testbenches.reference.dma_table import DmaTableModel, Trigger
from tests.support.mappings import program, random_tables
from tests.support.stream_bench import StreamBench, once
from tests.support.tiers import on_one

pytestmark = pytest.mark.builds_rtl

GEOMETRIES = {
    "small": Geometry(tracker=TrackerGeometry(sets=8, banks=1, wg_bits=6), dma=DmaGeometry(ready_commands=4)),
    "one set": Geometry(tracker=TrackerGeometry(sets=1, ways=1, banks=1, wg_bits=1, wf_bits=1, address_bits=32),
                        dma=DmaGeometry(regions=2, block_shapes=1, ready_commands=2)),
    "three shapes": Geometry(tracker=TrackerGeometry(sets=8, banks=1, wg_bits=6),
                             dma=DmaGeometry(block_shapes=3, ready_commands=4)),
    "slots beyond sets": Geometry(tracker=TrackerGeometry(sets=4, ways=16, banks=2, wg_bits=5, wf_bits=2),
                                  dma=DmaGeometry(ready_commands=9)),
}


def make_tiles(rng, geometry, per_region, workgroups):
    """Tiles of consecutive workgroups as the window lets them come: at most `window_slots` open, any order inside."""
    tracker = geometry.tracker
    waiting, open_tiles, order = list(range(workgroups)), {}, []
    while waiting or open_tiles:
        while waiting and waiting[0] < min(open_tiles, default=waiting[0]) + tracker.window_slots:
            wg, region = waiting.pop(0), rng.randrange(geometry.dma.regions)
            block = max(1, per_region[region])
            tiles = block * rng.randint(1, (1 << tracker.wf_bits) // block)
            open_tiles[wg] = [Trigger(rng.getrandbits(tracker.address_bits), region, wf, wg % (1 << tracker.wg_bits))
                              for wf in rng.sample(range(tiles), tiles)]
        wg = rng.choice(list(open_tiles))
        order.append(open_tiles[wg].pop())
        if not open_tiles[wg]:
            del open_tiles[wg]
    return order


def expect(tiles, per_region, geometry):
    model = DmaTableModel(geometry)
    commands = [model.accept(tile, per_region[tile.region]) for tile in tiles]
    assert model.incomplete() == 0
    return [command._asdict() for command in commands if command is not None]


class Bench(StreamBench):
    def __init__(self, geometry, tables, seed):
        self.dut = once(DmaTable, geometry)
        super().__init__(self.dut, seed)

        async def set_up(ctx):
            program(ctx, self.dut, tables)

        self.process(set_up)


def random_mappings(rng, geometry):
    """Blocks of 1, 2, 4, ... and 0 tiles. A region has any of them, or one after the last."""
    allowed = [*(1 << bit for bit in range(geometry.tracker.wf_bits + 1)), 0]
    tables = random_tables(rng, geometry)
    for index, block in enumerate(tables["block"]):
        block["tiles_per_block"] = allowed[index % len(allowed)]
    return tables


def sizes(tables):
    """Tiles per block of each region."""
    return [entry_of(tables["block"], region["block"])["tiles_per_block"] for region in tables["region"]]


def same_block(geometry, tiles_per_block):
    """All regions have the same block, of so many tiles, and no other block is so."""
    number = geometry.dma.block_shapes - 1
    tables = random_tables(random.Random(1), geometry, region={"block": number}, block={"tiles_per_block": 0})
    tables["block"][number]["tiles_per_block"] = tiles_per_block
    return tables


@pytest.mark.parametrize("name", on_one(GEOMETRIES))
@pytest.mark.parametrize("seed,idle,pause", [(1, 0, 0), (2, 0.3, 0.5), (3, 0, 0.9), (4, 0.8, 0)])
def test_random_tiles(name, seed, idle, pause):
    """1 to 8 tiles per block: one command when all have triggered, with first wavefront and smallest address."""
    geometry, rng = GEOMETRIES[name], random.Random(seed)
    tables = random_mappings(rng, geometry)
    tiles = make_tiles(rng, geometry, sizes(tables), 70)
    expected = expect(tiles, sizes(tables), geometry)
    bench = Bench(geometry, tables, seed)
    bench.source(bench.dut.triggers, [tile._asdict() for tile in tiles], idle=idle)
    commands = bench.sink(bench.dut.commands, idle=pause)
    bench.run(until=lambda: len(commands) >= len(expected), cycles=20000, settle=20)
    assert commands == expected


@pytest.mark.parametrize("tiles_per_block", [1, 2, 8])
def test_full_rate_even_on_one_block(tiles_per_block):
    """It takes one trigger per cycle, all of one block."""
    geometry = GEOMETRIES["small"]
    tiles = [Trigger(1000 - i, 1, i % 8, i // 8 % 64)._asdict() for i in range(128)]
    bench, times = Bench(geometry, same_block(geometry, tiles_per_block), 1), []
    bench.source(bench.dut.triggers, tiles, on_transfer=lambda _: times.append(bench.cycle))
    commands = bench.sink(bench.dut.commands)
    bench.run(until=lambda: len(commands) >= 128 // tiles_per_block, settle=10)
    assert times[-1] - times[0] == 127
    assert commands == expect([Trigger(**tile) for tile in tiles], [tiles_per_block] * 16, geometry)


def test_a_full_queue_holds_triggers_back_and_loses_nothing():
    """Engines take no command: exactly the queue's depth is accepted."""
    geometry = GEOMETRIES["small"]
    bench = Bench(geometry, same_block(geometry, 2), 1)
    dut, accepted = bench.dut, []
    tiles = [Trigger(i, 1, i % 8, i // 8 % 64)._asdict() for i in range(40)]
    bench.source(dut.triggers, tiles, on_transfer=accepted.append)
    taken = []

    async def drain_late(ctx):
        await ctx.tick().repeat(150)
        assert ctx.get(dut.ready_level) == ctx.get(dut.ready_high_water) == 4 and ctx.get(dut.busy)
        assert len(accepted) == 10, "four commands and the block that waits behind them"
        ctx.set(dut.commands.ready, 1)
        while len(taken) < 20:
            _, _, valid, payload = await ctx.tick().sample(dut.commands.valid, dut.commands.payload)
            if valid:
                taken.append((payload.wg, payload.wf))
        ctx.set(dut.clear_high_water, 1)
        await ctx.tick()
        ctx.set(dut.clear_high_water, 0)
        await ctx.tick()
        assert ctx.get(dut.ready_level) == ctx.get(dut.ready_high_water) == 0 and not ctx.get(dut.busy)

    bench.process(drain_late, background=False)
    bench.run()
    assert taken == [(wg, wf) for wg in range(5) for wf in (0, 2, 4, 6)]


@pytest.mark.parametrize("tiles_per_block", [2, 4])
@pytest.mark.parametrize("moment", [1, 2, 3, 5, 9])
def test_reset_forgets_open_blocks(moment, tiles_per_block):
    """A reset with blocks partly complete: their counts start at 0."""
    geometry, per_region = GEOMETRIES["small"], [tiles_per_block] * 16
    bench, rng = Bench(geometry, same_block(geometry, tiles_per_block), moment), random.Random(moment)
    dut = bench.dut
    tiles = make_tiles(rng, geometry, per_region, 30)
    commands = bench.sink(dut.commands, idle=0.5)

    async def offer(ctx, items):
        for tile in items:
            ctx.set(dut.triggers.valid, 1)
            ctx.set(dut.triggers.payload, tile._asdict())
            await ctx.tick().until(dut.triggers.ready)
        ctx.set(dut.triggers.valid, 0)

    async def drive(ctx):
        assert ctx.get(dut.busy) and not ctx.get(dut.triggers.ready)
        places = [63 - i if i % 2 else i for i in range(moment)]  # of the first counters and of the last
        await offer(ctx, [Trigger(i, 1, place % 8, place // 8) for i, place in enumerate(places)])
        await bench.pulse_reset(ctx)
        assert not ctx.get(dut.commands.valid)
        commands.clear()
        await offer(ctx, tiles)
        while ctx.get(dut.busy):
            await ctx.tick()

    bench.process(drive, background=False)
    bench.run(settle=5)
    assert commands == expect(tiles, per_region, geometry)


def test_reference_tells_of_shared_slots():
    """The model raises an error if two open workgroups would share a counter."""
    model = DmaTableModel(GEOMETRIES["small"])
    model.accept(Trigger(0, 1, 0, 3), 2)
    with pytest.raises(ValueError, match="wg=11 shares a slot with open wg=3"):
        model.accept(Trigger(0, 1, 0, 11), 2)
