"""Counts complete input tiles for groups of workgroups, which may start when theirs are complete."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In

from t3sim.rtl.geometry import Geometry
from t3sim.rtl.layouts import ready_ask
from t3sim.rtl.registers import READY_COUNT_BITS, ready_shift_bits
from t3sim.rtl.streams.forwarded_read import forwarded_read


class ReadyTable(wiring.Component):
    """A counter of complete tiles for each group of workgroups with common inputs.

    1. A group's inputs are tiles of consecutive ids: id i belongs to group i >> shift.
    2. The dispatcher asks for a group and a number of tiles. The ask is taken when at least this many are complete, and
       then the group's workgroups may start.
    3. A waiting ask does not delay requests for the dispatch window, whose ids it may depend on. Completions never
       wait.

    A bit for each counter says whether it is valid in this kernel, so a restart clears all at once.

    Parameters
    ----------
    geometry : Geometry
        With `ready_groups`.
    count_bits : int
        Of a counter; only a proof changes the default.

    Members
    -------
    shift : In(ready_shift_bits(geometry))
        log2 of the ids of a group. Changes only before a restart.
    completion : In({valid, wg})
        Pulse: a tile of this id is complete. Ids after the last group are ignored.
    asks : In(stream(ready_ask))
        Taken in the third cycle at the earliest; `ready` comes from a register. Counters saturate. An ask for 0 tiles
        waits for no tile.
    restart : In(1)
        Pulse: a new kernel. Completions of this cycle and the one before are forgotten. An ask taken in this cycle
        belongs to the kernel before.
    """

    def __init__(self, geometry: Geometry, *, count_bits: int = READY_COUNT_BITS) -> None:
        groups = geometry.dma.ready_groups
        self._groups, self._group_bits, self._count_bits = groups, (groups - 1).bit_length(), count_bits
        super().__init__({
            "shift": In(ready_shift_bits(geometry)),
            "completion": In(data.StructLayout({"valid": 1, "wg": geometry.tracker.wg_bits})),
            "asks": In(stream.Signature(ready_ask(geometry, count_bits))),
            "restart": In(1),
        })
        self.counts = Memory(shape=count_bits, depth=groups, init=[])

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.counts = self.counts
        write = self.counts.write_port()
        done, found = forwarded_read(m, self.counts, write, "found")
        asked = self.counts.read_port()
        began = Signal(self._groups)  # per group: its row is valid in this kernel

        # Completions: read, then count in the next cycle.
        index = Signal.like(self.completion.wg)
        counting = Signal()
        group = Signal(self._group_bits)
        count = Signal(self._count_bits)
        m.d.comb += [
            index.eq(self.completion.wg >> self.shift),
            done.addr.eq(index[:self._group_bits]),
            done.en.eq(self.completion.valid),
            count.eq(Mux(began.bit_select(group, 1), found, 0)),
            write.addr.eq(group),
            write.data.eq(count + ~count.all()),
            write.en.eq(counting),
        ]
        m.d.sync += [counting.eq(self.completion.valid & ~index[self._group_bits:].any()),
                     group.eq(index[:self._group_bits])]
        with m.If(counting):
            m.d.sync += began.bit_select(group, 1).eq(1)

        # Asks: compare the row read in the cycle before, or its old count if it was being written, when the memory may
        # return anything.
        ask = self.asks.payload
        waits = Signal()
        meets = Signal()
        old = Signal.like(count, reset_less=True)
        complete = Signal.like(count)
        m.d.comb += [
            asked.addr.eq(ask.group),
            asked.en.eq(self.asks.valid & (~waits | meets)),
            complete.eq(Mux(meets, old, Mux(began.bit_select(ask.group, 1), asked.data, 0))),
        ]
        m.d.sync += [
            waits.eq(self.asks.valid & ~self.asks.ready),
            meets.eq(counting & (group == ask.group)),
            old.eq(count),
            self.asks.ready.eq(waits & ~self.asks.ready & (complete >= ask.tiles)),
        ]
        with m.If(self.restart):
            m.d.sync += [began.eq(0), counting.eq(0), waits.eq(0), self.asks.ready.eq(0)]
        return m
