"""CommandQueue against its model: programs in a ring of memory that is written anew while it is read."""

from t3sim.rtl.queue_commands import ADD, COPY, POLL, SIGNAL, TIMESTAMP, Command
from t3sim.rtl.registers import ERRORS, POLL_PERIOD
from t3sim.testbenches.bench import Bench, rounds
from t3sim.testbenches.drivers import StreamDriver
from t3sim.testbenches.monitors import StreamMonitor
from t3sim.testbenches.reference.command_queue import LINE_BYTES, CommandQueueModel


class Program:
    """The block with memory, host and engines around it, and who stops it at times."""

    def __init__(self, bench: Bench, commands: list[Command]) -> None:
        self.bench = bench
        self.places = (1 << bench["doorbell"].width - 1) // 2  # the rest of it is `valid`
        self.memory: dict[int, dict] = {}
        ring = self.places * LINE_BYTES
        self.base = bench.rng.randrange((1 << bench["base"].width) // ring) * ring
        first, end = sorted(bench.rng.sample(range(1 << bench["base"].width - 6), 2))
        self.words = tuple(line * LINE_BYTES + bench.rng.randrange(LINE_BYTES) for line in (first, end))
        bench.set("words", {"base": self.words[0], "limit": self.words[1]})
        self.commands = [self._placed(one) for one in commands]
        self.model = CommandQueueModel(self.memory, self.base, self.places, self.words)
        self.rung = self.seen = self.looks = 0  # commands written; those whose doorbell the block has seen
        self.leaving: int | None = None  #: cycle in which the last copy's data have left
        self.looked: int | None = None  #: cycle of the last look
        self.again: int | None = None  #: cycle in which the next is offered, unless it was stopped in the one before
        self.offered: int | None = None  #: cycle from which on a write is offered
        self.stops = self.stopped = False  # in this cycle, in the one before
        self.at_rest = False  # stopped in the cycle before, and no read was under way
        self.owed = False  # an answer
        self.start = bench.now
        self.halted = self.spoiled = self.copying = False  # in this cycle; data of a copy may be leaving
        self.refusal: dict | None = None  #: report of the command that was refused in the cycle before
        self.rang = self.rang_before = False  # a bad doorbell in this cycle, in the one before
        self.unheard = False  # in the cycle before, one was to be reported
        bench.set("base", self.base)
        bench.add(self)  # first: it sees what was before the coming edge
        self.lines = StreamDriver(bench, "lines", on_accept=self._answered)
        StreamMonitor(bench, "reads", lambda _: self._read(bench.get("reads.payload")))
        StreamMonitor(bench, "copies", self._copied)
        StreamMonitor(bench, "writes", self._wrote)

    @property
    def done(self) -> bool:
        return self.model.taken == len(self.commands)

    def drive(self) -> None:
        rng, free = self.bench.rng, self.places - (self.rung - self.model.taken)
        more = min(rng.randint(0, self.places), free, len(self.commands) - self.rung) if rng.random() < 0.3 else 0
        for number in range(self.rung, self.rung + more):
            self.memory[self.base + number % self.places * LINE_BYTES] = self.commands[number]._asdict()
        self.seen, self.rung = self.rung, self.rung + more
        # Only with `valid` does a place count, and only if it is lawful.
        place, rings, self.rang = self.rung % (2 * self.places), more > 0, False
        if not more:
            place, rings = rng.randrange(2 * self.places), rng.random() < 0.05
            self.rang = rings = rings and not self.model.takes_doorbell(place, self.seen)
        self.bench.set("doorbell", {"valid": int(rings), "place": place})
        # Data that triggers asked for count, too.
        self.settled = (self.leaving is None or self.bench.now >= self.leaving) and rng.random() < 0.8
        self.bench.set("settled", int(self.settled))
        self.stops = not more and rng.random() < (0.9 if self.stops else 0.03)
        self.bench.set("stop", int(self.stops))
        # What fails may be a trigger's, too.
        self.fails = not self.settled and rng.random() < 0.05
        self.bench.set("failed", int(self.fails))
        self.resumes, self.skips = rng.random() < 0.1, rng.random() < 0.05
        self.bench.set("resume", int(self.resumes))
        self.bench.set("skip", int(self.skips))
        if self.halted and self.at_rest and self.model.command is None and self.rung > self.model.taken:
            number = rng.randrange(self.model.taken, self.rung)  # what is not done may be another command yet
            self.commands[number] = self._placed(rng.choice(self.commands))
            self.memory[self.base + number % self.places * LINE_BYTES] = self.commands[number]._asdict()

    def sample(self) -> None:
        get = self.bench.get
        assert get("busy") == (self.seen != self.model.taken)
        assert get("taken") == self.model.taken % (2 * self.places)
        assert get("under_way") == (get("reads.valid") or self.owed or get("writes.valid"))
        assert not (self.at_rest and get("under_way")), "a read or a write begins while it must not"
        self._check_report(get("error"))
        assert (get("halted"), get("spoiled")) == (self.halted, self.spoiled)
        assert not (self.spoiled and get("writes.valid")), "a word after a copy that failed"
        rests, halted = self.stops or self.halted, self.halted
        goes_on = self.skips or (self.resumes and not self.spoiled)
        if halted and self.skips:
            if self.spoiled:
                self.bench.reach("a copy is skipped")
            else:
                self.model.skipped()
                self.bench.reach("a refused command is skipped")
        fails = self.fails and self.copying
        self.halted, self.spoiled = (halted and not goes_on) or fails, (self.spoiled and not goes_on) or fails
        self.copying = self.copying and not self.settled
        poll = self.model.command is not None and self.model.command.op == POLL
        reads = get("reads.valid") or self.owed
        assert get("waits") == {"fetch": reads and not poll, "poll": poll, "signal": get("writes.valid")}
        assert get("reads.valid") or self.again is None or self.bench.now < self.again or self.stopped, (
            "it looks too seldom")
        self.at_rest, self.stopped = rests and not get("under_way"), rests
        if get("writes.valid") and self.offered is None:
            self.offered = self.bench.now
            assert self.settled_before, "a signal before the data of its copies have left, or while it is stopped"
        self.settled_before = self.settled and not rests
        waits = self.model.command is not None and self.model.command.op != COPY
        if halted and waits and not (reads or get("writes.valid")):
            self.model.forgotten()
            self.again = self.looked = None
            self.bench.reach("what was read is read again")

    def reset(self) -> None:
        self.rung = self.seen = self.looks = 0
        self.leaving = self.looked = self.again = self.offered = None
        self.stopped = self.at_rest = self.owed = self.halted = self.spoiled = self.copying = False
        self.rang = self.rang_before = self.unheard = False
        self.refusal = None
        self.model = CommandQueueModel(self.memory, self.base, self.places, self.words)

    def _placed(self, command: Command) -> Command:
        """Let most commands name a word that they may; others are refused, unless they are copies."""
        rng = self.bench.rng
        if rng.random() < 0.05:
            return command._replace(op=rng.randrange(5, 8))
        if command.op == COPY or rng.random() < 0.05:
            return command
        first, end = (word // LINE_BYTES for word in self.words)
        line = rng.randrange(first, end)
        if rng.random() < 0.2:  # at a bound, on either side
            line = max(0, rng.choice((first, end)) + rng.randint(-2, 0))
        aligned = 0 if command.op == POLL else 4 * rng.randrange(LINE_BYTES // 4)
        return command._replace(address=line * LINE_BYTES + aligned + (rng.random() < 0.05))

    def _check_report(self, error: dict) -> None:
        refusal, self.refusal = self.refusal, None
        assert error["valid"] == (refusal is not None or self.unheard)
        if refusal is not None:
            assert error == refusal
        elif self.unheard:
            assert error["code"] == ERRORS["doorbell_refused"] and not any(error["details"].values())
        self.unheard = (self.unheard and refusal is not None) or self.rang_before
        self.rang_before = self.rang

    def _read(self, address: int) -> None:
        self.owed, self.again = True, None
        if self.model.command is not None:
            assert address == self.model.command.address
            assert self.looked is None or self.bench.now - self.looked >= POLL_PERIOD, "it looks too often"
            self.looked = self.bench.now
            self.looks += 1
            wrong = self.looks % 4 != 0 and 1 << self.bench.rng.randrange(32)
            self.lines.send({"value": self.model.command.value ^ wrong, "op": self.bench.rng.randrange(5)})
        else:
            assert address == self.model.fetches
            self.lines.send(self.memory[address])

    def _answered(self, line: dict) -> None:
        self.owed = False
        if self.model.command is None and self.bench.get("halted"):
            self.bench.reach("what was read is read again")
        elif self.model.command is None:
            place, error = self.model.fetches, self.model.fetched()
            if error:  # it is repaired before it is read again
                self.refusal = {"valid": 1, "code": ERRORS[error], "details": {
                    name: line[name] for name in ("address", "region", "wf", "wg")}}
                self.halted, self.memory[place] = True, line | {"op": COPY}
            self.looked = None
        elif not self.model.looked(line["value"]):
            self.again = max(self.looked + POLL_PERIOD, self.bench.now + 1) + 1

    def _copied(self, copy: dict) -> None:
        self.model.copied(copy)
        self.leaving, self.copying = self.bench.now + self.bench.rng.randint(2, 60), True

    def _wrote(self, write: dict) -> None:
        stamp = self.offered - 1 - self.start  # of the cycle in which the copies had left
        self.model.wrote(write["address"], write["value"], bool(write["adds"]), range(stamp, stamp + 1))
        self.offered = None


def commands(bench: Bench, count: int) -> list[Command]:
    rng, g = bench.rng, bench.geometry
    found = []
    for _ in range(count):
        op = rng.choice((COPY, COPY, POLL, SIGNAL, TIMESTAMP, ADD))
        found.append(Command(rng.getrandbits(32), op, rng.getrandbits(g.tracker.address_bits),
                             rng.randrange(g.dma.regions), rng.getrandbits(g.tracker.wf_bits),
                             rng.getrandbits(g.tracker.wg_bits)))
    return found


@rounds(8, cover=("a copy is skipped", "a refused command is skipped", "what was read is read again"))
async def random_programs(bench: Bench) -> None:
    """Run random programs with stops, repairs, resumes, skips and failed copies; compare with the model per cycle.

    Additions, polls and timestamps are among the commands: a timestamp is the cycle in which the copies had left.
    Stopped, the queue starts no read and no write; `waits` and `under_way` are compared too.
    """
    program = Program(bench, commands(bench, 60))
    if await bench.run(lambda: program.done, 20_000):
        await bench.cycle()
        assert not bench.get("busy") and bench.get("taken") == 60 % (2 * program.places)


@rounds(2)
async def copies_only(bench: Bench) -> None:
    """Take copies one after the other while none has left."""
    program = Program(bench, [one._replace(op=COPY) for one in commands(bench, 40)])
    if await bench.run(lambda: program.done, 20_000):
        assert program.rung == 40
