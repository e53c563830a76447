"""Counts outstanding DMA reads, and detects data without a read."""

from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from t3sim.rtl.geometry import Geometry
from t3sim.rtl.layouts import read_origins
from t3sim.rtl.streams.counting import ones


class ReadCredits(wiring.Component):
    """Counts lines of DMA from the engine that reads them to the link.

    1. `allow` ensures that every read line has room (`outstanding_lines`).
    2. Data in excess of the reads are marked `unasked` and must not enter a lane. Only numbers are compared: a wrong
       line is taken for the expected one, and the last line is then in excess.
    3. Reads for triggers and for the command queue are counted separately, so neither takes the other's data.

    Arrays have an element for each origin (`read_origins`).

    Members
    -------
    issued : In(range(engines + 1)).array(read_origins)
        Lines requested in this cycle. Their data arrive two cycles later at the earliest.
    came : In(egress_lanes).array(read_origins)
        DMA data accepted at a lane's input.
    unasked : Out(egress_lanes)
        This input's data are in excess, with those at lower inputs counted first. Function of `came` and registers.
    repeated : In(egress_lanes).array(read_origins)
        The same data will leave once more.
    gone : In(range(2 * egress_lanes + 1)).array(read_origins)
        Data that leave the lanes in this cycle, as packets or refused.
    hold : In(1)
        Allow no reads from the next cycle on.
    forget : In(1)
        Pulse: no longer expect outstanding data.
    allow : Out(1)
        Each engine may request a line. A register, based on the requests until the cycle before the last.
    waits : Out(read_origins)
        Requested data are outstanding or in the lanes. Function of registers.
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
            # Not yet added to `due`.
            just_issued.append(recent := Signal.like(self.issued[origin], name=f"just_issued_{origin}"))
            asked.append(due := Signal(range(self._most + 1), name=f"asked_{origin}"))
            # Data in the lanes, with 4 places each.
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
