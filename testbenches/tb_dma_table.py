"""DmaTable against its model: tiles in any order inside the window, complete blocks out in order of completion."""

from t3sim.testbenches.bench import Bench, rounds
from t3sim.testbenches.drivers import StreamDriver
from t3sim.testbenches.mappings import entry_named, program, random_tables
from t3sim.testbenches.monitors import CycleMonitor, StreamMonitor
from t3sim.testbenches.reference.dma_table import DmaTableModel, Trigger
from t3sim.testbenches.scoreboard import Scoreboard


def make_tiles(bench: Bench, per_region: list[int], workgroups: int) -> list[Trigger]:
    """Draw tiles as the dispatch window lets them come: at most `window_slots` workgroups open, any order inside."""
    rng, t = bench.rng, bench.geometry.tracker
    first = rng.randrange(1 << t.wg_bits)
    waiting, open_tiles, order = list(range(first, first + workgroups)), {}, []
    while waiting or open_tiles:
        while waiting and waiting[0] < min(open_tiles, default=waiting[0]) + t.window_slots:
            wg, region = waiting.pop(0), rng.randrange(1, len(per_region))
            block = max(1, per_region[region])
            tiles = block * rng.randint(1, (1 << t.wf_bits) // block)
            near = rng.getrandbits(t.address_bits)  # any bit may be the highest in which two addresses differ
            open_tiles[wg] = [Trigger(near ^ rng.getrandbits(rng.randint(1, t.address_bits)), region, wf,
                                      wg % (1 << t.wg_bits)) for wf in rng.sample(range(tiles), tiles)]
        wg = rng.choice(list(open_tiles))
        order.append(open_tiles[wg].pop())
        if not open_tiles[wg]:
            del open_tiles[wg]
    return order


@rounds(8)
async def random_tiles(bench: Bench) -> None:
    """Complete tiles in any order that the window allows; compare each command with the model."""
    allowed = [0, *(1 << bit for bit in range(bench.geometry.tracker.wf_bits + 1))]
    tables = random_tables(bench)
    for block in tables["block"]:
        block["tiles_per_block"] = bench.rng.choice(allowed)
    program(bench, tables)
    regions = range(bench.geometry.dma.regions)
    per_region = [entry_named(tables, region, "block")["tiles_per_block"] for region in regions]
    model, commands = DmaTableModel(bench.geometry), Scoreboard("commands")

    def accepted(item: dict) -> None:
        command = model.accept(Trigger(**item), per_region[item["region"]])
        if command:
            commands.expect(command)

    most = 0

    def compare() -> None:
        """Compare the level with the model; one of the accepted tiles may be in the pipeline."""
        nonlocal most
        level, complete = bench.get("ready_level"), commands.left
        assert complete - 1 <= level <= complete, f"{level} commands wait, {complete} blocks are complete"
        assert bench.get("busy") or not complete
        assert bench.get("ready_high_water") == most
        most = max(most, level)

    for cycle in range(bench.geometry.tracker.window_slots << (bench.geometry.tracker.wf_bits - 1)):
        assert bench.get("busy") and not bench.get("triggers.ready"), f"cycle {cycle} of the sweep"
        await bench.cycle()
    CycleMonitor(bench, compare)
    triggers = StreamDriver(bench, "triggers", on_accept=accepted)
    StreamMonitor(bench, "commands", commands.check)
    triggers.send_all(tile._asdict() for tile in make_tiles(bench, per_region, 60))
    if await bench.run(lambda: triggers.idle and commands.empty, 20_000):
        assert not model.incomplete() and not bench.get("busy") and not bench.get("ready_level")
        assert 0 < bench.get("ready_high_water") <= bench.geometry.dma.ready_commands
        bench.set("clear_high_water", 1)
        await bench.cycle()
        most = 0
        await bench.cycle()
        assert not bench.get("ready_high_water")
