"""A performance counter with a short carry."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class EventCounter(wiring.Component):
    """Counts several events per cycle, in two halves, so that no carry runs through all bits in one cycle.

    The upper half plus 1 is prepared a cycle ahead. It is stale only in the cycle after a carry or a clearing, when the
    lower half is too small for another carry.

    Parameters
    ----------
    half_bits, amount_bits : int
        `amount_bits` < `half_bits`. Only a proof changes the defaults.

    Members
    -------
    amount : In(amount_bits)
        Events of this cycle; registered, so that a long sum and a carry are not in one cycle.
    clear : In(1)
        Pulse: 0 in the next cycle, without the events of the cycle before.
    total : Out(2 * half_bits)
        Events until two cycles ago, modulo 2^(2 * half_bits).
    """

    def __init__(self, *, half_bits: int = 16, amount_bits: int = 8) -> None:
        if not amount_bits < half_bits:
            raise ValueError(f"amount_bits is {amount_bits}; it must be less than half_bits ({half_bits})")
        self._half_bits = half_bits
        super().__init__({"amount": In(amount_bits), "clear": In(1), "total": Out(2 * half_bits)})

    def elaborate(self, platform) -> Module:
        m = Module()
        step = Signal.like(self.amount)
        low, high, next_high = (Signal(self._half_bits, name=name) for name in ("low", "high", "next_high"))
        following = Signal(self._half_bits + 1)
        m.d.comb += [following.eq(low + step), self.total.eq(Cat(low, high))]
        m.d.sync += [step.eq(self.amount), low.eq(following), next_high.eq(high + 1)]
        with m.If(following[-1]):
            m.d.sync += high.eq(next_high)
        with m.If(self.clear):
            m.d.sync += [low.eq(0), high.eq(0)]
        return m
