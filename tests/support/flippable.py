"""The top with a way into the memories of its Tracker's banks."""

from unittest.mock import patch

from amaranth.hdl import Module, Mux
from amaranth.lib.wiring import In

from t3sim.cosim.flippable import PORTS, FlippableBank, Flips
from t3sim.rtl.gpu_top import GpuTop


class FlipsInABank(Flips):
    """Further ports: those of `Flips`, and `flip_bank`, whose memories they reach."""

    def __init__(self, members) -> None:
        super().__init__({**members, "flip_bank": In(8)})


class FlippableTop(GpuTop, FlipsInABank):
    def elaborate(self, platform) -> Module:
        banks = []

        def make_bank(geometry) -> FlippableBank:
            banks.append(FlippableBank(geometry))
            return banks[-1]
        with patch("t3sim.rtl.gpu_top.TrackerBank", make_bank):
            m = super().elaborate(platform)
        for number, bank in enumerate(banks):
            values = {name: getattr(self, name) for name in PORTS}
            values["flip_mask"] = Mux(self.flip_bank == number, self.flip_mask, 0)
            m.d.comb += [getattr(bank, name).eq(value) for name, value in values.items()]
        return m
