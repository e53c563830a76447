"""GpuTop: fused kernels, errors, mappings, and what waits for what.

Two ways to have it: `FusedGpu` runs a whole kernel and checks all that comes out; with `BareGpu` a test sends what goes
in and looks at what comes out itself.
"""

from collections import Counter
from collections.abc import Iterator
from random import Random

from t3sim.rtl.registers import (
    ERRORS,
    NO_THRESHOLD,
    OPERATIONS,
    POLICIES,
    REGION_ACTIONS,
    WATCHDOG_PERIOD,
    safe_window,
)
from t3sim.testbenches import pauses
from t3sim.testbenches.bare_gpu import DMA, LOCAL, READ, REMOTE, STORE, UPDATE, BareGpu
from t3sim.testbenches.bench import Bench, rounds
from t3sim.testbenches.fused_gpu import REQUEST, FusedGpu, Kernel
from t3sim.testbenches.mappings import Tables, entry_named, random_tables
from t3sim.testbenches.monitors import CycleMonitor
from t3sim.testbenches.reference.address_generator import LineError, expand
from t3sim.testbenches.reference.dispatch_window import Request
from t3sim.testbenches.reference.egress import packets_of
from t3sim.testbenches.reference.intensity_monitor import IntensityMonitorModel
from t3sim.testbenches.scoreboard import of_one_part

TAKEN_PER_ENGINE = 3  #: commands: one is worked on, two wait in the engine

@rounds(6, cover=("coalesced", "guard_stall"))
async def fused_kernels(bench: Bench) -> None:
    """Run two random kernels through the bus; check every stream, and counters against the shape's totals."""
    gpu = FusedGpu(bench)
    for _ in range(2):  # configuration and counters of the first must not reach into the second
        await gpu.program(Kernel(bench))
        start = sum(lane.matched for lane in gpu.packets)
        if not await bench.run(gpu.finished, 60_000, patience=3_000):
            return
        await gpu.check()
        packets = await gpu.bus.read(gpu.registers["COUNT_PACKETS"].offset)
        assert packets == sum(lane.matched for lane in gpu.packets) - start


@rounds(6, cover=("partly updated", "reads outstanding"))
async def a_kernel_after_an_aborted_one(bench: Bench) -> None:
    """Cut a kernel short by a soft reset and run another one, which runs as on new hardware.

    The first one's arrivals and the data of its reads are still to come.
    """
    gpu = FusedGpu(bench)
    await gpu.program(Kernel(bench))
    sought = (None, "tracker_occupied", "reads_outstanding")[bench.number % 3]
    last = bench.now + 1500
    await bench.cycle(40 if sought else bench.rng.randrange(40, 1500))
    while True:
        before = gpu.driver.decode("STATUS", await gpu.bus.read(gpu.registers["STATUS"].offset))
        if sought is None or before[sought] or bench.now > last:
            break
        await bench.cycle(bench.rng.randrange(1, 60))
    bench.reach("partly updated", bool(before["tracker_occupied"]))
    bench.reach("reads outstanding", bool(before["reads_outstanding"]))
    gpu.abort()
    await gpu.bus.write_all(gpu.driver.soft_reset(bench.rng.randrange(500, 1000)))
    bits = {name: 1 << field.lsb for field in gpu.registers["STATUS"].fields if (name := field.name) in (
        "reset_done", "resetting")}
    start = bench.now
    while not (status := await gpu.bus.read(gpu.registers["STATUS"].offset)) & bits["reset_done"]:
        assert status & bits["resetting"] and bench.now - start < 20_000, "a soft reset that is never done"
    assert gpu.quiet
    for lane in gpu.packets:  # what follows was swallowed
        lane.reset()
    await bench.cycle(50)
    await gpu.program(Kernel(bench))
    if await bench.run(gpu.finished, 60_000):
        await gpu.check()


@rounds(4, cover=("threshold_exceeded", "region_unconfigured"))
async def a_wrong_update_is_told(bench: Bench) -> None:
    """Exceed a threshold, or update an unmapped region; the bus gives code, ids, region and address."""
    gpu = FusedGpu(bench)
    await gpu.program(Kernel(bench))
    gpu.dispatch.reset()
    gpu.upstream = gpu.kernel.workgroups  # nobody else sends
    code = ("threshold_exceeded", "region_unconfigured")[bench.number % 2]
    if code == "region_unconfigured":
        await gpu.bus.write_all(gpu.driver.unmap(gpu.kernel.event))
    count = 1 if code == "region_unconfigured" else 2 * gpu.kernel.row_bytes * gpu.kernel.columns // 60 + 1
    request = {"address": 0x40, "bytes": 60, "op": UPDATE, "source": LOCAL, "region": gpu.kernel.event, "wf": 1,
               "wg": 2}
    for _ in range(count):
        gpu.to(gpu.compute, request)
    await bench.until(lambda: all(driver.idle for driver in gpu.compute), 5_000)
    await bench.cycle(200)
    error = await gpu.first_error()
    bench.reach(code)
    assert error == {"code": code, "wg": 2, "wf": 1, "region": gpu.kernel.event, "address": 0x40}
    await gpu.bus.write_all(gpu.driver.clear_error())
    assert await gpu.first_error() is None


async def told_once(gpu: FusedGpu, **error) -> None:
    """Check that the first error is this one, with zeros where it says nothing; cleared, there is none."""
    await gpu.bench.cycle(40)
    expected = {"code": error.pop("code"), "wg": 0, "wf": 0, "region": 0, "address": 0} | error
    assert await gpu.first_error() == expected
    await gpu.bus.write_all(gpu.driver.clear_error())
    assert await gpu.first_error() is None


@rounds(6)
async def every_reporter_is_heard(bench: Bench) -> None:
    """Report errors with addresses and ids of any value; details and COUNT_ERRORS are right."""
    gpu, rng, t = FusedGpu(bench), bench.rng, bench.geometry.tracker
    await gpu.program(Kernel(bench))
    gpu.dispatch.reset()
    kernel, gpu.kernel = gpu.kernel, None  # nobody else moves

    def tile(region: int) -> dict:
        return {"address": rng.getrandbits(t.address_bits), "region": region, "wf": rng.getrandbits(t.wf_bits),
                "wg": rng.getrandbits(t.wg_bits)}

    for lane in gpu.outbound:
        line, lane.on_accept = tile(kernel.event), None
        lane.send(line | {"bytes": 64, "op": STORE, "source": LOCAL})
        await bench.until(lambda lane=lane: lane.idle, 1_000)
        await told_once(gpu, code="region_unconfigured", **line)
    others = sorted(set(range(1, bench.geometry.dma.regions)) - {kernel.dma, kernel.event})
    for side, source, code in ((gpu.compute, LOCAL, "region_unconfigured"), (gpu.inbound, REMOTE, "arrival_refused")):
        for _ in range(3):
            update = tile(rng.choice(others))
            update["address"] -= update["address"] % 64
            request = update | {"bytes": 64, "op": UPDATE, "source": source}
            gpu.to(side, {name: request[name] for name in REQUEST})
            await bench.until(lambda side=side: all(driver.idle for driver in side), 1_000)
            await told_once(gpu, code=code, **update)
    # Any id that the window has, opened twice.
    wg = rng.randrange(gpu.window)
    gpu.dispatch.on_go = None
    gpu.dispatch.send(Request(wg, tiles=1), Request(wg, tiles=1))
    await bench.until(lambda: gpu.dispatch.idle, 1_000)
    await told_once(gpu, code="id_reused", wg=wg)
    assert await gpu.bus.read(gpu.registers["COUNT_ERRORS"].offset) == len(gpu.outbound) + 2 * 3 + 1


@rounds(1)
async def the_hardware_says_what_it_is(bench: Bench) -> None:
    """Read the identity and geometry registers; they equal the driver's values."""
    gpu = FusedGpu(bench)
    words = {register.offset: await gpu.bus.read(register.offset) for register in gpu.registers.fixed
             if register.access == "ro"}
    gpu.driver.check_identity(words.__getitem__)
    offsets = {offset for offset, _, _ in gpu.registers.all_registers()}
    for offset in set(range(0, 1 << gpu.registers.address_bits, 256)) - offsets:
        assert await gpu.bus.transfer(offset) == (1, 0), f"register {offset:#05x} does not exist"


def random_mappings(gpu: BareGpu) -> Tables:
    """Draw every field at any value; a block has up to about a hundred lines in its buffer, and any number outside.

    Routes lie in their table: of a region whose lines are all refused, which comes first is not said (`tb_egress.py`).
    """
    rng, t, dma = gpu.bench.rng, gpu.geometry.tracker, gpu.geometry.dma
    tables = random_tables(gpu.bench)
    for region in tables["region"]:
        actions = rng.choice((("send_dma",), ("send_dma", "event"), ("event",), ("send_stores",)))
        region |= {action: int(action in actions) for action in REGION_ACTIONS} | {
            "threshold": rng.randrange(1, 1 << min(rng.choice((10, 10, 10, 12)), t.count_bits)),
            "arrivals": region["arrivals"] | 1}
        route = rng.randrange(dma.routes)
        region |= {"route": route, "more_routes": rng.randrange(min(dma.routes - route, dma.copies))}
    for block in tables["block"]:
        columns = rng.getrandbits(rng.randint(1, 10)) or 1
        tiles = 1 << rng.randint(0, min(t.wf_bits, columns.bit_length() - 1))
        block |= {"tiles_per_block": tiles, "columns": columns // tiles * tiles,
                  "row_bytes": min((1 << 13) - 1, rng.randrange(1, 1 << 14) // columns + 1),
                  "pitch_bytes": rng.getrandbits(rng.randint(1, 32))}
    for buffer in tables["buffer"]:
        base = min(rng.getrandbits(t.address_bits), (1 << t.address_bits) - (1 << 13))  # its tiles fit below the end
        buffer |= {"base": base, "limit": base + rng.randrange(64, 1 << 12)}
    return tables


@rounds(8)
async def every_region_goes_its_way(bench: Bench) -> None:
    """Complete a block of each region with random tables; compare lines, packets, events and errors with models.

    Workgroups are dispatched in every second round only; without, peers update those that are in the window
    nevertheless.
    """
    gpu, rng, t = BareGpu(bench), bench.rng, bench.geometry.tracker
    window, names = safe_window(bench.geometry), {code: name for name, code in ERRORS.items()}
    tables = random_mappings(gpu)
    families = range(bench.geometry.dma.regions)
    for region, family in zip(tables["region"], rng.sample(families, len(families))):
        region["family"] = family
    await gpu.map_all(tables)
    commands, packets, events, first, blocks = Counter(), Counter(), [], 0, 0
    for region, mapped in enumerate(tables["region"]):
        if not region and not mapped["send_stores"]:
            continue  # nothing of it is tracked
        tiles = (entry_named(tables, region, "block")["tiles_per_block"] if mapped["send_dma"] else 0) or 1
        skipped = rng.randrange(min(64, 1 << t.wg_bits) // bench.geometry.dma.regions)
        wg = first + skipped if bench.number % 2 else rng.getrandbits(t.wg_bits)
        wf = 0 if bench.number % 2 else rng.randrange(1 << t.wf_bits) // tiles * tiles  # who is dispatched begins at 0
        address = entry_named(tables, region, "buffer")["base"] + rng.choice((0, rng.randrange(64)))
        expected: list = []
        if mapped["send_stores"]:
            expected = [gpu.request(rng.getrandbits(t.address_bits), region, rng.getrandbits(t.wg_bits),
                                    rng.getrandbits(t.wf_bits), bytes=rng.randint(1, 64)) for _ in range(8)]
            for line in expected:
                rng.choice(gpu.outbound).send(line)
            if region:
                local = rng.random() < 0.5
                update = gpu.request(address, region, wg, wf, bytes=64 - address % 64,
                                     source=LOCAL if local else REMOTE)
                commands[*update.values(), 0] += local
                gpu.send([update])
        else:
            if bench.number % 2:
                gpu.dispatch.send(*(Request(skip) for skip in range(first, wg)), Request(wg, tiles))
                first = wg + 1
                await gpu.drained()
            addresses = []
            sources = (LOCAL, REMOTE, DMA) if bench.number % 2 or wg < window else (LOCAL,)
            order = rng.sample(range(tiles), tiles)
            for tile in order:
                left, updates = mapped["threshold"], []
                while left:
                    at = min((1 << t.address_bits) - 1, address + rng.randrange(1 << rng.randint(1, 12)))
                    source = rng.choice(sources)
                    most = min(left, 64 - at % 64)  # no write crosses a line
                    updates.append(gpu.request(at, region, wg, wf + tile, bytes=rng.randint(1, most), source=source))
                    left -= updates[-1]["bytes"]
                addresses.append(min(update["address"] for update in updates))
                commands.update((*update.values(), int(update["source"] != LOCAL)) for update in updates)
                gpu.send(updates)
                await gpu.drained()
            trigger = {"address": min(addresses), "region": region, "wf": wf, "wg": wg}
            if mapped["event"]:
                events += [trigger | {"wf": wf + tile, "address": first} for tile, first in zip(order, addresses)]
            if mapped["send_dma"]:
                blocks += 1
                expected = [line if isinstance(line, LineError) else line._asdict()
                            for line in expand(trigger, tables, bench.geometry)]
        await gpu.drained()
        lines = [line for line in expected if isinstance(line, dict)]
        errors = [item._asdict() | {"code": names[item.code]} for item in expected if isinstance(item, LineError)]
        commands.update((*line.values(), 1) for line in lines if line["op"] == READ)
        packets.update(tuple(packet) for line in lines for packet in packets_of(line, tables, bench.geometry))
        if region and mapped["send_stores"]:
            errors = [{"code": "region_unconfigured" if local else "arrival_refused", "address": address,
                       "region": region, "wf": wf, "wg": wg}]
        elif region and not bench.number % 2:
            errors = [{"code": "completion_unexpected"} | trigger | {"wf": wf + order[0], "address": addresses[0]}]
        assert await gpu.first_error() == (errors[0] if errors else None)
        assert Counter((*of_one_part(command["request"]).values(), command["communication"])
                       for command in gpu.commands) == commands
        assert Counter(tuple(packet.values()) for packet in gpu.packets) == packets
        assert gpu.events.items == events
    assert await gpu.read("COUNT_COMMANDS") == blocks and await gpu.read("COUNT_LINES") == len(gpu.reads)
    assert await gpu.read("COUNT_PACKETS") == len(gpu.packets) and await gpu.status() == {"drain"}


def lines_of_a_block(gpu: BareGpu) -> int:
    """Return more lines than fit between an engine and a channel that takes none."""
    return gpu.geometry.channel.dma_fifo + 16


def repeated_line(gpu: BareGpu) -> dict:
    """Describe a region of tiles of one update of a line each, that DMA reads `lines_of_a_block` times."""
    return gpu.mapping(send_dma=1, operation=OPERATIONS["update"], tiles_per_block=1, threshold=64, row_bytes=64,
                       columns=lines_of_a_block(gpu))


async def complete_one(gpu: BareGpu, region: int, wg: int, channel: int) -> None:
    """Complete workgroup `wg`, the next one, of one tile in `channel`; its command has time to reach an engine."""
    gpu.dispatch.send(Request(wg, tiles=1))
    gpu.send([gpu.request(gpu.address_in(channel), region, wg)])
    await gpu.counted("COUNT_TRIGGERS", wg + 1)
    await gpu.bench.cycle(20)


@rounds(2)
async def a_gpu_that_stands_still(bench: Bench) -> None:
    """Hold writes and the link; each stall counter grows by exactly the blocks that wait, and STATUS shows them."""
    gpu, geometry = BareGpu(bench), bench.geometry
    await gpu.map(1, repeated_line(gpu))
    channels, engines = geometry.channel.channels, geometry.dma.engines
    for dram in gpu.drams:
        dram.retires = pauses.always()
    taken = TAKEN_PER_ENGINE * engines
    waiting = min(geometry.dma.ready_commands, 40)
    lines = (taken + waiting) * lines_of_a_block(gpu)
    for wg in range(taken + waiting):  # of one after the other, so that the engines have taken what they can
        await complete_one(gpu, 1, wg, wg % channels)
    assert await gpu.rate("COUNT_GUARD_STALL") == min(channels, engines) and not gpu.reads
    assert await gpu.read("COUNT_READY_HIGH_WATER") == waiting
    assert await gpu.status() == {"dma_table_busy", "engines_busy", "channels_busy", "channels_hold",
                                  "reads_outstanding", "drain"}
    assert (await gpu.read("COUNT_TRIGGERS"), await gpu.read("COUNT_COMMANDS")) == (taken + waiting, taken)
    for lane in gpu.lanes:
        lane.pause = pauses.always()
    for dram in gpu.drams:
        dram.retires = pauses.never()
    await gpu.still(100)
    most = geometry.dma.outstanding_lines
    status = await gpu.status()
    assert "egress_busy" in status and not gpu.packets
    assert "engines_busy" in status or lines <= most
    assert "dma_table_busy" in status or lines <= most + taken * lines_of_a_block(gpu)
    assert min(lines, max(1, most - 2 * engines + 1)) <= len(gpu.reads) <= most
    for lane in gpu.lanes:
        lane.pause = pauses.never()
    await bench.until(lambda: len(gpu.packets) >= lines, 20_000)
    await gpu.quiet()
    assert len(gpu.packets) == await gpu.read("COUNT_LINES") == lines and await gpu.status() == {"drain"}
    assert await gpu.rate("COUNT_GUARD_STALL") == 0


@rounds(4, given=lambda g: min(g.dma.engines, g.channel.channels) > 1)
async def engines_take_commands_in_turns(bench: Bench) -> None:
    """Block one engine; exactly every N-th command waits for it, and all others are read.

    Commands whose turn it would be wait until it takes no more.
    """
    gpu, rng, engines = BareGpu(bench), bench.rng, bench.geometry.dma.engines
    channels = list(range(bench.geometry.channel.channels))
    region, stuck = rng.randrange(1, bench.geometry.dma.regions), rng.randrange(engines)
    await gpu.map(region, repeated_line(gpu))
    blocked = channels.pop(rng.randrange(len(channels)))
    gpu.drams[blocked].retires = pauses.always()
    commands = stuck + (TAKEN_PER_ENGINE + 1) * engines
    for wg in range(commands):
        await complete_one(gpu, region, wg, blocked if wg == stuck else rng.choice(channels))
    behind = {stuck + turn * engines for turn in range(TAKEN_PER_ENGINE)}
    await gpu.still(100)
    lines = lines_of_a_block(gpu)
    assert Counter(read["wg"] for read in gpu.reads) == {wg: lines for wg in range(commands) if wg not in behind}
    gpu.drams[blocked].retires = pauses.never()
    await bench.until(lambda: len(gpu.packets) >= commands * lines, 20_000)
    await gpu.quiet()
    assert Counter(read["wg"] for read in gpu.reads) == dict.fromkeys(range(commands), lines)
    assert await gpu.first_error() is None and await gpu.status() == {"drain"}


@rounds(2)
async def full_sets(bench: Bench) -> None:
    """Open one tile more than a set has ways in each bank: it is refused and counted, and the open tiles complete."""
    gpu, t = BareGpu(bench), bench.geometry.tracker
    await gpu.map(2, gpu.mapping(event=1, threshold=128))
    await gpu.drained()  # a long table clears itself after a reset
    for bank in range(t.banks):
        fill = [gpu.request(64 * number, 2, bank + t.sets * number, wf=0) for number in range(t.ways)]
        gpu.send(fill)
        await gpu.quiet()
        assert await gpu.first_error() is None and await gpu.status() == {"tracker_occupied", "drain"}
        late = gpu.request(0, 2, bank + t.sets * t.ways)
        gpu.send([late])
        await gpu.quiet()
        assert await gpu.first_error() == {"code": "tracker_full"} | {
            name: late[name] for name in ("address", "region", "wf", "wg")}
        assert await gpu.read("COUNT_SET_FULL") == bank + 1
        gpu.send(fill)
        await gpu.drained()
        assert len(gpu.events.items) == t.ways * (bank + 1) and await gpu.status() - {"error", "error_overflow"} == {
            "drain"}
        await gpu.first_error()  # nothing was dispatched
    assert await gpu.read("COUNT_UPDATES") == t.banks * (2 * t.ways + 1)


@rounds(2)
async def a_region_that_goes_while_its_tiles_wait(bench: Bench) -> None:
    """Take no events and unmap a region: two events wait, and the third tile is an error with its details."""
    gpu, t = BareGpu(bench), bench.geometry.tracker
    region = bench.rng.randrange(1, bench.geometry.dma.regions)
    await gpu.map(region, gpu.mapping(event=1, threshold=64))
    gpu.events.pause = pauses.always()
    await gpu.drained()  # the DMA table has cleared its counters
    tiles = [gpu.request(bench.rng.getrandbits(t.address_bits - 6) << 6, region, wg, bench.rng.getrandbits(t.wf_bits))
             for wg in bench.rng.sample(range(1 << t.wg_bits), 3)]
    for tile in tiles:
        gpu.send([tile])
        await gpu.quiet()
    await gpu.first_error()  # nothing was dispatched
    await gpu.bus.write_all(gpu.driver.unmap(region))
    await bench.cycle(10)
    gone = {name: tiles[2][name] for name in ("address", "region", "wf", "wg")}
    assert await gpu.first_error() == gone | {"code": "region_unconfigured"}
    gpu.events.pause = pauses.never()
    await gpu.quiet()
    assert gpu.events.items == [{name: tile[name] for name in gone} for tile in tiles[:2]]


def set_occupancy(bench: Bench, entries: list[int]) -> None:
    for name, value in zip(bench.elements("occupancy"), entries):
        bench.set(name, value)


@rounds(16)
async def the_monitor_decides_over_communication(bench: Bench) -> None:
    """Change occupancies in every cycle and channel; the mean, threshold and first request are the model's.

    The threshold is its own, or the register's.
    """
    rng, channel, gpu = bench.rng, bench.geometry.channel, BareGpu(bench, drams=False)
    entries = [[rng.randrange(min(40, channel.queue_entries) + 1) for _ in range(channel.channels)]
               for _ in range(rng.randint(1, 300))]
    model = IntensityMonitorModel(bench.geometry)
    model.step(restart=1, producer_active=0, communication_seen=0, occupancy=entries[0])
    for occupancy in entries:
        model.step(restart=0, producer_active=1, communication_seen=0, occupancy=occupancy)
    model.step(restart=0, producer_active=0, communication_seen=1, occupancy=entries[0])
    below = bench.number % 4  # breakpoints that are not above the mean
    marks = [max(0, model.mean + (0 if index < below else 1) + (-1 if index < below else 1) * rng.choice((0, 1, 20)))
             for index in range(3)]
    auto = bench.number // 4 % 2
    register = rng.choice((0, rng.randrange(1, channel.queue_entries + 1)))
    await gpu.write("MONITOR", **{f"breakpoint{index}": min(255, mark) for index, mark in enumerate(marks)})
    await gpu.write("THRESHOLD", threshold=register)
    await gpu.write("POLICY", policy=POLICIES["mca"], auto_threshold=auto)
    set_occupancy(bench, [channel.queue_entries] * channel.channels)
    await gpu.restart()
    clearing = {"dma_table_busy", "channels_busy"}  # tables and guards clear themselves, a line in a cycle
    bench.set("producer_active", 1)
    for occupancy in entries:
        set_occupancy(bench, occupancy)
        await bench.cycle()
    bench.set("producer_active", 0)
    set_occupancy(bench, [channel.queue_entries] * channel.channels)
    assert await gpu.status() <= clearing | {"tracker_busy", "drain", "window_open"}
    assert await gpu.read("CHOSEN_THRESHOLD") == NO_THRESHOLD
    await gpu.map(0, gpu.mapping(event=1))
    asking = rng.randrange(channel.channels)
    gpu.send([gpu.request(gpu.address_in(asking), 0, 0, op=STORE, source=REMOTE)])
    await bench.cycle(100)
    assert "monitor_done" in await gpu.status()
    found, chosen = await gpu.read("MONITOR_MEAN"), await gpu.read("CHOSEN_THRESHOLD")
    assert found == model.mean
    assert chosen == (NO_THRESHOLD, 15, 5, 3)[below]
    bench.set("producer_active", 1)
    threshold = chosen if auto else max(1, register)
    if threshold != NO_THRESHOLD and threshold <= channel.queue_entries:
        set_occupancy(bench, [threshold] * channel.channels)
        await bench.cycle(40)
        gone = len(gpu.commands)
        gpu.send([gpu.request(gpu.address_in(c), 0, 0, op=STORE, source=REMOTE) for c in range(channel.channels)])
        await bench.cycle(40)
        assert len(gpu.commands) == gone, "at the threshold"
        set_occupancy(bench, [threshold - 1] * channel.channels)
    await bench.cycle(60)
    assert gpu.commands and await gpu.status() - clearing == {"monitor_done"}


@rounds(2)
async def every_arbiter_is_programmed(bench: Bench) -> None:
    """Set a threshold that blocks communication; in every channel two stores are one starvation limit apart."""
    rng, channel, gpu = bench.rng, bench.geometry.channel, BareGpu(bench, drams=False)
    for stream in gpu.memory:
        stream.pause = pauses.never()
    await gpu.map(0, gpu.mapping(event=1))
    await gpu.write("POLICY", policy=POLICIES["mca"], auto_threshold=0)
    await gpu.write("THRESHOLD", threshold=1)
    set_occupancy(bench, [1] * channel.channels)
    bench.set("producer_active", 1)
    seen: list[list[int]] = []

    def look() -> None:
        for times, name in zip(seen, bench.elements("dram")):
            if bench.get(f"{name}.valid"):
                times.append(bench.now)

    CycleMonitor(bench, look)
    for limit in (1, rng.randint(40, 90)):
        await gpu.quiet()
        seen[:] = [[] for _ in range(channel.channels)]
        await gpu.write("STARVATION_LIMIT", starvation_limit=1 << 15 | limit)  # far away
        gpu.send([gpu.request(gpu.address_in(c), 0, 0, op=STORE, source=REMOTE) for c in range(channel.channels)] * 2)
        await bench.until(lambda: all(stream.idle for stream in gpu.inbound), 2_000)
        await bench.cycle(100)
        assert not any(seen)
        await gpu.write("STARVATION_LIMIT", starvation_limit=limit)
        await bench.until(lambda: all(len(times) == 2 for times in seen), 200)
        assert {second - first for first, second in seen} == {limit + 1}


class _BusyUnits:
    """Compute units that read in every cycle, in every channel, until they are `done`."""

    def __init__(self, gpu: BareGpu) -> None:
        self._gpu, self.done = gpu, False
        for stream in gpu.compute:
            stream.pause = pauses.never()
        gpu.bench.add(self)

    def drive(self) -> None:
        for channel, stream in enumerate(self._gpu.compute):
            if not self.done and len(stream.waiting) < 2:
                stream.send(self._gpu.request(self._gpu.address_in(channel), 0, 0, op=READ))

    def sample(self) -> None:
        pass


@rounds(4)
async def a_late_ring_goes_first(bench: Bench) -> None:
    """Hold DMA reads back by ring-aware arbitration until more workgroups than STAGE have started.

    It does so as long as compute units read; MCA's threshold changes nothing.
    """
    gpu, rng, geometry = BareGpu(bench), bench.rng, bench.geometry
    region = rng.randrange(1, geometry.dma.regions)
    tiles = TAKEN_PER_ENGINE * geometry.dma.engines + 1  # one command more than engines take
    stage = rng.randint(1, min(60, (1 << geometry.tracker.wg_bits) - tiles - 1))
    await gpu.map(region, repeated_line(gpu))
    await gpu.bus.write_all(gpu.driver.policy("ring_aware", 1))
    await gpu.bus.write_all(gpu.driver.stage(stage))
    bench.set("producer_active", 1)
    units = _BusyUnits(gpu)
    await bench.cycle(20)
    for wg in range(tiles):
        await complete_one(gpu, region, wg, wg % geometry.channel.channels)
    await bench.cycle(300)
    following, reading = tiles, min(geometry.dma.engines, geometry.channel.channels)
    if bench.number % 2:  # a restart beside what waits is refused, and changes nothing
        await gpu.bus.write_all(gpu.driver.restart())
        assert (await gpu.first_error())["code"] == "restart_refused"
    for started, late in ((stage, False), (1, True)):
        gpu.dispatch.send_all(Request(wg) for wg in range(following, following + started))
        following += started
        await bench.until(lambda: gpu.dispatch.idle, 2_000)
        if late:  # turns, until no command waits any more
            await gpu.counted("COUNT_COMMANDS", tiles)
        await bench.cycle(50)
        gone = len(gpu.reads)
        assert gone >= reading if late else gone == 0
        await bench.cycle(300)
        assert len(gpu.reads) == gone and await gpu.read("COUNT_COMMANDS") == tiles - 1 + late
    assert bench.get("head") == following
    units.done = True
    bench.set("producer_active", 0)
    lines = tiles * lines_of_a_block(gpu)
    await bench.until(lambda: len(gpu.packets) >= lines, 20_000)
    await gpu.quiet()
    assert len(gpu.reads) == len(gpu.packets) == lines and await gpu.first_error() is None


@rounds(1)
async def the_peers_windows_count(bench: Bench) -> None:
    """Move each peer's head in random steps and by each bit; exactly as many workgroups start as its window allows."""
    gpu, t, rng = BareGpu(bench), bench.geometry.tracker, bench.rng
    window = min(t.window_slots, 1 << t.wg_bits)
    shift = rng.randrange(window)
    await gpu.write("WINDOW", window=window)
    peers = range(bench.geometry.dma.peers)
    await gpu.bus.write_all(gpu.driver.heads(len(peers), sends_to=peers, receives_from=()))
    kernel = 0
    for peer in peers:
        kernel += 1
        await gpu.restart(kernel)
        gpu.dispatch.reset()
        last = min(1 << t.wg_bits, 600)
        gpu.dispatch.send_all(Request(wg, there=wg + shift, peer=peer, reaches=1) for wg in range(last))
        there = 0
        while not gpu.dispatch.idle:
            gpu.heard.send({"head": there, "epoch": kernel, "source": peer, "sender": peer})
            await bench.cycle(4 * window + 20)
            assert bench.get("head") == min(last, there + window - shift)
            assert ("dispatch_blocked" in await gpu.status()) != gpu.dispatch.idle
            there = min(1 << t.wg_bits, there + rng.randint(1, 2 * (window - shift)))  # no peer has more ids
        for bit in range(t.wg_bits + 1):
            kernel += 1
            gpu.heard.send({"head": 1 << bit, "epoch": kernel, "source": peer, "sender": peer})
            await gpu.restart(kernel)
            gpu.dispatch.reset()
            limit = min(2 << t.wg_bits, (1 << bit) + window)  # ids there are a bit wider
            gpu.dispatch.send(Request(0, there=limit - 1, peer=peer, reaches=1, opens=0))
            if limit < 2 << t.wg_bits:
                gpu.dispatch.send(Request(0, there=limit, peer=peer, reaches=1, opens=0))
            await bench.cycle(4 * window + 20)
            assert gpu.dispatch.waiting == (limit < 2 << t.wg_bits)
        gpu.heard.send({"head": 0, "epoch": 0, "source": peer, "sender": peer})


@rounds(2)
async def only_a_number_that_follows_restarts(bench: Bench) -> None:
    """Restart with numbers ahead by each power of two, 0 and up to 254: only those up to 127 are accepted.

    The head that leaves has the number.
    """
    gpu, rng = BareGpu(bench), bench.rng
    device, listener = rng.sample(range(1 << bench.geometry.dma.device_bits), 2)
    await gpu.bus.write_all(gpu.driver.heads(device, sends_to=(), receives_from=[listener]))
    steps = [*(1 << bit for bit in range(8)), 0, 127, rng.randint(1, 127), rng.randint(129, 254)]
    number = 0
    for step in (rng.randint(1, 255), *rng.sample(steps, len(steps))):
        await bench.until(lambda: gpu.heads.items and bench.now - bench.moved > 20, 2_000)
        gpu.heads.items.clear()
        follows = not number or 1 <= step <= 127
        asked = (number + step - 1) % 255 + 1
        await gpu.restart(asked)
        number = asked if follows else number
        error = await gpu.first_error()
        assert (error and error["code"]) == (None if follows else "restart_refused"), (number, asked)
        if not follows:
            await gpu.bus.write_all(gpu.driver.heads(device, sends_to=(), receives_from=()))  # it is due anew
            await gpu.bus.write_all(gpu.driver.heads(device, sends_to=(), receives_from=[listener]))
        epochs = [number] if follows else [0, number]  # kernel 0 precedes the head of a new listener
        await bench.until(lambda heads=len(epochs): len(gpu.heads.items) >= heads, 2_000)
        assert gpu.heads.items == [
            {"head": 0, "epoch": epoch, "source": device, "device": listener} for epoch in epochs]


@rounds(1)
async def a_soft_reset_waits_for_each_channel(bench: Bench) -> None:
    """Hold tracked writes back in each channel in turn; the reset ends when the last one has left.

    With a limit it ends then, and says that it was forced.
    """
    gpu, rng, quiet = BareGpu(bench), bench.rng, 16
    region = rng.randrange(1, bench.geometry.dma.regions)
    await gpu.map(region, gpu.mapping(event=1, threshold=128))
    await gpu.drained()
    sent: list[dict] = []
    takes = [dram.takes for dram in gpu.drams]

    async def hold(channel: int) -> None:
        gpu.drams[channel].takes = pauses.always()
        writes = [gpu.request(gpu.address_in(channel), region, rng.getrandbits(bench.geometry.tracker.wg_bits))
                  for _ in range(2)]  # the first one is ahead of the queue
        sent.extend(writes)
        gpu.send(writes)
        await bench.until(lambda: gpu.compute[channel].idle, 1_000)

    async def let_go(channel: int) -> None:
        gpu.drams[channel].takes, before = takes[channel], len(gpu.commands)
        await bench.until(lambda: len(gpu.commands) == before + 2, 1_000)

    async def until_done() -> None:
        start = bench.now
        while "reset_done" not in await gpu.status():
            assert bench.now - start < 20_000, "a soft reset that is never done"

    first, *others = rng.sample(range(len(gpu.drams)), len(gpu.drams))
    await hold(first)
    await gpu.bus.write_all(gpu.driver.soft_reset(quiet, None))
    held = first
    for channel in (*others, None):
        await bench.cycle(4 * quiet)
        assert "resetting" in await gpu.status(), f"though channel {held} holds a write"
        if channel is not None:
            await hold(channel)
        await let_go(held)
        held = channel
    await until_done()
    assert await gpu.first_error() is None
    await hold(first)
    await gpu.bus.write_all(gpu.driver.soft_reset(quiet, WATCHDOG_PERIOD))
    begun = bench.now
    await bench.until(lambda: bench.get("irq"), WATCHDOG_PERIOD + 10)
    assert bench.now - begun >= WATCHDOG_PERIOD and (await gpu.first_error())["code"] == "reset_forced"
    await until_done()
    await let_go(first)
    await gpu.quiet()
    assert [of_one_part(command["request"]) for command in gpu.commands] == sent
    assert await gpu.status() == {"reset_done", "drain"} and not gpu.events.items


@rounds(1)
async def a_link_that_takes_no_head_is_a_hang(bench: Bench) -> None:
    """Hold a head back: the watchdog reports it after its limit; an idle GPU or a moving head is no hang."""
    gpu, rng = BareGpu(bench), bench.rng
    device, listener = rng.sample(range(1 << bench.geometry.dma.device_bits), 2)

    async def listen(listens: bool) -> None:
        await gpu.bus.write_all(gpu.driver.heads(device, sends_to=(), receives_from=[listener] if listens else ()))

    async def waits() -> list[str]:
        register = gpu.registers["WATCHDOG_WAITS"]
        return gpu.driver.waiting({register.offset: await gpu.bus.read(register.offset)}.__getitem__)

    await gpu.map(1, gpu.mapping(event=1, threshold=128))
    await gpu.drained()
    await gpu.write("WATCHDOG", watchdog_limit=1)
    await bench.cycle(3 * WATCHDOG_PERIOD)
    assert await gpu.first_error() is None and not await waits()
    gpu.heads.pause = pauses.always()
    await listen(True)
    await gpu.bus.write_all(gpu.driver.clear_error())
    begun = bench.now
    await bench.until(lambda: bench.get("irq"), WATCHDOG_PERIOD + 10)
    assert bench.now - begun >= WATCHDOG_PERIOD and await waits() == ["link"]
    assert (await gpu.first_error())["code"] == "watchdog"
    gpu.heads.pause = pauses.never()
    gpu.send([gpu.request(gpu.address_in(0), 1, 0)])  # its tile lacks another one
    await gpu.quiet()
    await gpu.bus.write_all(gpu.driver.clear_error())
    for _ in range(3):
        for listens in (False, True):
            await listen(listens)
        await bench.cycle(WATCHDOG_PERIOD - 40)
    assert not bench.get("irq") and not await waits()
    await bench.until(lambda: bench.get("irq"), 2 * WATCHDOG_PERIOD + 10)
    assert await waits() == ["tiles"]


@rounds(1)
async def an_update_shows_until_its_event(bench: Bench) -> None:
    """Read STATUS one cycle later each time; the update is visible in every cycle until its event.

    While it is held back for a neighbour, no cycle differs from the others.
    """
    gpu, rng, t = BareGpu(bench), bench.rng, bench.geometry.tracker
    held = bench.geometry.channel.coalescer_timeout_cycles
    await gpu.map(1, gpu.mapping(event=1, threshold=64))
    await gpu.drained()
    for dram in gpu.drams:
        dram.takes = pauses.never()
    for later in (*range(4), *range(held, held + 16)):
        channel, before = rng.randrange(len(gpu.drams)), len(gpu.events.items)
        gpu.send([gpu.request(gpu.address_in(channel), 1, rng.getrandbits(t.wg_bits))])
        await bench.until(lambda channel=channel: gpu.compute[channel].idle, 1_000)
        await bench.cycle(later)
        status = await gpu.status()
        came = len(gpu.events.items) > before
        assert came or any(name.endswith("_busy") for name in status), f"{later} cycles later"
        await bench.until(lambda before=before: len(gpu.events.items) > before, 1_000)
        assert len(gpu.events.items) == before + 1
    assert came, "it takes longer"
    await gpu.first_error()  # nothing was dispatched


def now_and_then(rng: Random) -> Iterator[bool]:
    """Pause, but for single cycles."""
    while True:
        yield from (True for _ in range(rng.randrange(8, 16)))
        yield False


@rounds(2, given=lambda g: safe_window(g) >= 2 * g.tracker.banks)
async def admissions_take_turns_with_updates(bench: Bench) -> None:
    """Let admissions and the first channel's updates wait for one bank; their events alternate."""
    gpu, rng, t = BareGpu(bench), bench.rng, bench.geometry.tracker
    stored, admitted = rng.sample(range(1, bench.geometry.dma.regions), 2)
    await gpu.map(stored, gpu.mapping(event=1, threshold=64))
    await gpu.map(admitted, gpu.mapping(event=1, threshold=1))
    await gpu.drained()
    gpu.events.pause = pauses.always()
    tiles, bank = min(4, 1 << t.wf_bits), rng.randrange(t.banks)
    requests = [Request(wg, tiles, starts=0, region=admitted, last_region=admitted)
                for wg in range(bank, safe_window(bench.geometry), t.banks)][:6]
    count = len(requests) * tiles
    updates = [gpu.request(gpu.address_in(0), stored, bank + t.banks * (number % 2)) for number in range(count + 40)]
    gpu.send(updates)
    await gpu.still(50)
    gpu.dispatch.send_all(requests)
    await gpu.still(50)
    gpu.events.pause = now_and_then(rng)
    await bench.until(lambda: len(gpu.events.items) == len(updates) + count, 20_000)
    kinds = [event["region"] for event in gpu.events.items]
    first = kinds.index(admitted)
    assert kinds[first:first + 2 * count - 1] == ([admitted, stored] * count)[:-1]
    assert await gpu.read("COUNT_UPDATES") == len(kinds)


@rounds(2, given=lambda g: g.tracker.banks > 1)
async def every_update_is_counted(bench: Bench) -> None:
    """Block events so that updates of all banks wait, then release them; counted and coalesced add up to all sent."""
    gpu, rng, t = BareGpu(bench), bench.rng, bench.geometry.tracker
    whole, part = rng.sample(range(1, bench.geometry.dma.regions), 2)
    await gpu.map(whole, gpu.mapping(event=1, threshold=64))
    await gpu.map(part, gpu.mapping(event=1, threshold=(1 << t.count_bits) - 1))
    await gpu.drained()
    updates: list[dict] = []
    for number in range(120):
        # Of a channel's updates in a row none completes the same tile as the one before, which it would join.
        bank, channel, region = rng.randrange(t.banks), number // 3 % len(gpu.drams), rng.choice((whole, part))
        wg, size = (bank + t.banks * (1 + number % 3), 64) if region == whole else (bank, 1)
        updates.append(gpu.request(gpu.address_in(channel), region, wg, bytes=size))
    gpu.events.pause = pauses.bursts(rng, 4, 30)
    gpu.send(updates)
    complete = sum(update["region"] == whole for update in updates)
    await bench.until(lambda: len(gpu.events.items) == complete, 20_000)
    await gpu.drained()
    assert await gpu.read("COUNT_UPDATES") + await gpu.read("COUNT_COALESCED") == len(updates)
