"""A component that a signal resets as well as its clock domain's reset."""

from amaranth.hdl import Elaboratable, ResetInserter, Value
from amaranth.lib import wiring


class SoftReset(Elaboratable):
    """Resets `component` when its domain is reset, and in the cycles in which `by` is 1.

    Both resets share the component's reset pin where a netlist keeps one: a platform with `get_soft_reset` connects
    it. Otherwise ResetInserter gives every register another condition, which behaves the same.
    """

    def __init__(self, component: wiring.Component, by: Value) -> None:
        self.component, self.by = component, by

    def elaborate(self, platform):
        if hasattr(platform, "get_soft_reset"):
            return platform.get_soft_reset(self)
        return ResetInserter(self.by)(self.component)
