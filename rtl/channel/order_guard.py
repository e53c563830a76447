"""Holds DMA reads back until a reordering DRAM queue has performed the tracked writes before them."""

from amaranth.hdl import Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from t3sim.rtl.geometry import Geometry


def bucket_of(address, geometry: Geometry) -> Value:
    """Return the bucket of a line: the number of its block (`interleave_bytes`) in the channel, folded with XOR.

    Lines of one block share a bucket: a wavefront stores them one after the other, so separate buckets would delay
    other reads in four buckets. The block number's lowest field is left out, because the address map XORs the fields:
    on one channel it follows from the others and could cancel them.
    """
    channel = geometry.channel
    block_bits = (channel.interleave_bytes - 1).bit_length()
    width = (channel.guard_buckets - 1).bit_length()
    if not width:
        return Const(0, 1)
    address = Value.cast(address)
    folded = address[block_bits + channel.fold_bits:]
    while len(folded) > width:
        half = width
        while 2 * half < len(folded):
            half *= 2
        folded = folded[:half] ^ folded[half:]
    return folded


class EventCounts(wiring.Component):
    """Counts events per bucket, modulo 2**(occupancy_bits + 1), in a memory with one write and two clocked reads.

    An event's counter is read in its cycle and written in the next one. An SRAM macro returns undefined data for a row
    that is being written, so a register keeps the word written last.

    Members
    -------
    clear : In(1)
        Set the counter of the bucket `sweep` to 0; no event may happen.
    query, following : In(bucket bits), moves : In(1)
        As of OrderGuard.
    count : Out(occupancy_bits + 1)
        Events of `query` before the last cycle.
    last : Out(1)
        An event of `query` happened in the last cycle.
    """

    def __init__(self, geometry: Geometry) -> None:
        buckets = geometry.channel.guard_buckets
        bucket_bits = (buckets - 1).bit_length() or 1
        count_bits = geometry.channel.occupancy_bits + 1
        super().__init__({
            "clear": In(1),
            "sweep": In(bucket_bits),
            "happens": In(1),
            "bucket": In(bucket_bits),
            "query": In(bucket_bits),
            "following": In(bucket_bits),
            "moves": In(1),
            "count": Out(count_bits),
            "last": Out(1),
        })
        self.counts = Memory(shape=count_bits, depth=buckets, init=[])

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.counts = self.counts
        write = self.counts.write_port()
        counted = self.counts.read_port()
        asked = self.counts.read_port()
        counting = Signal()  # the event of the cycle before
        bucket = Signal.like(self.bucket, reset_less=True)
        before = Signal.like(self.count)
        written_count = Signal.like(self.count, reset_less=True)
        counted_meets = Signal()
        asked_meets = Signal()
        m.d.sync += [
            counting.eq(self.happens),
            bucket.eq(self.bucket),
            written_count.eq(write.data),
            counted_meets.eq(write.en & (write.addr == self.bucket)),
            asked_meets.eq(write.en & Mux(self.moves, write.addr == self.following, write.addr == self.query)),
        ]
        m.d.comb += [
            counted.addr.eq(self.bucket),
            counted.en.eq(self.happens),
            asked.addr.eq(Mux(self.moves, self.following, self.query)),
            asked.en.eq(self.moves | asked_meets),
            before.eq(Mux(counted_meets, written_count, counted.data)),
            write.en.eq(counting | self.clear),
            write.addr.eq(Mux(self.clear, self.sweep, bucket)),
            write.data.eq(Mux(self.clear, 0, before + 1)),
            self.count.eq(Mux(asked_meets, written_count, asked.data)),
            self.last.eq(counting & (bucket == self.query)),
        ]
        return m


class OrderGuard(wiring.Component):
    """Counts, per bucket of blocks, the tracked writes granted but not yet retired by the DRAM.

    A trigger fires when a tile's last access was committed to the DRAM queue (T3 paper, section 4.2.2). The DMA read
    that it causes must not overtake that write in the queue.

    1. A read is `blocked` while its bucket has an outstanding write. Other lines of the bucket can only lengthen the
       wait.
    2. At most 2**(occupancy_bits + 1) - 1 writes may be outstanding, enough for a full DRAM queue and as many writes
       that left it unretired. `room` enforces the limit, so late retirements delay writes but never break the order.

    The DRAM must be reset with the guard, or a late retirement would count for another write. After reset the counters
    are cleared, one bucket per cycle.

    Each bucket has two counters, writes granted and writes retired, which differ while a write is outstanding.

    Members
    -------
    query : In(bucket bits)
        Bucket (`bucket_of`) of the line to be read.
    following : In(bucket bits), moves : In(1)
        With `moves`, `query` takes the value of `following` in the next cycle; otherwise it stays. May be known late.
    blocked : Out(1)
        The read must wait. Function of `query`, `write`, `write_address` and registers.
    write : In(1)
        A tracked write was granted in the cycle before, when there was `room`. Blocks reads from this cycle on.
    write_bucket : Out(bucket bits)
        Bucket of `write_address`, to be returned on retirement.
    retired : In(1)
        A write of `retired_bucket` has retired, which was reported in an earlier cycle. Unblocks reads from the next
        cycle on.
    room : Out(1)
        One more tracked write may be granted in this cycle. Function of `write` and registers.
    ready : Out(1)
        0 while the counters are cleared, when no write, retirement or read may happen. Function of registers.
    """

    def __init__(self, geometry: Geometry) -> None:
        self._geometry = geometry
        buckets = geometry.channel.guard_buckets
        address_bits = geometry.tracker.address_bits
        bucket_bits = (buckets - 1).bit_length() or 1
        super().__init__({
            "query": In(bucket_bits),
            "following": In(bucket_bits),
            "moves": In(1),
            "blocked": Out(1),
            "write": In(1),
            "write_address": In(address_bits),
            "write_bucket": Out(bucket_bits),
            "retired": In(1),
            "retired_bucket": In(bucket_bits),
            "room": Out(1),
            "ready": Out(1),
        })
        # Each memory has one writer.
        self._granted, self._retired = EventCounts(geometry), EventCounts(geometry)

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.granted = self._granted
        m.submodules.retired = self._retired

        buckets = self._geometry.channel.guard_buckets
        sweep = Signal(range(buckets + 1))
        m.d.comb += self.ready.eq(sweep[-1])
        with m.If(~self.ready):
            m.d.sync += sweep.eq(sweep + 1)

        m.d.comb += self.write_bucket.eq(bucket_of(self.write_address, self._geometry))
        for counts, event, bucket in ((self._granted, self.write, self.write_bucket),
                                      (self._retired, self.retired, self.retired_bucket)):
            m.d.comb += [
                counts.clear.eq(~self.ready),
                counts.sweep.eq(sweep),
                counts.happens.eq(event),
                counts.bucket.eq(bucket),
                counts.query.eq(self.query),
                counts.following.eq(self.following),
                counts.moves.eq(self.moves),
            ]
        granted, retired = self._granted.count, self._retired.count
        # granted == retired + 1 without a carry chain: the sum granted + ~retired is 0, so each bit equals its carry
        # in.
        one_more = (granted ^ ~retired) == ((granted | ~retired) << 1)[:len(granted)]
        m.d.comb += self.blocked.eq(
            Mux(self._retired.last, ~one_more, granted != retired)
            | self._granted.last | (self.write & (self.write_bucket == self.query)))

        outstanding = Signal(len(granted))  # before this cycle's events
        m.d.sync += outstanding.eq(outstanding + self.write - self.retired)
        m.d.comb += self.room.eq(~(outstanding[1:].all() & (outstanding[0] | self.write)))
        return m
