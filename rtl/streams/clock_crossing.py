"""A stream between two clocks of any rates and phases."""

from amaranth.hdl import Module, Value
from amaranth.lib import stream, wiring
from amaranth.lib.fifo import AsyncFIFO
from amaranth.lib.wiring import In, Out


class ClockCrossing(wiring.Component):
    """Queue from the clock domain `source` to the domain `sink`: Gray counters, two flip-flops each way.

    A `depth` of 8 sustains the rate of the slower clock. A reset of the input's domain empties the queue; it must last
    at least four cycles of both clocks together.
    """

    def __init__(self, shape, *, depth: int = 8, source: str, sink: str):
        super().__init__({"input": In(stream.Signature(shape)), "output": Out(stream.Signature(shape))})
        self._depth, self._source, self._sink = depth, source, sink

    def elaborate(self, platform):
        m = Module()
        payload = Value.cast(self.input.payload)
        m.submodules.queue = queue = self._queue = AsyncFIFO(
            width=len(payload), depth=self._depth, exact_depth=True, w_domain=self._source, r_domain=self._sink)
        m.d.comb += [
            queue.w_data.eq(payload),
            queue.w_en.eq(self.input.valid),
            self.input.ready.eq(queue.w_rdy),
            Value.cast(self.output.payload).eq(queue.r_data),
            self.output.valid.eq(queue.r_rdy),
            queue.r_en.eq(self.output.ready),
        ]
        return m
