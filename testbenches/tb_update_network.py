"""UpdateNetwork: every update once, at its workgroup's bank, in its channel's order."""

from sim_models.reference.coalescer import Update
from sim_models.reference.update_network import UpdateNetworkModel

from .bench import Bench, rounds
from .drivers import StreamDriver
from .monitors import StreamMonitor


@rounds(6)
async def random_updates(bench: Bench) -> None:
    model, channels = UpdateNetworkModel(bench.geometry), bench.elements("updates")
    drivers = [StreamDriver(bench, name, on_accept=lambda item, c=c: model.accepted(c, Update(**item)))
               for c, name in enumerate(channels)]

    def deliver(item: dict, bank: int) -> None:
        assert model.delivered(bank, Update(**item)) == item["amount"] - 1  # the channel it came from

    banks = [StreamMonitor(bench, name, on_item=lambda item, b=b: deliver(item, b))
             for b, name in enumerate(bench.elements("banks"))]
    t = bench.geometry.tracker
    step = t.banks if bench.rng.random() < 0.3 else 1  # banks: all for one bank
    for c, driver in enumerate(drivers):
        for n in range(80):
            wg = bench.rng.randrange(0, 1 << t.wg_bits, step)
            driver.send({"address": n, "amount": c + 1, "source": n % 3, "wg": wg,
                         "region": n % bench.geometry.dma.regions, "wf": n % (1 << t.wf_bits)})
    if await bench.run(lambda: all(driver.idle for driver in drivers) and not model.inside, 20_000):
        assert sum(len(bank.items) for bank in banks) == 80 * len(channels)
        assert not bench.get("busy")
