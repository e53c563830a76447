"""One lane towards the link: lines become packets in the destination's terms."""

from amaranth.hdl import Array, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .geometry import Geometry
from .layouts import ErrorCode, Source, descriptor, error_report, packet, request
from .two_entry_queue import TwoEntryQueue


class Egress(wiring.Component):
    """Translates outbound lines (T3 paper, sections 4.2.2 and 4.4; figures 11 and 12).

    A line is either a compute unit's store to a region with `send_stores` (source LOCAL) or data that the DMA engine
    read from one with `send_dma` (source DMA). The packet's address and workgroup are the line's plus the region's
    offsets, modulo their widths; device, region and operation are the region's; bytes and wavefront stay. A line whose
    source does not fit its region's actions is reported and swallowed. One line per cycle, in order; both sides are
    registers.

    With a command queue a region may name another one (`also`), of a larger number: data that DMA read of the first
    become a packet of each, one after the other, and so on from there. Read once, they reach several GPUs (broadcast:
    DMA collectives paper, section 4.2; T3 paper, section 7.1).

    While `forget` is 1 no further line becomes a packet: each is swallowed without an error.

    Members
    -------
    line : In(stream(request))
        `address` and ids of the source; `op` is ignored.
    descriptors : In(descriptor).array(regions)
    forget : In(1)
    packet : Out(stream(packet))
        `source` is REMOTE for a store, DMA for DMA data.
    busy : Out(1)
        Level: a line is inside.
    error : Out(error_report)
    refused_dma : Out(1)
        Pulse: a line that is refused or forgotten is data that the DMA engine read.
    repeated : Out(1)
        Pulse: the same data will leave, or be refused, once more. Only with a command queue.
    """

    def __init__(self, geometry: Geometry):
        self._geometry = geometry
        super().__init__({
            "line": In(stream.Signature(request(geometry))),
            "descriptors": In(descriptor(geometry)).array(geometry.dma.regions),
            "forget": In(1),
            "packet": Out(stream.Signature(packet(geometry))),
            "busy": Out(1),
            "error": Out(error_report(geometry)),
            "refused_dma": Out(1),
            **({"repeated": Out(1)} if geometry.dma.queue_commands else {}),
        })

    def elaborate(self, platform):
        m = Module()
        g = self._geometry
        m.submodules.lines = lines = TwoEntryQueue(request(g))
        wiring.connect(m, wiring.flipped(self.line), lines.input)
        head = lines.output.payload
        region = head.region
        if g.dma.queue_commands:
            following, again = Signal(g.dma.region_bits), Signal()  # the head is sent of `following`, too
            region = Mux(again, following, head.region)
        entry = Array(self.descriptors)[region]

        # Second stage: the line with what its region says. Third: the packet.
        line = Signal(request(g))
        valid = Signal()
        fits = Signal()
        forgotten = Signal()
        layout = descriptor(g)
        route = Signal(data.StructLayout({name: layout[name].shape for name in (
            "op", "device", "destination_region", "wg_offset", "address_offset")}))
        output = Signal(packet(g))
        output_valid = Signal()

        output_free = ~output_valid | self.packet.ready
        leaves = ~valid | ~fits | output_free
        if g.dma.queue_commands:
            more = Signal()
            m.d.comb += [
                more.eq(~self.forget & entry.send_dma & (entry.also > region) & (head.source == Source.DMA)),
                lines.output.ready.eq(leaves & ~more),
                self.repeated.eq(leaves & lines.output.valid & more),
            ]
            with m.If(leaves & lines.output.valid):
                m.d.sync += [again.eq(more), following.eq(entry.also)]
        else:
            m.d.comb += lines.output.ready.eq(leaves)
        with m.If(leaves):
            m.d.sync += valid.eq(lines.output.valid)
            with m.If(lines.output.valid):
                m.d.sync += [
                    line.eq(head),
                    fits.eq(~self.forget & (
                        ((head.source == Source.LOCAL) & entry.send_stores)
                        | ((head.source == Source.DMA) & entry.send_dma))),
                    forgotten.eq(self.forget),
                    *(route[name].eq(getattr(entry, name)) for name, _ in route.shape()),
                ]
                if g.dma.queue_commands:
                    m.d.sync += line.region.eq(region)
        with m.If(output_free):
            m.d.sync += output_valid.eq(valid & fits)
            with m.If(valid & fits):
                m.d.sync += [
                    output.address.eq(line.address + route.address_offset),
                    output.bytes.eq(line.bytes),
                    output.op.eq(route.op),
                    output.source.eq(Mux(line.source == Source.DMA, Source.DMA, Source.REMOTE)),
                    output.region.eq(route.destination_region),
                    output.wf.eq(line.wf),
                    output.wg.eq(line.wg + route.wg_offset),
                    output.device.eq(route.device),
                ]
        m.d.comb += [
            self.packet.valid.eq(output_valid),
            self.packet.payload.eq(output),
            self.busy.eq(lines.output.valid | valid | output_valid),
            self.error.valid.eq(valid & ~fits & ~forgotten),
            self.refused_dma.eq(valid & ~fits & (line.source == Source.DMA)),
            self.error.code.eq(ErrorCode.REGION_UNCONFIGURED),
            *(self.error.details[name].eq(line[name]) for name in ("address", "region", "wf", "wg")),
        ]
        return m
