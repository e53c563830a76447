"""Testbenches of Amaranth's simulator on the compiled design: the same log as on Amaranth's own engine."""

import importlib.util
from pathlib import Path

import pytest
from amaranth import ClockDomain, Module, Mux, ResetSignal, Signal, signed
from amaranth.lib import data, fifo, memory, wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from t3sim import rtlsim
from t3sim.rtlsim.engine import CompiledEngine
from t3sim.rtlsim.graph import UnsupportedDesign

pytestmark = pytest.mark.builds_rtl

_script = Path(__file__).resolve().parents[2] / "scripts" / "open_designs.py"
_spec = importlib.util.spec_from_file_location("open_designs", _script)
open_designs = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(open_designs)


@pytest.mark.parametrize("name", open_designs.LIBRARY)
def test_amaranths_library(name):
    """FIFOs, synchronizers and CRC: nobody here wrote them."""
    assert open_designs.compare(open_designs.LIBRARY[name], 400)["signals"] > 1


def on_both(make, clocks: dict[str, float], *testbenches) -> list:
    """Run testbenches on both engines, twice, and return the log that they write, which has to be the same."""
    logs = []
    for options in ({}, {"engine": CompiledEngine}):
        design, log = make(), []
        simulator = Simulator(design, **options)
        for domain, period in clocks.items():
            simulator.add_clock(period, domain=domain)
        for kind, testbench in testbenches:
            async def run(ctx, testbench=testbench, design=design, log=log):
                await testbench(ctx, design, log)
            getattr(simulator, f"add_{kind}")(run)
        simulator.run()
        first = list(log)
        log.clear()
        simulator.reset()
        simulator.run()
        assert log == first
        logs.append(first)
    assert logs[0] == logs[1]
    return logs[0]


async def _write(ctx, queue, log) -> None:
    for number in range(100):
        ctx.set(queue.w_data, number)
        ctx.set(queue.w_en, number % 3 != 0)
        *_, ready = await ctx.tick("write").sample(queue.w_rdy)
        log.append(("write", number, ready, ctx.get(queue.w_level)))


async def _read(ctx, queue, log) -> None:
    await ctx.tick("read").repeat(5)
    ctx.set(queue.r_en, 1)
    for _ in range(60):
        *_, value = await ctx.tick("read").sample(queue.r_data).until(queue.r_rdy)
        log.append(("read", value, ctx.get(queue.r_level)))


def test_two_clocks():
    log = on_both(lambda: fifo.AsyncFIFO(width=8, depth=8), {"write": 1e-6, "read": 0.7e-6},
                  ("testbench", _write), ("testbench", _read))
    assert {kind for kind, *_ in log} == {"write", "read"} and len(log) == 160


class Numbers(wiring.Component):
    """Signed values, a layout, a memory, and a gap that a process of the testbench fills."""

    a: In(signed(9), init=-3)
    b: In(signed(9))
    pair: In(data.StructLayout({"low": 4, "high": signed(70)}))
    quotient: Out(signed(10))
    rest: Out(signed(9))
    total: Out(signed(71))
    filled: In(8)
    doubled: Out(8)
    word: Out(signed(8))

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.words = self.words = words = memory.Memory(shape=signed(8), depth=5, init=[-1, 2, -3])
        read = words.read_port(domain="comb")
        count = Signal(3)
        m.d.sync += [count.eq(Mux(count == 4, 0, count + 1)), self.total.eq(self.total + self.pair.high)]
        m.d.comb += [self.quotient.eq(self.a // self.b), self.rest.eq(self.a % self.b), read.addr.eq(count),
                     self.word.eq(read.data), self.doubled.eq(self.filled << 1)]
        return m


async def _fill(ctx, top, log) -> None:
    async for a, in ctx.changed(top.a):
        ctx.set(top.filled, a & 0x55)


async def _calculate(ctx, top, log) -> None:
    log.append((ctx.get(top.a), ctx.get(top.quotient)))  # its initial value, and no division by zero
    for a in (-256, -7, -1, 0, 7, 255):
        ctx.set(top.a, a)
        for b in (-256, -3, -1, 0, 2, 255):
            ctx.set(top.b, b)
            log.append((ctx.get(top.quotient), ctx.get(top.rest), ctx.get(top.doubled)))
        ctx.set(top.pair, {"low": a & 7, "high": a * 3 ** 30})
        await ctx.delay(3e-6)
        log.append((ctx.get(top.total), ctx.get(top.word), ctx.get(top.pair.high)))
        await ctx.posedge(top.word[7])
    ctx.set(top.words.data[4], -100)
    await ctx.tick().repeat(5)
    log.append([ctx.get(top.words.data[n]) for n in range(5)])
    log.append(ctx.get(top.word))


def test_numbers_memories_and_delays():
    log = on_both(Numbers, {"sync": 1e-6}, ("testbench", _calculate), ("process", _fill))
    assert log[-2] == [-1, 2, -3, 0, -100] and (2, -1, (-7 & 0x55) << 1) in log


class Reset(wiring.Component):
    """A counter whose reset needs no clock, one that counts at the falling edge, and one of the usual kind."""

    clear: In(1)
    counts: Out(4).array(3)

    def elaborate(self, platform) -> Module:
        m = Module()
        m.domains.asynchronous = ClockDomain(async_reset=True)
        m.domains.falling = ClockDomain(clk_edge="neg", reset_less=True)
        m.d.comb += ResetSignal("asynchronous").eq(self.clear)
        for domain, start, count in zip(("sync", "asynchronous", "falling"), (1, 5, 9), self.counts):
            inner = Signal(4, init=start)
            m.d[domain] += inner.eq(inner + 1)
            m.d.comb += count.eq(inner)
        return m


def test_clocks_are_stepped_by_name():
    """An asynchronous reset acts at once, and stays when it was short."""
    with rtlsim.compile(Reset()).simulator() as top:
        def counts() -> list[int]:
            return list(top.get("counts").values())

        first, second, third = sorted(top.ports.clocks, key=("clk", "asynchronous_clk", "falling_clk falling").index)
        assert counts() == [1, 5, 9]
        top.step(2, first)
        top.step(3, second)
        top.step(1, third)
        assert counts() == [3, 8, 10]
        top.step()
        assert counts() == [4, 9, 11]
        top.set("clear", 1)
        assert counts() == [4, 9, 11]
        top.settle()
        assert counts() == [4, 5, 11]
        top.set("clear", 0)
        top.settle()
        assert counts() == [4, 5, 11]
        top.step(1, first, second)
        assert counts() == [5, 6, 11]
        with pytest.raises(KeyError, match="no clock 'fast' besides others: its clocks are"):
            top.step(1, "fast")


def test_what_cannot_be_done_is_refused_by_name():
    queue = fifo.SyncFIFO(width=8, depth=4)

    async def override(ctx) -> None:
        ctx.set(queue.level, 1)

    simulator = Simulator(queue, engine=CompiledEngine)
    simulator.add_clock(1e-6)
    simulator.add_testbench(override)
    with pytest.raises(UnsupportedDesign, match="level is driven by the design"):
        simulator.run()
    with pytest.raises(UnsupportedDesign, match="writes no VCD by `write_vcd`"):
        simulator.write_vcd("waves.vcd")
