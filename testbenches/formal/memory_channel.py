"""A memory channel loses no request, and lets no DMA read pass a tracked write."""

from dataclasses import replace

from amaranth.hdl import Cat, Mux, Signal, Value

from t3sim.rtl.channel.order_guard import bucket_of
from t3sim.rtl.geometry import Geometry
from t3sim.rtl.layouts import Op
from t3sim.testbenches.formal.broken import Broken
from t3sim.testbenches.formal.order_guard import counted
from t3sim.testbenches.formal.places import entries, place_of
from t3sim.testbenches.formal.property import Property, Search
from t3sim.testbenches.formal.spec import Spec, at_most_one, implies, is_value
from t3sim.testbenches.geometries import GEOMETRIES

ONCE = "every request to DRAM was accepted, is unchanged, and is sent once"
STREAM = "its communication bit is right"
EMPTY = "no request is inside when the channel is idle"
BEHIND = "a DMA read is sent to DRAM only when no tracked write of its bucket is outstanding there"
FITS = "no more tracked writes are inside and in DRAM than the guard can count"
NAMED = "a tracked write is sent to DRAM with its bucket"

_QUEUES = ("compute_queue", "inbound_queue", "dma_queue")


def is_tracked(item) -> Value:
    return ~is_value(item.op, Op.READ) & (item.region != 0)


def requests(spec: Spec, geometry: Geometry) -> None:
    """Follow one arbitrary request. Bit 0 of an address means nothing to a channel: it marks that request.

    Assumed: no other request has the mark while the followed one is inside.
    """
    m, channel = spec.m, spec.design
    sources = (channel.compute, channel.inbound, channel.dma)
    watched = spec.any_constant(channel.compute.payload.shape())
    inside, communication = Signal(), Signal()
    dram = channel.dram

    def here(valid, item):
        return valid & item.address[0]

    def same(item):
        return Value.cast(item) == Value.cast(watched)

    arrivals, leaves = Signal(3), Signal()
    m.d.comb += [arrivals.eq(Cat(here(port.valid & port.ready, port.payload) for port in sources)),
                 leaves.eq(here(dram.valid & dram.ready, dram.payload.request))]
    m.d.sync += inside.eq((inside & ~leaves) | arrivals.any())
    with m.If(arrivals.any()):
        m.d.sync += communication.eq(~arrivals[0])
    spec.assume(at_most_one(Cat(arrivals, inside)))
    for port in sources:
        spec.assume(implies(here(port.valid, port.payload), same(port.payload)))
    shown = here(dram.valid, dram.payload.request)
    spec.claim(ONCE, implies(shown, inside & same(dram.payload.request)))
    spec.claim(STREAM, implies(shown, dram.payload.communication == communication))
    spec.claim(EMPTY, implies(~channel.busy, inside == 0))

    held = [[(here(valid, item), item) for valid, item in entries(spec, spec.inside(name))] for name in _QUEUES]
    held.append([(here(spec.inside("command_valid"), spec.inside("command")), spec.inside("command"))])
    for places, of_stream in zip(held, (~communication, communication, communication, 1)):
        for present, item in places:
            spec.invariant(implies(present, same(item) & of_stream))
    present = Cat(present for places in held for present, _ in places)
    spec.invariant(at_most_one(present) & (inside == present.any()))
    spec.invariant(implies(held[-1][0][0], spec.inside("command_communication") == communication))


class Outstanding:
    """The tracked writes of a bucket that DRAM has taken and not retired.

    Needed (`given`): a retirement is of a write that is outstanding. Promised (`say`): the order, and no more writes
    than the guard can count.
    """

    def __init__(self, spec: Spec, dram, retired, bucket, geometry: Geometry, given, say) -> None:
        request = dram.payload.request
        self.count, taken, retires = Signal(geometry.channel.occupancy_bits + 2), Signal(), Signal()
        self.others = Signal.like(self.count)  # of all other buckets
        written = dram.valid & is_tracked(request)
        mine = dram.payload.bucket == bucket
        spec.m.d.comb += [
            taken.eq(written & dram.ready & mine),
            retires.eq(retired.valid & (retired.bucket == bucket)),
        ]
        spec.m.d.sync += [
            self.count.eq(self.count + taken - retires),
            self.others.eq(self.others + (written & dram.ready & ~mine) - (retired.valid & ~retires)),
        ]
        self.most = 2**(geometry.channel.occupancy_bits + 1) - 1
        given(implies(retired.valid, Mux(retires, self.count, self.others) != 0))
        given(retired.bucket < geometry.channel.guard_buckets)
        say(FITS, self.count + self.others + written <= self.most)
        reads = dram.valid & dram.payload.communication & is_value(request.op, Op.READ)
        say(BEHIND, implies(reads & (bucket_of(request.address, geometry) == bucket), self.count == 0))
        say(NAMED, implies(dram.valid & is_tracked(request),
                           dram.payload.bucket == bucket_of(request.address, geometry)))


def any_bucket(spec: Spec, geometry: Geometry):
    """Choose an arbitrary bucket that stays."""
    bucket = spec.any_constant((geometry.channel.guard_buckets - 1).bit_length() or 1)
    spec.assume(bucket < geometry.channel.guard_buckets)
    return bucket


def assume_directions(spec: Spec, channel) -> None:
    """Assume that what arrives from the link writes, and that DMA requests read."""
    spec.assume(implies(channel.inbound.valid, ~is_value(channel.inbound.payload.op, Op.READ)))
    spec.assume(implies(channel.dma.valid, is_value(channel.dma.payload.op, Op.READ)))


def order(spec: Spec, geometry: Geometry) -> None:
    """Follow one arbitrary bucket. Assumed: what `assume_directions` and `Outstanding` say."""
    channel, bucket = spec.design, any_bucket(spec, geometry)
    assume_directions(spec, channel)
    writes = Outstanding(spec, channel.dram, channel.retirement, bucket, geometry, spec.assume, spec.claim)
    outstanding = writes.count

    guard, queue = spec.inside("guard"), spec.inside("dma_queue")
    command, valid, new = spec.inside("command"), spec.inside("command_valid"), spec.inside("command_new")
    granted, done = counted(spec, guard, bucket)
    of_bucket = Signal()
    spec.m.d.comb += of_bucket.eq(bucket_of(command.address, geometry) == bucket)
    spec.invariant(implies(~guard.ready, (outstanding + writes.others == 0) & ~valid & ~new))
    spec.invariant(spec.inside("outstanding", guard) + new
                   == outstanding + writes.others + (valid & is_tracked(command)))
    spec.invariant(spec.inside("outstanding", guard) + new <= writes.most)
    spec.invariant(implies(new, valid & is_tracked(command)))
    spec.invariant(implies(guard.ready, (granted - done + (new & of_bucket))[:len(granted)]
                           == outstanding + (valid & is_tracked(command) & of_bucket)))
    for name, reading in (("inbound_queue", False), ("dma_queue", True)):
        for present, item in entries(spec, spec.inside(name)):
            spec.invariant(implies(present, is_value(item.op, Op.READ) == reading))
    read, level = spec.inside("read", queue), spec.inside("level", queue)
    for place in range(queue._depth):
        item = spec.peek(queue._memory, place_of(read, place))
        digest = spec.peek(queue._digests, place_of(read, place))
        spec.invariant(implies(level > place, digest == bucket_of(item.address, geometry)))
        if place == 0:
            spec.invariant(implies(level > 0, queue.head_digest == bucket_of(item.address, geometry)))
        if place == 1:
            spec.invariant(implies(level > 1, spec.inside("second", queue) == digest))
    spec.invariant(implies(valid & spec.inside("command_communication") & is_value(command.op, Op.READ) & of_bucket,
                           outstanding == 0))


def properties() -> list[Property]:
    def broken(what, claim, old, new):
        return Broken(what, claim, "channel/memory_channel.py", old, new)

    small = GEOMETRIES["small"]
    eight = replace(small, channel=replace(small.channel, dma_fifo=8, guard_buckets=4, queue_entries=4))
    where = {"geometry": eight, "searches": (Search(eight, 24),), "depth": 1,
             "reason": "every place of every queue is named: eight DMA reads wait at a channel, not 32; from eight on "
                       "the queue's memory is read with a clock. Few buckets and a short DRAM queue: the guard's "
                       "counts are full soon"}
    return [
        Property("requests", "memory_channel", f"{ONCE}; {STREAM}", requests, (
            broken("a request is lost while DRAM is busy", EMPTY,
                   "arbiter.ready.eq((~command_valid | self.dram.ready) & guard.ready)",
                   "arbiter.ready.eq(guard.ready)"),
            broken("a request goes twice", ONCE, "command_valid.eq(granted | (command_valid & ~self.dram.ready))",
                   "command_valid.eq(granted | command_valid)"),
            Broken("a read that comes as the last one leaves is what the memory held before", ONCE,
                   "streams/pointer_queue.py", "return Mux(around, entry, port.data)", "return port.data"),
            Broken("a read that waits is what the memory gave while it was written", ONCE,
                   "streams/pointer_queue.py", "port.en.eq(leaves | around)", "port.en.eq(leaves)"),
            broken("DMA reads count as compute's", STREAM, "command_communication.eq(arbiter.grant_communication)",
                   "command_communication.eq(inbound.ready)"),
        ), **where),
        Property("order", "memory_channel", BEHIND, order, (
            broken("the guard is not asked", BEHIND, "dma_able.eq(dma.valid & ~guard.blocked)",
                   "dma_able.eq(dma.valid)"),
            broken("the guard does not know of compute's writes", BEHIND, "command_new.eq(tracked)",
                   "command_new.eq(inbound.ready & inbound_tracked)"),
            broken("compute's writes go though the guard can count no more", FITS,
                   "compute.valid & (tracked_able |", "compute.valid & (access_ready |"),
            broken("retirements come back without a bucket", NAMED, "self.dram.payload.bucket.eq(guard.write_bucket)",
                   "self.dram.payload.bucket.eq(0)"),
        ), **where),
    ]
