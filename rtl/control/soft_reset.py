"""A component that a signal resets in addition to its clock domain's reset."""

from amaranth.hdl import Elaboratable, ResetInserter, Value
from amaranth.lib import wiring


class SoftReset(Elaboratable):
    """Resets `component` with its domain, and in the cycles in which `by` is 1.

    A platform with `get_soft_reset` (a netlist that keeps reset pins) joins both resets at one pin. Otherwise
    ResetInserter adds a condition to every register, with the same behaviour.
    """

    def __init__(self, component: wiring.Component, by: Value) -> None:
        self.component, self.by = component, by

    def elaborate(self, platform):
        if hasattr(platform, "get_soft_reset"):
            return platform.get_soft_reset(self)
        return ResetInserter(self.by)(self.component)
