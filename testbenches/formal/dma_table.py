"""The DMA command table: one command per complete block, for exactly its tiles."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value

from t3sim.rtl.geometry import DmaGeometry, Geometry, TrackerGeometry
from t3sim.rtl.layouts import trigger
from t3sim.testbenches.formal.broken import Broken
from t3sim.testbenches.formal.property import Property, Search
from t3sim.testbenches.formal.spec import Spec, entry_of, implies

COMPLETE = "a command is sent only for a complete block, once"
COMES = "a complete block's command is sent"
#: for the broken designs: two of counters, regions and shapes
TINY = Geometry(TrackerGeometry(sets=1, ways=2, banks=1, wg_bits=2, wf_bits=2, address_bits=32),
                dma=DmaGeometry(regions=2, block_shapes=2, ready_commands=2))

#: Why broken designs are not looked for on the default geometry.
CLEARING = "the default's counters are cleared for 1,024 cycles after a reset"

PAYLOAD = "a command names the block's first wavefront, its smallest address, its workgroup and region"


def blocks(spec: Spec, geometry: Geometry) -> None:
    """Follow every block that uses one arbitrary counter of the table, one after the other.

    Assumed, as the block's text says: tiles_per_block is 0 or a power of two and does not change; while a block is
    open, only its own tiles use its counter (the dispatch window), each once, and all in one region. The tile that a
    trigger names need not be in order, and other counters may be used in between.
    """
    m, table, t = spec.m, spec.design, geometry.tracker
    for entry in (*table.region, *table.block):
        spec.hold(entry)
    for entry in table.block:
        spec.assume((entry.tiles_per_block & (entry.tiles_per_block - 1)) == 0)
    incoming = table.triggers.payload
    size, first = Signal(t.wf_bits + 1), Signal(t.wf_bits)
    said = tiles_of(m, table, incoming.region)
    m.d.comb += size.eq(Mux(said == 0, 1, said))
    slot_bits = (t.window_slots - 1).bit_length()
    counter = spec.any_constant(slot_bits + t.wf_bits - 1)
    uses, accepted, complete = Signal(), Signal(), Signal()
    m.d.comb += [
        first.eq(incoming.wf & ~(size - 1)),
        uses.eq((size > 1) & (Cat(first[1:], incoming.wg[:slot_bits]) == counter)),
        accepted.eq(table.triggers.valid & table.triggers.ready & uses),
    ]

    # The open block.
    seen = Signal(1 << t.wf_bits)  # its tiles that have fired
    count, wanted = Signal(t.wf_bits + 1), Signal(t.wf_bits + 1)
    block, smallest = Signal(trigger(geometry)), Signal(t.address_bits)
    opens = count == 0
    same = (incoming.wg == block.wg) & (incoming.region == block.region) & (first == block.wf)
    spec.assume(implies(table.triggers.valid & uses & ~opens, same & ((seen & (1 << incoming.wf)) == 0)))
    lowest = Signal(t.address_bits)
    m.d.comb += [
        lowest.eq(Mux(opens | (incoming.address < smallest), incoming.address, smallest)),
        complete.eq(accepted & (count + 1 == size)),
    ]
    with m.If(accepted):
        m.d.sync += [count.eq(count + 1), seen.eq(seen | (1 << incoming.wf)), smallest.eq(lowest), wanted.eq(size)]
        m.d.sync += [block.wg.eq(incoming.wg), block.region.eq(incoming.region), block.wf.eq(first)]
        with m.If(complete):
            m.d.sync += [count.eq(0), seen.eq(0)]

    # What enters the queue of ready commands, one cycle or more after its last trigger.
    entering = Value.cast(spec.inside("ready").w_data)
    enters = spec.inside("ready").w_en & spec.inside("ready").w_rdy
    command = Signal(trigger(geometry))
    expected, due = Signal(trigger(geometry)), Signal()
    many = Signal()  # a command of a block of several tiles with this counter
    tile, tiles = spec.inside("tile"), spec.inside("block_tiles")
    m.d.comb += [
        Value.cast(command).eq(entering),
        many.eq(enters & (tiles > 1) & (Cat(command.wf[1:], command.wg[:slot_bits]) == counter)),
    ]
    with m.If(complete):
        m.d.sync += [expected.address.eq(lowest), expected.wg.eq(incoming.wg), expected.region.eq(incoming.region),
                     expected.wf.eq(first)]
    m.d.sync += due.eq(complete | (due & ~many))
    spec.claim(COMPLETE, implies(many, due))
    spec.claim(PAYLOAD, implies(many, Value.cast(command) == Value.cast(expected)))
    spec.claim(COMES, implies(due & spec.inside("ready").w_rdy, many))

    # The stage between: the last trigger, whose effect on the memory is still to come.
    valid, clearing = spec.inside("tile_valid"), spec.inside("clearing")
    clear_index, index = spec.inside("clear_index"), spec.inside("block_index")
    row, found = spec.peek(table.blocks, counter), spec.inside("block_before")
    last = Signal.like(count)  # count before the tile in the stage
    before = Signal.like(smallest)
    judged = Signal()
    with m.If(accepted):
        m.d.sync += [last.eq(count), before.eq(smallest), judged.eq(complete)]
    stage = Signal()
    m.d.comb += stage.eq(valid & (tiles > 1) & (index == counter))
    now = Mux(stage, last, count)
    spec.invariant(implies(clearing, ~valid & (count == 0) & (seen == 0) & ~due))
    spec.invariant(implies(clearing & (clear_index > counter), row.count == 0))
    spec.invariant(implies(~clearing, row.count == now))
    spec.invariant(implies(~clearing & (now != 0), row.address == Mux(stage, before, smallest)))
    spec.invariant(implies(stage, (found.count == row.count) & implies(last != 0, found.address == row.address)))
    spec.invariant(due == (stage & judged))
    spec.invariant(implies(count != 0, (count < wanted) & (wanted == tiles_of(m, table, block.region))
                           & (wanted > 1)))
    spec.invariant(implies(stage, (tiles == wanted) & (wanted == tiles_of(m, table, tile.region))
                           & (judged == (last + 1 == tiles)) & (last < tiles)
                           & (tile.wg == block.wg) & (tile.region == block.region) & (tile.wf == block.wf)
                           & (count == Mux(judged, 0, last + 1))))
    spec.invariant(implies(stage, smallest == Mux((last == 0) | (tile.address < before), tile.address, before)))
    spec.invariant(implies(stage & judged, (expected.address == smallest) & (expected.wg == tile.wg)
                           & (expected.region == tile.region) & (expected.wf == tile.wf)))
    spec.invariant(implies(valid & (tiles > 1), index == Cat(tile.wf[1:], tile.wg[:slot_bits])))
    spec.invariant(implies(count != 0, Cat(block.wf[1:], block.wg[:slot_bits]) == counter))


def tiles_of(m: Module, table, region) -> Value:
    """Return `tiles_per_block` of a region."""
    return entry_of(m, table.block, entry_of(m, table.region, region).block).tiles_per_block


def properties() -> list[Property]:
    def broken(what, claim, old, new):
        return Broken(what, claim, "dma/dma_table.py", old, new)

    return [Property("blocks", "dma_table", "one command per complete block, for exactly its tiles", blocks, (
        broken("the counter that was just written is read from the memory", COMES,
               'read, block_before = forwarded_read(m, self.blocks, write, "block_before")',
               "read = self.blocks.read_port()\n        block_before = read.data"),
        broken("a block is complete one tile early", COMPLETE, "block_before.count == block_tiles - 1",
               "block_before.count == block_tiles - 2"),
        broken("the address of the last tile, not the smallest", PAYLOAD,
               "single_tile | (block_before.count == 0) | (tile.address < block_before.address)", "1"),
        broken("the block's shape is that of the region's number", COMES,
               "Array(self.block)[Array(self.region)[new_trigger.region].block]",
               "Array(self.block)[new_trigger.region]"),
    ), quick=True, searches=(Search(TINY, 14), Search("small", 32, skip=16)),
        unsearched=CLEARING)]
