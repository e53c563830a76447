"""The wide near-memory ALU against its exact model and ml_dtypes: all 8-bit numbers and scales, and every sum."""

import random
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from t3sim.cosim.component import build_component
from t3sim.machine.formats import E4M3, E5M2
from t3sim.rtl.channel import wide_alu
from t3sim.rtl.channel.fp_adder import FpAdder
from t3sim.rtl.channel.wide_alu import WideAlu
from t3sim.rtl.formats import FIXED, FIXED_NONE, FIXED_SCALES, NUMBERS, PLAIN_SUMS, SUMS
from t3sim.rtl.geometry import ChannelGeometry, Geometry, GeometryError
from t3sim.rtlsim.simulator import Simulator
from t3sim.testbenches.reference.wide_alu import Alu, Operands, WideOp
from tests.support.stream_bench import StreamBench, once
from tests.support.tiers import on_one

pytestmark = pytest.mark.builds_rtl

WIDE = tuple(one.name for one in SUMS if one not in PLAIN_SUMS)
ALL = Geometry(channel=ChannelGeometry(sums="+".join(WIDE)))
BYTES = 8
LATENCY = WideAlu(ALL, BYTES).latency
#: Of each format, numbers at all its boundaries; fp32's also stand for a fixed point.
SPECIAL = {8: range(256), 16: (0, 1, 0x7F, 0x80, 0x3F80, 0x3F81, 0x4000, 0x7F7F, 0x7F80, 0x7F81, 0x3C00, 0x7BFF,
                               0x7C00, 0x03FF, 0x0400), 32: (
    0, 1, 0x7FFFFF, 0x800000, 0x3F800000, 0x3F800001, 0x3F7FFFFF, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000,
    0x3F808000, 0x3F818000, 0x38800000, 0x387FFFFF, 0x33000000, 0x33000001, 0x477FE000, 0x477FEFFF, 0x477FF000)}


def element(rng: random.Random, width: int) -> int:
    kind = rng.random()
    if kind < 0.4:
        return rng.choice(SPECIAL[width]) | rng.getrandbits(1) << width - 1
    if kind < 0.7 or width == 8:
        return rng.getrandbits(width)
    fraction = {16: 7, 32: 23}[width]
    return rng.getrandbits(1) << width - 1 | rng.randint(100, 140) << fraction | rng.getrandbits(fraction)


def column(rng: random.Random, width: int, count: int) -> int:
    return sum(element(rng, width) << place * width for place in range(count))


def drawn(rng: random.Random, names=(*(one.name for one in PLAIN_SUMS), *WIDE), add: float = 0.6) -> Operands:
    one = SUMS[NUMBERS[rng.choice(names)]]
    total = 32 if one.total is FIXED else one.total.width
    count = 8 * BYTES // total
    old = column(rng, total, count)
    if one.total is FIXED and rng.random() < 0.7:
        old = sum((rng.randint(-1 << rng.randint(0, 31), 1 << rng.randint(0, 31)) & 0xFFFF_FFFF) << 32 * place
                  for place in range(count))
    new = column(rng, one.arrives.width, count)
    op = WideOp.ADD if rng.random() < add else rng.choice(list(WideOp))
    scale = rng.choice((0, 1, 24, 25, 127, 128, 248, 249, 254, 255, rng.getrandbits(8), rng.randint(100, 150)))
    if one.by_fp32:
        scale = element(rng, 32)
    return Operands(old, new, op, NUMBERS[one.name], scale, rng.getrandbits(1), rng.getrandbits(1))


def run(items, alu=WideAlu, idle: float = 0.0, seed: int = 0, geometry=ALL) -> list[int]:
    dut = once(alu, geometry, BYTES)
    bench = StreamBench(dut, seed=seed)
    bench.source(dut.operands, [item._asdict() for item in items], idle=idle)
    taken = bench.sink(dut.result, idle=idle)
    bench.run(until=lambda: len(taken) >= len(items), cycles=20 * len(items) + 100, settle=10)
    return [item["column"] for item in taken]


def check(items, names=WIDE, channel: int = 0, **options) -> None:
    model = Alu(names, BYTES, channel)
    for item, got in zip(items, run(items, **options), strict=True):
        expected = model.combine(item)
        assert got == expected, (f"{SUMS[item.sum].name if item.sum < len(SUMS) else item.sum} {WideOp(item.op).name} "
                                 f"{item.old:#x}, {item.new:#x}, scale {item.scale:#x}, narrow {item.narrow}, "
                                 f"saturate {item.saturate}: expected {expected:#x}, got {got:#x}")


def test_operations_are_the_models():
    """Names and codes are equal."""
    assert {one.name: one.value for one in wide_alu.WideOp} == {one.name: one.value for one in WideOp}


@pytest.mark.parametrize("name", on_one([*(one.name for one in PLAIN_SUMS), *WIDE],
                                        PLAIN_SUMS[0].name, *list(WIDE)[:2]))
def test_every_sum(name, rng):
    """With drains, stores and exclusive-ors: boundary numbers, any bits, any scale, against the exact model."""
    check([drawn(rng, (name,)) for _ in range(400)])


@pytest.mark.parametrize("idle", [0.2, 0.5])
def test_mixed_with_back_pressure(idle, rng, seed):
    """Paused streams lose nothing, and random bits follow the columns' order."""
    check([drawn(rng) for _ in range(200)], idle=idle, seed=seed)


def test_a_number_that_is_no_sum_leaves_memory_as_it_is(rng):
    """Every number that the geometry's list lacks, and past its end."""
    few = Geometry(channel=ChannelGeometry(sums="bf16-in-fp32"))
    items = [drawn(rng)._replace(sum=number) for number in range(16) for _ in range(8)]
    check(items, ("bf16-in-fp32",), geometry=few)
    lost = [item for item in items if item.sum not in (0, 1, 2, NUMBERS["bf16-in-fp32"])]
    assert run(lost, geometry=few) == [item.old for item in lost]


@pytest.fixture(scope="module")
def compiled():
    with Simulator(build_component(lambda: WideAlu(ALL, 8), "wide_alu", 8)) as backend:
        yield backend


def compiled_run(backend, name: str, old: np.ndarray, new: np.ndarray, op: WideOp = WideOp.ADD,
                 scale: np.ndarray | int = 127, **fields: int) -> np.ndarray:
    """Columns of 64 bits through the compiled RTL, one per cycle."""
    ports = backend.ports
    payload, latency = ports.inputs["operands.payload"], LATENCY
    stimulus = np.zeros((len(old) + latency, ports.input_words), np.uint64)
    stimulus[:len(old), ports.inputs["operands.valid"].offset] = 1
    stimulus[:, ports.inputs["result.ready"].offset] = 1
    for field, value in (("old", old), ("new", new), ("op", int(op)), ("sum", NUMBERS[name]), ("scale", scale),
                         *fields.items()):
        bit = payload.fields[field].lsb
        value = np.broadcast_to(np.asarray(value, np.uint64), len(old))
        stimulus[:len(old), payload.offset + bit // 64] |= value << np.uint64(bit % 64)
    out = backend.run(stimulus)[latency - 1:-1]
    assert out[:, ports.outputs["result.valid"].offset].all()
    at = ports.outputs["result.payload"]
    return out[:, at.offset + at.fields["column"].lsb // 64]


def nans_are_one(values: np.ndarray) -> np.ndarray:
    return np.where(np.isnan(values), np.float32(np.nan), values)


@pytest.mark.parametrize("name", ["e4m3", "e5m2"])
def test_every_8_bit_number_times_every_scale_on_every_other_sum(compiled, name):
    """All 256 x 256 numbers and scales, added to zero, to others and nearly cancelling."""
    theirs = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}[name]
    numbers, scales = (grid.ravel() for grid in np.meshgrid(np.arange(256), np.arange(256)))
    with np.errstate(all="ignore"):
        scale = np.where(scales == 255, np.nan, np.ldexp(1.0, scales - 127))
        arrived = (numbers.astype(np.uint8).view(theirs).astype(np.float64) * scale).astype(np.float32)
        for old in (np.full(len(numbers), -0.0, np.float32), np.roll(arrived, 1), (-arrived * np.float32(1.0001))):
            expected = nans_are_one((old + arrived).astype(np.float32)).view(np.uint32)
            got = compiled_run(compiled, f"{name}-blocks-in-fp32", old.view(np.uint32), numbers, scale=scales)
            assert (got & 0xFFFF_FFFF == np.where(np.isnan(expected.view(np.float32)), 0x7FC00000, expected)).all()


@pytest.mark.parametrize("name", ["e4m3", "e5m2"])
def test_every_pair_of_8_bit_numbers(compiled, name):
    """One as fp32 in memory, the other arriving: their sum is exact in fp32, as ml_dtypes has it."""
    theirs = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}[name]
    old, new = (grid.ravel().astype(np.uint8) for grid in np.meshgrid(np.arange(256), np.arange(256)))
    with np.errstate(invalid="ignore"):
        a, b = (side.view(theirs).astype(np.float32) for side in (old, new))
        expected = np.where(np.isnan(a + b), 0x7FC00000, (a + b).view(np.uint32))
    got = compiled_run(compiled, f"{name}-in-fp32", a.view(np.uint32), new)
    assert (got & 0xFFFF_FFFF == expected).all()


@pytest.mark.parametrize(("name", "theirs", "quiet"), [
    ("bf16-in-fp32", ml_dtypes.bfloat16, 0x7FC0), ("fp16-in-fp32", np.float16, 0x7E00)])
def test_what_drains_is_the_nearest(compiled, name, theirs, quiet, seed):
    """Every bf16 and fp16 number as fp32, ties beside it, their neighbours, any bits: as ml_dtypes and numpy."""
    middle = (np.arange(1 << 16, dtype=np.uint32) << 16) + np.array([[0], [0x7FFF], [0x8000], [0x8001]], np.uint32)
    halves = (np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32).view(np.uint32)
              + np.array([[0xFFF], [0x1000], [0x1001]], np.uint32))
    old = np.concatenate([middle.ravel(), halves.ravel(),
                          np.random.default_rng(seed).integers(0, 1 << 32, 1 << 16, np.uint32)])
    with np.errstate(all="ignore"):
        values = old.view(np.float32)
        expected = np.where(np.isnan(values), quiet, values.astype(theirs).view(np.uint16))
    got = compiled_run(compiled, name, old, old, WideOp.DRAIN)
    assert (got & 0xFFFF == expected).all()


THEIRS = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}
QUIET = {"e4m3": 0x7F, "e5m2": 0x7E}


@pytest.mark.parametrize("saturate", [0, 1])
@pytest.mark.parametrize("name", ["e4m3", "e5m2"])
def test_what_leaves_in_8_bits_is_the_nearest(compiled, name, saturate, seed):
    """e4m3 and e5m2, ties and neighbours, every scale, saturating or not, infinities, NaNs: as ml_dtypes."""
    theirs, largest = THEIRS[name], float(ml_dtypes.finfo(THEIRS[name]).max)
    numbers = np.unique(np.arange(256, dtype=np.uint8).view(theirs).astype(np.float32))
    numbers = numbers[np.isfinite(numbers)]
    ends = np.array([0.0, -0.0, largest * 17 / 16, largest * 1.2, -largest * 4, np.inf, -np.inf, np.nan], np.float32)
    middle = (numbers[1:] + numbers[:-1]) / 2
    around = np.concatenate([numbers, ends, middle, np.nextafter(middle, np.float32(np.inf)),
                             np.nextafter(middle, np.float32(-np.inf))])

    def expected(values: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            kept = np.clip(values, -largest, largest) if saturate else values
            bits = kept.astype(theirs)
            return np.where(np.isnan(bits.astype(np.float32)), QUIET[name], bits.view(np.uint8))
    values, scales = (grid.ravel() for grid in np.meshgrid(around, np.arange(255)))
    with np.errstate(all="ignore"):
        old = np.ldexp(values.astype(np.float64), scales - 127).astype(np.float32)
        exact = ~(np.ldexp(old.astype(np.float64), 127 - scales) != values) | np.isnan(values)
        exact &= np.isfinite(old) | ~np.isfinite(values)
    old, values, scales = old[exact], values[exact], scales[exact]
    assert len(old) > 150_000
    got = compiled_run(compiled, f"{name}-blocks-in-fp32", old.view(np.uint32), old.view(np.uint32), WideOp.DRAIN,
                       scales, narrow=1, saturate=saturate)
    assert (got & 0xFF == expected(values)).all()
    some = np.random.default_rng(seed).integers(0, 1 << 32, 1 << 18, np.uint32)
    got = compiled_run(compiled, f"{name}-in-fp32", some, some, WideOp.DRAIN, 1, narrow=1, saturate=saturate)
    assert (got & 0xFF == expected(some.view(np.float32))).all()
    model = replace({"e4m3": E4M3, "e5m2": E5M2}[name], saturates=bool(saturate))
    assert (got & 0xFF == model.cut(some.view(np.float32))).all()
    nothing = compiled_run(compiled, f"{name}-blocks-in-fp32", some[:1], some[:1], WideOp.DRAIN, 255, narrow=1)
    assert nothing & 0xFF == QUIET[name]


@pytest.mark.parametrize("name", ["e4m3", "e5m2"])
def test_every_8_bit_number_times_scales_in_fp32(compiled, name, seed):
    """Scales of any bits and at all boundaries; product and sum are rounded as in numpy."""
    random = np.random.default_rng(seed)
    ends = np.array(SPECIAL[32], np.uint32)
    scales = np.concatenate([ends, ends | 1 << 31, random.integers(0, 1 << 32, 2000, np.uint32),
                             random.integers(0, 1 << 25, 1000, np.uint32)])
    numbers, scales = (grid.ravel() for grid in np.meshgrid(np.arange(256, dtype=np.uint8), scales))
    with np.errstate(all="ignore"):
        parts = numbers.view(THEIRS[name]).astype(np.float32) * scales.view(np.float32)
        for old in (np.full(len(parts), -0.0, np.float32), random.permutation(parts)):
            total = old + parts
            expected = np.where(np.isnan(total), 0x7FC00000, total.view(np.uint32))
            got = compiled_run(compiled, f"{name}-by-fp32-in-fp32", old.view(np.uint32), numbers, scale=scales)
            assert (got & 0xFFFF_FFFF == expected).all()


def test_a_fixed_point_is_the_same_in_every_order(compiled, seed):
    """64 parts, some close to the largest, in two orders: both equal the integers' sum."""
    random = np.random.default_rng(seed)
    scale, columns = 130, 200
    parts = (random.standard_normal((64, columns)) * 2.0**random.integers(-20, 2, (64, columns))).clip(-15.9, 15.9)
    bits = parts.astype(ml_dtypes.bfloat16).view(np.uint16)
    wanted = np.rint(np.ldexp(bits.view(ml_dtypes.bfloat16).astype(np.float64), 151 - scale)).astype(int).sum(axis=0)
    for order in (np.arange(64), random.permutation(64)):
        total = np.zeros(columns, np.uint64)
        for part in bits[order]:
            total = compiled_run(compiled, "bf16-in-fixed", total, part, scale=scale) & 0xFFFF_FFFF
        assert (total.astype(np.uint32).view(np.int32) == wanted).all()


def test_what_a_fixed_point_cannot_hold_is_no_number_and_stays_none(compiled):
    """Too large, infinite, NaN, and scales out of range."""
    large = np.array([16.0, 15.9375, np.inf, np.nan, -16.0], np.float32).astype(ml_dtypes.bfloat16).view(np.uint16)
    got = compiled_run(compiled, "bf16-in-fixed", np.zeros(5), large, scale=130) & 0xFFFF_FFFF
    assert got.tolist() == [FIXED_NONE, 0xFF << 17, FIXED_NONE, FIXED_NONE, FIXED_NONE]
    again = compiled_run(compiled, "bf16-in-fixed", got, np.full(5, 0x3F80), scale=130) & 0xFFFF_FFFF
    assert (again == FIXED_NONE).tolist() == [True, False, True, True, True]
    for scale in (FIXED_SCALES.start - 1, FIXED_SCALES.stop):
        assert compiled_run(compiled, "bf16-in-fixed", np.zeros(1), np.zeros(1), scale=scale)[0] & 0xFFFF_FFFF == (
            FIXED_NONE)
    assert compiled_run(compiled, "bf16-in-fixed", got[:2], got[:2], WideOp.DRAIN, 130).tolist() == [0x7FC0, 0x417F]


def test_rounding_by_chance_goes_up_as_often_as_it_must(compiled):
    """256 and 2**-9 of a unit of it, 65,536 times: one in 512 is rounded up."""
    count = 1 << 16
    got = compiled_run(compiled, "bf16-by-chance", np.full(count, 0x4380), np.full(count, 0x3B80)) & 0xFFFF
    up = (got == 0x4381).sum()
    assert set(got.tolist()) == {0x4380, 0x4381} and abs(up - count / 512) < 4 * np.sqrt(count / 512)


def test_channels_round_by_different_random_bits(rng):
    """A channel's sums differ from those with another channel's random bits."""
    items = [drawn(rng, ("bf16-by-chance",))._replace(op=WideOp.ADD) for _ in range(100)]

    def numbered(channel: int):
        return lambda geometry, column_bytes: WideAlu(geometry, column_bytes, channel)
    for channel in (1, 5):
        check(items, channel=channel, alu=numbered(channel))
        with pytest.raises(AssertionError, match="expected"):
            check(items, channel=channel, alu=numbered(0))


@pytest.mark.parametrize("name, part", [("fp32-in-fixed", (1 << 24) - 1), ("bf16-in-fixed", 255 << 16)])
def test_a_sum_in_fixed_point_does_not_wrap(compiled, name, part):
    """Past 2**31 - 1 units, or down to -2**31, it is no number, whatever is added then."""
    largest = (1 << 31) - 1
    sums = [(sign * (largest + over - size), sign * size, over == 0)
            for sign in (1, -1) for size in (1, part) for over in (0, 1)] + [
                (largest, part, False), (-largest, -part, False), (-largest, part, True), (largest, -1, True)]
    old, new, fits = map(np.array, zip(*sums))
    bits = new.astype(np.float32).view(np.uint32) >> (16 if name == "bf16-in-fixed" else 0)
    wanted = np.where(fits, old + new, FIXED_NONE) & 0xFFFF_FFFF
    got = compiled_run(compiled, name, old & 0xFFFF_FFFF, bits, scale=151) & 0xFFFF_FFFF
    assert got.tolist() == wanted.tolist()
    again = compiled_run(compiled, name, got, bits, scale=151) & 0xFFFF_FFFF
    assert (again[~fits] == FIXED_NONE).all()


class TiesAway(FpAdder):
    def _round_up(self, odd, half, rest):
        return half


class BrokenAlu(WideAlu):
    adder = TiesAway


def test_a_broken_rounding_is_noticed(rng):
    """An ALU with a broken rounding fails this test."""
    with pytest.raises(AssertionError, match="expected"):
        check([drawn(rng, ("bf16-in-fp32",)) for _ in range(400)], alu=BrokenAlu)


@pytest.mark.parametrize("sums", ["bf16", "bf16-in-fp32+bf16-in-fp32", "bf16-in-fp32+", "", "bf16-in-fp64"])
def test_impossible_sums_are_refused(sums):
    """A list with an unknown, repeated or plain sum raises a GeometryError."""
    with pytest.raises(GeometryError, match=f"sums='{sums.replace('+', '.')}' is impossible: plain, or once each"):
        ChannelGeometry(sums=sums)
