"""Counts the data of DMA reads: who may ask for more, and which data nobody has asked for."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .counting import ones
from .geometry import Geometry


class ReadCredits(wiring.Component):
    """Lines that DMA has read, from the engine that asks for them to the link.

    An engine never asks for data that have no place to go. Lines whose data have not come are counted apart from data
    inside the lanes: more data than were asked for enter no lane. It is a count, so what comes in the place of another
    line is taken for it, and the last that comes is one too many.

    Members
    -------
    issued : In(range(engines + 1))
        Lines that engines ask for in this cycle; their data come two cycles later at the earliest.
    came : In(egress_lanes)
        Data of DMA that a lane's input hands over.
    unasked : Out(egress_lanes)
        Whether data at this input are more than were asked for, those at the inputs before it included. Function of
        `came` and registers.
    repeated : In(egress_lanes)
        The same data will leave once more.
    gone : In(range(2 * egress_lanes + 1))
        Data that leave the lanes in this cycle, as packets or refused.
    hold : In(1)
        Nothing more may be asked for, from the next cycle on.
    forget : In(1)
        Pulse: what has not come is not waited for.
    allow : Out(1)
        Each engine may ask for a line. A register: it knows what was asked for until the cycle before the last.
    waits : Out(1)
        Data that were asked for have not come, or not left. Function of registers.
    """

    def __init__(self, geometry: Geometry) -> None:
        dma = geometry.dma
        self._engines, self._most, self._lanes = dma.engines, dma.outstanding_lines, dma.egress_lanes
        super().__init__({
            "issued": In(range(dma.engines + 1)),
            "came": In(dma.egress_lanes),
            "unasked": Out(dma.egress_lanes),
            "repeated": In(dma.egress_lanes),
            "gone": In(range(2 * dma.egress_lanes + 1)),
            "hold": In(1),
            "forget": In(1),
            "allow": Out(1),
            "waits": Out(1),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        just_issued = Signal.like(self.issued)  # not yet added
        asked = Signal(range(self._most + 1))  # data have not come
        inside = Signal(range(4 * self._lanes + 1))  # data are in the lanes, of which each has four places
        taken = Signal(range(self._lanes + 1))
        m.d.comb += [
            self.unasked.eq(Cat(asked <= ones(self.came[:lane]) for lane in range(self._lanes))),
            taken.eq(ones(self.came & ~self.unasked)),
            self.waits.eq((asked != 0) | (inside != 0) | (just_issued != 0)),
        ]
        m.d.sync += [
            just_issued.eq(self.issued),
            asked.eq(Mux(self.forget, 0, asked + just_issued - taken)),
            inside.eq(inside + taken + ones(self.repeated) - self.gone),
            self.allow.eq(~self.hold & (asked + inside + just_issued + 2 * self._engines <= self._most)),
        ]
        return m
