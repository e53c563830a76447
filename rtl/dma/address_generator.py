"""Address part of one DMA engine: the lines of a 2-D block."""

from amaranth.hdl import Array, C, Cat, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from t3sim.rtl.geometry import Geometry, bits_for
from t3sim.rtl.layouts import (
    ErrorCode,
    Op,
    Source,
    block_shape,
    buffer,
    dma_command,
    error_report,
    mapping_tables,
    read_for,
    read_origins,
    request,
)
from t3sim.rtl.streams.two_entry_queue import TwoEntryQueue


class AddressGenerator(wiring.Component):
    """Walks the 2-D block of a DMA command and issues one read per line (T3 paper, section 4.2.2).

    1. Each column is `row_bytes` contiguous bytes from `address + column * pitch_bytes`, cut at 64-byte boundaries into
       lines of 1 to 64 bytes.
    2. One line per cycle, without bubbles between columns or commands.
    3. The `tiles_per_block` wavefront tiles of a block are side by side. Each line carries the wavefront id of its
       column's tile, for the destination's Tracker.
    4. A line that is not wholly inside [base, limit) is reported, not issued. A command whose region lacks `send_dma`
       or whose block is empty is reported once. Addresses do not wrap around.

    The region is looked up when a command is accepted, its block shape and buffer when the command starts.

    Members
    -------
    command : In(stream(dma_command))
        A complete block; `wf` is its lowest.
    lines : Out(stream(request))
        READ, source DMA or, for a queued copy, COPY; ids and region of the source.
    allow : In(1)
        A line may be issued in this cycle.
    issued : Out(read_origins)
        Pulse: a line enters the output register; a bit for each origin.
    busy : Out(1)
        Level: a command or a line is inside.
    copies : Out(1)
        Only with a command queue. Level: a copy is inside, or a line of one that was not issued in an earlier cycle.
    failed : Out(read_origins)
        Pulse with `error`: the origin of the line or command.
    """

    def __init__(self, geometry: Geometry):
        self._geometry = geometry
        super().__init__({
            "command": In(stream.Signature(dma_command(geometry))),
            **{name: In(layout).array(entries) for name, (layout, entries) in mapping_tables(geometry).items()
               if name != "route"},
            "lines": Out(stream.Signature(request(geometry))),
            "allow": In(1),
            "issued": Out(read_origins(geometry)),
            "busy": Out(1),
            **({"copies": Out(1)} if geometry.dma.queue_commands else {}),
            "error": Out(error_report(geometry)),
            "failed": Out(read_origins(geometry)),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        g = self._geometry
        address_bits = g.tracker.address_bits
        layout = block_shape(g)
        column_bits = layout["columns"].width

        looked_up = data.StructLayout({"command": dma_command(g), "send_dma": 1, "block": bits_for(g.dma.block_shapes),
                                       "buffer": bits_for(g.dma.buffers)})
        m.submodules.commands = commands = TwoEntryQueue(looked_up)
        named = Array(self.region)[self.command.payload.region]
        m.d.comb += [
            commands.input.valid.eq(self.command.valid),
            self.command.ready.eq(commands.input.ready),
            commands.input.payload.command.eq(self.command.payload),
            *(commands.input.payload[name].eq(getattr(named, name)) for name in ("send_dma", "block", "buffer")),
        ]
        command = commands.output.payload.command
        shape = Array(self.block)[commands.output.payload.block]
        readable = Array(self.buffer)[commands.output.payload.buffer]

        # Walker: `cursor` is the next byte, `next_column` the start of the next column. Their extra bit stays set once
        # the address space was left.
        walking = Signal()
        unusable = Signal()  # this command has no lines and becomes one error
        cursor = Signal(address_bits + 1)
        room = Signal(7)  # bytes from the cursor to the next boundary
        next_column = Signal(address_bits + 1)
        row_left = Signal(layout["row_bytes"].width)
        columns_left = Signal(column_bits)
        tile_sum = Signal(column_bits + 1)  # column * tiles_per_block modulo columns
        widths = dma_command(g).members
        ids = Signal(data.StructLayout({name: widths[name] for name in ("wf", "wg", "region", "copy")
                                        if name in widths}))
        block = Signal(layout)
        bounds = Signal(buffer(g))
        last_sum = Signal(signed(column_bits + 2))  # columns - tiles_per_block: from here on tile_sum wraps

        # The last line, with the result of its range check, then the output register.
        line = Signal(request(g))
        line_valid = Signal()
        line_inside = Signal()
        line_code = Signal(ErrorCode)
        output = Signal(request(g))
        output_valid = Signal()

        issued = Signal()
        output_free = ~output_valid | self.lines.ready
        leaves = line_valid & (~line_inside | (self.allow & output_free))
        count = Signal(7)
        last_of_row = Signal()
        advance = Signal()
        finish = Signal()
        last_byte = Signal(6)  # a line crosses no boundary, so the upper bits are the cursor's
        upper, limit_upper = cursor[6:address_bits], bounds.limit[6:]
        m.d.comb += [
            last_of_row.eq(row_left <= room),
            count.eq(Mux(last_of_row, row_left, room)),
            last_byte.eq(cursor[:6] + count - 1),
            advance.eq(walking & (~line_valid | leaves)),
            finish.eq(advance & (unusable | (last_of_row & (columns_left == 1)))),
        ]

        # Cut off the next line.
        with m.If(leaves):
            m.d.sync += line_valid.eq(0)
        with m.If(advance):
            m.d.sync += [
                line_valid.eq(1),
                line_inside.eq(~unusable & ~cursor[-1] & (cursor[:-1] >= bounds.base) & (
                    (upper < limit_upper) | ((upper == limit_upper) & (last_byte < bounds.limit[:6])))),
                line_code.eq(Mux(unusable, ErrorCode.REGION_UNCONFIGURED, ErrorCode.ADDRESS_OUT_OF_RANGE)),
                line.address.eq(cursor),
                line.bytes.eq(count),
                line.op.eq(Op.READ),
                line.source.eq(Mux(ids.copy, Source.COPY, Source.DMA) if g.dma.queue_commands else Source.DMA),
                line.region.eq(ids.region),
                line.wf.eq(ids.wf),
                line.wg.eq(ids.wg),
            ]
            with m.If(last_of_row):
                column_after = Signal(address_bits + 1)
                beyond = Signal(signed(column_bits + 3))
                m.d.comb += [
                    column_after.eq(next_column[:-1] + block.pitch_bytes),
                    beyond.eq(tile_sum - last_sum),
                ]
                m.d.sync += [
                    cursor.eq(next_column),
                    room.eq(64 - next_column[:6]),
                    next_column.eq(Cat(column_after[:-1], column_after[-1] | next_column[-1])),
                    row_left.eq(block.row_bytes),
                    columns_left.eq(columns_left - 1),
                    tile_sum.eq(tile_sum + block.tiles_per_block),
                ]
                with m.If(beyond >= 0):  # the next column is the next tile's first
                    m.d.sync += [tile_sum.eq(beyond), ids.wf.eq(ids.wf + 1)]
            with m.Else():
                boundary = Signal(address_bits - 5)
                m.d.comb += boundary.eq(upper + 1)
                m.d.sync += [
                    room.eq(64),
                    cursor.eq(Cat(C(0, 6), boundary[:-1], boundary[-1] | cursor[-1])),
                    row_left.eq(row_left - room),
                ]

        # Start the next command.
        m.d.comb += commands.output.ready.eq(~walking | finish)
        with m.If(~walking | finish):
            m.d.sync += walking.eq(commands.output.valid)
            with m.If(commands.output.valid):
                m.d.sync += [
                    unusable.eq(~commands.output.payload.send_dma | (shape.row_bytes == 0) | (shape.columns == 0)),
                    cursor.eq(command.address),
                    room.eq(64 - command.address[:6]),
                    next_column.eq(command.address + shape.pitch_bytes),
                    row_left.eq(shape.row_bytes),
                    columns_left.eq(shape.columns),
                    tile_sum.eq(0),
                    last_sum.eq(shape.columns - shape.tiles_per_block),
                    *(ids[name].eq(command[name]) for name, _ in ids.shape()),
                    *(block[name].eq(getattr(shape, name)) for name, _ in layout),
                    *(bounds[name].eq(getattr(readable, name)) for name, _ in bounds.shape()),
                ]

        with m.If(output_free):
            m.d.sync += output_valid.eq(issued)
            with m.If(issued):
                m.d.sync += output.eq(line)
        m.d.comb += [
            issued.eq(leaves & line_inside),
            self.issued.eq(Mux(issued, read_for(line, g), 0)),
            self.failed.eq(Mux(self.error.valid, read_for(line, g), 0)),
            self.lines.valid.eq(output_valid),
            self.lines.payload.eq(output),
            self.busy.eq(commands.output.valid | walking | line_valid | output_valid),
            self.error.valid.eq(leaves & ~line_inside),
            self.error.code.eq(line_code),
            *(self.error.details[name].eq(line[name]) for name in ("address", "region", "wf", "wg")),
        ]
        if g.dma.queue_commands:
            copies = Signal(range(4))  # in the queue and the walker
            accepted = self.command.valid & self.command.ready & self.command.payload.copy
            m.d.sync += copies.eq(copies + accepted - (finish & ids.copy))
            m.d.comb += self.copies.eq((copies != 0) | (line_valid & read_for(line, g)[1]))
        return m
