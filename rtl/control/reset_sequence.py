"""Begins kernels, and clears what tracks and sends when one hangs."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from t3sim.rtl.control.config_bus import config_layout
from t3sim.rtl.geometry import Geometry
from t3sim.rtl.layouts import ErrorCode, error_report
from t3sim.rtl.order import follows
from t3sim.rtl.registers import EPOCH_BITS, WATCHDOG_PERIOD


class ResetSequence(wiring.Component):
    """Lets what is under way finish without being tracked or sent, then clears all that tracks and sends.

    Nothing that was accepted is taken back, and nothing new starts, until a restart. What was asked of DRAM comes
    back and is swallowed, tracked writes are performed and forgotten. When for `quiet_cycles` nothing of that has
    happened (packets of a neighbour that was reset later may still be on the link), everything is cleared at once.
    So it is after `reset_limit`, which is an error: what is waited for may never come.

    A restart is refused if it would not begin a kernel that is as new: while STATUS says that something of the one
    before is inside.

    Members
    -------
    soft_reset, restart : In(1)
        Pulses: software asks for one.
    quiet_cycles, reset_limit : In(of the register)
    moves : In(1)
        What a soft reset waits for is under way.
    sweeps : In(1)
        What was cleared is not ready yet.
    kernel_inside : In(1)
        Something of the kernel before is inside.
    old_epoch, new_epoch : In(EPOCH_BITS)
        The kernel before, and what a restart would begin.
    stopped : Out(1)
        From a soft reset to the restart that follows.
    clear : Out(1)
        Pulse: everything is cleared.
    forced : Out(1)
        Pulse, a cycle before that: it ends though something is under way.
    done : Out(1)
        A soft reset is done.
    begins : Out(1)
        Pulse: a restart that is not refused.
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
            self.done.eq(self.stopped & was_cleared & ~self.clear & ~self.sweeps),
        ]
        with m.If(self.soft_reset):
            m.d.sync += [self.stopped.eq(1), was_cleared.eq(0), quiet.eq(0), lasted.eq(0)]
        with m.Elif(self.stopped & ~was_cleared):
            m.d.sync += [quiet.eq(Mux(moved, 0, quiet + 1)), lasted.eq(lasted + 1)]
            # Never sooner than what is issued or read in this cycle is seen to move.
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
