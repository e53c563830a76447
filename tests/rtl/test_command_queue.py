"""Commands in memory against the reference: their order, what they wait for, and the ring that they lie in."""

import pytest
from amaranth.hdl import Value

from t3sim.rtl.dma.command_queue import CommandQueue
from t3sim.rtl.geometry import DmaGeometry, Geometry, TrackerGeometry
from t3sim.rtl.queue_commands import ADD, COPY, POLL, SIGNAL, TIMESTAMP, Command
from t3sim.rtl.registers import ERRORS, POLL_PERIOD
from t3sim.testbenches.reference.command_queue import LINE_BYTES, CommandQueueModel, refusal
from tests.support.stream_bench import StreamBench, as_dict, once
from tests.support.tiers import on_one

pytestmark = pytest.mark.builds_rtl

GEOMETRIES = {
    "small": Geometry(tracker=TrackerGeometry(sets=8, banks=1, wg_bits=6), dma=DmaGeometry(queue_commands=4)),
    "two places": Geometry(tracker=TrackerGeometry(sets=1, ways=1, banks=1, wg_bits=1, wf_bits=1, address_bits=32),
                           dma=DmaGeometry(regions=2, queue_commands=2)),
    "many places": Geometry(dma=DmaGeometry(queue_commands=64)),
}
BASE, WORDS = 1 << 20, 1 << 24  #: of the ring, and of what is polled and written
RANGE = (WORDS, WORDS + 64 * 64)
#: What a command can be refused for, and commands that are, or just are not.
REFUSED = [
    ("command_unknown", {"op": 5}), ("command_unknown", {"op": 6}), ("command_unknown", {"op": 7}),
    *(("word_misaligned", {"op": op, "address": WORDS + 64 + offset})
      for op in (SIGNAL, TIMESTAMP, ADD) for offset in (1, 2, 63)),
    *(("word_misaligned", {"op": POLL, "address": WORDS + offset}) for offset in (1, 4, 32)),
    *(("word_out_of_range", {"op": op, "address": address})
      for op in (POLL, SIGNAL, TIMESTAMP, ADD) for address in (0, WORDS - 64, RANGE[1], 1 << 31)),
    *((None, {"op": op, "address": address})
      for op in (POLL, SIGNAL, TIMESTAMP, ADD) for address in (WORDS, RANGE[1] - 64)),
    (None, {"op": SIGNAL, "address": RANGE[1] - 4}), (None, {"op": COPY, "address": 3}),
]


def random_commands(rng, geometry, count):
    t = geometry.tracker
    for _ in range(count):
        op = rng.choice((COPY, COPY, POLL, SIGNAL, TIMESTAMP, ADD))
        address = rng.randrange(*RANGE, 64 if op == POLL else 4) if op != COPY else rng.getrandbits(t.address_bits)
        yield Command(rng.getrandbits(32), op, address, rng.randrange(geometry.dma.regions), rng.getrandbits(t.wf_bits),
                      rng.getrandbits(t.wg_bits))


def packed(dut, line):
    """Return a line's bits: a command that there is not has no name."""
    layout = dut.lines.payload.shape()
    return sum((value & (1 << layout[name].width) - 1) << layout[name].offset for name, value in line.items())


class Bench(StreamBench):
    """The queue with a memory of 1 to 20 cycles, and engines of which a copy is under way for up to 40 cycles.

    The memory's polled words come after some looks.
    """

    def __init__(self, geometry, seed, commands, looks=3, idle=0.3, settles=True):
        self.dut = once(CommandQueue, geometry)
        super().__init__(self.dut, seed)
        self.places, self.commands = geometry.dma.queue_commands, list(commands)
        self.looks, self.settles = looks, settles
        self.lines = {}
        self.model = CommandQueueModel(self.lines, BASE, self.places, RANGE)
        self.errors, self.refused = [], []  # that are reported; that the model says
        self.rung = self.under_way = 0
        self.looked_at = []
        self.done = []  # (cycle, command)
        self.process(self.memory)
        self.process(self.host)
        self.process(self.reports)
        self.sink(self.dut.copies, idle, self.copied)
        self.sink(self.dut.writes, idle, self.wrote)
        self.process(self.engines)  # knows a copy of this cycle

    def program(self, cycles=20_000):
        self.run(lambda: self.model.taken == len(self.commands), cycles, settle=3)

    async def host(self, ctx):
        """Writes commands as places become free, and rings the doorbell for one or several."""
        ctx.set(self.dut.base, BASE)
        ctx.set(self.dut.words, {"base": RANGE[0], "limit": RANGE[1]})
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
            ctx.set(Value.cast(self.dut.lines.payload), packed(self.dut, line))
            ctx.set(self.dut.lines.valid, 1)
            ready = False
            while not ready:
                _, _, ready, halted = await ctx.tick().sample(self.dut.lines.ready, self.dut.halted)
            ctx.set(self.dut.lines.valid, 0)
            if address < WORDS and halted:  # it is read again
                continue
            if address < WORDS:
                if error := self.model.fetched():
                    await self.repair(ctx, address, error)
            elif self.model.looked(line["value"]):
                self.done.append((self.cycle, "poll"))

    async def repair(self, ctx, address, error):
        """Replace a command that was refused, while the queue halts."""
        line = self.lines[address]
        self.refused.append({"code": ERRORS[error]} | {name: line[name] for name in ("address", "region", "wf", "wg")})
        for _ in range(self.random.randrange(40)):
            await ctx.tick()
            assert ctx.get(self.dut.halted) and not ctx.get(self.dut.reads.valid) and not ctx.get(self.dut.writes.valid)
        self.lines[address] = line | {"op": SIGNAL, "address": WORDS}
        ctx.set(self.dut.resume, 1)
        await ctx.tick()
        ctx.set(self.dut.resume, 0)

    async def reports(self, ctx):
        async for _, _reset, valid, code, details in ctx.tick().sample(
                self.dut.error.valid, self.dut.error.code.as_value(), self.dut.error.details):
            if valid:
                self.errors.append({"code": code} | as_dict(details))

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


@pytest.mark.parametrize("name", on_one(GEOMETRIES))
def test_random_programs(name, seed):
    """60 commands through rings of 2 to 64 places, rewritten while read: each runs once, in order, as in the model."""
    geometry = GEOMETRIES[name]
    bench = Bench(geometry, seed, [])
    bench.commands = list(random_commands(bench.random, geometry, 60))
    bench.program()
    assert bench.model.command is None and len(bench.done) == 60


@pytest.mark.parametrize("bit", range(32))
def test_every_bit_of_a_timestamp_counts(bit):
    """The cycle counter is set shortly before the bit changes."""
    dut = once(CommandQueue, GEOMETRIES["small"])
    bench, line = StreamBench(dut, 1), {"value": 0, "op": TIMESTAMP, "address": WORDS, "region": 0, "wf": 0, "wg": 0}

    async def program(ctx):
        ctx.set(dut.words, {"base": RANGE[0], "limit": RANGE[1]})
        ctx.set(Value.cast(dut.lines.payload), packed(dut, line))
        for port in (dut.reads.ready, dut.lines.valid, dut.settled):
            ctx.set(port, 1)
        ctx.set(dut._now, (1 << bit) - 1)
        ctx.set(dut.doorbell, {"valid": 1, "place": 1})
        await ctx.tick()
        ctx.set(dut.doorbell.valid, 0)
        cycles = 0
        while not ctx.get(dut.writes.valid):
            cycles += 1
            await ctx.tick()
        assert ctx.get(dut.writes.payload.value) == (1 << bit) - 1 + cycles and cycles >= 1

    bench.process(program, background=False)
    bench.run(cycles=30)


def test_a_signal_waits_until_the_copies_have_left(seed):
    """With `settled` late, unsteady or never there is no signal before it."""
    copy, signal = Command(0, COPY, 64, 1, 0, 0), Command(7, SIGNAL, WORDS, 0, 0, 0)
    bench = Bench(GEOMETRIES["small"], seed, [copy, copy, signal], settles=False)
    with pytest.raises(AssertionError, match="nothing more happens"):
        bench.program(2000)
    assert [what for _, what in bench.done] == ["copy", "copy"]


def test_copies_behind_each_other_do_not_wait_for_the_first(seed):
    """None of the copies leaves, and all are taken, so engines overlap them."""
    bench = Bench(GEOMETRIES["many places"], seed, [Command(0, COPY, 64, 1, 0, 0)] * 20, settles=False)
    bench.program(2000)


def test_a_poll_holds_up_what_is_behind_it_and_looks_now_and_then(seed):
    """At least 16 cycles pass between two reads; here the 11th read finds the value."""
    poll, copy = Command(9, POLL, WORDS, 0, 0, 0), Command(0, COPY, 64, 1, 0, 0)
    bench = Bench(GEOMETRIES["small"], seed, [poll, copy], looks=10)
    bench.program()
    assert [what for _, what in bench.done] == ["poll", "copy"] and len(bench.looked_at) == 11
    assert POLL_PERIOD <= min(b - a for a, b in zip(bench.looked_at, bench.looked_at[1:])) < POLL_PERIOD + 12


@pytest.mark.parametrize("name", on_one(GEOMETRIES))
def test_programs_with_commands_that_are_refused(name, seed):
    """Each is reported, halts the queue, is repaired by software and read again."""
    bench = Bench(GEOMETRIES[name], seed, [])
    bench.commands = [one._replace(**bench.random.choice(REFUSED)[1]) if bench.random.random() < 0.3 else one
                      for one in random_commands(bench.random, GEOMETRIES[name], 40)]
    bench.program(40_000)
    assert bench.errors == bench.refused and len(bench.refused) > 3 and len(bench.done) == 40


@pytest.mark.parametrize(("error", "fields"), REFUSED)
def test_what_is_refused(error, fields):
    """Unknown, misaligned or out-of-range commands, at and beyond each bound: an error, and no read or word."""
    command = Command(0, COPY, 0, 1, 0, 1)._replace(**fields)
    assert refusal(command, RANGE) == error
    bench = Bench(GEOMETRIES["many places"], 1, [command], idle=0)
    bench.program()
    assert [one["code"] for one in bench.errors] == ([ERRORS[error]] if error else [])
    assert bench.done[-1][1] == ("write" if error else {COPY: "copy", POLL: "poll"}.get(command.op, "write"))


@pytest.mark.parametrize("late", [False, True])
def test_no_signal_follows_a_copy_that_failed(late, seed):
    """Neither a signal that is being fetched nor one that waits; a failure of other data halts nothing."""
    bench = Bench(GEOMETRIES["small"], seed, [Command(0, COPY, 64, 1, 0, 0), Command(7, SIGNAL, WORDS, 0, 0, 0)],
                  settles=False)
    dut = bench.dut

    async def fails(ctx):
        ctx.set(dut.failed, 1)
        while not bench.done:
            await ctx.tick()
            assert not ctx.get(dut.halted)
        ctx.set(dut.failed, 0)
        await ctx.tick().repeat(80 if late else 1)
        ctx.set(dut.failed, 1)
        await ctx.tick()
        ctx.set(dut.failed, 0)
        bench.settles = True
        for pulse in (None, dut.resume, dut.skip):
            await ctx.tick().repeat(200)
            assert ctx.get(dut.halted) and ctx.get(dut.spoiled) and [what for _, what in bench.done] == ["copy"]
            if pulse is not None:
                ctx.set(pulse, 1)
                await ctx.tick()
                ctx.set(pulse, 0)

    async def forgets(ctx):
        while not ctx.get(dut.halted):
            await ctx.tick()
        if bench.model.command is not None:
            bench.model.forgotten()

    bench.process(fails, background=False)
    bench.process(forgets)
    bench.program()
    assert [what for _, what in bench.done] == ["copy", "write"] and not bench.errors


@pytest.mark.parametrize("way", ["skip", "rewrite"])
@pytest.mark.parametrize("late", [False, True])
def test_after_a_copy_that_failed_the_ring_is_read_anew(way, late):
    """Only a skip continues, so software can rewrite the copy, whether its signal was read before or not."""
    dut = once(CommandQueue, GEOMETRIES["small"])
    bench = StreamBench(dut, 1)
    copy = {"value": 0, "op": COPY, "address": 64, "region": 1, "wf": 0, "wg": 0}
    signal = copy | {"value": 7, "op": SIGNAL, "address": WORDS}
    ring, asked, done = [copy, signal, copy, copy], [], []

    async def memory(ctx):
        ctx.set(dut.words, {"base": RANGE[0], "limit": RANGE[1]})
        for port in (dut.reads.ready, dut.copies.ready, dut.writes.ready):
            ctx.set(port, 1)
        async for _, _reset, valid, address, came in ctx.tick().sample(
                dut.reads.valid, dut.reads.payload, dut.lines.valid & dut.lines.ready):
            if came:
                ctx.set(dut.lines.valid, 0)
            if valid:
                asked.append(address // LINE_BYTES % 4)
                ctx.set(Value.cast(dut.lines.payload), packed(dut, ring[asked[-1]]))
                ctx.set(dut.lines.valid, 1)

    async def words(ctx):
        async for _, _reset, copies, writes, value in ctx.tick().sample(
                dut.copies.valid, dut.writes.valid, dut.writes.payload.value):
            if copies or writes:
                done.append(value if writes else "copy")

    async def host(ctx):
        async def ring_for(place):
            ctx.set(dut.doorbell, {"valid": 1, "place": place})
            await ctx.tick()
            ctx.set(dut.doorbell.valid, 0)
        await ring_for(2)
        while not done:
            await ctx.tick()
        await ctx.tick().repeat(30 if late else 1)
        ctx.set(dut.failed, 1)
        await ctx.tick()
        ctx.set(dut.failed, 0)
        ctx.set(dut.settled, 1)
        for pulse in (dut.resume, dut.skip):
            await ctx.tick().repeat(50)
            assert done == ["copy"] and ctx.get(dut.halted) and ctx.get(dut.taken) == 1
            if pulse is dut.skip and way == "rewrite":
                ring[1:3] = copy, signal
                await ring_for(3)
            ctx.set(pulse, 1)
            await ctx.tick()
            ctx.set(pulse, 0)
        await ctx.tick().repeat(50)
        assert not ctx.get(dut.busy) and not ctx.get(dut.halted) and not ctx.get(dut.spoiled)

    bench.process(memory)
    bench.process(words)
    bench.process(host, background=False)
    bench.run(cycles=400)
    assert done == (["copy", 7] if way == "skip" else ["copy", "copy", 7])


def test_a_skip_drops_the_command_that_was_refused_and_no_other():
    """Four refused commands in a row, and a skip when nothing was refused."""
    dut = once(CommandQueue, GEOMETRIES["small"])
    bench = StreamBench(dut, 1)
    unknown = {"value": 0, "op": 7, "address": WORDS, "region": 1, "wf": 2, "wg": 3}

    async def program(ctx):
        ctx.set(Value.cast(dut.lines.payload), packed(dut, unknown))
        ctx.set(dut.reads.ready, 1)
        ctx.set(dut.lines.valid, 1)
        ctx.set(dut.skip, 1)  # of nothing
        ctx.set(dut.doorbell, {"valid": 1, "place": 4})
        await ctx.tick()
        ctx.set(dut.skip, 0)
        ctx.set(dut.doorbell.valid, 0)
        for place in range(4):
            await ctx.tick().repeat(10)
            assert ctx.get(dut.halted) and not ctx.get(dut.spoiled) and ctx.get(dut.taken) == place
            ctx.set(dut.skip, 1)
            await ctx.tick()
            ctx.set(dut.skip, 0)
        await ctx.tick().repeat(10)
        assert not ctx.get(dut.halted) and not ctx.get(dut.busy) and ctx.get(dut.taken) == 4

    bench.process(program, background=False)
    bench.run(cycles=100)


def test_a_doorbell_goes_forward_and_within_the_ring(seed):
    """Every place from many states of the ring; a refused doorbell changes nothing."""
    dut, places = once(CommandQueue, GEOMETRIES["small"]), 4
    bench = StreamBench(dut, seed)
    copy = {"value": 0, "op": COPY, "address": 0, "region": 1, "wf": 0, "wg": 0}

    async def program(ctx):
        model = CommandQueueModel({}, BASE, places)
        written = 0

        async def ring(place, lawful):
            ctx.set(dut.doorbell, {"valid": 1, "place": place % (2 * places)})
            await ctx.tick()
            ctx.set(dut.doorbell, {"valid": 0, "place": 0})
            assert ctx.get(dut.busy) == ((place if lawful else written) % (2 * places) != ctx.get(dut.taken))
            await ctx.tick()
            assert ctx.get(dut.error.valid) == (not lawful)
            if not lawful:
                assert ctx.get(dut.error.code.as_value()) == ERRORS["doorbell_refused"]

        ctx.set(Value.cast(dut.lines.payload), packed(dut, copy))
        for _ in range(60):
            for place in range(2 * places):
                if not model.takes_doorbell(place, written):
                    await ring(place, False)
            await ring(written, True)
            further = bench.random.randint(0, places - (written - model.taken))
            written += further
            await ring(written, True)
            for port in (dut.reads.ready, dut.lines.valid, dut.copies.ready):
                ctx.set(port, 1)
            for _ in range(bench.random.randint(0, written - model.taken)):
                while not ctx.get(dut.done):
                    await ctx.tick()
                await ctx.tick()
                model.taken += 1
            for port in (dut.reads.ready, dut.lines.valid, dut.copies.ready):
                ctx.set(port, 0)

    bench.process(program, background=False)
    bench.run(cycles=20_000)


def test_a_doorbell_that_is_refused_has_no_details():
    """In particular not the details of the command that was refused before."""
    dut = once(CommandQueue, GEOMETRIES["small"])
    bench = StreamBench(dut, 1)
    reports = []

    async def program(ctx):
        unknown = {"value": 0, "op": 7, "address": WORDS, "region": 1, "wf": 2, "wg": 3}
        ctx.set(Value.cast(dut.lines.payload), packed(dut, unknown))
        ctx.set(dut.reads.ready, 1)
        ctx.set(dut.lines.valid, 1)
        for doorbell in ({"valid": 1, "place": 1}, {"valid": 0, "place": 0}, {"valid": 1, "place": 0}):
            ctx.set(dut.doorbell, doorbell)
            await ctx.tick()
            ctx.set(dut.doorbell.valid, 0)
            for _ in range(8):
                if ctx.get(dut.error.valid):
                    reports.append((ctx.get(dut.error.code.as_value()), as_dict(ctx.get(dut.error.details))))
                await ctx.tick()

    bench.process(program, background=False)
    bench.run()
    assert reports == [(ERRORS["command_unknown"], {"address": WORDS, "region": 1, "wf": 2, "wg": 3}),
                       (ERRORS["doorbell_refused"], {"address": 0, "region": 0, "wf": 0, "wg": 0})]


@pytest.mark.parametrize("cycle", range(1, 9))
def test_a_doorbell_and_a_command_that_are_refused_are_both_reported(cycle):
    """The command's doorbell precedes the bad doorbell by 1 to 8 cycles."""
    dut = once(CommandQueue, GEOMETRIES["small"])
    bench = StreamBench(dut, 1)
    codes = []

    async def program(ctx):
        unknown = {"value": 0, "op": 7, "address": WORDS, "region": 1, "wf": 2, "wg": 3}
        ctx.set(Value.cast(dut.lines.payload), packed(dut, unknown))
        ctx.set(dut.reads.ready, 1)
        ctx.set(dut.lines.valid, 1)
        for now in range(16):
            ctx.set(dut.doorbell, {"valid": now in (0, cycle), "place": 7 if now else 1})
            await ctx.tick()
            if ctx.get(dut.error.valid):
                codes.append(ctx.get(dut.error.code.as_value()))

    bench.process(program, background=False)
    bench.run()
    assert sorted(codes) == sorted([ERRORS["command_unknown"], ERRORS["doorbell_refused"]])


@pytest.mark.parametrize("level", ["stop", "halted"])
@pytest.mark.parametrize("what", ["command", "poll", "signal"])
def test_nothing_begins_while_it_rests(what, level):
    """It is at rest from the cycle in which the next command waits for its turn, its poll or its copies."""
    dut = once(CommandQueue, GEOMETRIES["small"])
    bench = StreamBench(dut, 1)
    copy = {"value": 0, "op": COPY, "address": 64, "region": 1, "wf": 0, "wg": 0}
    second = {"command": copy, "poll": copy | {"value": 1, "op": POLL, "address": WORDS},
              "signal": copy | {"op": SIGNAL, "address": WORDS}}[what]
    late = level == "halted" and what == "command"  # so that it is not begun before
    lines = [copy, second, copy]  # the third is no command: its value is not what a poll looks for

    async def program(ctx):
        ctx.set(dut.words, {"base": RANGE[0], "limit": RANGE[1]})
        ctx.set(dut.reads.ready, 1)
        ctx.set(dut.lines.valid, 1)
        ctx.set(dut.copies.ready, 1)
        ctx.set(dut.doorbell, {"valid": 1, "place": 1 if late else 2})
        left = {"command": 2, "poll": 0, "signal": 1}[what]
        while len(lines) > left or ctx.get(dut.under_way) or not ctx.get(dut.taken):
            if ctx.get(dut.lines.ready):
                ctx.set(Value.cast(dut.lines.payload), packed(dut, lines.pop(0)))
            await ctx.tick()
            ctx.set(dut.doorbell.valid, 0)
        ctx.set(dut.stop if level == "stop" else dut.failed, 1)
        ctx.set(dut.doorbell, {"valid": late, "place": 2})
        await ctx.tick()
        ctx.set(dut.failed, 0)
        ctx.set(dut.doorbell.valid, 0)
        ctx.set(dut.settled, 1)
        for _ in range(2 * POLL_PERIOD):
            assert not ctx.get(dut.under_way)
            await ctx.tick()
        ctx.set(dut.stop, 0)
        ctx.set(dut.skip, 1)
        for _ in range(5):
            await ctx.tick()
            if ctx.get(dut.under_way):
                return
        raise AssertionError("it does not go on")

    bench.process(program, background=False)
    bench.run(cycles=100)


def test_a_failure_in_the_cycle_of_a_skip_halts_again():
    """The skip does not hide a copy that fails in the same cycle."""
    dut = once(CommandQueue, GEOMETRIES["small"])
    bench = StreamBench(dut, 1)

    async def program(ctx):
        copy = {"value": 0, "op": COPY, "address": 64, "region": 1, "wf": 0, "wg": 0}
        ctx.set(Value.cast(dut.lines.payload), packed(dut, copy))
        for port in (dut.reads.ready, dut.lines.valid, dut.copies.ready):
            ctx.set(port, 1)
        ctx.set(dut.doorbell, {"valid": 1, "place": 1})
        await ctx.tick()
        ctx.set(dut.doorbell.valid, 0)
        while ctx.get(dut.busy):
            await ctx.tick()
        for goes_on in (0, 1):
            ctx.set(dut.failed, 1)
            ctx.set(dut.skip, goes_on)
            await ctx.tick()
            assert ctx.get(dut.halted)
        ctx.set(dut.failed, 0)
        await ctx.tick()
        assert not ctx.get(dut.halted)

    bench.process(program, background=False)
    bench.run(cycles=100)


def test_nothing_is_read_without_a_doorbell(seed):
    """Without a doorbell the queue reads no command."""
    bench = Bench(GEOMETRIES["small"], seed, [])
    bench.run(lambda: bench.cycle > 200, 300)
    assert not bench.rung and not bench.model.taken and not bench.looked_at


def test_reset_in_flight(seed):
    """A reset 1 to 13 cycles after a doorbell: the queue is at rest, then works as new."""
    dut = once(CommandQueue, GEOMETRIES["small"])
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
