"""A stream queue of a few entries that costs a simulator little."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out


class PointerQueue(wiring.Component):
    """Queue of `depth` entries: full rate from two entries on, one cycle of latency, every output from registers.

    Entries do not move; two pointers, one bit wider than the address, say what is valid. `lib.fifo` keeps a level
    besides, and a queue that shifts copies its entries in each simulated cycle.

    Members
    -------
    input : In(stream(shape))
    output : Out(stream(shape))
    """

    def __init__(self, shape, depth: int) -> None:
        super().__init__({
            "input": In(stream.Signature(shape)),
            "output": Out(stream.Signature(shape)),
        })
        self._depth = depth
        self._pointer_bits = (depth - 1).bit_length() + 1
        self._memory = Memory(shape=shape, depth=2**(self._pointer_bits - 1), init=[])
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
        return m
