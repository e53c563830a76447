"""The top with a way into the memories of its Tracker's bank 0."""

from unittest.mock import patch

from amaranth.hdl import Module

from t3sim.cosim.flippable import PORTS, FlippableBank, Flips
from t3sim.rtl.gpu_top import GpuTop


class FlippableTop(GpuTop, Flips):
    def elaborate(self, platform) -> Module:
        with patch("t3sim.rtl.gpu_top.TrackerBank", FlippableBank):
            m = super().elaborate(platform)
        m.d.comb += [getattr(self._banks[0], name).eq(getattr(self, name)) for name in PORTS]
        return m
