"""The command queue: every command once, in order, and not before what it waits for."""

from amaranth.hdl import C, Cat, Mux, Signal, Value

from t3sim.rtl.geometry import Geometry
from t3sim.rtl.layouts import QueueOp, queue_command

from .broken import Broken
from .property import Property, Search
from .spec import Spec, implies

FETCHED = "a command is read from the place behind the last one done, and only behind a doorbell"
SAME = "what is done is what was read, and nothing else is done"
ONCE = "a command counts as done when it is done, and then once"
POLLED = "behind a poll nothing is done before memory holds its value"
STILL = "once nothing is under way and nothing may begin, nothing is read or written"
STAMPED = "a timestamp is the number of cycles from the reset to the one in which the copies had left"
SETTLED = "a signal is written only after a cycle in which its copies had left and it was not stopped"
WAITS = "it says for what it waits, and when a command is done"


def commands(spec: Spec, geometry: Geometry) -> None:
    """Claim what the queue does with commands.

    Assumed: memory answers a read once, and nothing else; the queue does not move while it is busy.
    """
    m, dut = spec.m, spec.design
    spec.hold(dut.base)
    written, reading = Signal.like(dut.taken), Signal()  # reading: memory owes an answer
    command, there, left = Signal(queue_command(geometry)), Signal(), Signal()  # read and not done; `settled` was seen
    asked, came = dut.reads.valid & dut.reads.ready, dut.lines.valid & dut.lines.ready
    poll, copy = command.op == QueueOp.POLL, command.op == QueueOp.COPY
    fits = dut.lines.payload.value == command.value
    done = Signal()
    m.d.comb += done.eq((dut.copies.valid & dut.copies.ready) | (dut.writes.valid & dut.writes.ready)
                        | (there & poll & came & fits))
    with m.If(dut.doorbell.valid):
        m.d.sync += written.eq(dut.doorbell.place)
    m.d.sync += reading.eq((reading | asked) & ~came)
    with m.If(came & ~there):
        m.d.sync += [there.eq(1), Value.cast(command).eq(Value.cast(dut.lines.payload)), left.eq(0)]
    with m.Elif(done):
        m.d.sync += there.eq(0)
    with m.If(there & dut.settled & ~dut.stop):
        m.d.sync += left.eq(1)
    spec.assume(implies(dut.lines.valid, reading))
    # The host does not take back what it rang for.
    spec.assume(implies(dut.doorbell.valid, ~dut.busy | (dut.doorbell.place != dut.taken)))
    spec.assume(implies(dut.doorbell.valid & done, dut.doorbell.place != dut.taken))

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
    spec.claim(ONCE, dut.taken == (spec.past(dut.taken) + spec.past(done))[:len(dut.taken)])
    spec.claim(POLLED, implies(there & poll & ~done, ~dut.copies.valid & ~dut.writes.valid))
    spec.claim(POLLED, implies(spec.past(there & poll & ~done), there & poll))
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


def properties() -> list[Property]:
    def broken(what, claim, old, new):
        return Broken(what, claim, "command_queue.py", old, new)

    return [Property("commands", "command_queue", "every command once, in order, and not before what it waits for",
                     commands, (
        broken("another place than the next is read", FETCHED, "self.taken[:-1], self.base",
               "~self.taken[:-1], self.base"),
        broken("commands are read without a doorbell", FETCHED, "with m.If(self.busy & ~self.stop):", "with m.If(1):"),
        broken("a poll looks at the place of its command", FETCHED, "self.reads.payload.eq(self.lines.payload.address)",
               "self.reads.payload.eq(self.reads.payload)"),
        broken("a signal's value is the cycle", SAME, "Mux(stamp, now, command.value)",
               "Mux(stamp, command.value, now)"),
        broken("a signal is added", SAME, "command.op == QueueOp.ADD", "command.op != QueueOp.TIMESTAMP"),
        broken("a copy counts before an engine takes it", ONCE, "with m.If(self.copies.ready):", "with m.If(1):"),
        broken("a poll is content with any value", POLLED, "with m.If(self.lines.payload.value == command.value):",
               "with m.If(self.lines.payload.value != command.value):"),
        broken("a poll goes on looking", STILL, "(pause == 0) & ~self.stop", "pause == 0"),
        broken("a poll between two looks does not wait", WAITS, "m.d.comb += self.waits.poll.eq(1)\n", "pass\n"),
        broken("a word is written while it is stopped", SETTLED, "self.settled & ~self.stop", "self.settled"),
        broken("cycles are counted while it is stopped only", STAMPED, "now.eq(now + 1)", "now.eq(now + self.stop)"),
        broken("a signal does not wait", SETTLED, "self.settled & ~self.stop", "~self.stop"),
    ), searches=(Search("least", 30), Search("default", 30)), quick=True)]
