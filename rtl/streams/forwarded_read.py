"""A clocked read that returns the new word for a row that is being written."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.memory import Memory, ReadPort, WritePort


def forwarded_read(m: Module, memory: Memory, write: WritePort, name: str) -> tuple[ReadPort, Value | data.View]:
    """Add a clocked read of a memory to module `m`; return its port, and the value to use instead of `port.data`.

    An SRAM macro returns undefined data for a row that is read while it is written. A register, named `name`, keeps
    that word and replaces the macro's data until the port reads again. Later writes to the row replace it too, so the
    port need not be enabled while its address stays. `write` must be the memory's only write port.
    """
    read = memory.read_port()
    word = Signal(memory.shape, name=name, reset_less=True)
    meets = Signal(name=f"{name}_meets")
    same = Signal(name=f"{name}_same")
    m.d.comb += same.eq(write.en & (write.addr == read.addr))
    with m.If(read.en | same):
        m.d.sync += meets.eq(same)
    with m.If(same):
        m.d.sync += Value.cast(word).eq(Value.cast(write.data))
    found = Mux(meets, Value.cast(word), Value.cast(read.data))
    return read, data.View(memory.shape, found) if isinstance(word, data.View) else found
