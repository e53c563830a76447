"""WideAlu against its exact model: columns of every sum, drains and scales, and sums that the block does not have."""

import random

from t3sim.rtl.formats import BF16, FIXED, FP16, FP32, PLAIN_SUMS, SUMS, FloatFormat, Sum
from t3sim.testbenches.bench import Bench, rounds
from t3sim.testbenches.drivers import StreamDriver
from t3sim.testbenches.floats import element, just_below, nearly_largest, nearly_opposite
from t3sim.testbenches.monitors import StreamMonitor
from t3sim.testbenches.reference.wide_alu import Alu, Operands, WideOp
from t3sim.testbenches.scoreboard import Scoreboard


def sum_of_few_bits(rng: random.Random, scale: int) -> int:
    """Draw a sum in fp32 that elements of 8 bits over a scale, e8m0, have about the range for."""
    exponent = min(max(scale + rng.randint(-20, 18), 0), 254)
    fraction = rng.choice((rng.getrandbits(23) >> rng.randrange(23), rng.getrandbits(3) << 20))
    return rng.getrandbits(1) << 31 | exponent << 23 | fraction


def fixed_number(rng: random.Random) -> int:
    """Draw a fixed point of any size, or one half-way between two that leave, or beside that."""
    if rng.random() < 0.5:
        return rng.getrandbits(32) >> rng.randrange(32)
    kept = rng.choice((BF16, FP16)).precision
    further = rng.randrange(32 - kept)
    return (1 << kept | rng.getrandbits(kept)) << further | rng.getrandbits(1) << rng.randrange(further + 1)


def half_a_unit(rng: random.Random, form: FloatFormat, scale: int) -> int:
    """Draw a number that is half-way between two of a fixed point, or a single bit beside that."""
    far = rng.randint(2, 25)  # the fixed point has a bit more than fp32
    size = (1 << 23 | rng.getrandbits(23)) >> far - 1 << far - 1 | 1 << far - 2
    size |= rng.getrandbits(1) << rng.randrange(far - 1)
    sign, exponent = rng.getrandbits(1) << form.width - 1, min(max(scale - far, 1), 254)
    return sign | exponent << form.fraction_bits | (size & (1 << 23) - 1) >> 23 - form.fraction_bits


def both(rng: random.Random, one: Sum, scale: int) -> tuple[int, int]:
    """Draw what memory holds of a sum, and what arrives."""
    new, form = element(rng, one.arrives), one.total
    if form is FIXED:
        return fixed_number(rng), half_a_unit(rng, one.arrives, scale) if rng.random() < 0.3 else new
    held, kind = element(rng, form), rng.random()
    if kind > 0.8:
        new = just_below(rng, one.arrives, held, form)
    elif kind < 0.2:
        held = nearly_opposite(rng, form, new, one.arrives)
    elif kind < 0.3:
        held, new = (nearly_largest(rng, each) for each in (form, one.arrives))
    return held, new


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
    """Drain subnormal sums with each bit set, over the smallest scales; compare with the exact model."""
    sent, results = operands(bench)
    for number, one in enumerate(SUMS):
        for bit in range(24 if one.narrows else 0):
            for scale in range(6):
                sent.send({"old": 1 << bit, "new": 0, "op": int(WideOp.DRAIN), "sum": number, "scale": scale,
                           "narrow": 1, "saturate": 0})
    await bench.run(lambda: sent.idle and results.empty, 20_000)


@rounds(1)
async def ties_of_a_fixed_point(bench: Bench) -> None:
    """Drain numbers half-way between two of bf16 or fp16, or one bit beside that, of every size."""
    sent, results = operands(bench)
    every = (1 << bench["result.payload"].width) - 1
    halves = [(1 << kept | bench.rng.getrandbits(kept) | 1) << further | (1 << low if low < further else 0)
              for kept in (BF16.precision, FP16.precision) for further in range(1, 32 - kept)
              for low in range(further + 1)]
    for number, one in enumerate(SUMS):
        for old, other in zip(halves, halves[1:]) if one.total is FIXED else ():
            sent.send({"old": (old | other << 32) & every, "new": 0, "op": int(WideOp.DRAIN), "sum": number,
                       "scale": 127, "narrow": 0, "saturate": 0})
    await bench.run(lambda: sent.idle and results.empty, 40_000)


@rounds(1)
async def every_number_of_8_bits(bench: Bench) -> None:
    """Add every 8-bit number over a scale of 1 and a small one; compare with the exact model."""
    sent, results = operands(bench)
    every = (1 << bench["result.payload"].width) - 1
    for number, one in enumerate(SUMS):
        for new in range(0, 256, 2) if one.arrives.width == 8 else ():
            for scale in (127, bench.rng.randrange(21)):
                sent.send({"old": 0, "new": (new | new + 1 << 8) & every, "op": int(WideOp.ADD), "sum": number,
                           "scale": scale << FP32.fraction_bits if one.by_fp32 else scale, "narrow": 0, "saturate": 0})
    await bench.run(lambda: sent.idle and results.empty, 40_000)


@rounds(20)
async def random_sums(bench: Bench) -> None:
    """Draw numbers at the boundaries of their formats, any bits and scales, for every sum; compare with the model."""
    bits = bench["result.payload"].width
    sent, results = operands(bench)
    for _ in range(500):
        number = bench.rng.randrange(16 if bench.rng.random() < 0.1 else len(SUMS))
        one = SUMS[number] if number < len(SUMS) else SUMS[0]
        width = 32 if one.total is FIXED else one.total.width
        scale = bench.rng.getrandbits(8) if bench.rng.random() < 0.5 else bench.rng.choice((
            bench.rng.randint(0, 20), 255, bench.rng.randint(120, 150)))
        if one.by_fp32:
            scale = element(bench.rng, FP32)
        old = new = 0
        alone = bench.rng.random() < 0.2  # what arrives is the sum, however small
        for place in range(bits // width):
            held, arrives = both(bench.rng, one, scale)
            if one.narrows and bench.rng.random() < 0.5:
                held = sum_of_few_bits(bench.rng, scale if one.scaled else 127)
            elif alone:
                held = 0
            old |= held << place * width
            new |= arrives << place * one.arrives.width
        op = bench.rng.choice(list(WideOp)) if bench.rng.random() < 0.4 else WideOp.ADD
        if (one.narrows or one.total is FIXED) and bench.rng.random() < 0.4:
            op = WideOp.DRAIN
        sent.send({"old": old, "new": new, "op": int(op), "sum": number, "scale": scale,
                   "narrow": bench.rng.getrandbits(1), "saturate": bench.rng.getrandbits(1)})
    await bench.run(lambda: sent.idle and results.empty, 20_000)
