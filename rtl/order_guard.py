"""Holds DMA reads back until a reordering DRAM queue has done the tracked writes before them."""

from amaranth.hdl import Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from .geometry import Geometry


def bucket_of(address, geometry: Geometry) -> Value:
    """Return the bucket of a line: the number of its block (`interleave_bytes`) within the channel, folded with XOR.

    Lines of one block share a bucket: a wavefront stores them one after the other, and apart they would take four
    buckets in which other reads are held up. The block number's lowest field is left out: on one channel it follows
    from the others (the address map XORs the fields), and folding it in could cancel them.
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


class OrderGuard(wiring.Component):
    """Counts, per bucket of blocks, the tracked writes granted but not yet retired by the DRAM.

    A trigger fires when a tile's last access was committed to the DRAM queue (T3 paper, section 4.2.2); the read
    it causes must not overtake that write in the queue. A read waits while its bucket holds a write; other
    lines of the bucket can only make it wait longer.

    Each bucket has two counters modulo 2**(occupancy_bits + 1), writes granted and writes retired, unequal while one
    is outstanding. That is enough for a full DRAM queue and as many writes again that have left it unretired.
    After reset the counters are cleared, one bucket per cycle; the DRAM must be reset with the guard, for
    a write's retirement after a reset would be taken for another's.

    Members
    -------
    query : In(bucket bits)
        Bucket (`bucket_of`) of the line that a read wants.
    blocked : Out(1)
        It has to wait. Function of `query`, `write`, `write_address` and registers.
    write : In(1)
        A tracked write was granted in the cycle before; blocks reads from this cycle on.
    write_address : In(address_bits)
    write_bucket : Out(bucket bits)
        Bucket of `write_address`, to be returned on retirement.
    retired : In(1)
        A write of `retired_bucket` has retired; unblocks reads from the next cycle on.
    retired_bucket : In(bucket bits)
    ready : Out(1)
        0 while the counters are being cleared: no write, retirement or read then. Function of registers.
    """

    def __init__(self, geometry: Geometry) -> None:
        self._geometry = geometry
        buckets = geometry.channel.guard_buckets
        address_bits = geometry.tracker.address_bits
        bucket_bits = (buckets - 1).bit_length() or 1
        super().__init__({
            "query": In(bucket_bits),
            "blocked": Out(1),
            "write": In(1),
            "write_address": In(address_bits),
            "write_bucket": Out(bucket_bits),
            "retired": In(1),
            "retired_bucket": In(bucket_bits),
            "ready": Out(1),
        })
        count_bits = geometry.channel.occupancy_bits + 1
        # Two memories with one writer each, rather than one with two.
        self._granted = Memory(shape=count_bits, depth=buckets, init=[])
        self._retired = Memory(shape=count_bits, depth=buckets, init=[])
        self._ports = {
            memory: (memory.write_port(), memory.read_port(domain="comb"), memory.read_port(domain="comb"))
            for memory in (self._granted, self._retired)
        }

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
        for memory, event, bucket in ((self._granted, self.write, self.write_bucket),
                                      (self._retired, self.retired, self.retired_bucket)):
            write, count, query = self._ports[memory]
            m.d.comb += [
                query.addr.eq(self.query),
                count.addr.eq(bucket),
                write.en.eq(event | ~self.ready),
                write.addr.eq(Mux(self.ready, bucket, sweep)),
                write.data.eq(Mux(self.ready, count.data + 1, 0)),
            ]
        m.d.comb += self.blocked.eq(
            (self._ports[self._granted][2].data != self._ports[self._retired][2].data)
            | (self.write & (self.write_bucket == self.query)))
        return m
