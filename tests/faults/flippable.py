"""The top with a way into the memories of its Tracker's bank 0."""

from unittest.mock import patch

from amaranth.hdl import Module

from rtl.gpu_top import GpuTop
from sim_models.cosim.flippable import PORTS, FlippableBank, Flips


class FlippableTop(GpuTop, Flips):
    def elaborate(self, platform) -> Module:
        with patch("rtl.gpu_top.TrackerBank", FlippableBank):
            m = super().elaborate(platform)
        m.d.comb += [getattr(self._banks[0], name).eq(getattr(self, name)) for name in PORTS]
        return m
