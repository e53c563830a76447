"""Reports an error when nothing moves though something waits, and the waiting places."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from t3sim.rtl.geometry import Geometry
from t3sim.rtl.layouts import ErrorCode, error_report
from t3sim.rtl.registers import WAITS, WATCHDOG_LIMIT_BITS, WATCHDOG_PERIOD


def waits_layout() -> data.StructLayout:
    """Lay out one bit for each of `WAITS`."""
    return data.StructLayout({name: 1 for name, _ in WAITS})


class WatchDog(wiring.Component):
    """Reports an error when for `limit` periods nothing has moved and something waited.

    1. A period counts if nothing moved in any of its cycles and something waits in its last cycle. Any other period
       restarts the count.
    2. At the limit the error is reported and `waits` is kept; nothing is reported again until `clear`. The error
       follows the last movement by at least `limit` and less than `limit` + 1 periods.
    3. Only the first movement of a period matters, and only the last cycle's `waits`. The inputs may be 0 otherwise
       (`listens`, `looks`), which saves simulation time.

    Parameters
    ----------
    period : int
        Cycles, a power of two; only a proof changes the default.

    Members
    -------
    limit : In(WATCHDOG_LIMIT_BITS)
        Periods; 0: never. May change at any time: a count beyond it reports at the end of the next still period.
    listens, looks : Out(1)
        In this cycle `moves`, `waits` count. Functions of `limit` and registers.
    moves : In(1)
        Something moves in this cycle.
    waits : In(waits_layout())
        Waiting places, valid once nothing moves.
    clear : In(1)
        Pulse: forget the report, and count anew.
    waited : Out(waits_layout())
        `waits` at the report; 0 before.
    error : Out(error_report)
        WATCHDOG, without details; in the first cycle in which `waited` shows.
    """

    def __init__(self, geometry: Geometry, *, period: int = WATCHDOG_PERIOD) -> None:
        self.period = period
        super().__init__({
            "limit": In(WATCHDOG_LIMIT_BITS),
            "listens": Out(1),
            "looks": Out(1),
            "moves": In(1),
            "waits": In(waits_layout()),
            "clear": In(1),
            "waited": Out(waits_layout()),
            "error": Out(error_report(geometry)),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        cycle = Signal(range(self.period))
        moved = Signal()  # in an earlier cycle of the period
        still = Signal(WATCHDOG_LIMIT_BITS)  # periods
        following = Signal(WATCHDOG_LIMIT_BITS + 1)
        told = Signal()
        on = (self.limit != 0) & ~told
        m.d.comb += [
            following.eq(still + 1),
            self.listens.eq(on & ~moved),
            self.looks.eq(on & (cycle == self.period - 1)),
            self.error.code.eq(ErrorCode.WATCHDOG),
        ]
        m.d.sync += self.error.valid.eq(0)
        with m.If(self.clear | (self.limit == 0)):
            m.d.sync += [cycle.eq(0), moved.eq(0), still.eq(0)]
        with m.Elif(~told):
            m.d.sync += cycle.eq(cycle + 1)
            with m.If(self.looks):
                m.d.sync += moved.eq(0)
                with m.If(moved | self.moves | ~self.waits.as_value().any()):
                    m.d.sync += still.eq(0)
                with m.Elif(following < self.limit):
                    m.d.sync += still.eq(following)
                with m.Else():
                    m.d.sync += [self.error.valid.eq(1), told.eq(1), self.waited.eq(self.waits)]
            with m.Elif(~moved):
                m.d.sync += moved.eq(self.moves)
        with m.If(self.clear):
            m.d.sync += [told.eq(0), self.waited.eq(0)]
        return m
