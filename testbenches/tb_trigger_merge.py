"""TriggerMerge: every trigger once, each bank's in its order, at full rate and in turn."""

from t3sim.testbenches.bench import Bench, rounds
from t3sim.testbenches.drivers import StreamDriver
from t3sim.testbenches.monitors import CycleMonitor, StreamMonitor, TurnMonitor
from t3sim.testbenches.pauses import never
from t3sim.testbenches.reference.trigger_merge import MergeModel


class Merge:
    """The block between its drivers and monitor; the low bits of a trigger's address are the bank's number."""

    def __init__(self, bench: Bench) -> None:
        self.names = bench.elements("triggers")
        self.model, self._bench = MergeModel(len(self.names)), bench
        self.drivers = [StreamDriver(bench, name, on_accept=lambda item, b=b: self.model.accepted(b, item))
                        for b, name in enumerate(self.names)]
        self.merged = StreamMonitor(bench, "merged", on_item=self._deliver)
        TurnMonitor(bench, self.names)
        self._following = 0  #: as it was said a cycle ago
        CycleMonitor(bench, self._look)

    def _look(self) -> None:
        if self._bench.get("merged.valid"):
            assert self._bench.get("merged.payload")["wg"] == self._following
        self._following = self._bench.get("following")

    def _deliver(self, item: dict) -> None:
        assert self.model.delivered(item) == item["address"] % len(self.names)

    def send(self, count: int) -> None:
        """Send to every bank, every other bit at random."""
        rng, g = self._bench.rng, self._bench.geometry
        addresses = (1 << g.tracker.address_bits) // len(self.names)
        for bank, driver in enumerate(self.drivers):
            driver.send_all({"address": rng.randrange(addresses) * len(self.names) + bank,
                             "region": rng.randrange(g.dma.regions), "wf": rng.getrandbits(g.tracker.wf_bits),
                             "wg": rng.getrandbits(g.tracker.wg_bits)} for _ in range(count))

    @property
    def idle(self) -> bool:
        return all(driver.idle for driver in self.drivers) and not self.model.waiting


@rounds(8)
async def random_triggers(bench: Bench) -> None:
    """Send triggers from 1 to 8 banks; a queue per bank checks each, and its workgroup a cycle ahead."""
    merge = Merge(bench)
    merge.send(100)
    if await bench.run(lambda: merge.idle, 20_000):
        assert len(merge.merged.items) == 100 * len(merge.names)
        assert all(bench.get(f"{name}.ready") for name in merge.names), "ready waits for valid"


@rounds(2)
async def one_trigger_per_cycle(bench: Bench) -> None:
    """Keep all banks full: one trigger leaves per cycle, from the banks in turn."""
    merge = Merge(bench)
    for stream in (*merge.drivers, merge.merged):
        stream.pause = never()
    merge.send(60)
    if bench.cut is None:
        await bench.until(lambda: merge.idle, 60 * len(merge.names) + 2)
