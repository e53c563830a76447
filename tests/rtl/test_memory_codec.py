"""The memory codec against its model: every single and double flip, random words, the code's distance."""

import gc
import random
from itertools import combinations

import pytest
from amaranth.sim import Simulator

from t3sim.rtl.check_bits import PROTECTIONS, check_bits, columns
from t3sim.rtl.geometry import GeometryError
from t3sim.rtl.track.memory_codec import MemoryCodec
from t3sim.testbenches.reference.memory_codec import Judged, MemoryCodecModel
from tests.support.tiers import on_one

pytestmark = pytest.mark.builds_rtl

WIDTHS = [1, 4, 12, 68]  #: 12 and 68 are a tag and an entry of the default Tracker


class Bench:
    """`decode(word)` and `encode(data)` of the hardware, inside `run(test)`."""

    def __init__(self, protection, width):
        self.dut, self.model = MemoryCodec(protection, width), MemoryCodecModel(protection, width)

    def encode(self, data) -> int:
        self._ctx.set(self.dut.data, data)
        return self._ctx.get(self.dut.word)

    def decode(self, word) -> Judged:
        self._ctx.set(self.dut.stored, word)
        judged = Judged(*(self._ctx.get(port) for port in (self.dut.found, self.dut.corrected, self.dut.uncorrectable)))
        assert self._ctx.get(self.dut.wrong) == (judged.corrected or judged.uncorrectable)
        return judged

    def run(self, test) -> None:
        async def bench(ctx):
            self._ctx = ctx
            test()
        simulator = Simulator(self.dut)
        simulator.add_testbench(bench)
        simulator.run()


@pytest.mark.parametrize("width", on_one(WIDTHS, 12))
@pytest.mark.parametrize("protection", ["parity", "secded"])
def test_every_flip_and_every_pair_of_flips(protection, width, seed):
    """Four widths, check bits included: one flip is corrected, two are detected, none changes nothing."""
    bench, rng = Bench(protection, width), random.Random(seed)

    def test():
        for data in {0, (1 << width) - 1, rng.getrandbits(width)}:
            word = bench.encode(data)
            assert word == bench.model.encode(data)
            assert bench.decode(word) == (data, 0, 0)
            flips = [1 << bit for bit in range(bench.model.word_bits)]
            for flip in flips:
                found = bench.decode(word ^ flip)
                assert found == ((data, 1, 0) if protection == "secded" else (found.found, 0, 1)), hex(flip)
            if protection == "secded":
                for one, other in combinations(flips, 2):
                    found = bench.decode(word ^ one ^ other)
                    assert not found.corrected and found.uncorrectable, f"{one:#x} and {other:#x}"
    bench.run(test)


@pytest.mark.parametrize("width", on_one(WIDTHS, 12))
@pytest.mark.parametrize("protection", ["parity", "secded"])
def test_random_words_match_the_model(protection, width, seed):
    """Words near an encoded one and any others; the model tries every bit instead of a syndrome."""
    bench, rng = Bench(protection, width), random.Random(seed)

    def test():
        for _ in range(200):
            word = rng.getrandbits(bench.model.word_bits)
            if rng.random() < 0.7:
                word = bench.model.encode(rng.getrandbits(width))
                for _ in range(rng.randrange(5)):
                    word ^= 1 << rng.randrange(bench.model.word_bits)
            assert bench.decode(word) == bench.model.decode(word), hex(word)
    bench.run(test)


@pytest.mark.parametrize("width", range(1, 129))
def test_the_code_is_hsiao_s(width):
    """Widths 1 to 128: distinct odd columns, no check bit too many, parity trees of nearly equal size."""
    rows, every = check_bits("secded", width), columns("secded", width)
    assert len(every) == width and len({*every, *(1 << row for row in range(rows))}) == width + rows
    assert all(column.bit_count() % 2 for column in every)
    assert width > (1 << (rows - 2)) - (rows - 1)
    loads = [sum(column >> row & 1 for column in every) for row in range(rows)]
    assert max(loads) - min(loads) <= 2
    assert check_bits("parity", width) == 1 and check_bits("none", width) == 0


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
def test_impossible_codecs():
    """Protection `none` and zero data bits raise a GeometryError."""
    with pytest.raises(GeometryError, match="protection='none' is impossible: a memory codec is parity or secded"):
        MemoryCodec("none", 8)
    with pytest.raises(GeometryError, match="data_bits=0 is impossible: at least 1 is needed"):
        MemoryCodec("secded", 0)
    gc.collect()  # the half-made blocks warn here, where the filter is, rather than later
    assert PROTECTIONS == ("none", "parity", "secded")
