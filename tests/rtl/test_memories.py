"""The memories of the hardware: how each is read and written, and what a simulation has an SRAM macro give."""

import pytest
import test_dispatch_window
import test_dma_table
import test_ready_table
from amaranth.hdl import Cat, Elaboratable, Fragment, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import Out
from amaranth.sim import Simulator

from t3sim.area.memories import COPIES, FLIP_FLOPS, MACRO, memories_of
from t3sim.rtl.blocks import BLOCKS
from t3sim.rtl.dma import dma_table
from t3sim.rtl.geometry import DmaGeometry, Geometry, TrackerGeometry
from t3sim.rtl.streams.forwarded_read import forwarded_read
from t3sim.rtl.window import dispatch_window, ready_table
from t3sim.testbenches.formal.macros import AsMacros, Elaborated, memories
from tests.support.stream_bench import once

pytestmark = pytest.mark.builds_rtl

#: With all that a top can have: groups of tiles that others wait for, command queues.
FULL = Geometry(dma=DmaGeometry(ready_groups=32, queue_commands=64))

#: Of that top: how many there are, words, bits of a word, clocked reads, each of a copy; all have one write.
MEMORIES = {
    "channel.dma_queue.digests": (32, 32, 6, 1),
    "channel.dma_queue.memory": (32, 32, 82, 1),
    "channel.guard.granted.counts": (32, 64, 7, 2),
    "channel.guard.retired.counts": (32, 64, 7, 2),
    "ready.counts": (1, 32, 12, 2),
    "table.blocks": (1, 1024, 51, 1),
    "table.ready.storage": (1, 2047, 71, 1),
    "tracker.entries": (64, 32, 68, 1),
    "tracker.tags": (64, 32, 12, 1),
    "window.progress": (1, 256, 12, 2),
    "window.tiles": (1, 256, 13, 3),
}


def listed(block, geometry):
    """What is no flip-flops, as `MEMORIES` has it; anything that no copies of a macro give is an error."""
    found = {}
    for memory in memories_of(block, geometry):
        if memory.kind == FLIP_FLOPS:
            continue
        assert memory.kind in (MACRO, COPIES), f"{memory.name} has reads without a clock, or several writes"
        assert not memory.write_through, f"{memory.name} is to give the word that is being written"
        found[memory.name] = (memory.count, memory.words, memory.width, memory.clocked_reads)
    return found


def test_every_memory_of_the_top():
    """The complete list of memories and ports; a new memory, or another way to access one, changes it."""
    assert listed("gpu_top", FULL) == MEMORIES


@pytest.mark.parametrize("protection", ["parity", "secded"])
def test_a_protected_trackers_memories_are_sram_macros(protection):
    """Two memories, with one write and one clocked read port each."""
    assert len(listed("tracker", Geometry(TrackerGeometry(protection=protection)))) == 2


class Single(wiring.Component):
    """A memory of 16 words with two writes, or a read of another kind."""

    def __init__(self, domain="sync", transparent=False, writes=1):
        super().__init__({})
        self._domain, self._transparent, self._writes = domain, transparent, writes

    def elaborate(self, platform):
        m = Module()
        m.submodules.words = words = Memory(shape=8, depth=16, init=[])
        writes = [words.write_port() for _ in range(self._writes)]
        words.read_port(domain=self._domain, transparent_for=writes if self._transparent else ())
        return m


@pytest.mark.parametrize(("change", "why"), [
    ({"domain": "comb"}, "words has reads without a clock"),
    ({"writes": 2}, "words has reads without a clock, or several writes"),
    ({"transparent": True}, "words is to give the word"),
])
def test_another_kind_of_memory_is_refused(monkeypatch, change, why):
    """Reads without a clock, two writes and transparent reads are no SRAM macro."""
    monkeypatch.setitem(BLOCKS, "single", lambda geometry: Single())
    assert listed("single", Geometry()) == {"words": (1, 16, 8, 1)}
    monkeypatch.setitem(BLOCKS, "single", lambda geometry: Single(**change))
    with pytest.raises(AssertionError, match=why):
        listed("single", Geometry())


class Forwarded(wiring.Component):
    """A forwarded read with ports."""

    def __init__(self):
        super().__init__({"found": Out(8)})
        self.words = Memory(shape=8, depth=4, init=range(4))
        self.write = self.words.write_port()

    def elaborate(self, platform):
        m = Module()
        m.submodules.words = self.words
        self.read, found = forwarded_read(m, self.words, self.write, "word")
        m.d.comb += self.found.eq(found)
        return m


@pytest.mark.parametrize("macro_gives", ["old", "new", "neither"])
def test_a_forwarded_read_is_what_its_row_holds_whether_it_reads_again_or_not(rng, macro_gives):
    """Whatever the macro returns for a row that is being written."""
    dut = Forwarded()
    simulator = Simulator(dut if macro_gives == "old" else AsMacros(
        dut, (lambda bits: dut.write.data) if macro_gives == "new" else None))
    simulator.add_clock(1e-9)

    async def run(ctx):
        words, asked = list(range(4)), None
        for cycle in range(2000):
            written, row, word, read, enabled = (rng.random() < 0.5, rng.randrange(4), rng.getrandbits(8),
                                                 rng.randrange(4), asked is None or rng.random() < 0.5)
            if not enabled:
                read = asked
            for port, value in ((dut.write.en, written), (dut.write.addr, row), (dut.write.data, word),
                                (dut.read.addr, read), (dut.read.en, enabled)):
                ctx.set(port, value)
            if written:
                words[row] = word
            asked = read
            await ctx.tick()
            assert ctx.get(dut.found) == words[asked], cycle

    simulator.add_testbench(run)
    simulator.run()


@pytest.fixture
def fresh():
    """Blocks of before are not those of after a change."""
    once.cache_clear()
    yield
    once.cache_clear()


@pytest.mark.parametrize(("module", "fails"), [
    (dispatch_window, lambda: test_dispatch_window.test_random_requests("few_ways", 3, 0.0, 0.0, 0.5, True)),
    (dma_table, lambda: test_dma_table.test_full_rate_even_on_one_block(2)),
    (ready_table, test_ready_table.test_a_completion_in_every_cycle_counts),
], ids=["dispatch_window", "dma_table", "ready_table"])
def test_who_uses_what_a_macro_gives_for_a_row_being_written_is_found_out(monkeypatch, fresh, module, fails):
    """Three blocks fail their tests without forwarding."""
    def not_forwarded(m, memory, write, name):
        read = memory.read_port()
        return read, read.data

    fails()
    once.cache_clear()
    monkeypatch.setattr(module, "forwarded_read", not_forwarded)
    with pytest.raises(AssertionError):
        fails()


class Idle(Elaboratable):
    """A block to which nothing comes; `reads` says which of its memories' ports read."""

    def __init__(self, block):
        self._block, self.reads = block, Signal(64)

    def elaborate(self, platform):
        m = Module()
        fragment = Fragment.get(self._block, platform)
        ports = [port for memory in memories(fragment) for port in memory._read_ports if port._domain != "comb"]
        assert ports
        m.d.comb += self.reads.eq(Cat(port._en for port in ports))
        m.submodules.block = Elaborated(fragment)
        return m


@pytest.mark.parametrize("block", ["memory_channel", "order_guard", "tracker", "dispatch_window", "dma_table",
                                   "ready_table"])
def test_nothing_is_read_while_nothing_comes(block):
    """Every block with memories, inputs 0: all read enables are 0."""
    dut = Idle(BLOCKS[block](Geometry(TrackerGeometry(sets=32))))
    simulator = Simulator(dut)
    simulator.add_clock(1e-9)

    async def run(ctx):
        await ctx.tick().repeat(140)  # memories are cleared
        for _ in range(20):
            assert ctx.get(dut.reads) == 0
            await ctx.tick()

    simulator.add_testbench(run)
    simulator.run()


class Both(wiring.Component):
    """A memory whose read and write have ports."""

    def __init__(self):
        super().__init__({})
        self.words = Memory(shape=8, depth=16, init=range(16))
        self.read, self.write = self.words.read_port(), self.words.write_port()

    def elaborate(self, platform):
        m = Module()
        m.submodules.words = self.words
        return m


def test_a_word_that_is_being_written_is_noise_to_a_simulation():
    """Only that word, until the port reads again."""
    dut, seen = Both(), []
    simulator = Simulator(AsMacros(dut))
    simulator.add_clock(1e-9)

    async def run(ctx):
        ctx.set(dut.write.addr, 3)
        for new in range(100, 110):
            ctx.set(dut.write.data, new)
            for written, read, enabled, right in ((1, 4, 1, 4), (1, 3, 1, None), (0, 4, 0, None), (0, 3, 1, new)):
                ctx.set(dut.write.en, written)
                ctx.set(dut.read.addr, read)
                ctx.set(dut.read.en, enabled)
                await ctx.tick()
                if right is None:
                    seen.append(ctx.get(dut.read.data))
                else:
                    assert ctx.get(dut.read.data) == right

    simulator.add_testbench(run)
    simulator.run()
    assert seen[0::2] == seen[1::2]
    assert len(set(seen)) > 5
    assert sum(word in (99 + turn, 100 + turn) for turn, word in enumerate(seen[0::2])) < 3
