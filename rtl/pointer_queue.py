"""A stream queue of a few entries that costs a simulator little."""

from amaranth.hdl import Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out


class PointerQueue(wiring.Component):
    """Queue of `depth` entries: full rate from two entries on, one cycle of latency, every output from registers.

    Entries do not move; two pointers, one bit wider than the address, say what is valid. `lib.fifo` keeps a level
    besides, and a queue that shifts copies its entries in each simulated cycle.

    With `digest`, a function of an entry, its value for the entry at the output is a register of its own: what depends
    on it need not wait for the memory to be read and the function to be computed.

    Members
    -------
    input : In(stream(shape))
    output : Out(stream(shape))
    head_digest : Out(unsigned)
        Only with `digest`: that of `output.payload`, if valid.
    """

    def __init__(self, shape, depth: int, digest=None) -> None:
        members = {
            "input": In(stream.Signature(shape)),
            "output": Out(stream.Signature(shape)),
        }
        if digest is not None:
            digest_bits = len(digest(data.View(shape, Const(0, shape.size))))
            members["head_digest"] = Out(digest_bits)
        super().__init__(members)
        self._digest = digest
        self._depth = depth
        self._pointer_bits = (depth - 1).bit_length() + 1
        self._memory = Memory(shape=shape, depth=2**(self._pointer_bits - 1), init=[])
        if digest is not None:
            self._digests = Memory(shape=digest_bits, depth=self._memory.depth, init=[])
            self._write_digest = self._digests.write_port()
            self._following_digest = self._digests.read_port(domain="comb")
        self._write_port = self._memory.write_port()
        self._read_port = self._memory.read_port(domain="comb")

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.memory = self._memory
        written = Signal(self._pointer_bits)
        read = Signal(self._pointer_bits)
        level = Signal(self._pointer_bits)
        m.d.comb += [
            level.eq(written - read),
            self.input.ready.eq(level != self._depth),
            self.output.valid.eq(written != read),
            self.output.payload.eq(self._read_port.data),
            self._read_port.addr.eq(read[:-1]),
            self._write_port.addr.eq(written[:-1]),
            self._write_port.data.eq(self.input.payload),
            self._write_port.en.eq(self.input.valid & self.input.ready),
        ]
        m.d.sync += [
            written.eq(written + self._write_port.en),
            read.eq(read + (self.output.valid & self.output.ready)),
        ]
        if self._digest is not None:
            m.submodules.digests = self._digests
            incoming = Signal.like(self.head_digest)
            m.d.comb += [
                incoming.eq(self._digest(self.input.payload)),
                self._write_digest.addr.eq(written[:-1]),
                self._write_digest.data.eq(incoming),
                self._write_digest.en.eq(self._write_port.en),
                self._following_digest.addr.eq((read + 1)[:self._pointer_bits - 1]),
            ]
            with m.If(~self.output.valid):
                m.d.sync += self.head_digest.eq(incoming)
            with m.Elif(self.output.ready):  # with one entry left, what comes in now is next
                m.d.sync += self.head_digest.eq(Mux(level == 1, incoming, self._following_digest.data))
        return m
