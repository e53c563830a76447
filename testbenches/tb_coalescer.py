"""Coalescer against its cycle-exact model: when an access is accepted, and which update leaves when."""

from t3sim.testbenches.bench import Bench, rounds
from t3sim.testbenches.drivers import StreamDriver
from t3sim.testbenches.monitors import CycleMonitor, StreamMonitor
from t3sim.testbenches.reference.coalescer import CoalescerModel, Update, totals


def accesses(bench, count: int) -> list[dict]:
    """Draw runs of the same key, so that merging, overflow and key changes all happen."""
    rng, items, most = bench.rng, [], (1 << bench.geometry.channel.amount_bits) - 1
    t, key = bench.geometry.tracker, {"wg": 0, "wf": 0, "region": 0}
    while len(items) < count:
        # Another key by one field, often by one bit.
        field, bits = rng.choice((("wg", t.wg_bits), ("wf", t.wf_bits), ("region", bench.geometry.dma.region_bits)))
        if rng.random() < 0.2:  # by several
            key = {"wg": key["wg"] ^ 1, "wf": rng.getrandbits(t.wf_bits), "region": key["region"] ^ 1}
        key = key | {field: rng.choice((key[field] ^ 1 << rng.randrange(bits), rng.getrandbits(bits)))}
        base = rng.getrandbits(t.address_bits)
        for _ in range(rng.choice((1, 2, 5, 60))):
            items.append({"address": base ^ rng.getrandbits(t.address_bits) >> rng.randrange(t.address_bits), **key,
                          "amount": rng.choice((1, 32, 64, rng.randint(1, most), most)), "source": rng.randrange(3)})
    return items


@rounds(8)
async def random_accesses(bench: Bench) -> None:
    """Send random runs of equal and different keys; compare with the model in every cycle."""
    model, items = CoalescerModel(bench.geometry), accesses(bench, 200)
    driver, updates = StreamDriver(bench, "accesses"), StreamMonitor(bench, "updates")

    def compare() -> None:
        taken = None
        if bench.get("accesses.valid") and bench.get("accesses.ready"):
            taken = Update(**bench.get("accesses.payload"))
        assert bench.get("accesses.ready") == model.ready
        assert bench.get("updates.valid") == bool(model.waiting)
        assert bench.get("busy") == (model.held is not None or bool(model.waiting))
        assert bench.get("merged") == model.joins(taken)
        if model.waiting:
            assert bench.get("updates.payload") == model.waiting[0]._asdict()
        model.cycle(taken, bench.get("updates.ready"))

    CycleMonitor(bench, compare)
    driver.send_all(items)
    if await bench.run(lambda: driver.idle and model.held is None and not model.waiting, 20_000):
        assert totals(Update(**item) for item in updates.items) == totals(Update(**item) for item in items)
        assert len(updates.items) < len(items), "nothing was merged"
