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

SMALL = GEOMETRIES["small"]
SOURCE = """
from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class Block(wiring.Component):
    def __init__(self):
        super().__init__({"a": In(4), "b": In(4).array(3), "each": Out(4).array(3), "whole": Out(4), "held": Out(4)})

    def elaborate(self, platform):
        m = Module()
        for c in range(3):
            m.d.comb += self.each[c].eq(self.b[c] & self.a)
        following = self.a[:3] + 1
        m.d.comb += self.whole.eq(Mux(self.a[3], ~self.b[0], following))
        with m.If(self.a < 7):
            m.d.sync += self.held.eq(self.a)
        return m
"""
STEPS, B = (0, 5, 7), (9, 2, 15)
RIGHT = {"each": (1, 2, 7), "whole": 8, "held": 5}  #: at the end


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
            found[key] = {"each": tuple(map(ctx.get, dut.each)), "whole": ctx.get(dut.whole), "held": ctx.get(dut.held)}

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
])
def test_what_a_mistake_does(outcomes, line, what, wrong):
    assert outcomes[line, what] == RIGHT | wrong


def test_every_file_with_hardware_is_some_blocks():
    files = [file for block in campaign.BLOCKS for file in files_of(block)]
    hardware = {path.relative_to(campaign.ROOT).as_posix() for path in (campaign.ROOT / "rtl").rglob("*.py")
                if "amaranth.hdl" in path.read_text() and path.stem not in ("layouts", "apb", "blocks", "__init__")}
    assert len(files) == len(set(files)) and set(files) >= hardware


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
    test, how = unit_test("ring_monitor", lost)
    assert test.startswith("tests/rtl/test_ring_monitor.py::") and how.startswith("AssertionError")


def test_a_unit_test_passes_what_is_the_same_machine(monitor):
    same = replace(chosen(monitor, "left out", "since_idle.eq(0)"), mode="no mistake at all")
    assert unit_test("ring_monitor", same) is None
