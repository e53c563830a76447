"""WideAlu against its exact model: columns of every sum, drains and scales, and sums that the block does not have."""

import random

from t3sim.reference.wide_alu import Alu, Operands, WideOp
from t3sim.rtl.formats import FIXED, FP32, PLAIN_SUMS, SUMS, FloatFormat

from .bench import Bench, rounds
from .drivers import StreamDriver
from .monitors import StreamMonitor
from .scoreboard import Scoreboard


def element(rng: random.Random, form: FloatFormat) -> int:
    """Draw any bits, a number near 1, one beside zero, the largest exponent or a tie of fewer bits, or a special one.

    Special ones are zero, subnormal, infinite or no number.
    """
    sign, fraction = rng.getrandbits(1) << form.width - 1, rng.getrandbits(form.fraction_bits)
    top = (1 << form.exponent_bits) - 1
    kind = rng.randrange(4)
    if kind == 0:
        return rng.getrandbits(form.width)
    if kind == 1:
        return sign | (top // 2 - rng.randrange(4)) << form.fraction_bits | fraction
    if kind == 2:
        small = fraction >> rng.randrange(form.fraction_bits)
        return sign | rng.choice((0, small, top << form.fraction_bits, top << form.fraction_bits | fraction))
    ends = rng.choice((0, 1, top - 1, top)) << form.fraction_bits
    return sign | ends | rng.choice((0, 1, fraction, (1 << form.fraction_bits) - 1, 1 << form.fraction_bits - 1))


def sum_of_few_bits(rng: random.Random, scale: int) -> int:
    """Draw a sum in fp32 that elements of 8 bits over a scale, e8m0, have about the range for."""
    exponent = min(max(scale + rng.randint(-20, 18), 0), 254)
    fraction = rng.choice((rng.getrandbits(23) >> rng.randrange(23), rng.getrandbits(3) << 20))
    return rng.getrandbits(1) << 31 | exponent << 23 | fraction


def operands(bench: Bench) -> tuple[StreamDriver, Scoreboard]:
    """Return who sends columns, and who compares what leaves with the model."""
    bits = bench["result.payload"].width
    names = [one.name for one in bench.geometry.channel.wide_sums] or [
        one.name for one in SUMS if one not in PLAIN_SUMS]
    results, model = Scoreboard("results"), Alu(tuple(names), bits // 8)
    driver = StreamDriver(bench, "operands", on_accept=lambda item: results.expect(
        {"column": model.combine(Operands(**item | {"op": WideOp(item["op"])}))}))
    StreamMonitor(bench, "result", results.check)
    return driver, results


@rounds(1)
async def smallest_sums_in_8_bits(bench: Bench) -> None:
    """Each bit of a subnormal sum, over the smallest scales, which make a number of it."""
    sent, results = operands(bench)
    for number, one in enumerate(SUMS):
        for bit in range(24 if one.narrows else 0):
            for scale in range(6):
                sent.send({"old": 1 << bit, "new": 0, "op": int(WideOp.DRAIN), "sum": number, "scale": scale,
                           "narrow": 1, "saturate": 0})
    await bench.run(lambda: sent.idle and results.empty, 20_000)


@rounds(10)
async def random_sums(bench: Bench) -> None:
    bits = bench["result.payload"].width
    sent, results = operands(bench)
    for _ in range(500):
        number = bench.rng.randrange(16 if bench.rng.random() < 0.1 else len(SUMS))
        one = SUMS[number] if number < len(SUMS) else SUMS[0]
        width = 32 if one.total is FIXED else one.total.width
        scale = bench.rng.getrandbits(8) if bench.rng.random() < 0.5 else bench.rng.choice((
            bench.rng.randint(0, 4), 255, bench.rng.randint(120, 150)))
        if one.by_fp32:
            scale = element(bench.rng, FP32)
        old = new = 0
        alone = bench.rng.random() < 0.2  # what arrives is the sum, however small
        for place in range(bits // width):
            size = bench.rng.getrandbits(32) >> bench.rng.randrange(32)
            held = size if one.total is FIXED else element(bench.rng, one.total)
            if one.narrows and bench.rng.random() < 0.5:
                held = sum_of_few_bits(bench.rng, scale if one.scaled else 127)
            elif alone:
                held = 0
            old |= held << place * width
            new |= element(bench.rng, one.arrives) << place * one.arrives.width
        op = bench.rng.choice(list(WideOp)) if bench.rng.random() < 0.4 else WideOp.ADD
        if one.narrows and bench.rng.random() < 0.4:
            op = WideOp.DRAIN
        sent.send({"old": old, "new": new, "op": int(op), "sum": number, "scale": scale,
                   "narrow": bench.rng.getrandbits(1), "saturate": bench.rng.getrandbits(1)})
    await bench.run(lambda: sent.idle and results.empty, 20_000)
