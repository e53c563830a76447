"""WatchDog against its model: what moves often, seldom and never, what waits all the time, at times and never."""

from t3sim.rtl.registers import ERRORS, WAITS, WATCHDOG_LIMIT_BITS, WATCHDOG_PERIOD
from t3sim.testbenches.bench import Bench, rounds
from t3sim.testbenches.reference.watchdog import WatchDogModel


async def run(bench: Bench, cycles: int, limits: tuple[int, ...], moving: float, waiting: float,
              clears: float) -> int:
    """Run a watchdog; return how often it reported.

    `moving`, `waiting` and `clears` are shares of cycles in which something moves, something waits, and it is cleared
    once it has reported. Every limit has its time, if there is enough.
    """
    rng, model, told, shows = bench.rng, WatchDogModel(), 0, 0
    order, each = rng.sample(limits, len(limits)), -(-cycles // len(limits))
    for cycle in range(cycles):
        limit = order[cycle // each]
        inputs = {"limit": limit, "moves": int(rng.random() < moving),
                  "waits": rng.getrandbits(len(WAITS)) if rng.random() < waiting else 0,
                  "clear": int(rng.random() < (clears if shows else clears / 50))}
        for name, value in inputs.items():
            bench.set(name, value)
        await bench.settle()
        asked = bool(bench.get("listens")), bool(bench.get("looks"))
        expected = model.counts(limit)
        assert asked == expected, f"cycle {bench.now}: expected (listens, looks) {expected}, got {asked}; {inputs}"
        error = bench.get("error")
        assert error.pop("code") == ERRORS["watchdog"] and not any(error["details"].values())
        shown = bool(error["valid"]), bench["waited"].pack(bench.get("waited"))
        expected = model.step(**inputs)
        assert shown == expected, f"cycle {bench.now}: expected (error, waited) {expected}, got {shown}; {inputs}"
        told, shows = told + shown[0], shown[1]
        await bench.edge()
    bench.reach("told", told)
    return told


@rounds(16, cover=("told",))
async def random_stillness(bench: Bench) -> None:
    """Vary movement, waiting, limits and clearings at random; compare reports with the model per cycle."""
    rng = bench.rng
    limits = rng.choice(((2, 0, 1), (3, 1), (2,), (4,), (8,)))
    # Periods in which something moves, and such in which nothing does, follow each other in any order.
    await run(bench, bench.cut or 12 * WATCHDOG_PERIOD, limits, rng.choice((0.001, 0.003, 0.003, 0.2)),
              rng.choice((0.5, 0.9, 1)), 0.05)


@rounds(2)
async def long_limits(bench: Bench) -> None:
    """Count past every carry; a limit with only upper bits is neither a small one nor none."""
    one_is_due = bench.number % 2
    limits = (9,) if one_is_due else tuple(1 << bit for bit in range(4, WATCHDOG_LIMIT_BITS))  # twelve: none is due
    told = await run(bench, (14 if one_is_due else len(limits)) * WATCHDOG_PERIOD, limits, 0, 1, 0)
    assert told == one_is_due
