"""UpdateNetwork: every update once, at its workgroup's bank, in its channel's order, at full rate and in turn."""

from t3sim.testbenches.bench import Bench, rounds
from t3sim.testbenches.drivers import StreamDriver
from t3sim.testbenches.monitors import CycleMonitor, StreamMonitor, TurnMonitor
from t3sim.testbenches.pauses import never
from t3sim.testbenches.reference.coalescer import Update
from t3sim.testbenches.reference.update_network import UpdateNetworkModel

GROUP = 4  #: channels that share a queue


class Network:
    """The network between its drivers and monitors; the low bits of an update's amount are the channel's number."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.model = bench, UpdateNetworkModel(bench.geometry)
        channels = bench.elements("updates")
        self._channel_bits = max(1, (len(channels) - 1).bit_length())
        CycleMonitor(bench, self._busy)
        self.drivers = [StreamDriver(bench, name, on_accept=lambda item, c=c: self.model.accepted(c, Update(**item)))
                        for c, name in enumerate(channels)]
        self.banks = [StreamMonitor(bench, name, on_item=lambda item, b=b: self._deliver(item, b))
                      for b, name in enumerate(bench.elements("banks"))]
        for first in range(0, len(channels), GROUP):
            TurnMonitor(bench, channels[first:first + GROUP])

    def _busy(self) -> None:
        assert self.bench.get("busy") == bool(self.model.inside)

    def _deliver(self, item: dict, bank: int) -> None:
        assert self.model.delivered(bank, Update(**item)) == item["amount"] % (1 << self._channel_bits)

    def update(self, channel: int, wg: int) -> dict:
        """Draw every other bit at random."""
        rng, g = self.bench.rng, self.bench.geometry
        amount = rng.getrandbits(g.channel.amount_bits) >> self._channel_bits << self._channel_bits | channel
        return {"address": rng.getrandbits(g.tracker.address_bits), "amount": amount, "source": rng.randrange(3),
                "wg": wg, "region": rng.randrange(g.dma.regions), "wf": rng.getrandbits(g.tracker.wf_bits)}

    @property
    def idle(self) -> bool:
        return all(driver.idle for driver in self.drivers) and not self.model.inside


@rounds(6)
async def random_updates(bench: Bench) -> None:
    """Send random updates from every channel; a queue per channel and bank checks place and order."""
    network, t = Network(bench), bench.geometry.tracker
    step = t.banks if bench.rng.random() < 0.3 else 1  # banks: all for one bank
    for c, driver in enumerate(network.drivers):
        driver.send_all(network.update(c, bench.rng.randrange(0, 1 << t.wg_bits, step)) for _ in range(80))
    if await bench.run(lambda: network.idle, 20_000):
        assert sum(len(bank.items) for bank in network.banks) == 80 * len(network.drivers)
        assert all(bench.get(f"{name}.ready") for name in bench.elements("updates")), "ready waits for valid"


@rounds(2)
async def one_update_per_cycle(bench: Bench) -> None:
    """Send one update per cycle from each group of channels, as long as no two groups want one bank."""
    network, t, count = Network(bench), bench.geometry.tracker, 60
    for stream in (*network.drivers, *network.banks):
        stream.pause = never()
    for c, driver in enumerate(network.drivers):
        bank = c // GROUP % t.banks
        driver.send_all(network.update(c, bank + t.banks * bench.rng.getrandbits(t.wg_bits - t.bank_bits))
                        for _ in range(count))
    groups = -(-len(network.drivers) // GROUP)
    sharing = -(-groups // t.banks) * min(GROUP, len(network.drivers))  # channels that want one bank
    if bench.cut is None:
        await bench.until(lambda: network.idle, count * sharing + 4)
