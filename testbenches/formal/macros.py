"""Memories as SRAM macros are: a clocked read of the row that is being written gives anything."""

from collections.abc import Callable, Iterator

from amaranth.hdl import Cat, Elaboratable, Fragment, Module, Mux, Signal, Value
from amaranth.hdl._mem import MemoryInstance


class Elaborated(Elaboratable):
    """A fragment, where a design is wanted."""

    def __init__(self, fragment: Fragment) -> None:
        self._fragment = fragment

    def elaborate(self, platform) -> Fragment:
        return self._fragment


def memories(fragment: Fragment) -> Iterator[MemoryInstance]:
    """Yield every memory in a fragment."""
    if isinstance(fragment, MemoryInstance):
        yield fragment
    for inner, _, _ in fragment.subfragments:
        yield from memories(inner)


def forget_while_written(fragment: Fragment, m: Module, anything: Callable[[int], Value]) -> None:
    """Let clocked reads of a row that is being written give `anything(bits)`; `m` gets what that takes."""
    for memory in memories(fragment):
        for read in memory._read_ports:
            if read._domain == "comb":
                continue
            data, read._data = read._data, Signal.like(read._data)
            meets, word = Signal(), Signal(len(data))
            with m.If(read._en):  # what was read stays until the port reads again, whatever it is
                m.d.sync += [
                    meets.eq(Cat(write._en.any() & (write._addr == read._addr) for write in memory._write_ports).any()),
                    word.eq(anything(len(data))),
                ]
            m.d.comb += data.eq(Mux(meets, word, read._data))


class AsMacros(Elaboratable):
    """A design whose memories give noise for a row that is being written, or `anything(bits)`, for a simulation."""

    def __init__(self, design, anything: Callable[[int], Value] | None = None) -> None:
        self._design, self._anything = design, anything

    def elaborate(self, platform) -> Module:
        m = Module()
        fragment = Fragment.get(self._design, platform)
        if self._anything is None:
            noise = Signal(64, init=0x9E3779B97F4A7C15)
            m.d.sync += noise.eq(noise.rotate_left(5))  # costs the simulator least
            forget_while_written(fragment, m, lambda bits: noise.replicate(bits // 64 + 1)[:bits])
        else:
            forget_while_written(fragment, m, self._anything)
        m.submodules.design = Elaborated(fragment)
        return m
