"""A clocked read that gives the word being written to its row, whatever the memory itself gives then."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.memory import Memory, ReadPort, WritePort


def forwarded_read(m: Module, memory: Memory, write: WritePort, name: str) -> tuple[ReadPort, Value | data.View]:
    """Add a clocked read of a memory to module `m`; return its port, and what is read in its place.

    An SRAM macro gives anything for a row that is read in the cycle in which it is written. That word is kept in a
    register, here called `name`, and stands for what the macro gives as long as the port does not read again. So does
    one that is written later: the port need not be enabled while its address stays. `write` is the memory's only write.
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
