"""MemoryChannel against its scoreboard: order, nothing lost, DMA reads after tracked writes, every policy."""

from t3sim.rtl.registers import NO_THRESHOLD, POLICIES
from t3sim.testbenches.bench import Bench, rounds
from t3sim.testbenches.dram import Dram
from t3sim.testbenches.drivers import StreamDriver
from t3sim.testbenches.monitors import CycleMonitor, StreamMonitor
from t3sim.testbenches.pauses import always, never
from t3sim.testbenches.reference.arbiter import ArbiterModel, Inputs
from t3sim.testbenches.reference.memory_channel import READ, MemoryChannelModel, is_tracked

_ARBITER_INPUTS = ("policy", "threshold", "starvation_limit", "drain", "ring_late", "compute_valid",
                   "communication_valid", "occupancy", "ready")
_SOURCES = {"compute": (0,), "inbound": (1, 2), "dma": (2,)}


def near(bench: Bench, bits: int) -> tuple[int, int, int]:
    """Draw a number of this many bits, one that differs from it in one bit, and any other."""
    one = bench.rng.getrandbits(bits)
    return one, one ^ 1 << bench.rng.randrange(bits), bench.rng.getrandbits(bits)


def traffic(bench: Bench, stream: str, count: int, first: int = 0) -> list[dict]:
    """Draw few lines from address `first` on, so that DMA reads meet writes.

    They come in runs of the same tile, so that accesses merge.
    """
    rng, items = bench.rng, []
    wgs, wfs, regions = (near(bench, bits) for bits in (
        bench.geometry.tracker.wg_bits, bench.geometry.tracker.wf_bits, bench.geometry.dma.region_bits))
    while len(items) < count:
        tile = {"wg": rng.choice(wgs), "wf": rng.choice(wfs), "region": rng.choice((0, *regions))}
        for _ in range(rng.choice((1, 1, 2, 6))):
            reads, size = stream == "dma" or (stream == "compute" and rng.random() < 0.3), rng.choice((4, 32, 64))
            items.append({"address": first + 64 * rng.randrange(24) + rng.randrange(0, 65 - size, 4), "bytes": size,
                          "op": READ if reads else rng.choice((1, 2)), "source": rng.choice(_SOURCES[stream]), **tile,
                          **bench.other_parts()})
    return items[:count]


class Channel:
    """The channel with everything around it; its scoreboard sees each cycle."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.model = bench, MemoryChannelModel(bench.geometry)
        self.accepted: dict[str, dict] = {}
        self.update: dict | None = None
        self.drivers = {name: StreamDriver(bench, name, on_accept=lambda item, n=name: self.accepted.update({n: item}))
                        for name in _SOURCES}
        self.dram = Dram(bench)
        self.updates = StreamMonitor(bench, "updates", lambda item: setattr(self, "update", item))
        self._held = False
        self.merged = 0
        CycleMonitor(bench, self._cycle)

    def configure(self, policy: str) -> None:
        rng = self.bench.rng
        for name, value in (("policy", POLICIES[policy]), ("drain", int(rng.random() < 0.1)),
                            ("ring_late", rng.randrange(2)),
                            ("threshold", rng.choice((0, 3, 10, NO_THRESHOLD))),
                            ("starvation_limit", rng.choice((1, 40)))):
            self.bench.set(name, value)

    def _cycle(self) -> None:
        get = self.bench.get
        shown = get("dram.payload") if get("dram.valid") and not self._held else None
        self._held = bool(get("dram.valid")) and not get("dram.ready")
        self.merged += get("merged")
        for name in ("guard_stall", "merged", "starved"):
            self.bench.reach(name.replace("_", " "), get(name))
        self.bench.reach("full DRAM queue", get("occupancy") == self.bench.geometry.channel.queue_entries)
        self.model.cycle(self.accepted, shown, self.update, self.dram.retired, bool(get("forget")),
                         get("dram.payload")["request"] if get("dram.valid") else None)
        assert get("holds") == self.model.holds
        if get("forget"):
            self.updates.withdrawn()
        self.accepted, self.update = {}, None

    @property
    def idle(self) -> bool:
        return (all(driver.idle for driver in self.drivers.values()) and not any(self.model.queued.values())
                and not self.model.accesses and self.dram.idle and not self.bench.get("busy"))


@rounds(16, cover=(*POLICIES, "guard stall", "merged", "starved", "full DRAM queue"))
async def random_traffic(bench: Bench) -> None:
    """Send three streams at few lines under changing policies; a scoreboard checks every cycle, `busy` and `holds`.

    A sum counts as often as it has parts, in geometries whose updates carry that number.
    """
    channel, policy = Channel(bench), list(POLICIES)[bench.number // 2 % len(POLICIES)]
    channel.configure(policy)
    bench.reach(policy)
    channel.dram.fill = 0 if bench.number % 4 == 2 else 60
    first = bench.rng.getrandbits(bench.geometry.tracker.address_bits - 11) << 11
    sent = {name: traffic(bench, name, 100, first) for name in channel.drivers}
    for name, driver in channel.drivers.items():
        driver.send_all(sent[name])
    for _ in range(bench.rng.randrange(4)):  # the configuration changes while it works
        await bench.cycle(bench.rng.randint(1, 100))
        channel.configure(policy)
    if bench.cut is None:
        bench.set("drain", 1)  # whatever the threshold, everything leaves
    if await bench.run(lambda: channel.idle, 20_000):
        channel.model.check_empty()
        assert channel.model.shown == 300
        tracked = sum(is_tracked(item) for items in sent.values() for item in items)
        assert channel.merged == tracked - len(channel.updates.items)


@rounds(8, cover=("forgotten", "reported"))
async def what_is_forgotten_is_performed_and_not_reported(bench: Bench) -> None:
    """Toggle `forget` under traffic: only updates are missing, and reads stay behind the writes."""
    channel, rng = Channel(bench), bench.rng
    channel.configure(rng.choice(list(POLICIES)))
    sent = {name: traffic(bench, name, 100) for name in channel.drivers}
    for name, driver in channel.drivers.items():
        driver.send_all(sent[name])
    bench.set("drain", 1)
    if bench.cut is None and bench.number // 2 % 2:  # in the other rounds everything is reported
        bench.set("forget", 1)
        await bench.cycle(bench.geometry.channel.guard_buckets + rng.randint(20, 40))
        for _ in range(rng.randrange(6)):
            bench.set("forget", int(rng.random() < 0.5))
            await bench.cycle(rng.choice((1, 2, rng.randint(3, 80))))
    bench.set("forget", 0)
    if await bench.run(lambda: channel.idle, 20_000):
        channel.model.check_empty()
        assert channel.model.shown == 300 and not bench.get("holds")
        written = sum(item["bytes"] * (item.get("more", 0) + 1) for items in sent.values() for item in items
                      if is_tracked(item))
        reported = sum(update["amount"] for update in channel.updates.items)
        bench.reach("forgotten" if reported < written else "reported")


@rounds(4)
async def a_tracked_write_shows_wherever_it_waits(bench: Bench) -> None:
    """Stop DRAM: `holds` is 1 exactly if one of the queued commands is a tracked write."""
    for name in ("compute", "inbound"):
        tracked = bench.rng.randrange(4)
        items = [{"address": 0, "bytes": 64, "op": 1, "source": 0, "region": region, "wf": 0, "wg": 0}
                 for region in (0, tracked & 1, tracked >> 1)]
        driver = StreamDriver(bench, name, never())
        driver.send(items[0])
        await bench.cycle(bench.geometry.channel.guard_buckets + 8)
        driver.send_all(items[1:])
        await bench.cycle(5)
        assert bench.get("holds") == (tracked != 0)
        await bench.reset()


@rounds(4)
async def no_more_is_granted_than_the_guard_can_count(bench: Bench) -> None:
    """Let DRAM retire nothing: tracked writes stop, others go on; each retirement lets one more go."""
    channel, most = Channel(bench), (2 << bench.geometry.channel.occupancy_bits) - 1
    for name in ("dram", "updates"):
        bench.set(f"{name}.ready", 1)
    channel.dram.takes, channel.dram.retires = never(), always()
    stream, other = ("compute", "inbound") if bench.number // 2 % 2 else ("inbound", "compute")
    item = {"address": 0, "bytes": 64, "op": 1, "source": 0, "region": 1, "wf": 0, "wg": 0}
    channel.drivers[stream].send_all([item] * (most + 20))
    await bench.cycle(bench.geometry.channel.guard_buckets + 20 * most + 200)
    assert channel.model.shown == most and bench.get("holds")
    channel.drivers[other].send_all([{**item, "region": 0}] * 10)
    await bench.cycle(400)
    assert channel.model.shown == most + 10
    channel.dram.retires = bench.pause()
    if await bench.run(lambda: channel.idle, 20_000):
        channel.model.check_empty()
        assert channel.model.shown == most + 30


@rounds(16)
async def the_arbiter_decides(bench: Bench) -> None:
    """Send untracked traffic without pauses under every policy; grants equal the arbiter model's per cycle.

    Inbound and DMA alternate.
    """
    rng, arbiter, most = bench.rng, ArbiterModel(), bench.geometry.channel.queue_entries
    streams = (("compute", "inbound"), ("compute", "dma"), ("inbound", "dma"), ("compute", "inbound", "dma"))[
        bench.number // 2 % 4 if bench.geometry.channel.dma_fifo > 1 else 0]  # one place alone is often empty
    for name in streams:
        driver = StreamDriver(bench, name, never())
        driver.send_all(item | {"region": 0} for item in traffic(bench, name, 1000))
    for name in set(_SOURCES) - set(streams):
        StreamDriver(bench, name)
    for _ in range(bench.geometry.channel.guard_buckets):  # the queues fill while the guard is cleared
        await bench.settle()
        assert not bench.get("guard_stall")
        arbiter.step(Inputs(**dict.fromkeys(_ARBITER_INPUTS, 0),
                            communication_waiting=bench.get("communication_waiting")))
        await bench.edge()
    both, last = {"inbound", "dma"} <= set(streams), None
    for cycle in range(bench.cut or 200):
        if cycle % 25 == 0:
            config = {"policy": rng.choice(list(POLICIES.values())),
                      "threshold": rng.choice((rng.randrange(min(most + 2, NO_THRESHOLD)), NO_THRESHOLD)),
                      "starvation_limit": rng.choice((0, 1, 1 << rng.randrange(16))), "drain": rng.getrandbits(1)}
        inputs = config | {"ring_late": rng.getrandbits(1)}
        occupancy = rng.randrange(most + 1)
        for name, value in (*inputs.items(), ("occupancy", occupancy), ("dram.ready", rng.getrandbits(1))):
            bench.set(name, value)
        await bench.settle()
        assert bench.get("communication_waiting") and bench.get("updates.valid") == bench.get("guard_stall") == 0
        command = bench.get("dram.valid")
        decision = arbiter.step(Inputs(**inputs, compute_valid=int("compute" in streams), communication_valid=1,
                                       communication_waiting=1, occupancy=occupancy + command,
                                       ready=int(not command or bench.get("dram.ready"))))
        shown = type(decision)(*(bench.get(name) for name in decision._fields))
        assert shown == decision, f"cycle {bench.now}: expected {decision}, got {shown}; {inputs}"
        if both and command and bench.get("dram.ready"):
            shown = bench.get("dram.payload")
            if shown["communication"]:
                reads = shown["request"]["op"] == READ
                assert reads != last, "inbound and DMA do not take turns"
                last = reads
        await bench.edge()


@rounds(1)
async def every_bit_of_the_limit_counts(bench: Bench) -> None:
    """Fill the DRAM queue for 32,768 cycles: `starved` rises at the limit, not before, for each bit of it."""
    driver = StreamDriver(bench, "inbound", never())
    driver.send_all({**item, "region": 0} for item in traffic(bench, "inbound", 4))
    await bench.until(lambda: bench.get("dram.valid") and bench.get("communication_waiting"),
                      bench.geometry.channel.guard_buckets + 100)
    elapsed = 0
    for bit in range(bench["starvation_limit"].width):
        bench.set("starvation_limit", 1 << bit)
        while elapsed < 1 << bit:  # it stood still at the limit before
            await bench.settle()
            assert not bench.get("starved"), f"{1 << bit} after {elapsed}"
            await bench.cycle()
            elapsed += 1
        await bench.settle()
        assert bench.get("starved"), f"{1 << bit} after {elapsed}"
