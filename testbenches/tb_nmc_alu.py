"""NmcAlu against its exact model: columns of all formats, around every exponent and at the formats' corners."""

import random

from t3sim.reference.nmc_alu import FORMATS, AluDtype, AluOp, Operands, combine, width

from .bench import Bench, rounds
from .drivers import StreamDriver
from .monitors import StreamMonitor
from .scoreboard import Scoreboard


def element(rng: random.Random, dtype: AluDtype) -> int:
    """Draw any bits, a number near 1, one next to a boundary of the format, or a special one; a quarter each.

    Special ones are zero, subnormal, infinite or no number.
    """
    exponent_bits, fraction_bits = FORMATS[dtype]
    sign, fraction = rng.getrandbits(1) << (width(dtype) - 1), rng.getrandbits(fraction_bits)
    top = (1 << exponent_bits) - 1
    kind = rng.randrange(4)
    if kind == 0:
        return rng.getrandbits(width(dtype))
    if kind == 1:
        return sign | (top // 2 - rng.randrange(4)) << fraction_bits | fraction
    if kind == 2:
        return sign | rng.choice((0, fraction, top << fraction_bits, top << fraction_bits | fraction))
    boundary = rng.choice((0, 1, top // 2, top - 1, top)) << fraction_bits
    return sign | max(0, boundary + rng.choice((-1, 0, 1, (1 << fraction_bits) - 1)) % (1 << width(dtype) - 1))


def just_below(rng: random.Random, dtype: AluDtype, one: int) -> int:
    """Draw a number of which at most the first bits reach the last ones of `one`, with a single one in its fraction.

    What is lost of it decides how a sum half-way between two numbers is rounded.
    """
    _, fraction_bits = FORMATS[dtype]
    exponent = (one & (1 << width(dtype) - 1) - 1) >> fraction_bits
    below = max(1, exponent - fraction_bits - rng.randint(0, 2))
    sign = one ^ rng.getrandbits(1) << width(dtype) - 1
    return sign >> width(dtype) - 1 << width(dtype) - 1 | below << fraction_bits | 1 << rng.randrange(fraction_bits)


@rounds(10)
async def random_columns(bench: Bench) -> None:
    bits = bench["result.payload"].width
    results = Scoreboard("results")
    operands = StreamDriver(bench, "operands", on_accept=lambda item: results.expect(
        {"column": combine(Operands(item["old"], item["new"], AluOp(item["op"]), AluDtype(item["dtype"])),
                           bits // 8)}))
    StreamMonitor(bench, "result", results.check)
    for _ in range(1000):
        dtype = bench.rng.choice(list(AluDtype))
        old = new = 0
        for at in range(0, bits, width(dtype)):
            one, other = element(bench.rng, dtype), element(bench.rng, dtype)
            kind = bench.rng.random()
            if kind > 0.8:
                other = just_below(bench.rng, dtype, one)
            elif kind < 0.25:  # nearly the opposite: some of the leading bits cancel
                cancel = bench.rng.randint(0, FORMATS[dtype][1])
                other = one ^ 1 << width(dtype) - 1 ^ bench.rng.getrandbits(cancel + 1)
            old, new = old | one << at, new | other << at
        op = bench.rng.choice(list(AluOp)) if bench.rng.random() < 0.3 else AluOp.ADD
        operands.send({"old": old, "new": new, "op": int(op), "dtype": int(dtype)})
    await bench.run(lambda: operands.idle and results.empty, 20_000)
