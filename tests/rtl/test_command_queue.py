"""Commands in memory against the reference: their order, what they wait for, and the ring that they lie in."""

import pytest

from t3sim.reference.command_queue import ADD, COPY, LINE_BYTES, POLL, SIGNAL, TIMESTAMP, Command, CommandQueueModel
from t3sim.rtl.command_queue import CommandQueue
from t3sim.rtl.geometry import DmaGeometry, Geometry, TrackerGeometry
from t3sim.rtl.registers import POLL_PERIOD
from tests.rtl.stream_bench import StreamBench, as_dict

GEOMETRIES = {
    "small": Geometry(tracker=TrackerGeometry(sets=8, banks=1, wg_bits=6), dma=DmaGeometry(queue_commands=4)),
    "two places": Geometry(tracker=TrackerGeometry(sets=1, ways=1, banks=1, wg_bits=1, wf_bits=1, address_bits=32),
                           dma=DmaGeometry(regions=2, queue_commands=2)),
    "many places": Geometry(dma=DmaGeometry(queue_commands=64)),
}
BASE, WORDS = 1 << 20, 1 << 24  #: of the ring, and of what is polled


def random_commands(rng, geometry, count):
    t = geometry.tracker
    for number in range(count):
        op = rng.choice((COPY, COPY, POLL, SIGNAL, TIMESTAMP, ADD))
        yield Command(rng.getrandbits(32), op, WORDS + 64 * number if op == POLL else rng.getrandbits(t.address_bits),
                      rng.randrange(geometry.dma.regions), rng.getrandbits(t.wf_bits), rng.getrandbits(t.wg_bits))


class Bench(StreamBench):
    """The queue with a memory of 1 to 20 cycles, and engines of which a copy is under way for up to 40 cycles.

    The memory's polled words come after some looks.
    """

    def __init__(self, geometry, seed, commands, looks=3, idle=0.3, settles=True):
        self.dut = CommandQueue(geometry)
        super().__init__(self.dut, seed)
        self.places, self.commands = geometry.dma.queue_commands, list(commands)
        self.looks, self.settles = looks, settles
        self.lines = {}
        self.model = CommandQueueModel(self.lines, BASE, self.places)
        self.rung = self.under_way = 0
        self.looked_at = []
        self.done = []  # (cycle, command)
        self.process(self.memory)
        self.process(self.host)
        self.process(self.engines)
        self.sink(self.dut.copies, idle, self.copied)
        self.sink(self.dut.writes, idle, self.wrote)

    def program(self, cycles=20_000):
        self.run(lambda: self.model.taken == len(self.commands), cycles, settle=3)

    async def host(self, ctx):
        """Writes commands as places become free, and rings the doorbell for one or several."""
        ctx.set(self.dut.base, BASE)
        written = 0
        while True:
            free = self.places - (written - self.model.taken)
            more = min(self.random.randint(0, 2 * self.places), free, len(self.commands) - written)
            for number in range(written, written + more):
                self.lines[BASE + number % self.places * LINE_BYTES] = self.commands[number]._asdict()
            written += more
            ctx.set(self.dut.doorbell, {"valid": more > 0, "place": written % (2 * self.places)})
            await ctx.tick()
            self.rung += more > 0

    async def memory(self, ctx):
        rng, tries = self.random, 0
        while True:
            ctx.set(self.dut.reads.ready, 0)
            await ctx.tick().repeat(rng.randint(1, 3))
            ctx.set(self.dut.reads.ready, 1)
            valid = False
            while not valid:
                _, _, valid, address = await ctx.tick().sample(self.dut.reads.valid, self.dut.reads.payload)
            ctx.set(self.dut.reads.ready, 0)
            if address >= WORDS:
                assert self.model.command is not None and self.model.command.address == address
                self.looked_at.append(self.cycle)
            await ctx.tick().repeat(rng.randint(1, 20))
            if address >= WORDS:
                wanted, tries = self.model.command.value, tries + 1
                value = wanted if tries > self.looks else wanted ^ 1 << rng.randrange(32)
                line = {"value": value, "op": rng.randrange(5)}
                tries = 0 if value == wanted else tries
            else:
                assert address == self.model.fetches and self.model.command is None
                line = self.lines[address]
            ctx.set(self.dut.lines.payload, line)
            ctx.set(self.dut.lines.valid, 1)
            ready = False
            while not ready:
                _, _, ready = await ctx.tick().sample(self.dut.lines.ready)
            ctx.set(self.dut.lines.valid, 0)
            if address < WORDS:
                self.model.fetched()
            elif self.model.looked(line["value"]):
                self.done.append((self.cycle, "poll"))

    async def engines(self, ctx):
        while True:
            ctx.set(self.dut.settled, self.under_way == 0)
            await ctx.tick()
            if self.settles:
                self.under_way = max(0, self.under_way - 1)

    def copied(self, copy):
        self.model.copied(copy)
        self.under_way = self.random.randint(1, 40)
        self.done.append((self.cycle, "copy"))

    def wrote(self, write):
        assert self.under_way == 0, "a signal before its copies have left"
        self.model.wrote(write["address"], write["value"], bool(write["adds"]), range(self.cycle + 5))
        self.done.append((self.cycle, "write"))


@pytest.mark.parametrize("name", GEOMETRIES)
def test_random_programs(name, seed):
    """Each command once, in order, from a ring that is written anew while it is read."""
    geometry = GEOMETRIES[name]
    bench = Bench(geometry, seed, [])
    bench.commands = list(random_commands(bench.random, geometry, 60))
    bench.program()
    assert bench.model.command is None and len(bench.done) == 60


def test_a_signal_waits_until_the_copies_have_left(seed):
    copy, signal = Command(0, COPY, 64, 1, 0, 0), Command(7, SIGNAL, 128, 0, 0, 0)
    bench = Bench(GEOMETRIES["small"], seed, [copy, copy, signal], settles=False)
    with pytest.raises(AssertionError, match="nothing more happens"):
        bench.program(2000)
    assert [what for _, what in bench.done] == ["copy", "copy"]


def test_copies_behind_each_other_do_not_wait_for_the_first(seed):
    """The engines overlap them."""
    bench = Bench(GEOMETRIES["many places"], seed, [Command(0, COPY, 64, 1, 0, 0)] * 20, settles=False)
    bench.program(2000)


def test_a_poll_holds_up_what_is_behind_it_and_looks_now_and_then(seed):
    poll, copy = Command(9, POLL, WORDS, 0, 0, 0), Command(0, COPY, 64, 1, 0, 0)
    bench = Bench(GEOMETRIES["small"], seed, [poll, copy], looks=10)
    bench.program()
    assert [what for _, what in bench.done] == ["poll", "copy"] and len(bench.looked_at) == 11
    assert POLL_PERIOD <= min(b - a for a, b in zip(bench.looked_at, bench.looked_at[1:])) < POLL_PERIOD + 12


def test_nothing_is_read_without_a_doorbell(seed):
    bench = Bench(GEOMETRIES["small"], seed, [])
    bench.run(lambda: bench.cycle > 200, 300)
    assert not bench.rung and not bench.model.taken and not bench.looked_at


def test_reset_in_flight(seed):
    """Whatever it was doing: at rest, then as new."""
    dut = CommandQueue(GEOMETRIES["small"])
    for cycles in range(1, 14):
        bench = StreamBench(dut, seed)
        taken = []

        async def program(ctx, cycles=cycles, bench=bench, taken=taken):
            ctx.set(dut.base, BASE)
            for reset in (True, False):
                ctx.set(dut.doorbell, {"valid": 1, "place": 1})
                ctx.set(dut.reads.ready, 1)
                ctx.set(dut.lines.valid, 1)
                ctx.set(dut.lines.payload, {"op": COPY, "address": 0x40, "region": 1, "wf": 2, "wg": 3})
                ctx.set(dut.copies.ready, not reset)
                await ctx.tick()
                ctx.set(dut.doorbell.valid, 0)
                if reset:
                    await ctx.tick().repeat(cycles)
                    await bench.pulse_reset(ctx)
                    assert not ctx.get(dut.busy) and not ctx.get(dut.copies.valid) and not ctx.get(dut.taken)
            while ctx.get(dut.busy):
                if ctx.get(dut.copies.valid):
                    taken.append(as_dict(ctx.get(dut.copies.payload)))
                await ctx.tick()

        bench.process(program, background=False)
        bench.run(cycles=200)
        assert taken == [{"address": 0x40, "region": 1, "wf": 2, "wg": 3}]
