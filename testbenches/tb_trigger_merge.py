"""TriggerMerge: every trigger once, each bank's in its order."""

from sim_models.reference.trigger_merge import MergeModel

from .bench import Bench, rounds
from .drivers import StreamDriver
from .monitors import StreamMonitor


@rounds(8)
async def random_triggers(bench: Bench) -> None:
    names = bench.elements("triggers")
    model, t = MergeModel(len(names)), bench.geometry.tracker
    drivers = [StreamDriver(bench, name, on_accept=lambda item, b=b: model.accepted(b, item))
               for b, name in enumerate(names)]

    def deliver(item: dict) -> None:
        assert model.delivered(item) == item["address"] % len(names)

    merged = StreamMonitor(bench, "merged", on_item=deliver)
    for bank, driver in enumerate(drivers):
        driver.send_all({"address": n * len(names) + bank, "region": n % bench.geometry.dma.regions,
                         "wf": n % (1 << t.wf_bits), "wg": bench.rng.getrandbits(t.wg_bits)} for n in range(100))
    if await bench.run(lambda: all(driver.idle for driver in drivers) and not model.waiting, 20_000):
        assert len(merged.items) == 100 * len(names)
