"""MemoryChannel against its scoreboard: order, nothing lost, DMA reads behind tracked writes, every policy."""

from rtl.registers import NO_THRESHOLD, POLICIES
from sim_models.reference.memory_channel import READ, MemoryChannelModel

from .bench import Bench, rounds
from .dram import Dram
from .drivers import StreamDriver
from .monitors import CycleMonitor, StreamMonitor

_SOURCES = {"compute": (0,), "inbound": (1, 2), "dma": (2,)}


def traffic(bench: Bench, stream: str, count: int) -> list[dict]:
    """Few lines, so that DMA reads meet writes; runs of the same tile, so that accesses merge."""
    rng, items = bench.rng, []
    while len(items) < count:
        tile = {"wg": rng.randrange(4), "wf": rng.randrange(2), "region": rng.randrange(3)}
        for _ in range(rng.choice((1, 1, 2, 6))):
            reads = stream == "dma" or (stream == "compute" and rng.random() < 0.3)
            items.append({"address": 64 * rng.randrange(24), "bytes": rng.choice((4, 32, 64)),
                          "op": READ if reads else rng.choice((1, 2)), "source": rng.choice(_SOURCES[stream]), **tile})
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
        CycleMonitor(bench, self._cycle)

    def configure(self, policy: str) -> None:
        rng = self.bench.rng
        for name, value in (("policy", POLICIES[policy]), ("drain", int(rng.random() < 0.1)),
                            ("ring_late", rng.randrange(2)),
                            ("threshold", rng.choice((0, 3, 10, NO_THRESHOLD))), ("starvation_limit", 40)):
            self.bench.set(name, value)

    def _cycle(self) -> None:
        get = self.bench.get
        shown = get("dram.payload") if get("dram.valid") and not self._held else None
        self._held = bool(get("dram.valid")) and not get("dram.ready")
        for name in ("guard_stall", "merged", "starved"):
            self.bench.reach(name.replace("_", " "), get(name))
        self.bench.reach("full DRAM queue", get("occupancy") == self.bench.geometry.channel.queue_entries)
        self.model.cycle(self.accepted, shown, self.update, self.dram.retired)
        self.accepted, self.update = {}, None

    @property
    def idle(self) -> bool:
        return (all(driver.idle for driver in self.drivers.values()) and not any(self.model.queued.values())
                and not self.model.accesses and self.dram.idle and not self.bench.get("busy"))


@rounds(12, cover=(*POLICIES, "guard stall", "merged", "starved", "full DRAM queue"))
async def random_traffic(bench: Bench) -> None:
    channel, policy = Channel(bench), list(POLICIES)[bench.number // 2 % len(POLICIES)]
    channel.configure(policy)
    bench.reach(policy)
    channel.dram.fill = bench.number == 0
    for name, driver in channel.drivers.items():
        driver.send_all(traffic(bench, name, 100))
    for _ in range(bench.rng.randrange(4)):  # the configuration changes while it works
        await bench.cycle(bench.rng.randint(1, 100))
        channel.configure(policy)
    if bench.cut is None:
        bench.set("drain", 1)  # whatever the threshold, everything leaves
    if await bench.run(lambda: channel.idle, 20_000):
        channel.model.check_empty()
        assert channel.model.shown == 300
