"""Begins kernels, and clears a kernel that hangs."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from t3sim.rtl.control.config_bus import config_layout
from t3sim.rtl.geometry import Geometry
from t3sim.rtl.layouts import ErrorCode, error_report
from t3sim.rtl.order import follows
from t3sim.rtl.registers import EPOCH_BITS, WATCHDOG_PERIOD


class ResetSequence(wiring.Component):
    """Soft reset: finishes outstanding work without tracking or sending it, then clears the kernel's state.

    1. From a soft reset until the next restart nothing new starts. Accepted work completes: DRAM reads return and are
       dropped, tracked writes are performed but not tracked.
    2. Everything is cleared at once after `quiet_cycles` cycles without such activity, because packets of a neighbour
       that is reset later may still be on the link.
    3. After `reset_limit` everything is cleared anyway, with an error, because an awaited response may never arrive.
    4. A restart is refused during a soft reset, while state of the kernel before is inside, or if the new epoch does
       not follow the old one.

    Members
    -------
    soft_reset, restart : In(1)
        Pulses: requests by software.
    moves : In(1)
        Work that a soft reset waits for is outstanding.
    sweeps : In(1)
        Memories are still being cleared.
    kernel_inside : In(1)
        State of the kernel before is inside, or enters in this cycle.
    old_epoch, new_epoch : In(EPOCH_BITS)
        The kernel before, and the kernel that a restart would begin.
    stopped : Out(1)
        From a soft reset to the restart that follows.
    clear : Out(1)
        Pulse: everything is cleared.
    forced : Out(1)
        Pulse, a cycle before `clear`: the limit is over though work is outstanding.
    done : Out(1)
        A soft reset is done.
    begins : Out(1)
        Pulse: an accepted restart.
    errors : Out(error_report).array(2)
        RESET_FORCED and RESTART_REFUSED.
    """

    def __init__(self, geometry: Geometry) -> None:
        config = config_layout(geometry).members
        super().__init__({
            "soft_reset": In(1), "restart": In(1), "quiet_cycles": In(config["quiet_cycles"]),
            "reset_limit": In(config["reset_limit"]), "moves": In(1), "sweeps": In(1), "kernel_inside": In(1),
            "old_epoch": In(EPOCH_BITS), "new_epoch": In(EPOCH_BITS), "stopped": Out(1), "clear": Out(1),
            "forced": Out(1), "done": Out(1), "begins": Out(1), "errors": Out(error_report(geometry)).array(2)})

    def elaborate(self, platform) -> Module:
        m = Module()
        limit_bits = len(self.reset_limit)
        moved = Signal()  # in the cycle before
        was_cleared = Signal()
        quiet = Signal.like(self.quiet_cycles)  # cycles
        lasted = Signal(limit_bits + (WATCHDOG_PERIOD - 1).bit_length())  # cycles
        overdue = (self.reset_limit != 0) & (lasted[-limit_bits:] >= self.reset_limit)
        m.d.sync += [
            moved.eq(self.moves),
            self.clear.eq(0),
            self.done.eq(self.stopped & was_cleared & ~self.clear & ~self.sweeps & ~self.soft_reset),
        ]
        with m.If(self.soft_reset):
            m.d.sync += [self.stopped.eq(1), was_cleared.eq(0), quiet.eq(0), lasted.eq(0)]
        with m.Elif(self.stopped & ~was_cleared):
            m.d.sync += [quiet.eq(Mux(moved, 0, quiet + 1)), lasted.eq(lasted + 1)]
            # A request of this cycle needs time to show in `moves`.
            with m.If(~moved & (quiet >= (self.quiet_cycles | 15))):
                m.d.sync += [was_cleared.eq(1), self.clear.eq(1)]
            with m.Elif(overdue):
                m.d.comb += self.forced.eq(1)
                m.d.sync += [was_cleared.eq(1), self.clear.eq(1)]
        with m.Elif(self.begins):
            m.d.sync += self.stopped.eq(0)
        m.d.comb += [
            self.begins.eq(self.restart & ~self.soft_reset & (self.done | ~self.stopped) & ~self.kernel_inside
                           & follows(self.new_epoch, self.old_epoch)),
            self.errors[0].code.eq(ErrorCode.RESET_FORCED),
            self.errors[1].code.eq(ErrorCode.RESTART_REFUSED),
        ]
        m.d.sync += [self.errors[0].valid.eq(self.forced), self.errors[1].valid.eq(self.restart & ~self.begins)]
        return m
