"""A pipeline whose stages all move together."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib.wiring import PureInterface


def moving_together(m: Module, operands: PureInterface, result: PureInterface, latency: int) -> tuple[Signal, Signal]:
    """Join two streams by a pipeline of `latency` stages, which stalls only while a result waits for `result.ready`.

    Return whether it moves in this cycle, and a valid bit for each stage.
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
