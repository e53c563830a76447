"""AddressGenerator against its model: exactly a block's lines, errors for those outside the buffer, credits."""

from t3sim.rtl.registers import REGION_ACTIONS
from t3sim.testbenches.bench import Bench, rounds
from t3sim.testbenches.drivers import StreamDriver
from t3sim.testbenches.mappings import Tables, entry_named, program, random_tables
from t3sim.testbenches.monitors import CycleMonitor, PulseMonitor, StreamMonitor
from t3sim.testbenches.reference.address_generator import LineError, expand
from t3sim.testbenches.scoreboard import Scoreboard, of_one_part


def random_mappings(bench: Bench) -> Tables:
    """Draw regions that share blocks and buffers, which are of any size that DMA must get right."""
    tables = random_tables(bench)
    for buffer in tables["buffer"]:
        buffer |= random_buffer(bench)
    for block in tables["block"]:
        block |= random_block(bench)
    for number, region in enumerate(tables["region"]):
        if bench.rng.random() < 0.7:
            region |= {action: int(action == "send_dma") for action in REGION_ACTIONS}
        if bench.rng.random() < 0.5:  # the block's end is near the buffer's
            block, buffer = (entry_named(tables, number, name) for name in ("block", "buffer"))
            size = block["pitch_bytes"] * max(0, block["columns"] - 1) + block["row_bytes"]
            buffer["limit"] = min(max(0, buffer["base"] + size + bench.rng.randint(-70, 70)), _highest(bench))
    return tables


def _highest(bench: Bench) -> int:
    return (1 << bench.geometry.tracker.address_bits) - 1


def random_buffer(bench: Bench) -> dict:
    base = bench.rng.choice((0, *3 * [bench.rng.getrandbits(bench.geometry.tracker.address_bits)]))
    return {"base": base, "limit": min(base + bench.rng.choice((1000, 1 << 20, 1 << 36)), _highest(bench))}


def random_block(bench: Bench) -> dict:
    rng = bench.rng
    tiles = 1 << rng.randint(0, bench.geometry.tracker.wf_bits)
    chosen = {"tiles_per_block": tiles, "columns": tiles * rng.choice((1, 1, 2, 3)) if tiles < 16 else tiles,
              "row_bytes": rng.choice((1, 63, 64, 65, 200, rng.randint(1, 900))),
              "pitch_bytes": rng.choice((0, 64, 333, 4096, rng.getrandbits(32)))}
    fate = rng.random()
    if fate < 0.1:  # many columns
        chosen |= {"columns": rng.randrange(tiles, 1 << 10), "row_bytes": rng.randint(1, 70)}
    elif fate < 0.2:  # long ones
        chosen |= {"columns": tiles, "row_bytes": rng.randrange(1, 1 << 13)}
    if rng.random() < 0.2:
        chosen[rng.choice(("row_bytes", "columns"))] = 0
    return chosen


def expecting(bench: Bench, tables: Tables) -> tuple[StreamDriver, Scoreboard, Scoreboard]:
    """Return a driver of commands, and what the model says of those that it has sent: lines, and errors."""
    lines, errors = Scoreboard("lines"), Scoreboard("errors")

    def accepted(item: dict) -> None:
        for each in expand(item, tables, bench.geometry):
            (errors if isinstance(each, LineError) else lines).expect(each)

    PulseMonitor(bench, "error", lambda error: errors.check({"code": error["code"], **error["details"]}))
    return StreamDriver(bench, "command", on_accept=accepted), lines, errors


@rounds(8)
async def random_blocks(bench: Bench) -> None:
    """Send blocks of random shape, pitch and alignment; compare every line, cut at 64 bytes, with the model."""
    rng, t = bench.rng, bench.geometry.tracker
    tables = random_mappings(bench)
    program(bench, tables)

    class Credit:
        """Allows lines at random; a line without permission is an error."""
        pause = bench.pause()

        def drive(self) -> None:
            self.allow = not next(self.pause)
            bench.set("allow", int(self.allow))

        def sample(self) -> None:
            assert self.allow or not bench.get("issued"), "issued without permission"

        def reset(self) -> None:
            pass

    bench.add(Credit())
    CycleMonitor(bench, lambda: None if bench.get("busy") else lines.check_empty())
    commands, lines, errors = expecting(bench, tables)
    StreamMonitor(bench, "lines", lambda line: lines.check(of_one_part(line)), waits_for_valid=rng.random() < 0.3)
    for _ in range(15):
        region = rng.randrange(bench.geometry.dma.regions)
        buffer = entry_named(tables, region, "buffer")
        # A row that ends where the buffer does is the last one that is right.
        last_row = buffer["limit"] - entry_named(tables, region, "block")["row_bytes"]
        around = rng.choice((buffer["base"], buffer["base"], buffer["limit"], last_row, 1 << t.address_bits))
        if rng.random() < 0.2:  # the third column is where the address space begins again
            around = (1 << t.address_bits) - entry_named(tables, region, "block")["pitch_bytes"] - 900
        # Near the border, or as far from it as one of its bits counts.
        beside = rng.choice((rng.randint(-300, 900), 0, -1, rng.choice((-1, 1)) << rng.randrange(t.address_bits)))
        commands.send({"address": (around + beside) % (1 << t.address_bits), "region": region,
                       "wf": rng.getrandbits(t.wf_bits), "wg": rng.getrandbits(t.wg_bits)})
    if await bench.run(lambda: commands.idle and lines.empty and errors.empty, 60_000):
        assert not bench.get("busy")


@rounds(2)
async def regions_share_entries(bench: Bench) -> None:
    """Let all regions have the same block and buffer, then each its own, as far as there are enough."""
    rng, t, dma = bench.rng, bench.geometry.tracker, bench.geometry.dma
    bench.set("allow", 1)
    tables = random_tables(bench)
    commands, lines, errors = expecting(bench, tables)
    StreamMonitor(bench, "lines", lambda line: lines.check(of_one_part(line)))
    base = rng.getrandbits(t.address_bits - 1)
    for number, block in enumerate(tables["block"]):
        block |= {"row_bytes": 64 + number, "columns": 2, "tiles_per_block": 2, "pitch_bytes": 200 + number}
    for number, buffer in enumerate(tables["buffer"]):
        buffer |= {"base": base + 64 * number, "limit": base + 400 - number}
    for step in (0, 1):
        for number, region in enumerate(tables["region"]):
            region |= {"send_dma": 1, "block": step * number % dma.block_shapes, "buffer": step * number % dma.buffers}
        program(bench, tables)
        for region in rng.sample(range(dma.regions), dma.regions):
            commands.send({"address": base, "region": region, "wf": 0, "wg": rng.getrandbits(t.wg_bits)})
        if not await bench.run(lambda: commands.idle and not bench.get("busy"), 20_000):
            return
        lines.check_empty()
        errors.check_empty()
    assert lines.matched >= 3 * dma.regions


@rounds(1)
async def every_bit_of_the_bounds_counts(bench: Bench) -> None:
    """Read a line on either side of each buffer's limit whose address differs from it in one bit, whatever the bit."""
    rng, t, dma = bench.rng, bench.geometry.tracker, bench.geometry.dma
    bench.set("allow", 1)
    tables = random_tables(bench)
    commands, lines, errors = expecting(bench, tables)
    StreamMonitor(bench, "lines", lambda line: lines.check(of_one_part(line)), waits_for_valid=True)
    for block in tables["block"]:
        block |= {"row_bytes": 1, "columns": 1, "tiles_per_block": 1, "pitch_bytes": 64}
    for number, region in enumerate(tables["region"]):
        region |= {"send_dma": 1, "block": 0, "buffer": number % dma.buffers}
    for bit in range(t.address_bits):
        for limit_bit in (0, 1):
            for buffer in tables["buffer"]:
                others = rng.getrandbits(t.address_bits) & ~(1 << bit)
                buffer |= {"base": 0, "limit": max(1, others | limit_bit << bit)}
            program(bench, tables)
            for number in range(min(dma.buffers, dma.regions)):
                # The last byte of the buffer, with the bit turned over: outside if it becomes larger.
                commands.send({"address": (tables["buffer"][number]["limit"] - 1) ^ (1 << bit), "region": number,
                               "wf": 0, "wg": rng.getrandbits(t.wg_bits)})
            if not await bench.run(lambda: commands.idle and not bench.get("busy"), 1000):
                return
            lines.check_empty()
            errors.check_empty()
