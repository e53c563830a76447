"""Routes the DMA engines' lines to their memory channels."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from t3sim.rtl.address_map import channel_of_value
from t3sim.rtl.geometry import Geometry
from t3sim.rtl.layouts import request
from t3sim.rtl.streams.two_entry_queue import TwoEntryQueue


class LineRouter(wiring.Component):
    """Crossbar from engines to channels by `t3sim.rtl.address_map` (T3 paper, section 4.2.2).

    1. Lines of one engine to one channel stay in order.
    2. Each channel has an output register, which the requesting engines fill in turn.
    3. An engine whose head waits for a channel waits with all its lines. Without conflicts each engine sends one line
       per cycle.

    Members
    -------
    busy : Out(1)
        Level: a line is inside.
    """

    def __init__(self, geometry: Geometry):
        self._geometry = geometry
        super().__init__({
            "lines": In(stream.Signature(request(geometry))).array(geometry.dma.engines),
            "channels": Out(stream.Signature(request(geometry))).array(geometry.channel.channels),
            "busy": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        g = self._geometry
        engines, channels = g.dma.engines, g.channel.channels
        queues, wanted = [], []  # per engine: queue, and one-hot channel of its head
        for index in range(engines):
            queue = TwoEntryQueue(request(g))
            m.submodules[f"queue{index}"] = queue
            wiring.connect(m, wiring.flipped(self.lines[index]), queue.input)
            target = Signal(max(1, g.channel.channel_bits), name=f"target{index}")
            asks = Signal(channels, name=f"asks{index}")
            m.d.comb += [
                target.eq(channel_of_value(queue.output.payload.address, g)),
                asks.eq(Mux(queue.output.valid, 1 << target, 0)),
            ]
            queues.append(queue)
            wanted.append(asks)

        heads = Array(queue.output.payload for queue in queues)
        taken = [Signal(channels, name=f"taken{index}") for index in range(engines)]
        for index in range(engines):
            m.d.comb += queues[index].output.ready.eq(taken[index].any())
        occupied = Signal(channels)
        for c, port in enumerate(self.channels):
            line = Signal(request(g), name=f"line{c}")
            requests = Signal(engines)
            grants = Signal(engines)
            later = Signal(engines)
            m.d.comb += [
                requests.eq(Cat(asks[c] for asks in wanted)),
                port.valid.eq(occupied[c]),
                port.payload.eq(line),
                *(taken[index][c].eq(grants[index]) for index in range(engines)),
            ]
            with m.If(~occupied[c] | port.ready):
                # The lowest engine after the one served last, else the lowest of all.
                first = Mux((requests & later).any(), requests & later, requests)
                m.d.comb += grants.eq(first & -first)
                m.d.sync += occupied[c].eq(requests.any())
                with m.If(requests.any()):
                    m.d.sync += later.eq(~(grants | (grants - 1)))
                    with m.Switch(grants):
                        for index in range(engines):
                            with m.Case(1 << index):
                                m.d.sync += line.eq(heads[index])
        m.d.comb += self.busy.eq(occupied.any() | Cat(queue.output.valid for queue in queues).any())
        return m
