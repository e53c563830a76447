"""`make mutate SOURCE=1`: what the operators make of a small source, and its parts on a small block."""

from dataclasses import replace

import pytest
from amaranth.hdl import ResetInserter, Signal
from amaranth.sim import Simulator

from t3sim.testbenches.geometries import GEOMETRIES
from t3sim.testbenches.mutation import campaign
from t3sim.testbenches.mutation.equivalence import compare
from t3sim.testbenches.mutation.simulate import simulate
from t3sim.testbenches.mutation.source.changes import Changes
from t3sim.testbenches.mutation.source.model import files_of, make_source_model
from t3sim.testbenches.mutation.source.rewrite import CHANGES, rewritten
from t3sim.testbenches.mutation.source.unit import unit_test

pytestmark = [pytest.mark.builds_rtl, pytest.mark.slow]

SMALL = GEOMETRIES["small"]
SOURCE = """
from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from t3sim.rtl.streams.counting import ones
from t3sim.rtl.control.soft_reset import SoftReset


class Part(wiring.Component):
    on: Out(1)

    def elaborate(self, platform):
        m = Module()
        m.d.sync += self.on.eq(1)
        return m


class Block(wiring.Component):
    def __init__(self):
        super().__init__({"a": In(4), "b": In(4).array(3), "each": Out(4).array(3), "whole": Out(4), "held": Out(4),
                          "bits": Out(3), "number": Out(2), "equal": Out(1), "shifted": Out(4), "sum": Out(4),
                          "on": Out(1).array(3)})

    def elaborate(self, platform):
        m = Module()
        for c in range(3):
            m.d.comb += self.each[c].eq(self.b[c] & self.a)
        following = self.a[:3] + 1
        m.d.comb += self.whole.eq(Mux(self.a[3], ~self.b[0], following))
        with m.If(self.a < 7):
            m.d.sync += self.held.eq(self.a)
        m.d.comb += self.bits.eq(Cat(word[1] for word in self.b))
        m.d.comb += self.number.eq(ones(word[1] for word in self.b))
        m.d.comb += self.equal.eq(self.a == self.b[2])
        m.d.comb += self.shifted.eq(self.b[2] >> self.a[:2])
        m.d.comb += self.sum.eq(self.a + self.a)
        for c in range(3):
            part = Part()
            m.submodules[f"part_{c}"] = SoftReset(part, self.a[1])
            m.d.comb += self.on[c].eq(part.on)
        return m
"""
STEPS, B = (0, 5, 7), (9, 2, 15)
RIGHT = {"each": (1, 2, 7), "whole": 8, "held": 5, "bits": 6, "number": 2, "equal": 0, "shifted": 1, "sum": 14,
         "on": (0, 0, 0)}  #: at the end


@pytest.fixture(scope="module")
def outcomes():
    """What each mistake makes of the outputs, by its line in SOURCE and its words."""
    numbers: dict = {}
    select = Signal(8)
    names = {CHANGES: Changes(lambda change: numbers.setdefault(change, len(numbers) + 1), select), "__name__": "block"}
    exec(compile(rewritten(SOURCE, "block.py"), "block.py", "exec"), names)
    dut, reset, found = names["Block"](), Signal(), {}

    async def testbench(ctx):
        for change, number in [(None, 0), *numbers.items()]:
            ctx.set(select, number)
            ctx.set(reset, 1)
            await ctx.tick()
            ctx.set(reset, 0)
            for port, value in zip(dut.b, B):
                ctx.set(port, value)
            for value in STEPS:
                ctx.set(dut.a, value)
                await ctx.tick()
            key = change and (SOURCE.splitlines()[change.line - 1].strip(), change.what)
            found[key] = {name: tuple(map(ctx.get, port)) if isinstance(port := getattr(dut, name), list)
                          else ctx.get(port) for name in RIGHT}

    simulator = Simulator(ResetInserter(reset)(dut))
    simulator.add_clock(1e-9)
    simulator.add_testbench(testbench)
    simulator.run()
    return found


def test_without_a_mistake_it_is_the_block(outcomes):
    assert outcomes[None] == RIGHT


EACH = "m.d.comb += self.each[c].eq(self.b[c] & self.a)"
NEXT = "following = self.a[:3] + 1"
WHOLE = "m.d.comb += self.whole.eq(Mux(self.a[3], ~self.b[0], following))"
IF, HELD = "with m.If(self.a < 7):", "m.d.sync += self.held.eq(self.a)"
BITS, NUMBER = (f"m.d.comb += self.{name}.eq({function}(word[1] for word in self.b))"
                for name, function in (("bits", "Cat"), ("number", "ones")))
SHIFTED = "m.d.comb += self.shifted.eq(self.b[2] >> self.a[:2])"
SUM = "m.d.comb += self.sum.eq(self.a + self.a)"  # of five bits, of which the last is cut off
EQUAL = "m.d.comb += self.equal.eq(self.a == self.b[2])"
RESET = 'm.submodules[f"part_{c}"] = SoftReset(part, self.a[1])'


@pytest.mark.parametrize(("line", "what", "wrong"), [
    (EACH, "left out", {"each": (0, 0, 0)}),
    (EACH, "only with the first of range(3)", {"each": (1, 0, 0)}),
    (EACH, "without the last of range(3)", {"each": (1, 2, 0)}),
    (EACH, "the first two of range(3) exchanged", {"each": (2, 1, 7)}),
    (EACH, "| for &", {"each": (15, 7, 15)}),
    (EACH, "without what stands right of &", {"each": (9, 2, 15)}),
    (EACH, "without what stands left of &", {"each": (7, 7, 7)}),
    (NEXT, "without the upper bit", {"whole": 4}),
    (NEXT, "one more than 1 at +", {"whole": 9}),
    (NEXT, "- for +", {"whole": 6}),
    (WHOLE, "always the first", {"whole": 6}),
    (WHOLE, "another bit", {"whole": 6}),
    (WHOLE, "without the upper bit", {"whole": 0}),
    (IF, "<= for <", {"held": 7}),
    (IF, "one more than 7 at <", {"held": 7}),
    (IF, "always", {"held": 7}),
    (IF, "never", {"held": 0}),
    (HELD, "left out", {"held": 0}),
    (HELD, "a cycle late", {"held": 0}),
    (HELD, "only the lower half", {"held": 1}),
    (SHIFTED, "without the upper bit right of >>", {"shifted": 7}),
    (SUM, "without the upper bit", {"sum": 6}),
    (SUM, "only the lower half", {"sum": 2}),
    (BITS, "only the first of self.b", {"bits": 0}),
    (BITS, "without the last of self.b", {"bits": 2}),
    (NUMBER, "without the last of self.b", {"number": 1}),
    (NUMBER, "several at once are one", {"number": 1}),
    (EQUAL, "without the upper bit right of ==", {"equal": 1}),
    (RESET, "no Part is reset", {"on": (1, 1, 1)}),
    (RESET, "of Part only the first of range(3) is reset", {"on": (0, 1, 1)}),
    (RESET, "of Part the last of range(3) is not reset", {"on": (0, 0, 1)}),
])
def test_what_a_mistake_does(outcomes, line, what, wrong):
    assert outcomes[line, what] == RIGHT | wrong


def test_each_operation_of_a_chain_is_a_place_of_its_own():
    """Otherwise leaving one side out would leave out all of that side."""
    found: dict = {}
    names = {CHANGES: Changes(found.setdefault, Signal(8)), "a": Signal(3)}
    exec(compile(rewritten("chain = a[0] & a[1] & ~a[2]", "chain.py"), "chain.py", "exec"), names)
    assert len([change for change in found if change.what == "without what stands right of &"]) == 2


def test_every_file_with_hardware_is_some_blocks():
    """But for the queue between two clocks, which is around the top and has a proof with a broken twin."""
    files = [file for block in campaign.BLOCKS for file in files_of(block)]
    hardware = {path.relative_to(campaign.ROOT).as_posix() for path in (campaign.ROOT / "rtl").rglob("*.py")
                if "amaranth.hdl" in path.read_text() and path.stem not in ("layouts", "apb", "blocks", "__init__",
                                                                                 "clock_crossing")}
    assert len(files) == len(set(files)) and set(files) >= hardware


def test_what_is_made_from_the_first_is_not_exchanged_with_it():
    """In the adder's chains of shifts the second's value stands on the first's: exchanged, they would be a loop."""
    exchanged = make_source_model("nmc_alu", SMALL, 10_000, seed=1, only="exchanged").mutants
    assert {mutant.file for mutant in exchanged} == {"rtl/channel/nmc_alu.py", "rtl/channel/fp_adder.py"}
    assert len(exchanged) < 20
    assert not any("reversed(" in mutant.mode for mutant in exchanged)
    assert any(mutant.text == "low.a.eq(request.old[base:base + 32])," for mutant in exchanged)


@pytest.fixture(scope="module")
def monitor():
    return make_source_model("ring_monitor", SMALL, 100, seed=1)


def chosen(model, what, text):
    return next(mutant for mutant in model.mutants if mutant.mode == what and text in mutant.text)


def test_the_model_without_a_mistake_is_the_block(monitor):
    assert compare(monitor, replace(monitor.mutants[0], number=0), 20).verdict == "equal"
    assert compare(monitor, chosen(monitor, ">= for >", "self.late.eq"), 20).verdict == "differs"


def test_testbench_and_unit_test_notice_a_lost_restart(monitor, tmp_path):
    lost = chosen(monitor, "without what stands right of |", "self.restart")
    assert simulate(monitor, SMALL, [lost.number], [1], 1, tmp_path)[lost.number]["test"]
    what, test, how = unit_test("ring_monitor", lost)
    assert what == "unit" and test.startswith("tests/rtl/test_ring_monitor.py::") and how.startswith("AssertionError")


def test_unit_tests_that_are_ended_by_time_have_noticed_nothing(monitor):
    same = replace(chosen(monitor, "left out", "since_idle.eq(0)"), mode="no mistake at all")
    assert unit_test("ring_monitor", same, limit_s=0.1) == ("time", "test_ring_monitor.py", "0.1 s")


def test_a_unit_test_passes_what_is_the_same_machine(monitor):
    same = replace(chosen(monitor, "left out", "since_idle.eq(0)"), mode="no mistake at all")
    assert unit_test("ring_monitor", same) is None
