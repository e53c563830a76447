"""Leaving out what is at rest changes nothing: the same outputs in every cycle as with all of it."""

import inspect

import numpy as np
import pytest
from amaranth import Module, Signal
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

from t3sim.cosim import at_rest, shared_modules, wrapper
from t3sim.cosim.amaranth_backend import AmaranthBackend
from t3sim.cosim.build import build
from t3sim.cosim.compiled import CompiledBackend
from t3sim.cosim.gpu import gpu_library
from t3sim.cosim.hierarchy import module_name
from t3sim.cosim.stimulus import random_stimulus
from t3sim.cosim.verilog import generate_verilog
from t3sim.machine import load_machine
from t3sim.rtl.channel.memory_channel import MemoryChannel
from t3sim.study.lockstep_speed import recorded_stimulus
from tests.support.caches import share_verilators_own
from tests.support.tiers import on_one
from tests.support.variants import small_machine, variant

pytestmark = pytest.mark.builds_rtl

WORKERS = 3
load_block = wrapper._load_block


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
        m.submodules.totals = totals = memory.Memory(shape=8, depth=4, init=[])
        read, shown, write = totals.read_port(domain="comb"), totals.read_port(domain="comb"), totals.write_port()
        left, word = Signal(6), Signal(2)
        m.d.comb += [self.work.ready.eq(left == 0), self.busy.eq(left != 0), self.odd.eq(word[0] ^ left[0]),
                     read.addr.eq(word), write.addr.eq(word), write.en.eq(self.busy | self.drip),
                     write.data.eq(read.data + self.scale + self.beside_busy + self.beside_odd),
                     shown.addr.eq(word + 1), self.total.eq(shown.data)]
        with m.If(left != 0):
            m.d.sync += left.eq(left - 1)
        with m.Elif(self.work.valid):
            m.d.sync += [left.eq(self.work.payload), word.eq(word + 1)]
        return m


class Workers(wiring.Component):
    """Workers that share a setting; one reads another's outputs."""

    def __init__(self) -> None:
        super().__init__({"work": In(stream.Signature(6)).array(WORKERS), "scale": In(2),
                          "drip": In(1), "totals": Out(8).array(WORKERS), "busy": Out(WORKERS)})

    def elaborate(self, platform) -> Module:
        m = Module()
        scale, busy, odd = Signal(2), Signal(1), Signal(1)
        m.d.sync += scale.eq(self.scale)
        for i in range(WORKERS):
            worker = m.submodules[f"worker_{i}"] = Worker()
            wiring.connect(m, wiring.flipped(self.work[i]), worker.work)
            m.d.comb += [worker.drip.eq(self.drip), worker.scale.eq(scale ^ busy),
                         worker.beside_busy.eq(busy), worker.beside_odd.eq(odd)]
            m.d.comb += [self.totals[i].eq(worker.total), self.busy[i].eq(worker.busy)]
            busy, odd = worker.busy, worker.odd
        return m


@pytest.fixture
def workers(monkeypatch):
    monkeypatch.setattr(shared_modules, "_LARGE_LINES", 1)
    return generate_verilog(Workers(), "workers")


@pytest.fixture
def private_cache(workers, monkeypatch, tmp_path):
    """For what is compiled from C++ that no key tells from the right one's."""
    share_verilators_own(build(*workers).path.parents[1], tmp_path)
    monkeypatch.setenv("T3_CACHE", str(tmp_path))


def held_stimulus(ports, cycles: int, seed: int) -> np.ndarray:
    """Random inputs that mostly stay as they were; often none is valid."""
    generator = np.random.default_rng(seed)
    stimulus = random_stimulus(ports, cycles, seed)
    for cycle in range(1, cycles):
        if generator.random() < 0.9:
            stimulus[cycle] = stimulus[cycle - 1]
        elif generator.random() < 0.5:
            stimulus[cycle] = 0
    stimulus[:, ports.inputs["rst"].offset] = generator.random(cycles) < 0.003
    return stimulus


def run_both(library, stimulus: np.ndarray) -> int:
    """Step an instance with and one without what is at rest; returns how many instances rested, over all cycles."""
    rested = 0
    with CompiledBackend(library) as quick, CompiledBackend(library) as full:
        full.evaluate_all()
        for cycle, row in enumerate(stimulus):
            for backend in (quick, full):
                backend.inputs[:] = row
                if cycle % 5 == 0:  # a driver looks at the outputs before the edge
                    backend.settle()
                backend.step()
            assert (quick.outputs == full.outputs).all(), f"cycle {cycle}"
            assert full.asleep == 0
            rested += quick.asleep
    return rested


def test_random_inputs(workers, seed):
    text, ports = workers
    library = build(text, ports)
    stimulus = held_stimulus(ports, 3000, seed)
    assert run_both(library, stimulus) > 0.1 * WORKERS * len(stimulus)
    with CompiledBackend(library) as compiled, AmaranthBackend(Workers(), ports) as amaranth:
        np.testing.assert_array_equal(compiled.run(stimulus[:500]), amaranth.run(stimulus[:500]))


@pytest.mark.parametrize("mistake", on_one(["inputs", "concerns", "shared", "variables", "handed on", "ports"]))
def test_a_mistake_is_found_and_everything_evaluated(workers, monkeypatch, private_cache, mistake):
    """What wakes too late, or sleeps too early, fails the self test of the build."""
    text, ports = workers
    if mistake == "inputs":
        monkeypatch.setattr(at_rest, "_wake_by", lambda text, module, number: text)
    elif mistake == "concerns":
        monkeypatch.setitem(at_rest._CONCERNS_WHILE, ("worker", "work___05Fvalid"), "busy")
    elif mistake == "ports":
        assert "!same<{words}>(" in inspect.getsource(wrapper)
        monkeypatch.setattr(wrapper, "_load_block", lambda *arguments: [
            line.replace("!same", "false && !same") for line in load_block(*arguments)])
    else:
        right, wrong = {"shared": ("!Module::same_shared(symbols, shared)", "false"),
                        "variables": ("Module::same_Variables(one, variables[n])", "true"),
                        "handed on": ("evaluated |= these;", "")}[mistake]
        assert right in at_rest._RUNTIME
        monkeypatch.setattr(at_rest, "_RUNTIME", at_rest._RUNTIME.replace(right, wrong))
    library = build(text, ports)
    stimulus = held_stimulus(ports, 500, 1)
    assert run_both(library, stimulus) == 0 and library.self_test(1000) == 0


@pytest.mark.parametrize(("limit", "most"), [("_MOST_INSTANCES", WORKERS - 1), ("_MOST_PLACES", 1)])
def test_more_instances_or_places_than_a_word_has_bits_are_evaluated(limit, most, workers, monkeypatch, private_cache):
    monkeypatch.setattr(at_rest, limit, most)
    text, ports = workers
    assert run_both(build(text, ports), held_stimulus(ports, 300, 2)) == 0


def test_what_another_reaches_into_by_a_pointer_never_rests(tmp_path):
    """Verilator writes so where a module within one of several instances is kept whole: a Tracker's corrected rows."""
    (tmp_path / "Vtop_bank.h").write_text("class Vtop_bank {\n    Vtop_row* __PVT__row;\n    Vtop_idle* __PVT__idle;\n")
    sources = {tmp_path / "Vtop_bank__0.cpp": "    vlSelf->__PVT__row->entries[0U] = vlSelfRef.__PVT__word[0U];\n",
               tmp_path / "Vtop_row__0.cpp": "    vlSelfRef.__PVT__lost = vlSelfRef.__PVT__fault;\n"}
    assert at_rest._reached_into(sources) == {"Vtop_bank", "Vtop_row"}


def test_occupancy_concerns_no_channel_that_is_not_busy(seed):
    """Whatever it is in cycles that begin so: no output of any cycle differs."""
    assert at_rest._CONCERNS_WHILE == {("memory_channel", "occupancy"): "busy"}
    channel = MemoryChannel(small_machine(load_machine()).geometry())
    assert module_name(channel) == "memory_channel"
    text, ports = generate_verilog(channel, "memory_channel")
    busy, occupancy = ports.outputs["busy"].offset, ports.inputs["occupancy"]
    generator, changed = np.random.default_rng(seed), 0
    stimulus = held_stimulus(ports, 8000, seed)
    for side in ("compute", "inbound", "dma"):  # seldom, or it is busy always
        stimulus[:, ports.inputs[f"{side}.valid"].offset] *= generator.random(len(stimulus)) < 0.05
    with CompiledBackend(build(text, ports)) as one, CompiledBackend(build(text, ports)) as other:
        for row in stimulus:
            one.inputs[:] = other.inputs[:] = row
            if not one.outputs[busy]:
                other.inputs[occupancy.offset] = generator.integers(1 << occupancy.width)
                changed += one.inputs[occupancy.offset] != other.inputs[occupancy.offset]
            for backend in (one, other):
                backend.settle()
            np.testing.assert_array_equal(one.outputs, other.outputs)
            for backend in (one, other):
                backend.step()
    assert 1000 < changed < 7000


@pytest.mark.parametrize("size", ["small", "full"])
def test_a_fused_run(size):
    """The top of a small machine and of the default one, on what a fused run gives it."""
    machine = load_machine()
    if size == "small":
        machine = variant(small_machine(machine), gpu={"compute_units": 12})
    stimulus = recorded_stimulus(machine, 4000)
    library = gpu_library(machine.geometry())
    assert library.self_test(500) == 0
    assert run_both(library, stimulus) > 10 * len(stimulus)
