"""Commands for the DMA engines that lie in memory."""

from amaranth.hdl import C, Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from t3sim.rtl.geometry import Geometry
from t3sim.rtl.layouts import ErrorCode, QueueOp, buffer, error_report, queue_command, trigger, word_write
from t3sim.rtl.registers import POLL_PERIOD


class CommandQueue(wiring.Component):
    """Fetch commands from memory and do one after the other (DMA collectives paper, sections 3.2 and 4.1).

    It is the second front end of the address generators, beside the triggered commands of the DMA table.

    The queue is a ring of `queue_commands` lines of 64 bytes from `base` on. A doorbell names the place after the last
    command; a place that was taken may be written anew. A copy goes to an engine, which walks its block as
    its region says, like a trigger's, and the next command is fetched meanwhile: copies overlap as far as engines are
    free. A poll holds up what follows it. A signal, also one that memory adds, waits until all data of the copies
    before it have left.

    One read is under way at a time. Commands written before their doorbell is seen are fetched whole: a line is one
    access of memory.

    A command that is unknown, or names a word that is misaligned or outside `words`, is not done: it is reported, and
    the queue halts. It does so, too, when a copy's data are refused: no signal may follow. Halted, it begins nothing.
    A resume goes on, and reads all that is not done again; a skip goes on without the command that failed. A copy that
    failed was taken, and part of it may have left, so that it cannot be done again: only a skip goes on after it.
    A doorbell that goes backwards or beyond the ring, or comes while it is stopped, is reported and not taken.

    Members
    -------
    base : In(address_bits)
        Constant while `busy`; a multiple of the ring's bytes.
    doorbell : In({valid, place})
        Pulse; `place` modulo twice the number of places, so that a full ring is not an empty one.
    words : In({base, limit})
        Memory that commands may poll and write, in whole lines. A word that is polled begins a line, one that is
        written is 4 bytes aligned.
    reads : Out(stream(address))
    lines : In(stream(queue_command))
        What was read, one for each read.
    copies : Out(stream(trigger))
    settled : In(1)
        Level: of every copy taken in an earlier cycle all data have left.
    failed : In(1)
        Pulse: a copy's data are refused, in a cycle in which it is not settled.
    resume, skip : In(1)
        Pulses: go on, which does nothing while `spoiled`; go on without the copies that failed, or if none did, without
        the command that was refused. Neither does anything unless it is halted.
    writes : Out(stream(word_write))
    stop : In(1)
        Level: no read begins and no word is offered, so that none is under way when the queue is reset.
    under_way : Out(1)
        Level: a read or a word is offered, or a read's line has not come.
    done : Out(1)
        Pulse: a command is done in this cycle.
    waits : Out({fetch, poll, signal})
        Levels: for a command's line, for what a poll looks for, for its word to be taken.
    taken : Out(place bits)
        Commands done, modulo the same.
    busy, halted : Out(1)
        Levels: a command is not done; nothing is begun until `resume` or `skip`.
    spoiled : Out(1)
        Level: halted, because a copy failed.
    error : Out(error_report)
        COMMAND_UNKNOWN, WORD_MISALIGNED, WORD_OUT_OF_RANGE or, without details, DOORBELL_REFUSED.
    """

    def __init__(self, geometry: Geometry):
        self._geometry = geometry
        places = geometry.dma.queue_commands
        self._place_bits = places.bit_length()
        super().__init__({
            "base": In(geometry.tracker.address_bits),
            "doorbell": In(data.StructLayout({"valid": 1, "place": self._place_bits})),
            "words": In(buffer(geometry)),
            "reads": Out(stream.Signature(geometry.tracker.address_bits)),
            "lines": In(stream.Signature(queue_command(geometry))),
            "copies": Out(stream.Signature(trigger(geometry))),
            "settled": In(1),
            "failed": In(1),
            "resume": In(1),
            "skip": In(1),
            "writes": Out(stream.Signature(word_write(geometry))),
            "stop": In(1),
            "under_way": Out(1),
            "done": Out(1),
            "waits": Out(data.StructLayout({"fetch": 1, "poll": 1, "signal": 1})),
            "taken": Out(self._place_bits),
            "busy": Out(1),
            "halted": Out(1),
            "spoiled": Out(1),
            "error": Out(error_report(geometry)),
        })

    def elaborate(self, platform):
        m = Module()
        written = Signal(self._place_bits)
        now = self._now = Signal(32)  # cycle counter
        pause = Signal(range(POLL_PERIOD))
        command = Signal(queue_command(self._geometry))
        stamp = Signal()
        done = self.done
        m.d.sync += now.eq(now + 1)
        op = self.lines.payload.op
        fault = Signal(ErrorCode)
        self._judge(m, fault)
        refuses = Signal()  # the command that has come
        behind = Signal(self._place_bits)
        ahead = Signal(self._place_bits)
        unheard = Signal()  # a doorbell was refused, and that is not reported
        leaving = Signal()  # data of a copy may be
        with m.If(self.copies.valid & self.copies.ready):
            m.d.sync += leaving.eq(1)
        with m.Elif(self.settled):
            m.d.sync += leaving.eq(0)
        fails = Signal()  # a copy
        m.d.comb += [fails.eq(self.failed & leaving),
                     behind.eq(written - self.taken), ahead.eq(self.doorbell.place - self.taken)]
        with m.If(self.skip | (self.resume & ~self.spoiled)):
            m.d.sync += [self.halted.eq(0), self.spoiled.eq(0)]
        with m.If(fails | refuses):
            m.d.sync += [self.halted.eq(1), self.spoiled.eq(fails)]
        m.d.sync += self.error.valid.eq(refuses | unheard)
        with m.If(refuses):
            m.d.sync += [
                self.error.code.eq(fault),
                *(self.error.details[name].eq(self.lines.payload[name]) for name, _ in self.error.details.shape())]
        with m.Else():
            m.d.sync += [self.error.code.eq(ErrorCode.DOORBELL_REFUSED), self.error.details.eq(0), unheard.eq(0)]
        with m.If(self.doorbell.valid):
            with m.If(~self.stop & (ahead >= behind) & (ahead <= 1 << self._place_bits - 1)):
                m.d.sync += written.eq(self.doorbell.place)
            with m.Else():
                m.d.sync += unheard.eq(1)
        with m.If(done | (self.skip & self.halted & ~self.spoiled)):  # what was refused waits in "next"
            m.d.sync += self.taken.eq(self.taken + 1)
        m.d.comb += [
            self.busy.eq(written != self.taken),
            stamp.eq(command.op == QueueOp.TIMESTAMP),
            *(self.copies.payload[name].eq(command[name]) for name, _ in self.copies.payload.shape()),
        ]
        with m.FSM() as self._fsm:  # proofs read it
            with m.State("next"):
                with m.If(self.busy & ~self.stop & ~self.halted):
                    m.d.sync += self.reads.payload.eq(
                        Cat(C(0, 6), self.taken[:-1], self.base[5 + self._place_bits:]))
                    m.next = "fetch"
            with m.State("fetch"):
                m.d.comb += [self.reads.valid.eq(1), self.under_way.eq(1), self.waits.fetch.eq(1)]
                with m.If(self.reads.ready):
                    m.next = "command"
            with m.State("command"):
                m.d.comb += [self.lines.ready.eq(1), self.under_way.eq(1), self.waits.fetch.eq(1)]
                with m.If(self.lines.valid):
                    m.d.sync += [command.eq(self.lines.payload), self.reads.payload.eq(self.lines.payload.address)]
                    with m.If(self.halted):
                        m.next = "next"
                    with m.Elif(fault != ErrorCode.NONE):
                        m.d.comb += refuses.eq(1)
                        m.next = "next"
                    with m.Elif(op == QueueOp.COPY):
                        m.next = "copy"
                    with m.Elif(op == QueueOp.POLL):
                        m.next = "look"
                    with m.Else():
                        m.next = "settle"
            with m.State("copy"):
                m.d.comb += self.copies.valid.eq(1)
                with m.If(self.copies.ready):
                    m.d.comb += done.eq(1)
                    m.next = "next"
            with m.State("look"):
                m.d.comb += [self.reads.valid.eq(1), self.under_way.eq(1), self.waits.poll.eq(1)]
                with m.If(self.reads.ready):
                    m.d.sync += pause.eq(POLL_PERIOD - 1)
                    m.next = "compare"
            with m.State("compare"):
                m.d.comb += [self.lines.ready.eq(1), self.under_way.eq(1), self.waits.poll.eq(1)]
                m.d.sync += pause.eq(pause - (pause != 0))
                with m.If(self.lines.valid):
                    with m.If(self.lines.payload.value == command.value):
                        m.d.comb += done.eq(1)
                        m.next = "next"
                    with m.Else():
                        m.next = "pause"
            with m.State("pause"):
                m.d.comb += self.waits.poll.eq(1)
                m.d.sync += pause.eq(pause - (pause != 0))
                with m.If(self.halted):
                    m.next = "next"
                with m.Elif((pause == 0) & ~self.stop):
                    m.next = "look"
            with m.State("settle"):
                with m.If(self.halted):
                    m.next = "next"
                with m.Elif(self.settled & ~self.stop):  # stopped, data leave to nowhere
                    m.d.sync += [self.writes.payload.address.eq(command.address),
                                 self.writes.payload.adds.eq(command.op == QueueOp.ADD),
                                 self.writes.payload.value.eq(Mux(stamp, now, command.value))]
                    m.next = "write"
            with m.State("write"):
                m.d.comb += [self.writes.valid.eq(1), self.under_way.eq(1), self.waits.signal.eq(1)]
                with m.If(self.writes.ready):
                    m.d.comb += done.eq(1)
                    m.next = "next"
        return m

    def _judge(self, m, fault):
        """Say what is wrong with the command that comes."""
        command = self.lines.payload
        line = command.address[6:]
        with m.If(command.op.as_value() > QueueOp.ADD.value):
            m.d.comb += fault.eq(ErrorCode.COMMAND_UNKNOWN)
        with m.Elif(command.op != QueueOp.COPY):
            with m.If((command.address[:2] != 0) | ((command.op == QueueOp.POLL) & (command.address[:6] != 0))):
                m.d.comb += fault.eq(ErrorCode.WORD_MISALIGNED)
            with m.Elif((line < self.words.base[6:]) | (line >= self.words.limit[6:])):
                m.d.comb += fault.eq(ErrorCode.WORD_OUT_OF_RANGE)


class OwedLines(wiring.Component):
    """Counts the lines that memory owes the command queue, and keeps from it those that it has not asked for.

    A soft reset that is forced ends though a line is still to come. That line is none of the ring that follows, so
    what the queue asked for before is counted apart, and dropped when it comes; so is a line that nobody asked for.
    Both are errors. Memory answers in the order of the reads, in a later cycle. A line that it loses cannot be told
    from one that is late: that of a later read is then dropped in its place.

    With `MOST` lines owed no further read leaves, so that the counts never wrap. All outputs but `wanted.valid` and
    `error` are functions of registers and of the queue's streams.

    Members
    -------
    asked : In(stream(address)), reads : Out(stream(address))
        Reads of the queue, and on their way to memory.
    lines : In(stream(queue_command)), wanted : Out(stream(queue_command))
        Lines from memory, and those that are for the queue.
    forget : In(1)
        Pulse: the queue is reset, and does not wait any more for what was asked for until and in this cycle.
    owed, late : Out(1)
        Levels: a line has not come; nor has one that the queue does not wait for any more.
    error : Out(error_report)
        LINE_UNEXPECTED, with what the line says.
    """

    MOST = 15

    def __init__(self, geometry: Geometry):
        self._geometry = geometry
        address = stream.Signature(geometry.tracker.address_bits)
        super().__init__({
            "asked": In(address),
            "reads": Out(address),
            "lines": In(stream.Signature(queue_command(geometry))),
            "wanted": Out(stream.Signature(queue_command(geometry))),
            "forget": In(1),
            "owed": Out(1),
            "late": Out(1),
            "error": Out(error_report(geometry)),
        })

    def elaborate(self, platform):
        m = Module()
        owed = Signal(range(self.MOST + 1))
        late = Signal(range(self.MOST + 1))  # of them, those that are dropped; they come first
        room = Signal()
        drops = Signal()
        came = Signal()
        following = Signal(range(self.MOST + 1))
        m.d.comb += [
            room.eq(owed != self.MOST),
            self.reads.valid.eq(self.asked.valid & room),
            self.reads.payload.eq(self.asked.payload),
            self.asked.ready.eq(self.reads.ready & room),
            drops.eq((late != 0) | (owed == 0)),
            self.wanted.valid.eq(self.lines.valid & ~drops),
            self.wanted.payload.eq(self.lines.payload),
            self.lines.ready.eq(self.wanted.ready | drops),
            came.eq(self.lines.valid & self.lines.ready & (owed != 0)),
            following.eq(owed + (self.reads.valid & self.reads.ready) - came),
            self.owed.eq(owed != 0),
            self.late.eq(late != 0),
            self.error.valid.eq(self.lines.valid & drops),
            self.error.code.eq(ErrorCode.LINE_UNEXPECTED),
            *(self.error.details[name].eq(self.lines.payload[name]) for name, _ in self.error.details.shape()),
        ]
        m.d.sync += [owed.eq(following), late.eq(Mux(self.forget, following, late - (came & (late != 0))))]
        return m
