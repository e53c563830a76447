"""Executes DMA commands from a ring in memory."""

from amaranth.hdl import C, Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from t3sim.rtl.geometry import Geometry
from t3sim.rtl.layouts import ErrorCode, QueueOp, buffer, error_report, queue_command, trigger, word_write
from t3sim.rtl.registers import POLL_PERIOD


class CommandQueue(wiring.Component):
    """Fetches commands from a ring in memory and executes them in order (DMA collectives paper, sections 3.2, 4.1).

    The ring has `queue_commands` lines of 64 bytes from `base` on. The address generators take its copies as well as
    the DMA table's commands.

    1. A doorbell names the place after the last command. The places of commands that are done may be rewritten.
    2. A copy is handed to an engine, which walks its block as its region says, like a trigger's. The next command is
       fetched meanwhile, so copies overlap while engines are free.
    3. A poll delays the commands after it until memory holds its value.
    4. A signal (SIGNAL, TIMESTAMP, ADD) waits until all data of the copies before it have left.
    5. An unknown command, or one with a misaligned or out-of-range word, is reported and not executed, and the queue
       halts. It also halts when a copy's data are refused, so no signal follows a failed copy. While it is halted,
       nothing begins; a copy that was offered before may still be taken.
    6. `resume` continues with the refused command, fetched anew; `skip` continues after it. A failed copy may have left
       in part and cannot be repeated, so only `skip` continues after it.
    7. A doorbell that moves backwards or beyond the ring is reported and ignored.
    8. One read is outstanding at a time.

    The caller must write commands before their doorbell; memory must read each line in one access.

    Members
    -------
    base : In(address_bits)
        Constant while `busy`; a multiple of the ring's bytes.
    doorbell : In({valid, place})
        Pulse; `place` modulo twice the number of places, which tells a full ring from an empty one.
    words : In({base, limit})
        Memory that commands may poll and write, in whole lines. A polled word begins a line; a written word is aligned
        to 4 bytes.
    lines : In(stream(queue_command))
        One line for each read.
    settled : In(1)
        Level: all data have left of every copy taken in an earlier cycle.
    failed : In(1)
        Pulse: a copy's data are refused, in a cycle in which it is not settled.
    resume, skip : In(1)
        Pulses, without effect unless `halted`. `resume` has no effect while `spoiled`. `skip` drops the failed copies
        or, if no copy failed, the refused command.
    stop : In(1)
        Level: offer no word, and begin no read unless one is under way (a poll's first look follows its command's
        line), so that nothing is outstanding when the queue is reset.
    under_way : Out(1)
        Level: a read or a word is offered, or a read's line is outstanding.
    done : Out(1)
        Pulse: a command is done in this cycle.
    waits : Out({fetch, poll, signal})
        Levels: for a command's line, for a poll's value, for a word to be taken.
    taken : Out(place bits)
        Commands done, modulo twice the number of places.
    busy, halted : Out(1)
        Levels: a command is not done; nothing begins until `resume` or `skip`.
    spoiled : Out(1)
        Level: halted because a copy failed.
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
        refuses = Signal()
        behind = Signal(self._place_bits)
        ahead = Signal(self._place_bits)
        unheard = Signal()  # a refused doorbell is still to be reported
        leaving = Signal()  # data of a copy may be leaving
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
            with m.If((ahead >= behind) & (ahead <= 1 << self._place_bits - 1)):
                m.d.sync += written.eq(self.doorbell.place)
            with m.Else():
                m.d.sync += unheard.eq(1)
        with m.If(done | (self.skip & self.halted & ~self.spoiled)):  # a refused command leaves the FSM in "next"
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
                with m.Elif(self.settled & ~self.stop):  # while stopped, data are dropped
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
    """Counts the lines that memory owes the command queue, and drops those that the queue does not expect.

    1. A forced soft reset ends while a line is outstanding. Lines requested before it are counted apart and dropped
       when they arrive. So is a line without a request. Both are errors.
    2. With `MOST` lines owed no further read leaves, so the counts never wrap.
    3. All outputs except `wanted.valid` and `error` are functions of registers and of the queue's streams.

    Memory must answer in the order of the reads, in a later cycle. A lost line cannot be told from a late one, so the
    line of a later read would be dropped in its place.

    Members
    -------
    asked : In(stream(address)), reads : Out(stream(address))
        Reads from the queue, and to memory.
    lines : In(stream(queue_command)), wanted : Out(stream(queue_command))
        Lines from memory, and to the queue.
    forget : In(1)
        Pulse: the queue is reset and no longer expects lines requested until and in this cycle.
    owed, late : Out(1)
        Levels: a line is outstanding; a line is outstanding that the queue no longer expects.
    error : Out(error_report)
        LINE_UNEXPECTED, with the line's fields.
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
        late = Signal(range(self.MOST + 1))  # the oldest of them, which are dropped
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
