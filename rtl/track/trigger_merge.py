"""Joins the triggers of all Tracker banks into one stream."""

from amaranth.hdl import Cat, Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from t3sim.rtl.geometry import Geometry
from t3sim.rtl.layouts import trigger
from t3sim.rtl.streams.rotating_grant import join
from t3sim.rtl.streams.two_entry_queue import TwoEntryQueue


class TriggerMerge(wiring.Component):
    """Round-robin merge of the banks' triggers, one per cycle, with a registered output.

    1. Triggers of one bank keep their order.
    2. A waiting bank is served after at most one trigger of each other bank.

    Members
    -------
    following : Out(wg_bits)
        Workgroup of `merged` in the next cycle, if it is valid then. Known late.
    """

    def __init__(self, geometry: Geometry):
        layout = trigger(geometry)
        super().__init__({
            "triggers": In(stream.Signature(layout)).array(geometry.tracker.banks),
            "merged": Out(stream.Signature(layout)),
            "following": Out(geometry.tracker.wg_bits),
        })
        self._layout = layout

    def elaborate(self, platform):
        m = Module()
        m.submodules.queue = queue = TwoEntryQueue(self._layout, look_ahead=True)
        wiring.connect(m, queue.output, wiring.flipped(self.merged))
        goes = join(m, [port.valid for port in self.triggers], [port.payload for port in self.triggers], queue.input)
        m.d.comb += [Cat(port.ready for port in self.triggers).eq(goes), self.following.eq(queue.following.wg)]
        return m
