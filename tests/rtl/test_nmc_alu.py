"""The near-memory ALU against its reference and numpy: corners, random traffic, and a compiled sample of all pairs."""

import gc
import itertools
import json
import random
import subprocess
import sys

import numpy as np
import pytest
import typer

from t3sim.machine import formats
from t3sim.rtl.channel import nmc_alu
from t3sim.rtl.channel.fp_adder import FpAdder
from t3sim.rtl.channel.nmc_alu import NmcAlu
from t3sim.rtl.geometry import GeometryError
from t3sim.testbenches import alu_exhaustive
from t3sim.testbenches.reference.nmc_alu import FORMATS, AluDtype, AluOp, Operands, add, combine, quiet_nan, width
from tests.support.stream_bench import StreamBench, once, simulation
from tests.support.tiers import on_one

pytestmark = pytest.mark.builds_rtl

DTYPES = tuple(AluDtype)
#: old, new, sum: one line for each rule
DIRECTED = {
    AluDtype.FP16: [
        (0x3C00, 0x1000, 0x3C00),  # 1 + half a unit: tie, to even below
        (0x3C01, 0x1000, 0x3C02),  # the same tie, to even above
        (0x3C00, 0x1001, 0x3C01),  # a little more than the tie
        (0x3C00, 0x9000, 0x3BFF),  # 1 - 2**-11 is exact: the unit halves below a power of two
        (0x3C00, 0x8800, 0x3C00),  # tie between 1 and the number below it
        (0x3C00, 0x8001, 0x3C00),  # 1 - the smallest subnormal: only the sticky bit is left
        (0x7BFF, 0x4C00, 0x7C00),  # largest + half a unit overflows
        (0x7BFF, 0x4BFF, 0x7BFF),  # largest + a little less does not
        (0xFBFF, 0xFBFF, 0xFC00),
        (0x0001, 0x0001, 0x0002),  # subnormals add exactly
        (0x03FF, 0x0001, 0x0400),  # into the normal range
        (0x0400, 0x8001, 0x03FF),  # and out of it
        (0x3C01, 0xBC00, 0x1400),  # cancellation leaves one unit
        (0x3C00, 0xBC00, 0x0000),  # an exact zero is +0
        (0x0000, 0x8000, 0x0000),
        (0x8000, 0x8000, 0x8000),  # except -0 + -0
        (0x7C00, 0xFBFF, 0x7C00),  # infinity absorbs
        (0xFC00, 0xFC00, 0xFC00),
        (0x7C00, 0xFC00, 0x7E00),  # infinity - infinity
        (0x7C01, 0x3C00, 0x7E00),  # signalling NaN in, quiet NaN out
        (0x0000, 0xFFFF, 0x7E00),
    ],
    AluDtype.BF16: [
        (0x3F80, 0x3B80, 0x3F80),  # 1 + half a unit: tie, to even
        (0x3F81, 0x3B80, 0x3F82),
        (0x3F80, 0x3B81, 0x3F81),
        (0x7F7F, 0x7B00, 0x7F80),  # tie at the top overflows
        (0x7F7F, 0x7AFF, 0x7F7F),
        (0x0080, 0x8001, 0x007F),
        (0x007F, 0x0001, 0x0080),
        (0x8000, 0x8000, 0x8000),
        (0x7F80, 0xFF80, 0x7FC0),
        (0xFF81, 0x7F80, 0x7FC0),
    ],
    AluDtype.FP32: [
        (0x3F800000, 0x33800000, 0x3F800000),
        (0x3F800001, 0x33800000, 0x3F800002),
        (0x3F800000, 0x33800001, 0x3F800001),
        (0x3F800000, 0x80000001, 0x3F800000),
        (0x3F800000, 0xB2800000, 0x3F800000),
        (0x7F7FFFFF, 0x73000000, 0x7F800000),
        (0x7F7FFFFF, 0x72FFFFFF, 0x7F7FFFFF),
        (0x00800000, 0x80000001, 0x007FFFFF),
        (0x007FFFFF, 0x00000001, 0x00800000),
        (0x80000000, 0x80000000, 0x80000000),
        (0x7F800000, 0xFF800000, 0x7FC00000),
        (0x7F800001, 0x00000000, 0x7FC00000),
    ],
}


def corners(dtype: AluDtype) -> list[int]:
    """Operands next to every boundary of the format, both signs."""
    exponent_bits, fraction_bits = FORMATS[dtype]
    one = ((1 << exponent_bits - 1) - 1) << fraction_bits
    infinity = ((1 << exponent_bits) - 1) << fraction_bits
    normal = 1 << fraction_bits
    half_unit = one - ((fraction_bits + 1) << fraction_bits)  # of one
    top_half_unit = infinity - ((fraction_bits + 2) << fraction_bits)  # of the largest number
    positive = [0, 1, normal - 1, normal, normal + 1, one - 1, one, one + 1, one + normal - 1, half_unit - 1, half_unit,
                half_unit + 1, top_half_unit - 1, top_half_unit, infinity - 1, infinity, infinity + 1,
                infinity | normal >> 1]
    return [bits | sign << (width(dtype) - 1) for bits in positive for sign in (0, 1)]


def filled(bits: int, dtype: AluDtype, column_bytes: int) -> int:
    """A column with the same element everywhere."""
    return sum(bits << at for at in range(0, 8 * column_bytes, width(dtype)))


def additions(pairs, dtype: AluDtype, column_bytes: int) -> list[Operands]:
    return [Operands(filled(a, dtype, column_bytes), filled(b, dtype, column_bytes), AluOp.ADD, dtype)
            for a, b in pairs]


def interesting(rng: random.Random, dtype: AluDtype) -> int:
    """A random element; half of them near 1, so that exponents meet."""
    bits = rng.getrandbits(width(dtype))
    if rng.random() < 0.5:
        exponent_bits, fraction_bits = FORMATS[dtype]
        exponent = (1 << exponent_bits - 1) - rng.randrange(1, 4)
        bits = bits & ~(((1 << exponent_bits) - 1) << fraction_bits) | exponent << fraction_bits
    return bits


def random_operands(rng: random.Random, column_bytes: int, dtypes=DTYPES, store: float = 0.2) -> Operands:
    dtype = rng.choice(dtypes)
    old, new = (sum(interesting(rng, dtype) << at for at in range(0, 8 * column_bytes, width(dtype))) for _ in range(2))
    return Operands(old, new, rng.choice((AluOp.STORE, AluOp.XOR)) if rng.random() < store else AluOp.ADD, dtype)


def run(items, column_bytes: int, idle: float = 0.0, seed: int = 0, alu=NmcAlu) -> tuple[list[int], int]:
    """The columns that come out, and the cycles they took."""
    dut = once(alu, column_bytes)
    bench = StreamBench(dut, seed=seed)
    bench.source(dut.operands, [item._asdict() for item in items], idle=idle)
    taken = bench.sink(dut.result, idle=idle)
    bench.run(until=lambda: len(taken) >= len(items), cycles=20 * len(items) + 100, settle=10)
    return [item["column"] for item in taken], bench.cycle


def check(items, column_bytes: int, **options) -> int:
    got, cycles = run(items, column_bytes, **options)
    assert len(got) == len(items)
    for item, column in zip(items, got):
        expected = combine(item, column_bytes)
        assert column == expected, (f"{item.op.name} {item.dtype.name} {item.old:#x}, {item.new:#x}: "
                                    f"expected {expected:#x}, got {column:#x}")
    return cycles


@pytest.mark.parametrize("items", [1, 4])
def test_stages_that_hold_nothing_stand_still(items, rng):
    """Invalid operands that change in every cycle leave the last column at the output."""
    dut, columns = once(NmcAlu, 4), [rng.getrandbits(32) for _ in range(items)]
    simulated = simulation(dut)

    async def run(ctx):
        ctx.set(dut.result.ready, 1)
        for cycle in range(items + 12):
            ctx.set(dut.operands.valid, cycle < items)
            ctx.set(dut.operands.payload, {"old": rng.getrandbits(32), "op": AluOp.STORE.value, "dtype": 2,
                                           "new": columns[cycle] if cycle < items else rng.getrandbits(32)})
            await ctx.tick()
            if cycle >= items + 4:
                assert ctx.get(dut.result.payload.column) == columns[-1]
                assert ctx.get(dut.result.valid) == (cycle < NmcAlu.LATENCY + items - 1)

    simulated.add_testbench(run)
    simulated.run()


class TiesAway(FpAdder):
    """Rounds ties away from zero: what the tests must notice."""

    def _round_up(self, odd, half, rest):
        return half


class BrokenAlu(NmcAlu):
    adder = TiesAway


def test_enums_and_formats_agree():
    """Operations, element types and quiet NaNs equal the model's."""
    for ours, theirs in ((nmc_alu.AluOp, AluOp), (nmc_alu.AluDtype, AluDtype)):
        assert {item.name: item.value for item in ours} == {item.name: item.value for item in theirs}
    assert {item.name.lower(): quiet_nan(item) for item in AluDtype} == {
        name: one.quiet_nan for name, one in formats.FORMATS.items()}


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
def test_reference_equals_numpy(dtype, rng):
    """The exact model equals numpy on random numbers, bit for bit, NaN payloads aside."""
    pairs = list(itertools.product(corners(dtype), repeat=2))
    pairs += [(interesting(rng, dtype), interesting(rng, dtype)) for _ in range(5000)]
    container = np.uint32 if dtype == AluDtype.FP32 else np.uint16
    a, b = (np.array(side, container) for side in zip(*pairs))
    expected = formats.FORMATS[dtype.name.lower()].add(a, b).tolist()
    assert [add(*pair, dtype) for pair in pairs] == expected


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
def test_directed(dtype):
    """Cases with known sums, in both orders: nearest even, subnormals, infinities, NaNs."""
    cases = DIRECTED[dtype] + [(b, a, total) for a, b, total in DIRECTED[dtype]]
    for a, b, total in cases:
        assert add(a, b, dtype) == total, f"the reference: {a:#x} + {b:#x}"
    got, _ = run(additions([case[:2] for case in cases], dtype, 4), 4)
    for (a, b, total), column in zip(cases, got, strict=True):
        assert column == filled(total, dtype, 4), f"{a:#x} + {b:#x}: expected {total:#x}, got column {column:#x}"


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
def test_every_pair_of_corners(dtype):
    """fp16, bf16 and fp32 corners, each with each, against the exact model."""
    positive = corners(dtype)[::2]
    check(additions(itertools.product(positive, corners(dtype)), dtype, 4), 4)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
def test_store_keeps_every_bit(dtype):
    """A plain store changes no bit, whatever the bits."""
    olds = [0, filled(quiet_nan(dtype), dtype, 4), filled(quiet_nan(dtype) | 1 << (width(dtype) - 1), dtype, 4)]
    items = [Operands(old, filled(new, dtype, 4), AluOp.STORE, dtype) for new in corners(dtype) for old in olds]
    got, _ = run(items, 4)
    assert got == [item.new for item in items]


@pytest.mark.parametrize(("op", "dtype", "expected"), [
    (3, 0, 0x3C00_3C00), (3, 2, 0x3C00_3C00), (0, 3, 0x3C80_3C00), (1, 3, 0x3C00_3C00), (3, 3, 0x3C00_3C00)])
def test_the_unused_numbers_act_as_store_and_as_fp32(op, dtype, expected):
    """Operation 3 stores; element type 3 is fp32."""
    dut = once(NmcAlu, 4)

    async def testbench(ctx):
        column = dut.operands.payload.old, dut.operands.payload.new
        for port, value in zip(column, (0x3C00_3C00,) * 2):
            ctx.set(port, value)
        ctx.set(dut.operands.payload.op.as_value(), op)
        ctx.set(dut.operands.payload.dtype.as_value(), dtype)
        ctx.set(dut.operands.valid, 1)
        ctx.set(dut.result.ready, 1)
        await ctx.tick().repeat(NmcAlu.LATENCY)
        assert ctx.get(dut.result.payload.column) == expected

    simulated = simulation(dut)
    simulated.add_testbench(testbench)
    simulated.run()


@pytest.mark.parametrize("dtype", on_one(DTYPES), ids=lambda dtype: dtype.name)
def test_three_exclusive_ors_exchange_two_columns(dtype, rng):
    """Corners and any bits, NaNs included."""
    pairs = [(filled(a, dtype, 8), filled(b, dtype, 8)) for a, b in itertools.combinations(corners(dtype), 2)]
    pairs += [(rng.getrandbits(64), rng.getrandbits(64)) for _ in range(100)]

    def combined(old, new):
        return run([Operands(a, b, AluOp.XOR, dtype) for a, b in zip(old, new)], 8)[0]
    first, second = map(list, zip(*pairs))
    second = combined(second, first)
    first = combined(first, second)
    second = combined(second, first)
    assert list(zip(second, first)) == pairs


@pytest.mark.parametrize("idle", [0.2, 0.5])
@pytest.mark.parametrize("dtypes", [(dtype,) for dtype in DTYPES] + [DTYPES],
                         ids=lambda dtypes: "+".join(dtype.name for dtype in dtypes))
def test_random_with_back_pressure(dtypes, idle, rng, seed):
    """A paused result stream loses nothing."""
    check([random_operands(rng, 8, dtypes) for _ in range(120)], 8, idle=idle, seed=seed)


@pytest.mark.parametrize("column_bytes", on_one([4, 32, 64], 32))
def test_one_column_per_cycle_at_every_width(column_bytes, rng):
    """Full streams at every width: one column per cycle."""
    items = [random_operands(rng, column_bytes) for _ in range(15)]
    cycles = check(items, column_bytes)
    assert cycles <= len(items) + NmcAlu.LATENCY + 2


def test_reset_in_flight_drops_the_pipeline(rng):
    """After a reset in flight no column is left."""
    lost = [random_operands(rng, 4) for _ in range(3)]
    kept = [random_operands(rng, 4) for _ in range(20)]
    dut = once(NmcAlu, 4)
    bench = StreamBench(dut, seed=5)
    taken = bench.sink(dut.result)

    async def drive(ctx):
        for item in lost:
            ctx.set(dut.operands.payload, item._asdict())
            ctx.set(dut.operands.valid, 1)
            await ctx.tick()
        ctx.set(dut.operands.valid, 0)
        await bench.pulse_reset(ctx)
        for item in kept:
            ctx.set(dut.operands.payload, item._asdict())
            ctx.set(dut.operands.valid, 1)
            await ctx.tick().until(dut.operands.ready)
        ctx.set(dut.operands.valid, 0)

    bench.process(drive, background=False)
    bench.run(until=lambda: len(taken) >= len(kept), cycles=200, settle=10)
    assert [item["column"] for item in taken] == [combine(item, 4) for item in kept]


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
def test_impossible_widths_are_refused():
    """Each raises a GeometryError that names the width."""
    for column_bytes in (0, 2, 24, 256, 32.0, "32"):
        words = rf"column_bytes={column_bytes!r} is impossible: a power of two from 4 to 128"
        with pytest.raises(GeometryError, match=words):
            NmcAlu(column_bytes)
    gc.collect()  # the half-made block warns here, where the filter is, rather than later


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
def test_a_broken_rounding_is_noticed(dtype):
    """An ALU with a broken rounding fails this test, in each format."""
    with pytest.raises(AssertionError, match="expected"):
        check(additions([case[:2] for case in DIRECTED[dtype]], dtype, 4), 4, alu=BrokenAlu)


@pytest.fixture(scope="module")
def compiled():
    return alu_exhaustive.CompiledAlu()


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_compiled_rows(compiled, dtype, seed):
    """The compiled RTL adds 24 fp16 or bf16 numbers to every other one, as in the model."""
    for row in alu_exhaustive.choose_rows(dtype, None, 24, seed):
        assert alu_exhaustive.check_row(compiled, row, dtype) is None


def test_compiled_fp32(compiled, seed):
    """The compiled RTL adds millions of fp32 pairs, as in the model."""
    for stream in range(6):
        assert alu_exhaustive.check_fp32(compiled, 6 * seed + stream) is None


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
def test_compiled_store(compiled, dtype, seed):
    """The compiled RTL stores random words unchanged."""
    new = np.random.default_rng(seed).integers(0, 1 << 32, (4096, alu_exhaustive.SLICES), dtype=np.uint32)
    compiled.load(new, dtype, store=True)
    assert (compiled.run(np.full(alu_exhaustive.SLICES, 0x7FFF7FFF, np.uint32)) == new).all()


def test_every_row_pairs_with_every_operand():
    """The exhaustive campaign's rows cover all 2^32 pairs."""
    for row in (0, 1, 0x7FFF, 0x8000, 0xFFFF):
        words = alu_exhaustive._PAIRED[row:row + 0x8000]
        assert len(set(words.view(np.uint16).tolist())) == 0x10000
    assert list(alu_exhaustive.choose_rows("fp16", None, None, seed=1)) == list(range(0x10000))


@pytest.mark.parametrize("lane", ["low", "high"])
def test_one_wrong_bit_is_reported(compiled, lane):
    """The campaign reports a wrong bit with its operands and lane."""
    class OneWrongBit:
        load = compiled.load

        def run(self, old):
            out = compiled.run(old).copy()
            out[100, 3] ^= {"low": 1, "high": 1 << 16}[lane]
            return out

    row = 0x3C00
    new = (row + 100 * alu_exhaustive.SLICES + 3 + {"low": 0, "high": 0x8000}[lane]) % 0x10000
    right = add(row, new, AluDtype.FP16)
    assert alu_exhaustive.check_row(OneWrongBit(), row, "fp16") == (row, new, right, right ^ 1, lane)


def test_command_samples_and_prints_json(compiled):
    """The campaign's command runs a sample and prints its summary."""
    done = subprocess.run([sys.executable, "-m", "t3sim.testbenches.alu_exhaustive", "--sample", "6", "--json"],
                          capture_output=True, text=True, timeout=120, check=True)
    summary = json.loads(done.stdout)
    assert summary["mismatch"] is None and not summary["exhaustive"]
    assert (summary["rows"], summary["pairs"]) == (6, 6 << 16)


def test_command_fails_on_a_mismatch(monkeypatch, capsys):
    """It exits with 1 and prints the operands, the expected and the actual sum."""
    mismatch = {"old": "0x3c00", "new": "0x1000", "expected": "0x3c00", "got": "0x3c01", "lane": "low"}
    summary = {"rows": 0, "pairs": 0, "exhaustive": False, "cycles": 0, "seconds": 0.0, "mismatch": mismatch}
    monkeypatch.setattr(alu_exhaustive, "CompiledAlu", lambda: None)
    monkeypatch.setattr(alu_exhaustive, "check", lambda *_: summary)
    with pytest.raises(typer.Exit) as stopped:
        alu_exhaustive.main(sample=1)
    assert stopped.value.exit_code == 1
    assert "0x3c00 + 0x1000: expected 0x3c00, got 0x3c01 (low lane)" in capsys.readouterr().err
