"""Numbers in a format that a test of adders draws: each alone, or two whose sum is hard to round."""

import random

from t3sim.rtl.formats import FloatFormat


def element(rng: random.Random, form: FloatFormat) -> int:
    """Draw any bits, a number near 1, one next to a boundary of the format, or a special one; a quarter each.

    Special ones are zero, subnormal, infinite or no number. Boundaries are the least and largest exponents, that of 1,
    and those of a single bit or of all but one.
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
    bit = 1 << rng.randrange(form.exponent_bits)
    boundary = rng.choice((0, 1, top // 2, top - 1, top, bit, top ^ bit))
    beside = rng.choice((-1, 0, 1, 1 << form.fraction_bits - 1, (1 << form.fraction_bits) - 1, fraction))
    return sign | max(0, (boundary << form.fraction_bits) + beside) % (1 << form.width - 1)


def just_below(rng: random.Random, form: FloatFormat, one: int, its: FloatFormat) -> int:
    """Draw a number of which at most the first bits reach the last ones of `one`, with a single one in its fraction.

    What is lost of it decides how a sum half-way between two numbers is rounded. `its`: the format of `one`.
    """
    exponent = (one & (1 << its.width - 1) - 1) >> its.fraction_bits
    below = _in(form, exponent - its.fraction_bits - rng.randint(0, 2), its)
    return rng.getrandbits(1) << form.width - 1 | below << form.fraction_bits | 1 << rng.randrange(form.fraction_bits)


def nearly_opposite(rng: random.Random, form: FloatFormat, one: int, its: FloatFormat) -> int:
    """Draw a number that, added to `one`, leaves few of its bits. `form` has as many bits of fraction or more."""
    exponent = (one & (1 << its.width - 1) - 1) >> its.fraction_bits
    fraction = (one & (1 << its.fraction_bits) - 1) << form.fraction_bits - its.fraction_bits
    differs = rng.getrandbits(rng.randint(0, form.fraction_bits) + 1)
    sign = ~one >> its.width - 1 & 1
    return (sign << form.width - 1 | _in(form, exponent, its) << form.fraction_bits | fraction) ^ differs


def nearly_largest(rng: random.Random, form: FloatFormat) -> int:
    """Draw a number of the largest exponent that finite ones have: two of one sign overflow."""
    exponent = (1 << form.exponent_bits) - 2
    return rng.getrandbits(1) << form.width - 1 | exponent << form.fraction_bits | rng.getrandbits(form.fraction_bits)


def _in(form: FloatFormat, exponent: int, its: FloatFormat) -> int:
    """Return an exponent of another format as that of a normal number."""
    moved = exponent + (1 << form.exponent_bits - 1) - (1 << its.exponent_bits - 1)
    return min(max(moved, 1), (1 << form.exponent_bits) - 2)
