"""Merges consecutive accesses of one wavefront tile before they travel to the Tracker."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from t3sim.rtl.geometry import Geometry
from t3sim.rtl.layouts import update
from t3sim.rtl.streams.two_entry_queue import TwoEntryQueue


class Coalescer(wiring.Component):
    """Adds up consecutive accesses with the same workgroup, wavefront and region into one update.

    The Tracker counts bytes per wavefront tile (T3 paper, section 4.2.1), so it needs no report of each access.

    1. The held update leaves when an access with another key arrives, when the sum would not fit into `amount`, or
       after `coalescer_timeout_cycles` cycles without a merge.
    2. Bytes are never lost, and order is kept.
    3. One access per cycle is accepted until two updates wait behind the output in addition to the held one.
    4. `accesses.ready` and `updates` come from registers only.

    Members
    -------
    accesses : In(stream(update))
        One access each; `amount` is its bytes.
    updates : Out(stream(update))
        `amount` is the sum, `address` the smallest, `source` the last access's.
    merged : Out(1)
        Pulse: this cycle's access joined the held update.
    busy : Out(1)
        An update is held or waits at the output.
    """

    def __init__(self, geometry: Geometry):
        layout = update(geometry)
        super().__init__({
            "accesses": In(stream.Signature(layout)),
            "updates": Out(stream.Signature(layout)),
            "merged": Out(1),
            "busy": Out(1),
        })
        self._layout = layout
        self._timeout = geometry.channel.coalescer_timeout_cycles

    def elaborate(self, platform):
        m = Module()
        m.submodules.queue = queue = TwoEntryQueue(self._layout)
        wiring.connect(m, queue.output, wiring.flipped(self.updates))

        held = Signal(self._layout, reset_less=True)
        held_valid = Signal()
        waited = Signal(range(max(2, self._timeout)))
        access = self.accesses.payload

        def key(item):
            return Cat(item.wg, item.wf, item.region)

        total = Signal(len(held.amount) + 1)
        accept = Signal()
        joins = Signal()
        expired = Signal()
        m.d.comb += [
            # Independent of the access, so `ready` does not depend on `valid`.
            self.accesses.ready.eq(~held_valid | queue.input.ready),
            accept.eq(self.accesses.valid & self.accesses.ready),
            total.eq(held.amount + access.amount),
            joins.eq(accept & held_valid & (key(held) == key(access)) & ~total[-1]),
            expired.eq(waited == self._timeout - 1),
            self.merged.eq(joins),
            self.busy.eq(held_valid | queue.output.valid),
            queue.input.payload.eq(held),
            queue.input.valid.eq(held_valid & ~joins & (accept | expired)),
        ]
        with m.If(~expired):
            m.d.sync += waited.eq(waited + 1)
        with m.If(accept):
            m.d.sync += [held_valid.eq(1), held.eq(access), waited.eq(0)]
            with m.If(joins):
                m.d.sync += [
                    held.amount.eq(total),
                    held.address.eq(Mux(access.address < held.address, access.address, held.address)),
                ]
        with m.Elif(queue.input.valid & queue.input.ready):
            m.d.sync += held_valid.eq(0)
        return m
