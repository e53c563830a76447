"""Collects complete tiles into complete DMA blocks and queues the commands."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import data, fifo, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from t3sim.rtl.geometry import Geometry
from t3sim.rtl.layouts import mapping_tables, trigger
from t3sim.rtl.streams.forwarded_read import forwarded_read


class DmaTable(wiring.Component):
    """The DMA command table (T3 paper, section 4.2.2 and figure 9c).

    1. With one tile per block a trigger is a command. With 2, 4, ... `tiles_per_block` tiles, a counter per open block
       waits for all of them; the command carries the block's lowest wavefront id and smallest address.
    2. Commands wait in a queue of `ready_commands`. When it is full, triggers wait.
    3. One trigger per cycle. After reset the counters are cleared, one per cycle, and no trigger is accepted.

    Counters are in a direct-mapped memory, indexed by workgroup modulo `window_slots` and block within the workgroup.
    The caller must ensure that no two open workgroups share a slot (the dispatch window does) and that all tiles of a
    block are tracked in one region: a block that never completes would corrupt a later workgroup's count.

    Members
    -------
    triggers : In(stream(trigger))
        Tiles of DMA regions, each once.
    region, block : In(...).array(...)
        Tables; only `tiles_per_block` of a region's block is used, and 0 counts as 1.
    commands : Out(stream(trigger))
        Complete blocks in order of completion.
    ready_level : Out(range(ready_commands + 1))
        Waiting commands.
    ready_high_water : Out(range(ready_commands + 1))
        Largest `ready_level` since reset or `clear_high_water`.
    busy : Out(1)
        Level: clearing, or a trigger or command is inside. An incomplete block does not count.
    """

    def __init__(self, geometry: Geometry):
        self._geometry = geometry
        t = geometry.tracker
        level = range(geometry.dma.ready_commands + 1)
        super().__init__({
            "triggers": In(stream.Signature(trigger(geometry))),
            **{name: In(mapping_tables(geometry)[name][0]).array(mapping_tables(geometry)[name][1])
               for name in ("region", "block")},
            "commands": Out(stream.Signature(trigger(geometry))),
            "ready_level": Out(level),
            "ready_high_water": Out(level),
            "clear_high_water": In(1),
            "busy": Out(1),
        })
        #: A block of 2 or more tiles starts at an even wavefront, so wf[0] is not part of the index.
        self.blocks = memory.Memory(shape=data.StructLayout({"count": t.wf_bits, "address": t.address_bits}),
                                    depth=t.window_slots << (t.wf_bits - 1), init=[])

    def elaborate(self, platform):
        m = Module()
        g = self._geometry
        t = g.tracker
        m.submodules.blocks = self.blocks
        m.submodules.ready = ready = fifo.SyncFIFOBuffered(width=trigger(g).size, depth=g.dma.ready_commands)
        write = self.blocks.write_port()
        read, block_before = forwarded_read(m, self.blocks, write, "block_before")

        # First stage: the counter is read. Second: counted, and written back or sent on.
        tile = Signal(trigger(g))
        tile_valid = Signal()
        block_tiles = Signal(t.wf_bits + 1)
        block_index = Signal(range(max(2, self.blocks.depth)))
        new_trigger = self.triggers.payload
        new_tiles = Array(self.block)[Array(self.region)[new_trigger.region].block].tiles_per_block
        wf_mask = Signal(t.wf_bits)  # wavefront bits within a block
        first_wf = Signal(t.wf_bits)
        slot_bits = (t.window_slots - 1).bit_length()
        m.d.comb += [wf_mask.eq(new_tiles - (new_tiles != 0)), first_wf.eq(new_trigger.wf & ~wf_mask)]

        clearing = Signal(init=1)
        clear_index = Signal.like(block_index)

        single_tile = block_tiles <= 1
        last_tile = single_tile | (block_before.count == block_tiles - 1)
        address = Signal(t.address_bits)
        tile_leaves = Signal()
        stage_free = Signal()
        m.d.comb += [
            address.eq(Mux(single_tile | (block_before.count == 0) | (tile.address < block_before.address),
                           tile.address, block_before.address)),
            tile_leaves.eq(tile_valid & (~last_tile | ready.w_rdy)),
            stage_free.eq(~tile_valid | tile_leaves),
            self.triggers.ready.eq(stage_free & ~clearing),
            read.en.eq(stage_free & self.triggers.valid),
            read.addr.eq(Cat(first_wf[1:], new_trigger.wg[:slot_bits])),
            ready.w_en.eq(tile_valid & last_tile),
            ready.w_data.eq(Cat(address, tile.region, tile.wf, tile.wg)),
            write.addr.eq(Mux(clearing, clear_index, block_index)),
            write.en.eq(clearing | (tile_leaves & ~single_tile)),
            write.data.count.eq(Mux(clearing | last_tile, 0, block_before.count + 1)),
            write.data.address.eq(address),
        ]
        with m.If(stage_free):
            m.d.sync += tile_valid.eq(self.triggers.valid & ~clearing)
            with m.If(self.triggers.valid):
                m.d.sync += [tile.eq(new_trigger), tile.wf.eq(first_wf), block_tiles.eq(new_tiles),
                             block_index.eq(read.addr)]
        with m.If(clearing):
            m.d.sync += [clear_index.eq(clear_index + 1), clearing.eq(clear_index != self.blocks.depth - 1)]

        m.d.comb += [
            self.commands.valid.eq(ready.r_rdy),
            self.commands.payload.eq(ready.r_data),
            ready.r_en.eq(self.commands.ready),
            self.ready_level.eq(ready.level),
            self.busy.eq(clearing | tile_valid | (ready.level != 0)),
        ]
        with m.If(self.clear_high_water | (ready.level > self.ready_high_water)):
            m.d.sync += self.ready_high_water.eq(ready.level)
        return m
