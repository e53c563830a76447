"""A pipeline whose stages all move together."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib.wiring import PureInterface


def moving_together(m: Module, operands: PureInterface, result: PureInterface, latency: int) -> tuple[Signal, Signal]:
    """Join two streams by a pipeline of `latency` stages that stands only while a result waits for `result.ready`.

    Returns whether it moves in this cycle, and a bit for each stage: does it hold something?
    """
    move = Signal()
    valid = Signal(latency)
    m.d.comb += [
        move.eq(~result.valid | result.ready),
        operands.ready.eq(move),
        result.valid.eq(valid[-1]),
    ]
    with m.If(move):
        m.d.sync += valid.eq(Cat(operands.valid, valid))
    return move, valid
