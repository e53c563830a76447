"""A stream queue of a few entries that is cheap to simulate."""

from amaranth.hdl import Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

_MACRO_WORDS = 8  #: smaller memories are flip-flops, with combinational reads


class PointerQueue(wiring.Component):
    """Queue of `depth` entries.

    1. Full rate from 2 entries on; latency 1 cycle; no combinational path from input to output.
    2. From 8 entries on the memory suits an SRAM macro: one write, and one clocked read, enabled when an entry leaves
       and in the cycle after a word bypassed the memory. A word that is read while it is written bypasses the memory
       through a register.
    3. With `digest`, a function of an entry, its value for the output entry is a register, so it depends neither on the
       memory read nor on the function.

    Entries do not move, unlike in a shift queue, and the two pointers need no separate level (`lib.fifo` has one): both
    would cost simulation time.

    Members
    -------
    head_digest : Out(unsigned)
        Only with `digest`: the digest of `output.payload`, if valid.
    next_digest : Out(unsigned)
        Only with `digest`: the next `head_digest`, if an entry leaves or the queue is empty and one arrives.
    """

    def __init__(self, shape, depth: int, digest=None) -> None:
        members = {
            "input": In(stream.Signature(shape)),
            "output": Out(stream.Signature(shape)),
        }
        if digest is not None:
            digest_bits = len(digest(data.View(shape, Const(0, shape.size))))
            members |= {"head_digest": Out(digest_bits), "next_digest": Out(digest_bits)}
        super().__init__(members)
        self._digest = digest
        self._depth = depth
        self._pointer_bits = (depth - 1).bit_length() + 1
        self._memory = Memory(shape=shape, depth=2**(self._pointer_bits - 1), init=[])
        self._clocked = self._memory.depth >= _MACRO_WORDS
        domain = "sync" if self._clocked else "comb"
        if digest is not None:
            self._digests = Memory(shape=digest_bits, depth=self._memory.depth, init=[])
            self._write_digest = self._digests.write_port()
            self._following_digest = self._digests.read_port(domain=domain)
        self._write_port = self._memory.write_port()
        self._read_port = self._memory.read_port(domain=domain)

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.memory = self._memory
        written = Signal(self._pointer_bits)
        read = Signal(self._pointer_bits)
        level = Signal(self._pointer_bits)
        leaves = Signal()  # late in the cycle, so both cases are prepared
        m.d.comb += [
            leaves.eq(self.output.valid & self.output.ready),
            level.eq(written - read),
            self.input.ready.eq(level != self._depth),
            self.output.valid.eq(written != read),
            self.output.payload.eq(self._entry(m, self._read_port, read, leaves, written, self._write_port)),
            self._write_port.addr.eq(written[:-1]),
            self._write_port.data.eq(self.input.payload),
            self._write_port.en.eq(self.input.valid & self.input.ready),
        ]
        m.d.sync += [
            written.eq(written + self._write_port.en),
            read.eq(Mux(leaves, read + 1, read)),
        ]
        if self._digest is not None:
            m.submodules.digests = self._digests
            incoming = Signal.like(self.head_digest)
            m.d.comb += [
                incoming.eq(self._digest(self.input.payload)),
                self._write_digest.addr.eq(written[:-1]),
                self._write_digest.data.eq(incoming),
                self._write_digest.en.eq(self._write_port.en),
            ]
            second = self._entry(m, self._following_digest, (read + 1)[:self._pointer_bits], leaves, written,
                                 self._write_digest)
            # With one entry or none, the incoming entry is next.
            m.d.comb += self.next_digest.eq(Mux(self.output.valid & (level != 1), second, incoming))
            with m.If(Mux(self.output.valid, self.output.ready, self.input.valid)):
                m.d.sync += self.head_digest.eq(self.next_digest)
        return m

    def _entry(self, m: Module, port, place, leaves, written, write):
        """Return the entry at `place`, which advances by one if an entry `leaves`."""
        if not self._clocked:
            m.d.comb += port.addr.eq(place[:-1])
            return port.data
        further = Signal.like(place)
        around = Signal()
        entry = Signal(len(Value.cast(write.data)), reset_less=True)
        m.d.comb += [
            further.eq(place + 1),
            port.addr.eq(Mux(leaves, further, place)[:-1]),
            port.en.eq(leaves | around),
        ]
        m.d.sync += around.eq(write.en & Mux(leaves, written == further, written == place))
        with m.If(write.en):
            m.d.sync += entry.eq(write.data)
        return Mux(around, entry, port.data)
