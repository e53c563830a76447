"""Refuses arrivals that would write to unmapped memory or count for a tile that cannot be open."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from t3sim.rtl.geometry import Geometry
from t3sim.rtl.layouts import ErrorCode, Op, Source, error_report, in_one_line, request
from t3sim.rtl.registers import ARRIVAL_RANGES

GROUP = 4  #: memory channels whose arrivals one block checks


def groups(geometry: Geometry) -> list[range]:
    """Return the channels of each block."""
    channels = geometry.channel.channels
    return [range(first, min(first + GROUP, channels)) for first in range(0, channels, GROUP)]


class Ingress(wiring.Component):
    """Checks packets from the link for a group of memory channels, in the cycle in which they are offered.

    1. An arrival is lawful if it is a store or an update by a peer's compute units or DMA engine, has 1 to
       `request_bytes` bytes in one line, in a range that is open to its region, and names a workgroup inside the
       dispatch window and a wavefront below `tiles`. Region 0 is never tracked, so its workgroup and wavefront are not
       checked.
    2. Lawful arrivals and `ready` pass combinationally. Other arrivals are accepted from the link and dropped, and
       reported in the next cycle; the lowest channel's report wins.

    Members
    -------
    open : In(regions).array(ARRIVAL_RANGES)
        Regions under which peers may write into the range.
    base, last : In(address_bits).array(ARRIVAL_RANGES)
        First and last byte of the range; only the line counts.
    head : In(wg_bits + 1), limit : In(wg_bits + 2)
        First workgroup of the dispatch window, and one past its last.
    tiles : In(wf_bits + 1)
        Wavefront tiles of a workgroup, at most.
    any_tile : In(1)
        Nothing is tracked at present, so every workgroup and wavefront is lawful.
    refused : Out(channels)
        Channels whose arrivals were refused in the cycle before.
    error : Out(error_report)
        ARRIVAL_REFUSED.
    """

    def __init__(self, geometry: Geometry):
        self._geometry = geometry
        channels = len(groups(geometry)[0])
        tracker = geometry.tracker
        super().__init__({
            "arriving": In(stream.Signature(request(geometry))).array(channels),
            "accepted": Out(stream.Signature(request(geometry))).array(channels),
            "open": In(geometry.dma.regions).array(ARRIVAL_RANGES),
            "base": In(tracker.address_bits).array(ARRIVAL_RANGES),
            "last": In(tracker.address_bits).array(ARRIVAL_RANGES),
            "head": In(tracker.wg_bits + 1),
            "limit": In(tracker.wg_bits + 2),
            "tiles": In(tracker.wf_bits + 1),
            "any_tile": In(1),
            "refused": Out(channels),
            "error": Out(error_report(geometry)),
        })

    def elaborate(self, platform):
        m = Module()
        refused = Signal.like(self.refused)
        for c, (arriving, accepted) in enumerate(zip(self.arriving, self.accepted)):
            lawful = Signal(name=f"lawful_{c}")
            m.d.comb += [
                lawful.eq(self._lawful(m, arriving.payload, c)),
                accepted.payload.eq(arriving.payload),
                accepted.valid.eq(arriving.valid & lawful),
                arriving.ready.eq(accepted.ready),
                refused[c].eq(arriving.valid & accepted.ready & ~lawful),
            ]
        m.d.sync += [self.refused.eq(refused), self.error.valid.eq(refused.any())]
        for c in reversed(range(len(refused))):
            with m.If(refused[c]):
                m.d.sync += [self.error.details[name].eq(self.arriving[c].payload[name])
                             for name, _ in self.error.details.shape()]
        m.d.comb += self.error.code.eq(ErrorCode.ARRIVAL_REFUSED)
        return m

    def _lawful(self, m, packet, c):
        line_bits = (self._geometry.channel.request_bytes - 1).bit_length()
        in_line, writes, inside, open_here = (
            Signal(name=f"{name}_{c}") for name in ("in_line", "writes", "inside", "open_here"))
        line = packet.address[line_bits:]
        m.d.comb += [
            # An access to the next line could reach another channel, which would not order it.
            in_line.eq(in_one_line(packet, self._geometry)),
            writes.eq(((packet.op == Op.STORE) | (packet.op == Op.UPDATE))
                      & ((packet.source == Source.REMOTE) | (packet.source == Source.DMA))),
            inside.eq(Cat(regions.bit_select(packet.region, 1) & (line >= base[line_bits:])
                          & (line <= last[line_bits:])
                          for regions, base, last in zip(self.open, self.base, self.last)).any()),
            open_here.eq(self.any_tile | (packet.region == 0)
                         | ((packet.wg >= self.head) & (packet.wg < self.limit) & (packet.wf < self.tiles))),
        ]
        return in_line & writes & inside & open_here
