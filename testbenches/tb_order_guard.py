"""OrderGuard against its cycle-exact model, with a DRAM that reorders; resets with writes outstanding."""

from t3sim.reference.order_guard import OrderGuardModel, bucket_of

from .bench import Bench, rounds


@rounds(8, cover=("blocked", "free", "blocked by the write of this cycle"))
async def random_writes(bench: Bench) -> None:
    rng, g, model = bench.rng, bench.geometry, OrderGuardModel(bench.geometry)
    for _ in range(g.channel.guard_buckets):
        assert not bench.get("ready")
        await bench.cycle()
    assert bench.get("ready")
    lines = [rng.getrandbits(g.tracker.address_bits) for _ in range(2 * min(20, g.channel.guard_buckets))]
    in_flight: list[int] = []  # buckets
    for cycle in range(bench.cut or 400):
        if cycle % 50 == 0:
            write_rate, retire_rate = rng.random(), rng.random()
        address, query = rng.choice(lines), rng.choice(lines)
        write = rng.random() < write_rate and len(in_flight) <= g.channel.queue_entries
        retired = None
        if in_flight and rng.random() < retire_rate:
            retired = in_flight.pop(rng.randrange(len(in_flight)))
        for name, value in (("query", bucket_of(query, g)), ("write", write), ("write_address", address),
                            ("retired", retired is not None), ("retired_bucket", retired or 0)):
            bench.set(name, int(value))
        await bench.settle()
        assert bench.get("write_bucket") == bucket_of(address, g)
        blocked = model.blocked(query, address if write else None)
        assert bench.get("blocked") == blocked, f"cycle {bench.now}: {query:#x}"
        bench.reach("blocked" if blocked else "free")
        bench.reach("blocked by the write of this cycle", blocked and not model.blocked(query))
        await bench.edge()
        model.tick(address if write else None, retired)
        if write:
            in_flight.append(bucket_of(address, g))


@rounds(2)
async def counters_go_round(bench: Bench) -> None:
    """Give one bucket as many outstanding writes as its counters can tell apart, twice, so that they wrap around."""
    g, model = bench.geometry, OrderGuardModel(bench.geometry)
    await bench.until(lambda: bench.get("ready"), 2 * g.channel.guard_buckets + 2)
    line = bench.rng.getrandbits(g.tracker.address_bits)
    bucket = bucket_of(line, g)
    for name, value in (("query", bucket), ("write_address", line), ("retired_bucket", bucket)):
        bench.set(name, value)
    most = (2 << g.channel.occupancy_bits) - 1
    for writes, count in ((1, most), (0, most)) * 2:
        for _ in range(count):
            bench.set("write", writes)
            bench.set("retired", 1 - writes)
            await bench.settle()
            assert bench.get("blocked") == model.blocked(line, line if writes else None)
            await bench.edge()
            model.tick(line if writes else None, None if writes else bucket)
    bench.set("retired", 0)
    await bench.settle()
    assert not bench.get("blocked")
