"""The command queue: every command is done once, in order, and after all that it waits for."""

from dataclasses import replace
from types import ModuleType

from amaranth.hdl import C, Cat, Mux, Signal, Value

from t3sim.rtl.geometry import Geometry
from t3sim.rtl.layouts import ErrorCode, QueueOp, queue_command
from t3sim.testbenches.formal.broken import Broken
from t3sim.testbenches.formal.property import Property, Search
from t3sim.testbenches.formal.spec import Spec, implies
from t3sim.testbenches.geometries import GEOMETRIES

#: With a command queue.
_QUEUED = replace(GEOMETRIES["small"], dma=replace(GEOMETRIES["small"].dma, queue_commands=4))

FETCHED = "a command is read from the place after the last one done, after a doorbell"
SAME = "a command is done as it was read, and nothing else is done"
ONCE = "a command is counted once, when it is done"
POLLED = "after a poll no command is done before memory holds its value"
STILL = "while stopped with nothing under way, nothing is read or written"
STAMPED = "a timestamp counts the cycles from the reset to the cycle in which the copies had left"
SETTLED = "a signal is written only after a cycle in which its copies had left and the queue was not stopped"
WAITS = "`waits` and `done` are right"
LAWFUL = "a command is done if it is a copy or names an aligned word in the range; any other halts the queue, reported"
HALTED = "while halted, no read and no word begins"
FAILED = "refused data of a copy halt the queue, and no word is written before a skip"
BELL = "a doorbell counts if it moves forward within the ring; any other is reported"

TAKEN = "a line reaches the queue if and only if the queue has requested it since its reset"
DROPPED = "any other line is taken at once and reported"
OWED = "`owed` and `late` are right"
COUNTED = "no more lines are owed than can be counted, and every read leaves in time"


def commands(spec: Spec, geometry: Geometry) -> None:
    """Claim what the queue does with commands.

    Assumed: memory answers a read once, and nothing else; the queue and the range of words do not move.
    """
    m, dut = spec.m, spec.design
    spec.hold(dut.base)
    spec.hold(dut.words)
    written, reading = Signal.like(dut.taken), Signal()  # reading: memory owes an answer
    command, there, left = Signal(queue_command(geometry)), Signal(), Signal()  # read and not done; `settled` was seen
    asked, came = dut.reads.valid & dut.reads.ready, dut.lines.valid & dut.lines.ready
    poll, copy = command.op == QueueOp.POLL, command.op == QueueOp.COPY
    fits = dut.lines.payload.value == command.value
    done = Signal()
    m.d.comb += done.eq((dut.copies.valid & dut.copies.ready) | (dut.writes.valid & dut.writes.ready)
                        | (there & poll & came & fits))
    distance, rung = Signal.like(dut.taken), Signal.like(dut.taken)
    m.d.comb += [distance.eq(written - dut.taken), rung.eq(dut.doorbell.place - dut.taken)]
    heard = (distance <= rung) & (rung <= 1 << len(dut.taken) - 1)
    with m.If(dut.doorbell.valid & heard):
        m.d.sync += written.eq(dut.doorbell.place)
    m.d.sync += reading.eq((reading | asked) & ~came)
    line = Signal(queue_command(geometry))
    m.d.comb += Value.cast(line).eq(Value.cast(dut.lines.payload))
    aligned = (line.address[:2] == 0) & ((line.op != QueueOp.POLL) | (line.address[:6] == 0))
    inside = (line.address >> 6 >= dut.words.base >> 6) & (line.address >> 6 < dut.words.limit >> 6)
    fault = Mux(line.op.as_value() > QueueOp.ADD.value, ErrorCode.COMMAND_UNKNOWN, Mux(
        line.op == QueueOp.COPY, ErrorCode.NONE, Mux(~aligned, ErrorCode.WORD_MISALIGNED, Mux(
            ~inside, ErrorCode.WORD_OUT_OF_RANGE, ErrorCode.NONE))))
    halted, spoiled, leaving = Signal(), Signal(), Signal()
    refused = came & ~there & ~halted & (fault != ErrorCode.NONE)
    goes_on = dut.skip | (dut.resume & ~spoiled)
    m.d.sync += halted.eq((halted & ~goes_on) | refused | (dut.failed & leaving))
    m.d.sync += spoiled.eq((spoiled & ~goes_on) | (dut.failed & leaving))
    m.d.sync += leaving.eq((dut.copies.valid & dut.copies.ready) | (leaving & ~dut.settled))
    spec.claim(FAILED, (dut.halted == halted) & (dut.spoiled == spoiled) & implies(spoiled, ~dut.writes.valid))
    skips, forgets = Signal(), Signal()  # the command that was refused; what was read
    m.d.comb += [skips.eq(dut.skip & halted & ~spoiled),
                 forgets.eq(there & halted & ~copy & ~reading & ~dut.reads.valid & ~dut.writes.valid)]
    still = Signal()  # halted in the cycle before, with nothing under way
    m.d.sync += still.eq(halted & ~dut.under_way)
    spec.claim(HALTED, implies(still, ~dut.reads.valid & ~dut.writes.valid))
    bell = Signal()  # is to be reported
    m.d.sync += bell.eq((dut.doorbell.valid & ~heard) | (bell & refused))
    spec.claim(LAWFUL, implies(spec.past(refused), dut.error.valid & (dut.error.code.as_value() == spec.past(fault))))
    for name, _ in dut.error.details.shape():
        spec.claim(LAWFUL, implies(spec.past(refused), dut.error.details[name] == spec.past(line[name])))
    spec.claim(BELL, implies(~spec.past(refused), dut.error.valid == spec.past(bell)))
    spec.claim(BELL, implies(dut.error.valid & ~spec.past(refused),
                             dut.error.code.as_value() == ErrorCode.DOORBELL_REFUSED.value))
    with m.If(came & ~there & ~halted & ~refused):
        m.d.sync += [there.eq(1), Value.cast(command).eq(Value.cast(dut.lines.payload)), left.eq(0)]
    with m.Elif(done | forgets):
        m.d.sync += there.eq(0)
    with m.If(there & dut.settled & ~dut.stop & ~dut.halted):
        m.d.sync += left.eq(1)
    spec.assume(implies(dut.lines.valid, reading))
    spec.assume(implies(dut.failed, ~dut.settled))

    ring_bits = 5 + len(dut.taken)
    place = Mux(there, command.address, Cat(C(0, 6), dut.taken[:-1], dut.base[ring_bits:]))
    spec.claim(FETCHED, implies(dut.reads.valid, (dut.reads.payload == place) & ~reading
                                & Mux(there, poll, written != dut.taken)))
    spec.claim(FETCHED, dut.busy == (written != dut.taken))
    spec.claim(STILL, dut.under_way == (reading | dut.reads.valid | dut.writes.valid))
    spec.claim(STILL, implies(spec.past(dut.stop & ~dut.under_way), ~dut.reads.valid & ~dut.writes.valid))
    spec.claim(WAITS, dut.done == done)
    spec.claim(WAITS, (dut.waits.poll == (there & poll)) & (dut.waits.signal == dut.writes.valid)
               & (dut.waits.fetch == ~there & (reading | dut.reads.valid)))
    spec.claim(SAME, implies(dut.copies.valid, there & copy))
    for name, _ in dut.copies.payload.shape():
        spec.claim(SAME, implies(dut.copies.valid, dut.copies.payload[name] == command[name]))
    spec.claim(SAME, implies(dut.writes.valid, there & ~copy & ~poll & (dut.writes.payload.address == command.address)))
    spec.claim(SAME, implies(dut.writes.valid & (command.op != QueueOp.TIMESTAMP),
                             dut.writes.payload.value == command.value))
    spec.claim(SAME, implies(dut.writes.valid, dut.writes.payload.adds == (command.op == QueueOp.ADD)))
    spec.claim(ONCE, dut.taken == (spec.past(dut.taken) + spec.past(done | skips))[:len(dut.taken)])
    spec.claim(POLLED, implies(there & poll & ~done, ~dut.copies.valid & ~dut.writes.valid))
    spec.claim(POLLED, implies(spec.past(there & poll & ~done & ~forgets), there & poll))
    spec.claim(SETTLED, implies(dut.writes.valid, left))
    cycle = Signal(32)
    m.d.sync += cycle.eq(cycle + 1)
    spec.claim(STAMPED, implies(dut.writes.valid & ~spec.past(dut.writes.valid) & (command.op == QueueOp.TIMESTAMP),
                                dut.writes.payload.value == spec.past(cycle)))

    def state(*names):
        found = 0
        for name in names:
            found = found | dut._fsm.ongoing(name)
        return found

    lawful = copy | ((command.address[:2] == 0) & (~poll | (command.address[:6] == 0))
                     & (command.address >> 6 >= dut.words.base >> 6) & (command.address >> 6 < dut.words.limit >> 6)
                     & (command.op.as_value() <= QueueOp.ADD.value))
    spec.claim(LAWFUL, implies(there, lawful))
    spec.invariant(spec.inside("leaving") == leaving)
    spec.invariant(spec.inside("unheard") == bell)
    spec.invariant(implies(spoiled, halted))
    spec.invariant(implies(halted & ~spoiled, state("next") & dut.busy))
    spec.invariant(implies(state("write"), ~halted & ~leaving))
    spec.invariant(distance <= 1 << len(dut.taken) - 1)
    own = spec.inside("command")
    spec.invariant(spec.inside("written") == written)
    spec.invariant(spec.inside("now") == cycle)
    spec.invariant(state("next", "fetch", "command", "copy", "look", "compare", "pause", "settle", "write"))
    spec.invariant(there == state("copy", "look", "compare", "pause", "settle", "write"))
    spec.invariant(reading == state("command", "compare"))
    spec.invariant(implies(~state("next"), dut.busy))
    spec.invariant(implies(there, Value.cast(own) == Value.cast(command)))
    spec.invariant(implies(there, (copy == state("copy")) & (poll == state("look", "compare", "pause"))))
    spec.invariant(implies(state("fetch", "look", "compare", "pause"), dut.reads.payload == place))
    spec.invariant(implies(state("write"), left & (dut.writes.payload.address == command.address)))
    spec.invariant(implies(state("write") & (command.op != QueueOp.TIMESTAMP),
                           dut.writes.payload.value == command.value))
    spec.invariant(implies(state("write"), dut.writes.payload.adds == (command.op == QueueOp.ADD)))


def lines(spec: Spec, geometry: Geometry) -> None:
    """Claim which lines the queue gets, whatever memory answers and whenever it is reset."""
    m, dut = spec.m, spec.design
    owed, before = Signal(8), Signal(8)  # lines not come; those among them that were asked for before the last reset
    asks, came = dut.reads.valid & dut.reads.ready, dut.lines.valid & dut.lines.ready & (owed != 0)
    rest = Signal(8)
    m.d.comb += rest.eq(owed + asks - came)
    m.d.sync += [owed.eq(rest), before.eq(Mux(dut.forget, rest, before - (came & (before != 0))))]
    for_queue = (owed > before)[0] & (before == 0)
    spec.claim(TAKEN, dut.wanted.valid == (dut.lines.valid & for_queue))
    spec.claim(TAKEN, implies(for_queue, dut.lines.ready == dut.wanted.ready))
    spec.claim(TAKEN, Value.cast(dut.wanted.payload) == Value.cast(dut.lines.payload))
    spec.claim(DROPPED, implies(~for_queue, dut.lines.ready))
    spec.claim(DROPPED, dut.error.valid == (dut.lines.valid & ~for_queue))
    spec.claim(DROPPED, implies(dut.error.valid,
                                dut.error.code.as_value() == ErrorCode.LINE_UNEXPECTED.value))
    for name, _ in dut.error.details.shape():
        spec.claim(DROPPED, implies(dut.error.valid, dut.error.details[name] == dut.lines.payload[name]))
    spec.claim(OWED, (dut.owed == (owed != 0)) & (dut.late == (before != 0)))
    room = owed < dut.MOST
    spec.claim(COUNTED, owed <= dut.MOST)
    spec.claim(COUNTED, dut.reads.valid == (dut.asked.valid & room))
    spec.claim(COUNTED, dut.asked.ready == (dut.reads.ready & room))
    spec.claim(COUNTED, dut.reads.payload == dut.asked.payload)
    spec.invariant(spec.inside("owed") == owed)
    spec.invariant(spec.inside("late") == before)
    spec.invariant(before <= owed)


def _build(package: ModuleType, geometry: Geometry):
    return package.dma.command_queue.OwedLines(geometry)


def properties() -> list[Property]:
    def broken(what, claim, old, new):
        return Broken(what, claim, "dma/command_queue.py", old, new)

    return [Property("lines", "gpu_top", "lines that the command queue has not requested since its reset are "
                     "dropped and reported; all others reach it", lines, (
        broken("a late line is a command", TAKEN, "drops.eq((late != 0) | (owed == 0))", "drops.eq(owed == 0)"),
        broken("a line that nobody asked for is a command", TAKEN, "drops.eq((late != 0) | (owed == 0))",
               "drops.eq(late != 0)"),
        broken("a reset forgets a read of its own cycle", TAKEN, "Mux(self.forget, following,",
               "Mux(self.forget, owed,"),
        broken("a second reset forgets the lines of the first", TAKEN, "late.eq(Mux(self.forget, following, late -",
               "late.eq(Mux(self.forget & (late == 0), following, late -"),
        broken("a late line waits for the queue", DROPPED, "self.wanted.ready | drops", "self.wanted.ready"),
        broken("a late line is not reported", DROPPED, "self.error.valid.eq(self.lines.valid & drops)",
               "self.error.valid.eq(self.lines.valid & (owed == 0))"),
        broken("a line that nobody asked for counts", OWED, "self.lines.ready & (owed != 0)", "self.lines.ready"),
        broken("what is owed is not told", OWED, "self.owed.eq(owed != 0)", "self.owed.eq(owed > 1)"),
        broken("the count wraps", COUNTED, "room.eq(owed != self.MOST)", "room.eq(1)"),
    ), geometry=_QUEUED, searches=(Search(_QUEUED, 30),), quick=True, build=_build,
        reason="`small` with a command queue; nothing else counts here"),
    Property("commands", "command_queue", "every command is done once, in order, and after all that it waits for",
                     commands, (
        broken("another place than the next is read", FETCHED, "self.taken[:-1], self.base",
               "~self.taken[:-1], self.base"),
        broken("commands are read without a doorbell", FETCHED, "with m.If(self.busy & ~self.stop & ~self.halted):",
               "with m.If(1):"),
        broken("a poll looks at the place of its command", FETCHED, "self.reads.payload.eq(self.lines.payload.address)",
               "self.reads.payload.eq(self.reads.payload)"),
        broken("a signal's value is the cycle", SAME, "Mux(stamp, now, command.value)",
               "Mux(stamp, command.value, now)"),
        broken("a signal is added", SAME, "command.op == QueueOp.ADD", "command.op != QueueOp.TIMESTAMP"),
        broken("a copy counts before an engine takes it", ONCE, "with m.If(self.copies.ready):", "with m.If(1):"),
        broken("a poll is content with any value", POLLED, "with m.If(self.lines.payload.value == command.value):",
               "with m.If(self.lines.payload.value != command.value):"),
        broken("a poll goes on looking", STILL, "(pause == 0) & ~self.stop", "(pause == 0)"),
        broken("a poll between two looks does not wait", WAITS, "m.d.comb += self.waits.poll.eq(1)\n", "pass\n"),
        broken("a word is written while it is stopped", SETTLED, "self.settled & ~self.stop", "self.settled"),
        broken("a word that was read is written after a halt", SAME, """                with m.If(self.halted):
                    m.next = "next"
                with m.Elif(self.settled""", "                with m.If(self.settled & ~self.halted"),
        broken("a command is fetched while it is halted", HALTED, "with m.If(self.busy & ~self.stop & ~self.halted):",
               "with m.If(self.busy & ~self.stop):"),
        broken("a resume goes on after a copy that failed", FAILED, "(self.resume & ~self.spoiled)", "self.resume"),
        broken("a skip after a copy that failed drops the next command, too", ONCE,
               "self.skip & self.halted & ~self.spoiled", "self.skip & self.halted"),
        broken("a refused command does not halt it", FAILED, "with m.If(fails | refuses):", "with m.If(fails):"),
        broken("data that are refused halt it without a copy", FAILED, "fails.eq(self.failed & leaving)",
               "fails.eq(self.failed)"),
        broken("a copy has left when it is taken", FAILED, "m.d.sync += leaving.eq(1)", "m.d.sync += leaving.eq(0)"),
        broken("a poll is aligned like a word", LAWFUL, "(command.address[:6] != 0)", "(command.address[:2] != 0)"),
        broken("the line at the limit is in the range", LAWFUL, "(line >= self.words.limit[6:])",
               "(line > self.words.limit[6:])"),
        broken("an unknown command is done", LAWFUL, "command.op.as_value() > QueueOp.ADD.value", "0"),
        broken("a doorbell goes backwards", BELL, "(ahead >= behind) & ", ""),
        broken("a doorbell beyond the ring", FETCHED, " & (ahead <= 1 << self._place_bits - 1)", ""),
        broken("a refused command hides a doorbell's refusal", BELL, "self.error.details.eq(0), unheard.eq(0)]",
               "self.error.details.eq(0)]\n        m.d.sync += unheard.eq(0)"),
        broken("cycles are counted while it is stopped only", STAMPED, "now.eq(now + 1)", "now.eq(now + self.stop)"),
        broken("a signal does not wait", SETTLED, "self.settled & ~self.stop", "~self.stop"),
    ), searches=(Search("least", 30), Search("default", 30)), quick=True)]
