"""Formats of 8, 16 and 32 bits against ml_dtypes: every pattern, every rounding of a bf16, and what is too large."""

import ml_dtypes
import numpy as np
import pytest

from t3sim.machine.formats import BF16, E4M3, E5M2, FORMATS, FP16, FP32, RANDOM_BITS, lfsr, scaled, unscaled
from t3sim.rtl import formats

THEIRS = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "bf16": ml_dtypes.bfloat16,
          "fp16": np.float16}
#: Every number that bf16 has: all exponents, and ties of formats with fewer bits.
ALL_BF16 = (np.arange(1 << 16, dtype=np.uint32) << 16).view(np.float32)


def drawn(count: int = 100_000) -> np.ndarray:
    """Numbers of all sizes, and neighbours of ties."""
    random = np.random.default_rng(1)
    any_bits = random.integers(0, 1 << 32, count, np.uint32).view(np.float32)
    with np.errstate(invalid="ignore"):  # there are NaNs
        beside = np.nextafter(ALL_BF16, np.float32(np.inf))
    return np.concatenate([ALL_BF16, any_bits, beside, random.standard_normal(count).astype(np.float32)])


@pytest.mark.parametrize("number", [E4M3, E5M2, BF16, FP16], ids=lambda number: number.name)
def test_every_pattern_is_the_standard_s_number(number):
    bits = np.arange(1 << 8 * number.bytes).astype(number.bits)
    theirs = bits.view(THEIRS[number.name]).astype(np.float32)
    assert np.array_equal(number.value(bits), theirs, equal_nan=True)
    assert (np.signbit(number.value(bits)) == np.signbit(theirs))[~np.isnan(theirs)].all()


@pytest.mark.parametrize("number", [E4M3, E5M2, BF16, FP16], ids=lambda number: number.name)
def test_rounding_is_to_nearest_even(number):
    values = drawn()
    with np.errstate(all="ignore"):
        theirs = values.astype(THEIRS[number.name]).view(number.bits)
    ours, none = number.rounded(values), np.isnan(number.value(theirs))
    assert (ours == theirs)[~none].all() and (ours == number.quiet_nan)[none].all() and none.any()


@pytest.mark.parametrize("number", [BF16, FP16, FP32], ids=lambda number: number.name)
def test_one_rule_for_all_formats_rounds_as_numpy_does(number):
    values = drawn()
    assert (number.cut(values) == number.rounded(values)).all()


@pytest.mark.parametrize(("number", "over", "saturated"), [(E4M3, [0x7F, 0x7F], 0x7E), (E5M2, [0x7C, 0xFC], 0x7B)],
                         ids=["e4m3", "e5m2"])
def test_what_is_too_large(number, over, saturated):
    """OCP: overflow gives infinity, or NaN where there is none; saturating, the largest number, of infinity, too."""
    values = np.array([1e9, -1e9, np.inf, -np.inf, np.nan])
    assert number.cut(values).tolist() == [*over, *over, number.quiet_nan]
    assert number.saturating().cut(values).tolist() == [
        saturated, saturated | 0x80, saturated, saturated | 0x80, number.quiet_nan]


@pytest.mark.parametrize("number", [E4M3, E5M2, *FORMATS.values()], ids=lambda number: number.name)
def test_stochastic_rounding_goes_up_as_often_as_what_is_cut_off_says(number):
    one = number.cut(np.array(1.0))
    below, above = (float(number.value(np.array([one + step], number.bits))[0]) for step in (0, 1))
    every = np.arange(1 << RANDOM_BITS)
    for eighths in range(8):
        value = np.full(every.shape, below + (above - below) * eighths / 8)
        up = number.cut(-value, every) == (one + 1 | number.negative_zero)
        assert up.mean() == eighths / 8


def test_the_random_register_has_every_number_but_zero():
    state, seen = np.array([1]), set()
    for _ in range((1 << 16) - 1):
        seen.add(int(state[0]))
        state = lfsr(state)
    assert len(seen) == (1 << 16) - 1 and 0 not in seen and state[0] == 1


@pytest.mark.parametrize("number", [E4M3, E5M2], ids=lambda number: number.name)
@pytest.mark.parametrize("block", [32, 128])
def test_blocks_use_the_format_s_whole_range(number, block):
    values = np.random.default_rng(2).standard_normal((4, 256)) * np.logspace(-30, 30, 256)
    values[0, :block] = 0
    bits, scales = scaled(number, values, block)
    back = unscaled(number, bits, scales)
    assert bits.shape == back.shape == values.shape and scales.shape == (4, 256 // block)
    assert not back[0, :block].any()
    tops = np.abs(values.reshape(4, -1, block)).max(axis=-1)
    errors = np.abs(back - values).reshape(4, -1, block).max(axis=-1)
    # The largest of a block has the format's last power of two, or is cut at the largest number there.
    assert (errors <= tops / 4).all() and (np.abs(back).reshape(4, -1, block).max(axis=-1) >= 0.75 * tops).all()


def test_a_scale_that_is_no_number_leaves_its_block_without_one():
    assert np.isnan(unscaled(E4M3, np.full(64, 0x38, np.uint8), np.array([255, 127], np.uint8))).tolist() == (
        [True] * 32 + [False] * 32)


def test_a_small_number_of_a_block_is_what_the_format_makes_of_it():
    """E8m0 over e4m3: 448 and 2**-9 in one block, as the format has them."""
    bits, scales = scaled(E4M3, np.array([448.0, 2.0**-9, 2.0**-11] + [0.0] * 29), 32)
    assert scales.tolist() == [127] and bits[:3].tolist() == [0x7E, 1, 0]


def test_the_hardware_steps_its_random_bits_as_the_models_do():
    """Sixteen steps at once."""
    states = np.arange(1, 1 << 16)
    stepped = states
    for _ in range(formats.RANDOM_BITS):
        stepped = lfsr(stepped)
    assert [formats.random_steps(int(state)) for state in states[::97]] == stepped[::97].tolist()


def test_no_two_registers_of_random_bits_are_near_each_other():
    """Columns of 32 and 64 bytes, one channel or the most: distances in columns."""
    place, state = {}, 1
    for column in range((1 << 16) - 1):
        place[state], state = column, formats.random_steps(state)
    for registers, apart in ((16, 1413), (32, 1413), (32 * 8, 74), (16 * 80, 31), (32 * 128, 12)):
        at = sorted(place[formats.random_seed(number)] for number in range(registers))
        assert min(after - before for before, after in zip(at, [*at[1:], at[0] + len(place)])) >= apart, registers
