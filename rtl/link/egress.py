"""One lane towards the link, which turns lines into packets for their destination."""

from amaranth.hdl import Array, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from t3sim.rtl.geometry import Geometry
from t3sim.rtl.layouts import (
    ErrorCode,
    Op,
    Source,
    error_report,
    mapping_tables,
    packet,
    read_for,
    read_origins,
    request,
    route,
)
from t3sim.rtl.streams.two_entry_queue import TwoEntryQueue


class Egress(wiring.Component):
    """Translates outbound lines into packets (T3 paper, sections 4.2.2 and 4.4; figures 11 and 12).

    A line is a compute unit's store to a region with `send_stores` (source LOCAL), or data that DMA read from a region
    with `send_dma` (source DMA or COPY).

    1. The packet's address and workgroup are the line's plus the offsets of the region's route, modulo their widths.
       Device, region and operation are the route's; bytes and wavefront stay.
    2. A region with several routes (up to `copies`, consecutive in the table) sends a packet on each, so data read once
       reach several GPUs (T3 paper, section 7.1; broadcast: DMA collectives paper, section 4.2).
    3. A line whose source does not match its region's actions, or whose routes are not all in the table, is reported
       and dropped.
    4. While `forget` is 1, lines are dropped without an error.
    5. One packet per cycle, in order; both sides are registers.

    Members
    -------
    line : In(stream(request))
        `address` and ids of the source; `op` is ignored.
    packet : Out(stream(packet))
        `source` is REMOTE for a store, DMA for all data that DMA read.
    busy : Out(1)
        Level: a line is inside.
    left, refused : Out(read_origins)
        Pulses, a bit for each origin: DMA's data leave as a packet; DMA's data are refused or forgotten.
    repeated : Out(read_origins)
        Only with several `copies`. Pulse: the same data of DMA will leave, or be forgotten, once more.
    """

    def __init__(self, geometry: Geometry):
        self._geometry = geometry
        super().__init__({
            "line": In(stream.Signature(request(geometry))),
            **{name: In(mapping_tables(geometry)[name][0]).array(mapping_tables(geometry)[name][1])
               for name in ("region", "route")},
            "forget": In(1),
            "packet": Out(stream.Signature(packet(geometry))),
            "busy": Out(1),
            "error": Out(error_report(geometry)),
            "left": Out(read_origins(geometry)),
            "refused": Out(read_origins(geometry)),
            **({"repeated": Out(read_origins(geometry))} if geometry.dma.copies > 1 else {}),
        })

    def elaborate(self, platform):
        m = Module()
        g = self._geometry
        m.submodules.lines = lines = TwoEntryQueue(request(g))
        wiring.connect(m, wiring.flipped(self.line), lines.input)
        head = lines.output.payload
        entry = Array(self.region)[head.region]
        route_number = entry.route
        in_table = (entry.route + entry.more_routes) < len(self.route)
        may_leave = ~self.forget & in_table & (((head.source == Source.LOCAL) & entry.send_stores)
                                               | (read_for(head, g).any() & entry.send_dma))
        if g.dma.copies > 1:
            head_repeats = Signal()  # the head has left on a route, and will on `next_route`
            next_route = Signal.like(entry.route)
            routes_left = Signal.like(entry.more_routes)
            route_number = Mux(head_repeats, next_route, entry.route)

        # Second stage: the line with its route. Third: the packet.
        line = Signal(request(g))
        line_valid = Signal()
        line_fits = Signal()
        line_forgotten = Signal()
        line_route = Signal(route(g))
        output = Signal(packet(g))
        output_valid = Signal()

        output_free = ~output_valid | self.packet.ready
        stage_free = ~line_valid | ~line_fits | output_free
        if g.dma.copies > 1:
            routes_remain = Signal()
            m.d.comb += [
                routes_remain.eq(may_leave & (Mux(head_repeats, routes_left, entry.more_routes) != 0)),
                lines.output.ready.eq(stage_free & ~routes_remain),
                self.repeated.eq(Mux(stage_free & lines.output.valid & routes_remain, read_for(head, g), 0)),
            ]
            with m.If(stage_free & lines.output.valid):
                m.d.sync += [head_repeats.eq(routes_remain), next_route.eq(route_number + 1),
                             routes_left.eq(Mux(head_repeats, routes_left, entry.more_routes) - 1)]
        else:
            m.d.comb += lines.output.ready.eq(stage_free)
        with m.If(stage_free):
            m.d.sync += line_valid.eq(lines.output.valid)
            with m.If(lines.output.valid):
                table_route = Array(self.route)[route_number]
                m.d.sync += [
                    line.eq(head),
                    line_fits.eq(may_leave),
                    line_forgotten.eq(self.forget),
                    *(line_route[name].eq(getattr(table_route, name)) for name, _ in line_route.shape()),
                ]
        with m.If(output_free):
            m.d.sync += output_valid.eq(line_valid & line_fits)
            with m.If(line_valid & line_fits):
                m.d.sync += [
                    output.address.eq(line.address + line_route.address_offset),
                    output.bytes.eq(line.bytes),
                    output.op.eq(Mux(line_route.operation, Op.UPDATE, Op.STORE)),
                    output.source.eq(Mux(line.source == Source.LOCAL, Source.REMOTE, line.source)),
                    output.region.eq(line_route.destination_region),
                    output.wf.eq(line.wf),
                    output.wg.eq(line.wg + line_route.wg_offset),
                    output.device.eq(line_route.device),
                ]
        m.d.comb += [
            self.packet.valid.eq(output_valid),
            self.packet.payload.eq(output),
            self.packet.payload.source.eq(Mux(output.source == Source.REMOTE, Source.REMOTE, Source.DMA)),
            self.left.eq(Mux(output_valid & self.packet.ready, read_for(output, g), 0)),
            self.busy.eq(lines.output.valid | line_valid | output_valid),
            self.error.valid.eq(line_valid & ~line_fits & ~line_forgotten),
            self.refused.eq(Mux(line_valid & ~line_fits, read_for(line, g), 0)),
            self.error.code.eq(ErrorCode.REGION_UNCONFIGURED),
            *(self.error.details[name].eq(line[name]) for name in ("address", "region", "wf", "wg")),
        ]
        return m
