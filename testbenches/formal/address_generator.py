"""The address generator: exactly the block's lines, each once, none outside its buffer."""

from amaranth.hdl import Cat, Mux, Signal, Value
from amaranth.lib import data

from t3sim.rtl.geometry import Geometry
from t3sim.rtl.layouts import Op, Source, trigger
from t3sim.testbenches.formal.broken import Broken
from t3sim.testbenches.formal.property import Property, Search
from t3sim.testbenches.formal.spec import Spec, at_most_one, entry_of, implies

EXACT = "each line is the next line of its block"
INSIDE = "no line outside the region's buffer leaves"
ALL = "no line is missing when the generator is idle"
LEAVES = "an issued line is offered in the next cycle"


def lines(spec: Spec, geometry: Geometry) -> None:
    """Claim the lines of one arbitrary command, whatever its address, wavefront and region, among any others.

    Assumed: the tables do not change; the followed command's workgroup has no other command inside (the
    generator only copies the workgroup, so that it can serve as a name). Wavefront ids are checked for blocks that
    have as many columns as tiles, or more. The last register before the port is claimed to hold what was issued;
    all other claims are about what is issued.
    """
    m, dut, t = spec.m, spec.design, geometry.tracker
    for entry in (*dut.region, *dut.block, *dut.buffer):
        spec.hold(entry)
    wg = spec.any_constant(t.wg_bits)
    command = Signal(trigger(geometry))
    region = entry_of(m, dut.region, command.region)
    block, buffer = entry_of(m, dut.block, region.block), entry_of(m, dut.buffer, region.buffer)
    usable = region.send_dma & (block.row_bytes != 0) & (block.columns != 0)
    named = (block.tiles_per_block <= block.columns) & (block.tiles_per_block != 0)

    # Where the followed command is: column, byte in it; exact sums, wider than any address.
    place = data.StructLayout({"column": 10, "byte": 13, "base": t.address_bits + 2, "products": 16, "bound": 16,
                               "wf": t.wf_bits})
    active, at, after = Signal(), Signal(place), Signal(place)
    address, count, ends = Signal(t.address_bits + 2), Signal(7), Signal()
    inside, row_ends = Signal(), Signal()
    m.d.comb += [
        address.eq(at.base + at.byte),
        count.eq(Mux(block.row_bytes - at.byte < 64 - address[:6], block.row_bytes - at.byte, 64 - address[:6])),
        inside.eq(usable & (address >= buffer.base) & (address + count <= buffer.limit)),
        row_ends.eq(at.byte + count == block.row_bytes),
        ends.eq(~usable | (row_ends & (at.column + 1 == block.columns))),
        Value.cast(after).eq(Value.cast(at)),
    ]
    with m.If(row_ends):
        m.d.comb += [after.column.eq(at.column + 1), after.byte.eq(0), after.base.eq(at.base + block.pitch_bytes),
                     after.products.eq(at.products + block.tiles_per_block)]
        with m.If(at.products + block.tiles_per_block >= at.bound):  # the first column of the next tile
            m.d.comb += [after.wf.eq(at.wf + 1), after.bound.eq(at.bound + block.columns)]
    with m.Else():
        m.d.comb += after.byte.eq(at.byte + count)

    new = dut.command.payload
    accepted = dut.command.valid & dut.command.ready & (new.wg == wg)
    spec.assume(implies(dut.command.valid & (new.wg == wg), ~active))
    line, error = spec.inside("line"), dut.error
    event = (dut.issued | error.valid) & (line.wg == wg)
    columns = entry_of(m, dut.block, entry_of(m, dut.region, new.region).block).columns
    with m.If(event):
        m.d.sync += [Value.cast(at).eq(Value.cast(after)), active.eq(~ends)]
    with m.If(accepted):
        m.d.sync += [active.eq(1), Value.cast(command).eq(Value.cast(new)), Value.cast(at).eq(0),
                     at.base.eq(new.address), at.bound.eq(columns), at.wf.eq(new.wf)]

    spec.claim(EXACT, implies(event, active & (dut.issued == inside) & (error.valid == ~inside)))
    spec.claim(EXACT, implies(dut.issued & event, (line.address == address) & (line.bytes == count)
                              & (line.region == command.region) & (~named | (line.wf == at.wf))
                              & (line.op.as_value() == Op.READ.value) & (line.source.as_value() == Source.DMA.value)))
    spec.claim(INSIDE, implies(dut.issued & event, (line.address >= buffer.base)
                               & (line.address + line.bytes <= buffer.limit)))
    spec.claim(ALL, implies(~dut.busy, ~active))
    spec.claim(LEAVES, implies(spec.past(dut.issued), dut.lines.valid & (
        Value.cast(dut.lines.payload) == Value.cast(spec.past(line)))))

    # Places inside: queue, walker, line.
    queue = spec.inside("commands")
    waits = []
    for where in ("front", "back"):
        valid, content = spec.inside(f"{where}_valid", queue), spec.inside(where, queue)
        waits.append(valid & (content.command.wg == wg))
        for name in ("send_dma", "block", "buffer"):
            spec.invariant(implies(waits[-1], content[name] == region[name]))
        spec.invariant(implies(waits[-1], (Value.cast(content.command) == Value.cast(command)) & (at.column == 0)
                               & (at.byte == 0) & (at.base == command.address) & (at.products == 0)
                               & (at.bound == block.columns) & (at.wf == command.wf)))
    spec.invariant(implies(spec.inside("back_valid", queue), spec.inside("front_valid", queue)))
    walking, ids, walked = spec.inside("walking"), spec.inside("ids"), spec.inside("block")
    walks, has_line = Signal(), Signal()
    m.d.comb += [walks.eq(walking & (ids.wg == wg)), has_line.eq(spec.inside("line_valid") & (line.wg == wg))]
    spec.invariant(at_most_one(Cat(*waits, walks | has_line)))
    spec.invariant(active == (Cat(*waits).any() | walks | has_line))
    spec.invariant(implies(has_line, walks == ~ends))
    spec.invariant(implies(has_line, (spec.inside("line_inside") == inside) & (line.region == command.region)
                           & (line.op.as_value() == Op.READ.value) & (line.source.as_value() == Source.DMA.value)))
    spec.invariant(implies(has_line & usable, (line.address == address[:t.address_bits]) & (line.bytes == count)
                           & (~named | (line.wf == at.wf))))
    then = Signal(place)
    m.d.comb += Value.cast(then).eq(Mux(has_line, Value.cast(after), Value.cast(at)))

    def same(register, exact):
        """Compare a register with an exact value: the generator keeps one bit above the address, which stays set."""
        return (register[:-1] == exact[:t.address_bits]) & (register[-1] == exact[t.address_bits:].any())

    position, next_base = Signal(t.address_bits + 2), Signal(t.address_bits + 2)
    m.d.comb += [position.eq(then.base + then.byte), next_base.eq(then.base + block.pitch_bytes)]
    spec.invariant(implies(walks, (spec.inside("unusable") == ~usable) & (ids.region == command.region)))
    spec.invariant(implies(walks & usable, same(spec.inside("cursor"), position)
                           & same(spec.inside("next_column"), next_base)
                           & (spec.inside("row_left") == block.row_bytes - then.byte)
                           & (spec.inside("columns_left") == block.columns - then.column)))
    spec.invariant(implies(walks, (spec.inside("room") == 64 - spec.inside("cursor")[:6])
                           & (spec.inside("last_sum") == block.columns - block.tiles_per_block)))
    spec.invariant(implies(walks & usable & named, (ids.wf == then.wf)
                           & (spec.inside("tile_sum") == then.products + block.columns - then.bound)))
    for held, right in ((walked, block), (spec.inside("bounds"), buffer)):
        spec.invariant(implies(walks, Value.cast(held) == Value.cast(right)))
    spec.invariant(implies(active & usable, (at.column < block.columns) & (at.byte < block.row_bytes)
                           & (at.base < (1 << t.address_bits) + (at.column << 32))))
    spec.invariant(implies(active & usable & named, (at.products < at.bound)
                           & (at.bound <= at.products + block.columns) & (at.products <= at.column << (t.wf_bits + 1))))
    spec.invariant(implies(active, command.wg == wg))


def properties() -> list[Property]:
    def broken(what, claim, old, new):
        return Broken(what, claim, "dma/address_generator.py", old, new)

    return [Property("lines", "address_generator", "exactly the block's lines, each once, and none outside the buffer",
                     lines, (
        broken("the second line of a row starts one line late", EXACT, "boundary.eq(upper + 1)",
               "boundary.eq(upper + 2)"),
        broken("the column after the last is walked, too", EXACT, "last_of_row & (columns_left == 1)",
               "last_of_row & (columns_left == 0)"),
        broken("addresses wrap around at the end of memory", EXACT, "~unusable & ~cursor[-1] & (", "~unusable & ("),
        broken("the last byte of a line may lie beyond the limit", INSIDE, "(last_byte < bounds.limit[:6])",
               "(last_byte <= bounds.limit[:6])"),
        broken("the last column is not walked", ALL, "last_of_row & (columns_left == 1)",
               "last_of_row & (columns_left <= 2)"),
        broken("the shape is that of the command that comes next", EXACT,
               "Array(self.block)[commands.output.payload.block]", "Array(self.block)[named.block]"),
        broken("a line is lost when the output is full", LEAVES, "self.allow & output_free", "self.allow"),
    ), depth=1, searches=(Search("least", 12), Search("default", 14)), timeout_s=3600)]
