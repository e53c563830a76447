"""Compiled graphs: what has changed is evaluated, and nothing else differs from evaluating all, or from Amaranth."""

import numpy as np
import pytest
from amaranth import Cat, Const, Module, Mux, ResetInserter, Signal
from amaranth.hdl import ClockDomain, ClockSignal
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

from t3sim.base.errors import Failure
from t3sim.cosim.component import build_component
from t3sim.cosim.verilog import generate_verilog
from t3sim.rtl.gpu_top import GpuTop
from t3sim.rtl.switch.switch import Switch
from t3sim.rtlsim import clusters, graph, part_code
from t3sim.rtlsim.amaranth_backend import AmaranthBackend
from t3sim.rtlsim.graph import UnsupportedDesign, graphs_of
from t3sim.rtlsim.simulator import Simulator
from t3sim.rtlsim.stimulus import random_stimulus
from t3sim.rtlsim.toolchain import ToolchainError
from t3sim.testbenches.geometries import GEOMETRIES
from tests.support.tiers import on_one

pytestmark = pytest.mark.builds_rtl

WORKERS = 5


class Worker(wiring.Component):
    """A component that counts down what it gets.

    Meanwhile, or if it is told to drip, it adds to a word of its memory, and shows another: long at rest, with state
    that no output shows.
    """

    work: In(stream.Signature(6))
    scale: In(2)
    drip: In(1)
    beside_busy: In(1)
    beside_odd: In(1)
    total: Out(8)
    busy: Out(1)
    odd: Out(1)

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.totals = totals = memory.Memory(shape=8, depth=3, init=[1])
        read, shown = totals.read_port(domain="comb"), totals.read_port(domain="comb")
        write, other = totals.write_port(), totals.write_port(granularity=4)
        left, word = Signal(6), Signal(2)
        m.d.comb += [self.work.ready.eq(left == 0), self.busy.eq((left != 0) | self.beside_busy),
                     self.odd.eq(word[0] ^ left[0] ^ self.beside_odd),
                     read.addr.eq(word), write.addr.eq(word), write.en.eq((left != 0) | self.drip),
                     write.data.eq(read.data + self.scale + self.beside_busy + self.beside_odd),
                     other.addr.eq(left), other.en.eq(Cat(self.drip, left[1])), other.data.eq(read.data + 3),
                     shown.addr.eq(word + 1), self.total.eq(shown.data)]
        with m.If(left != 0):
            m.d.sync += left.eq(left - 1)
        with m.Elif(self.work.valid):
            m.d.sync += [left.eq(self.work.payload), word.eq(word + 1)]
        return m


class Workers(wiring.Component):
    """Workers that share a setting; each reads the outputs of the one before in the same cycle."""

    def __init__(self, count: int = WORKERS) -> None:
        super().__init__({"work": In(stream.Signature(6)).array(count), "scale": In(2), "drip": In(1),
                          "totals": Out(8).array(count), "busy": Out(count), "odd": Out(1), "same": Out(2)})
        self._count = count

    def elaborate(self, platform) -> Module:
        m = Module()
        scale, busy, odd = Signal(2), Signal(1), Signal(1)
        m.d.sync += scale.eq(self.scale)
        workers = [Worker() for _ in range(self._count)]
        for i in reversed(range(self._count)):  # an order that is not that of the modules
            m.submodules[f"worker_{i}"] = workers[i]
            wiring.connect(m, wiring.flipped(self.work[i]), workers[i].work)
            m.d.comb += [workers[i].drip.eq(self.drip), workers[i].scale.eq(scale ^ busy),
                         workers[i].beside_busy.eq(busy), workers[i].beside_odd.eq(odd)]
            m.d.comb += [self.totals[i].eq(workers[i].total), self.busy[i].eq(workers[i].busy)]
            busy, odd = workers[i].busy, workers[i].odd
        m.d.comb += [self.odd.eq(odd), self.same.eq(self.scale)]
        return m


@pytest.fixture
def kept(monkeypatch):
    """Makes the workers graphs of their own, small as they are."""
    monkeypatch.setattr(graph, "_KEPT_CELLS", 1)
    monkeypatch.setattr(graph, "_KEPT_INSTANCES", 2)


def held_stimulus(ports, cycles: int, seed: int) -> np.ndarray:
    """Random inputs that mostly stay as they were; often none is valid."""
    generator = np.random.default_rng(seed)
    stimulus = random_stimulus(ports, cycles, seed)
    for cycle in range(1, cycles):
        if generator.random() < 0.9:
            stimulus[cycle] = stimulus[cycle - 1]
        elif generator.random() < 0.5:
            stimulus[cycle] = 0
    if "rst" in ports.inputs:
        stimulus[:, ports.inputs["rst"].offset] = generator.random(cycles) < 0.003
    return stimulus


def run_both(design, stimulus: np.ndarray) -> int:
    """Step an instance that evaluates what has changed, and one that evaluates all; returns how many rested."""
    rested = 0
    with Simulator(design) as quick, Simulator(design) as full:
        full.evaluate_all()
        for cycle, row in enumerate(stimulus):
            for backend in (quick, full):
                backend.inputs[:] = row
                if cycle % 5 == 0:  # a driver looks at the outputs before the edge
                    backend.settle()
            assert (quick.outputs == full.outputs).all() or cycle % 5, f"before cycle {cycle}"
            for backend in (quick, full):
                backend.step()
            assert (quick.outputs == full.outputs).all(), f"cycle {cycle}"
            assert full.asleep == 0
            rested += quick.asleep
    return rested


@pytest.mark.parametrize("apart, count", [(False, WORKERS), (True, WORKERS), (True, 70)])
def test_random_inputs(apart, count, request, seed):
    """Of few and of more instances than a set has."""
    if apart:
        request.getfixturevalue("kept")
    design = graphs_of(Workers(count), "workers")
    assert len(design.instances) == (count if apart else 0)
    design = build_component(lambda: Workers(count), "workers")
    cycles = 15_000 // count
    stimulus = held_stimulus(design.ports, cycles, seed)
    rested = run_both(design, stimulus)
    assert not apart or rested > 0.5 * cycles
    with Simulator(design) as compiled, AmaranthBackend(Workers(count), design.ports) as amaranth:
        np.testing.assert_array_equal(compiled.run(stimulus[:cycles // 3]), amaranth.run(stimulus[:cycles // 3]))


@pytest.mark.parametrize("mistake", on_one(["a change", "a look again", "a round"]))
def test_a_mistake_fails_the_self_test(kept, monkeypatch, mistake):
    """What is not evaluated though something that it reads has changed is found before anything is simulated."""
    right = part_code.PartWriter.input
    if mistake == "a change":
        monkeypatch.setattr(part_code.PartWriter, "input", lambda self, at, instance, node, new: [
            next(right(self, at, instance, node, new))] if self.graph.nodes[node].extra == ("drip", 0) else right(
            self, at, instance, node, new))
    elif mistake == "a look again":
        monkeypatch.setattr("t3sim.rtlsim.design_code.TopWriter.again", lambda self, phase, rounds: [
            f"static bool {phase}_again(const Top&) {{ return false; }}"])
    else:
        dependencies = clusters.Views.dependencies
        monkeypatch.setattr(clusters.Views, "dependencies", lambda self, where: [
            view for view in dependencies(self, where) if view[0] == where[0]])
    with pytest.raises(ToolchainError, match="workers: what .* compiled is wrong"):
        build_component(Workers, "workers")


@pytest.mark.parametrize("hardware", on_one([GpuTop, Switch]))
def test_hardware(hardware, seed):
    design = build_component(lambda: hardware(GEOMETRIES["small"]), "hardware")
    run_both(design, held_stimulus(design.ports, 600, seed))


class Narrow(wiring.Component):
    """Every operator on a value that a parameter gives few bits or none, as the tags of a table with one set."""

    def __init__(self, width: int) -> None:
        super().__init__({"a": In(width), "b": In(width), "wide": In(3), "out": Out(48)})
        self._width = width

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.table = table = memory.Memory(shape=self._width, depth=2, init=[])
        write, read, later = table.write_port(), table.read_port(domain="comb"), table.read_port()
        kept, case = Signal(self._width, init=0), Signal()
        a, b, wide = self.a, self.b, self.wide
        i, j = (one.as_signed() if self._width else one for one in (a, b))  # there is no signed value of no bits
        m.d.sync += kept.eq(a ^ self.b)
        m.d.comb += [write.en.eq(wide[2]), write.addr.eq(wide[0]), write.data.eq(a), read.addr.eq(wide[1]),
                     later.en.eq(1), later.addr.eq(wide[0])]
        with m.Switch(a):
            with m.Case(*([0] if self._width else [""])):
                m.d.comb += case.eq(wide[0])
            with m.Default():
                m.d.comb += case.eq(wide[1])
        bits = [a == b, a != b, a < b, a <= b, i < j, i >= j, a.any(), a.all(), a.xor(), ~a == b, case, i == wide,
                a < wide, kept == wide, read.data == a, later.data == b, Mux(wide[0], a, b) == kept]
        words = [(wide << a[:2])[:3], (wide >> a)[:3], (a + wide)[:4], (a * wide)[:4], wide.bit_select(a, 2),
                 a.bit_select(wide, 2), (a - b)[:1], (a // 3)[:2], (wide % b)[:2], (i >> wide)[:2]]
        m.d.comb += self.out.eq(Cat(*bits, *words))
        return m


@pytest.mark.parametrize("width", [0, 1, 2, 63, 64, 65])
def test_values_of_any_width(width, seed):
    design = build_component(lambda: Narrow(width), "narrow")
    stimulus = random_stimulus(design.ports, 200, seed)
    with Simulator(design) as compiled, AmaranthBackend(Narrow(width), design.ports) as amaranth:
        np.testing.assert_array_equal(compiled.run(stimulus), amaranth.run(stimulus))


class Ripple(wiring.Component):
    """Values whose bits depend on lower bits of each other, and never on themselves."""

    a: In(8)
    b: In(8)
    masked: Out(8)
    assigned: Out(8)
    data: Out(70)
    address: Out(8)

    def elaborate(self, platform) -> Module:
        m = Module()
        a, b, carry, chosen = self.a, self.b, Signal(8), Signal(8)
        m.d.comb += [carry.eq(Cat(a[0], self.masked[:7]) ^ a), self.masked.eq(carry | b), self.assigned.eq(a)]
        with m.If(b[0]):
            m.d.comb += chosen.eq(Cat(a[1], self.assigned[:7]))
        with m.If(b[1]):
            m.d.comb += self.assigned.eq(chosen)
        m.submodules.table = table = memory.Memory(shape=70, depth=8, init=[n * 0x123456789abcdef12 for n in range(8)])
        read = table.read_port(domain="comb")
        m.d.comb += [self.data.eq(read.data), read.addr.eq(self.address[:3]),
                     self.address.eq(Cat(a[:3], read.data[1], read.data[62:66]) ^ b)]
        return m


def test_bits_that_depend_on_bits_of_several_values(seed):
    design = build_component(Ripple, "ripple")
    stimulus = random_stimulus(design.ports, 200, seed)
    with Simulator(design) as compiled, AmaranthBackend(Ripple(), design.ports) as amaranth:
        np.testing.assert_array_equal(compiled.run(stimulus), amaranth.run(stimulus))


class Clocked(wiring.Component):
    """A register with a clock of some kind."""

    def __init__(self, kind: str) -> None:
        super().__init__({"data": In(70), "out": Out(70)})
        self._kind = kind

    def elaborate(self, platform) -> Module:
        m = Module()
        if self._kind == "gated":
            m.domains.other = other = ClockDomain(reset_less=True)
            m.d.comb += other.clk.eq(ClockSignal() & self.data[0])
        if self._kind == "data":
            m.d.comb += self.out.eq(ClockSignal())
        elif self._kind == "product":
            m.d.comb += self.out.eq((Cat(self.data, self.data) * Cat(self.data, self.data))[70:])
        else:
            m.d.other += self.out.eq(self.data)
        return m


@pytest.mark.parametrize("kind, message", [("gated", "a clock that the design makes itself"),
                                           ("data", "the clock is read as data"),
                                           ("product", r"\* of 280 bits is not simulated")])
def test_what_is_not_simulated_is_refused(kind, message):
    with pytest.raises(UnsupportedDesign, match=message):
        graphs_of(Clocked(kind), "clocked")


class Reading(wiring.Component):
    """Uses a signal of the component around it, or is reset by one."""

    def __init__(self, how: str) -> None:
        super().__init__({"a": In(8), "clear": In(1), "total": Out(8)})
        self._how = how

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.inner = ResetInserter(self.clear)(inner := Adding()) if self._how == "reset" else (
            inner := Adding(self.clear if self._how == "read" else None))
        m.d.comb += [inner.a.eq(self.a), self.total.eq(inner.kept if self._how == "looked into" else inner.total)]
        return m


class Adding(wiring.Component):
    a: In(8)
    total: Out(8)

    def __init__(self, other: Signal | None = None) -> None:
        super().__init__()
        self.kept, self._other = Signal(8, name="kept"), Const(0, 1) if other is None else other

    def elaborate(self, platform) -> Module:
        m = Module()
        m.d.sync += self.kept.eq(self.kept + self.a + self._other)
        m.d.comb += self.total.eq(self.kept)
        return m


@pytest.mark.parametrize("how, module, name", [("read", "adding", "clear"), ("reset", "adding", "clear"),
                                               ("looked into", "reading", "kept"), ("by ports", None, None)])
def test_a_signal_of_another_component_that_is_no_port_is_refused(how, module, name):
    """It would be constant, also in the Verilog."""
    for write in (lambda: graphs_of(Reading(how), "top"), lambda: generate_verilog(Reading(how), "top")):
        if module is None:
            write()
            continue
        with pytest.raises(Failure, match=f"{module}: signal {name} is driven outside it and is not one of its ports"):
            write()


class OneWord(wiring.Component):
    """A memory of one word has no address."""

    a: In(8)
    enable: In(2)
    seen: Out(8).array(3)

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.memory = word = memory.Memory(shape=8, depth=1, init=[7])
        write = word.write_port(granularity=4)
        reads = [word.read_port(transparent_for=[write]), word.read_port(), word.read_port(domain="comb")]
        m.d.comb += [write.data.eq(self.a), write.en.eq(self.enable), reads[0].en.eq(1), reads[1].en.eq(1)]
        m.d.comb += [seen.eq(read.data) for seen, read in zip(self.seen, reads)]
        return m


def test_a_memory_of_one_word(seed):
    design = build_component(OneWord, "one_word")
    stimulus = random_stimulus(design.ports, 200, seed)
    with Simulator(design) as compiled, AmaranthBackend(OneWord(), design.ports) as amaranth:
        np.testing.assert_array_equal(compiled.run(stimulus), amaranth.run(stimulus))
