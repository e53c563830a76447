"""A soft reset does the same as a condition of every register and as a connection of the module's reset pin."""

import numpy as np
import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator as AmaranthSimulator

from t3sim.cosim.component import build_component
from t3sim.cosim.verilog import component_verilog
from t3sim.rtl.control.reset_sequence import ResetSequence
from t3sim.rtl.control.soft_reset import SoftReset
from t3sim.rtl.geometry import Geometry
from t3sim.rtlsim.amaranth_backend import AmaranthBackend
from t3sim.rtlsim.simulator import Simulator

pytestmark = pytest.mark.builds_rtl


class Counter(wiring.Component):
    """Counts `step`s; `last` keeps its value through a reset."""

    step: In(1)
    count: Out(8, init=3)
    last: Out(8)

    def elaborate(self, platform):
        m = Module()
        last = Signal(8, reset_less=True)
        m.d.comb += self.last.eq(last)
        with m.If(self.step):
            m.d.sync += [self.count.eq(self.count + 1), last.eq(self.count)]
        return m


class Pair(wiring.Component):
    """Two counters within each other's module, each with a reset of its own besides the common one."""

    step: In(1)
    clear: In(2)
    counts: Out(16)
    lasts: Out(16)

    def elaborate(self, platform):
        m = Module()
        for index in range(2):
            counter = Counter()
            m.submodules[f"counter_{index}"] = SoftReset(counter, self.clear[index])
            m.d.comb += [
                counter.step.eq(self.step),
                self.counts[8 * index:8 * index + 8].eq(counter.count),
                self.lasts[8 * index:8 * index + 8].eq(counter.last),
            ]
        return m


def test_both_forms_reset_what_they_should_when_they_should(rng):
    """A reset pin and a condition give the same registers, cycle by cycle, in Amaranth and compiled."""
    text, ports = component_verilog(Pair, "pair")
    with Simulator(build_component(Pair, "pair")) as pins, AmaranthBackend(Pair(), ports) as conditions:
        counts, lasts = [3, 3], [0, 0]
        for _ in range(400):
            step, reset, clear = rng.getrandbits(1), int(rng.random() < 0.05), [int(rng.random() < 0.1) for _ in "ab"]
            for backend in (pins, conditions):
                for name, value in (("step", step), ("rst", reset), ("clear", clear[0] | clear[1] << 1)):
                    backend.inputs[ports.port(name).offset] = value
                backend.step()
            for index in range(2):
                lasts[index] = counts[index] if step else lasts[index]
                counts[index] = 3 if reset or clear[index] else (counts[index] + step) % 256
            for backend in (pins, conditions):
                shown = [int(backend.outputs[ports.port(name).offset]) for name in ("counts", "lasts")]
                assert shown == [pair[0] | pair[1] << 8 for pair in (counts, lasts)], type(backend).__name__
    assert text.count("module counter") == 1 and not np.array_equal(counts, [3, 3])


@pytest.mark.parametrize("later", range(4))
def test_a_restart_after_a_second_soft_reset_begins_nothing(later):
    """Attack: reset a second time. `done` of the first one ends in the cycle after the second."""
    dut = ResetSequence(Geometry())
    simulator = AmaranthSimulator(dut)
    simulator.add_clock(1e-9)

    async def testbench(ctx):
        ctx.set(dut.new_epoch, 1)
        ctx.set(dut.soft_reset, 1)
        await ctx.tick()
        ctx.set(dut.soft_reset, 0)
        await ctx.tick().repeat(40)
        assert ctx.get(dut.done)
        ctx.set(dut.soft_reset, 1)
        for cycle in range(4):
            ctx.set(dut.restart, cycle == later)
            assert not ctx.get(dut.begins) and (cycle == 0 or not ctx.get(dut.done))
            await ctx.tick()
            ctx.set(dut.soft_reset, 0)
            assert ctx.get(dut.errors[1].valid) == (cycle == later)
        ctx.set(dut.restart, 0)
        await ctx.tick().repeat(40)
        assert ctx.get(dut.done) and ctx.get(dut.stopped)

    simulator.add_testbench(testbench)
    simulator.run()
