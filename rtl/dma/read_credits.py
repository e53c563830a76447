"""Counts the data of DMA reads: who may ask for more, and which data nobody has asked for."""

from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from t3sim.rtl.geometry import Geometry
from t3sim.rtl.layouts import read_origins
from t3sim.rtl.streams.counting import ones


class ReadCredits(wiring.Component):
    """Lines that DMA has read, from the engine that asks for them to the link.

    An engine never asks for data that have no place to go. Lines whose data have not come are counted apart from data
    inside the lanes: more data than were asked for enter no lane. It is a count, so what comes in the place of another
    line is taken for it, and the last that comes is one too many. Lines are counted for whom they are read, triggers or
    the command queue: neither's data are taken for the other's.

    Members
    -------
    issued : In(range(engines + 1)).array(read_origins)
        Lines that engines ask for in this cycle, by for whom, as all arrays here; their data come two cycles later at
        the earliest.
    came : In(egress_lanes).array(read_origins)
        Data of DMA that a lane's input hands over.
    unasked : Out(egress_lanes)
        Whether data that come at this input are more than were asked for, those at the inputs before it included.
        Function of `came` and registers.
    repeated : In(egress_lanes).array(read_origins)
        The same data will leave once more.
    gone : In(range(2 * egress_lanes + 1)).array(read_origins)
        Data that leave the lanes in this cycle, as packets or refused.
    hold : In(1)
        Nothing more may be asked for, from the next cycle on.
    forget : In(1)
        Pulse: what has not come is not waited for.
    allow : Out(1)
        Each engine may ask for a line. A register: it knows what was asked for until the cycle before the last.
    waits : Out(read_origins)
        Data that were asked for have not come, or not left. Function of registers.
    """

    def __init__(self, geometry: Geometry) -> None:
        dma = geometry.dma
        self._engines, self._most, self._lanes = dma.engines, dma.outstanding_lines, dma.egress_lanes
        self._origins = origins = read_origins(geometry)
        super().__init__({
            "issued": In(range(dma.engines + 1)).array(origins),
            "came": In(dma.egress_lanes).array(origins),
            "unasked": Out(dma.egress_lanes),
            "repeated": In(dma.egress_lanes).array(origins),
            "gone": In(range(2 * dma.egress_lanes + 1)).array(origins),
            "hold": In(1),
            "forget": In(1),
            "allow": Out(1),
            "waits": Out(origins),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        just_issued, asked, inside, unasked = [], [], [], []
        for origin in range(self._origins):
            # Not yet added.
            just_issued.append(recent := Signal.like(self.issued[origin], name=f"just_issued_{origin}"))
            asked.append(due := Signal(range(self._most + 1), name=f"asked_{origin}"))  # data have not come
            # Data are in the lanes, of which each has four places.
            inside.append(held := Signal(range(4 * self._lanes + 1), name=f"inside_{origin}"))
            taken = Signal(range(self._lanes + 1), name=f"taken_{origin}")
            came, strays = self.came[origin], Signal(self._lanes, name=f"strays_{origin}")
            m.d.comb += [
                strays.eq(Cat(came[lane] & (due <= ones(came[:lane])) for lane in range(self._lanes))),
                taken.eq(ones(came & ~strays)),
                self.waits[origin].eq((due != 0) | (held != 0) | (recent != 0)),
            ]
            m.d.sync += [
                recent.eq(self.issued[origin]),
                due.eq(Mux(self.forget, 0, due + recent - taken)),
                held.eq(held + taken + ones(self.repeated[origin]) - self.gone[origin]),
            ]
            unasked.append(strays)
        m.d.comb += self.unasked.eq(reduce(or_, unasked))
        m.d.sync += self.allow.eq(~self.hold & (sum(just_issued + asked + inside) + 2 * self._engines <= self._most))
        return m
