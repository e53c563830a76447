"""A stream from one clock to another: in simulation at several ratios of the clocks, and proved for all."""

import random
from itertools import count

import pytest
from amaranth.hdl import ClockDomain, Fragment, Module, ResetSignal, Signal
from amaranth.sim import Simulator

from t3sim.rtl.streams.clock_crossing import ClockCrossing
from t3sim.testbenches.formal.clock_crossing import ORDER, ROOM, prove

pytestmark = pytest.mark.builds_rtl


def run(source_ns: float, sink_ns: float, idle: float, pause: float, words: int = 200, reset_ns: float = 0) -> float:
    """Send the numbers from 0 on, after a reset those from `words` on; return how many ns that took."""
    m = Module()
    m.domains += [ClockDomain("source"), ClockDomain("sink")]
    m.submodules.dut = dut = ClockCrossing(16, source="source", sink="sink")
    reset = Signal()
    m.d.comb += ResetSignal("source").eq(reset)
    simulator, rng, taken = Simulator(Fragment.get(m, None)), random.Random(7), []
    simulator.add_clock(source_ns * 1e-9, domain="source")
    simulator.add_clock(sink_ns * 1e-9, phase=0.37e-9, domain="sink")
    ticks, numbers = count(), [*range(words), *(range(words, 2 * words) if reset_ns else ())]

    async def send(ctx):
        for word in numbers:
            if word == words:
                ctx.set(reset, 1)
                await ctx.delay(reset_ns * 1e-9)
                taken.clear()
                await ctx.tick("source")
                ctx.set(reset, 0)
            while rng.random() < idle:
                await ctx.tick("source")
            ctx.set(dut.input.payload, word)
            ctx.set(dut.input.valid, 1)
            await ctx.tick("source").until(dut.input.ready)
            ctx.set(dut.input.valid, 0)

    async def take(ctx):
        while not taken or taken[-1] != numbers[-1]:
            assert next(ticks) < 5000
            ctx.set(dut.output.ready, rng.random() >= pause)
            _, _, valid, ready, word = await ctx.tick("sink").sample(dut.output.valid, dut.output.ready,
                                                                     dut.output.payload)
            if valid and ready:
                taken.append(word)

    simulator.add_testbench(send)
    simulator.add_testbench(take)
    simulator.run()
    assert taken == numbers[-words:]
    return next(ticks) * sink_ns


@pytest.mark.parametrize(("source_ns", "sink_ns"), [(1, 1), (1, 1.01), (1, 3.3), (2.7, 1)])
@pytest.mark.parametrize(("idle", "pause"), [(0, 0), (0.6, 0), (0, 0.6), (0.3, 0.3)])
def test_words_arrive_once_and_in_order(source_ns, sink_ns, idle, pause):
    """Four ratios of the clocks, with random pauses on either side."""
    run(source_ns, sink_ns, idle, pause)


@pytest.mark.parametrize(("source_ns", "sink_ns"), [(1, 1), (1, 1.01), (1, 3.3), (2.7, 1)])
def test_the_slower_clock_has_a_word_in_each_cycle(source_ns, sink_ns):
    """Without pauses 200 words take 200 to 206 cycles of the slower clock."""
    slow = max(source_ns, sink_ns)
    assert 200 * slow <= run(source_ns, sink_ns, 0, 0) <= 206 * slow


@pytest.mark.parametrize(("source_ns", "sink_ns"), [(1, 1), (1, 3.3), (2.7, 1)])
@pytest.mark.parametrize("pause", [0, 0.6])
def test_a_reset_of_four_cycles_of_each_clock_empties_it(source_ns, sink_ns, pause):
    """Words sent before the reset do not arrive after it."""
    run(source_ns, sink_ns, 0, pause, reset_ns=4 * (source_ns + sink_ns))


@pytest.mark.slow
def test_no_word_is_lost_doubled_or_overtaken_whatever_the_clocks_do():
    """Proved for all clocks."""
    assert prove().status == "pass"


@pytest.mark.slow
@pytest.mark.parametrize("claim", [ORDER, ROOM])
def test_counters_that_change_in_several_bits_are_found_out(claim):
    """The proof fails on plain binary counters."""
    assert prove(gray=False, only=claim, mode="bmc", depth=12).status == "fail"
