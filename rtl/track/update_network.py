"""Carries updates from the memory channels to the Tracker banks."""

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from t3sim.rtl.geometry import Geometry
from t3sim.rtl.layouts import update
from t3sim.rtl.streams.rotating_grant import join
from t3sim.rtl.streams.two_entry_queue import TwoEntryQueue

GROUP = 4  #: channels that share one crossbar input


class UpdateNetwork(wiring.Component):
    """Two round-robin levels: up to four channels into one queue, then queues to banks.

    1. The low bits of the workgroup id select the bank, so all updates of a tile meet in one bank (T3 paper, section
       4.2.1).
    2. Updates of one channel for one workgroup keep their order.
    3. Each bank receives one update per cycle if the heads of the group queues allow it. A head whose bank is busy
       blocks only its own group.
    4. At both levels a waiting input is served after at most one update of each competitor.
    5. All outputs except `updates.ready` come from registers; `updates.ready` depends on other channels' `valid`.

    Members
    -------
    busy : Out(1)
        An update is inside.
    """

    def __init__(self, geometry: Geometry):
        layout = update(geometry)
        super().__init__({
            "updates": In(stream.Signature(layout)).array(geometry.channel.channels),
            "banks": Out(stream.Signature(layout)).array(geometry.tracker.banks),
            "busy": Out(1),
        })
        self._layout = layout
        self._bank_bits = geometry.tracker.bank_bits

    def elaborate(self, platform):
        m = Module()
        heads = []
        for start in range(0, len(self.updates), GROUP):
            members = self.updates[start:start + GROUP]
            m.submodules[f"group_{start // GROUP}"] = queue = TwoEntryQueue(self._layout)
            goes = join(m, [port.valid for port in members], [port.payload for port in members], queue.input)
            m.d.comb += Cat(port.ready for port in members).eq(goes)
            heads.append(queue.output)

        leaves = [Const(0, 1)] * len(heads)
        outputs = []
        for bank, port in enumerate(self.banks):
            m.submodules[f"bank_{bank}"] = queue = TwoEntryQueue(self._layout)
            wiring.connect(m, queue.output, wiring.flipped(port))
            outputs.append(queue.output)
            here = Signal(len(heads))
            m.d.comb += here.eq(Cat(head.payload.wg[:self._bank_bits] == bank for head in heads))
            goes = join(m, [head.valid & meant for head, meant in zip(heads, here)],
                        [head.payload for head in heads], queue.input)
            leaves = [leave | (meant & go) for leave, meant, go in zip(leaves, here, goes)]
        m.d.comb += [head.ready.eq(leave) for head, leave in zip(heads, leaves)]
        m.d.comb += self.busy.eq(Cat(head.valid for head in (*heads, *outputs)).any())
        return m
