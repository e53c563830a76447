"""Reports whether the ring lags behind the GEMM."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from t3sim.rtl.geometry import Geometry


class RingMonitor(wiring.Component):
    """Reports whether the ring is behind the GEMM, for the `ring_aware` policy.

    A stage's workgroups complete their tiles almost together, so waiting DMA commands alone do not mean that the ring
    is late. A ring that keeps up has sent them before the next stage ends, and then no command waits. So `late` rises
    when more workgroups than a stage has have started since a cycle without waiting commands.

    Members
    -------
    pending : In(1)
        A command waits for a DMA engine.
    started : In(1)
        Pulse: a workgroup starts.
    stage : In(wg_bits + 1)
        Workgroups that run at once.
    restart : In(1)
        Pulse: a new kernel; the ring is not late.
    late : Out(1)
        A register, two cycles behind its inputs.
    """

    def __init__(self, geometry: Geometry) -> None:
        self._workgroup_bits = geometry.tracker.wg_bits + 1
        super().__init__({
            "pending": In(1),
            "started": In(1),
            "stage": In(self._workgroup_bits),
            "restart": In(1),
            "late": Out(1),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        since_idle = Signal(self._workgroup_bits)
        m.d.sync += self.late.eq(since_idle > self.stage)
        with m.If(~self.pending | self.restart):
            m.d.sync += since_idle.eq(0)
        with m.Elif(self.started & ~since_idle.all()):
            m.d.sync += since_idle.eq(since_idle + 1)
        return m
