"""OrderGuard against its cycle-exact model, with a DRAM that reorders; resets with writes outstanding."""

from t3sim.testbenches.bench import Bench, rounds
from t3sim.testbenches.reference.order_guard import OrderGuardModel, bucket_of


@rounds(8, cover=("blocked", "free", "blocked by the write of this cycle"))
async def random_writes(bench: Bench) -> None:
    """Grant and retire random writes; blocking and room equal the model's in every cycle."""
    rng, g, model = bench.rng, bench.geometry, OrderGuardModel(bench.geometry)
    lines = [rng.getrandbits(g.tracker.address_bits) for _ in range(2 * min(20, g.channel.guard_buckets))]
    query = rng.choice(lines)
    bench.set("following", bucket_of(query, g))
    bench.set("moves", 1)
    for _ in range(g.channel.guard_buckets):
        assert not bench.get("ready")
        await bench.cycle()
    assert bench.get("ready")
    in_flight: list[int] = []  # buckets
    roomy = True  # in the cycle before
    for cycle in range(bench.cut or 400):
        if cycle % 50 == 0:
            write_rate, retire_rate = rng.random(), rng.random()
        address, following, moves = rng.choice(lines), rng.choice(lines), rng.random() < 0.8
        write = rng.random() < write_rate and roomy
        retired = None
        if in_flight and rng.random() < retire_rate:
            retired = in_flight.pop(rng.randrange(len(in_flight)))
        for name, value in (("query", bucket_of(query, g)), ("following", bucket_of(following, g)),
                            ("moves", moves), ("write", write), ("write_address", address),
                            ("retired", retired is not None), ("retired_bucket", retired or 0)):
            bench.set(name, int(value))
        await bench.settle()
        assert bench.get("write_bucket") == bucket_of(address, g)
        blocked = model.blocked(query, address if write else None)
        shown = bench.get("blocked")
        assert shown == blocked, f"cycle {bench.now}: expected blocked {blocked:d}, got {shown}; {query:#x}"
        bench.reach("blocked" if blocked else "free")
        bench.reach("blocked by the write of this cycle", blocked and not model.blocked(query))
        roomy = bool(bench.get("room"))
        assert roomy == model.room(address if write else None)
        await bench.edge()
        model.tick(address if write else None, retired)
        if write:
            in_flight.append(bucket_of(address, g))
        if moves:
            query = following


@rounds(2, cover=("no room",))
async def counters_go_round(bench: Bench) -> None:
    """Give one bucket as many outstanding writes as its counters can tell apart, twice, so that they wrap."""
    g, model = bench.geometry, OrderGuardModel(bench.geometry)
    line = bench.rng.getrandbits(g.tracker.address_bits)
    bucket = bucket_of(line, g)
    for name, value in (("query", bucket), ("write_address", line), ("retired_bucket", bucket)):
        bench.set(name, value)
    await bench.until(lambda: bench.get("ready"), 2 * g.channel.guard_buckets + 2)
    most = (2 << g.channel.occupancy_bits) - 1
    for writes, count in ((1, most), (0, most)) * 2:
        for _ in range(count):
            bench.set("write", writes)
            bench.set("retired", 1 - writes)
            await bench.settle()
            assert bench.get("blocked") == model.blocked(line, line if writes else None)
            assert bench.get("room") == model.room(line if writes else None)
            bench.reach("no room", not bench.get("room"))
            await bench.edge()
            model.tick(line if writes else None, None if writes else bucket)
    bench.set("retired", 0)
    await bench.settle()
    assert not bench.get("blocked")
