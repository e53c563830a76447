"""Each tile has exactly one trigger, and what DMA reads for it is complete: the stages' accounts, wired as the top is.

The top is the real one; of the blocks inside only the ports are left, with outputs that may do anything that the
accounts of `accounts` and the order of `memory_channel` do not exclude. So a claim here is one about the wiring, for
any blocks that keep their promises; and what those assume of each other is claimed.
"""

from types import ModuleType
from unittest.mock import patch

from amaranth.asserts import AnySeq
from amaranth.hdl import Array, Cat, Fragment, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import Out

from t3sim.rtl.channel.order_guard import bucket_of
from t3sim.rtl.geometry import Geometry
from t3sim.rtl.layouts import Op, is_tracked
from t3sim.testbenches.formal.accounts import (
    REASON,
    SMALL,
    BankAccount,
    ChannelAccount,
    MergeAccount,
    NetworkAccount,
    Tile,
    moves,
)
from t3sim.testbenches.formal.broken import Broken
from t3sim.testbenches.formal.memory_channel import Outstanding, any_bucket, assume_directions
from t3sim.testbenches.formal.property import Property, Search
from t3sim.testbenches.formal.spec import Spec, implies, is_value

ONCE = "a tile's trigger fires once, when all of its bytes have been admitted, or written and sent to DRAM"
COMES = "when nothing waits and all bytes have been written or admitted, the trigger has fired"
SEEN = "a DMA read after the trigger is sent to DRAM after that performed all writes to the tile in the read's bucket"
ROUTED = "a trigger reaches all consumers of its region in one cycle, or none if its workgroup has no such tile"
FITS = "the stages meet each other's assumptions"

_BLOCKS = ("ConfigBus", "Ingress", "IntensityMonitor", "RingMonitor", "WatchDog", "MemoryChannel", "UpdateNetwork",
           "TriggerMerge", "TrackerBank", "DispatchWindow", "HeadExchange", "DmaTable", "TwoEntryQueue", "LineRouter",
           "AddressGenerator", "Egress")


def _hollow(kind: type) -> type:
    """Make a block with the ports of `kind`, whose outputs may do anything."""
    class Hollow(wiring.Component):
        def __init__(self, *arguments, **options) -> None:
            self._real = kind(*arguments, **options)
            super().__init__(self._real.signature)

        def elaborate(self, platform) -> Module:
            m = Module()
            Fragment.get(self._real, platform)  # it is used: Amaranth warns of what is not
            for _, member, port in self.signature.flatten(self):
                if member.flow == Out:
                    m.d.comb += Value.cast(port).eq(AnySeq(len(Value.cast(port))))
            return m

    return Hollow


def _wiring(package: ModuleType, geometry: Geometry) -> wiring.Component:
    top = package.gpu_top

    class Wiring(top.GpuTop):
        def elaborate(self, platform) -> Module:
            with patch.multiple(top, **{name: _hollow(getattr(top, name)) for name in _BLOCKS}):
                return super().elaborate(platform)

    return Wiring(geometry)


def one_trigger(spec: Spec, geometry: Geometry) -> None:
    """Claim the triggers of one arbitrary tile, with one arbitrary bucket of the order guards.

    Assumed: no soft reset; the window admits it once at most; the tile's writes name regions of one family whose
    threshold is the tile's bytes, and no more bytes than those are written or admitted; its set has room; a retirement
    is of a write that is outstanding. What an ingress check refuses does not come to a channel.
    """
    top, parts, tile = spec.design, spec.submodules(), Tile(spec, geometry)
    channels = [parts[f"channel_{number}"] for number in range(geometry.channel.channels)]
    banks = [parts[f"tracker_{number}"] for number in range(geometry.tracker.banks)]
    network, merge, bus, window = parts["network"], parts["merge"], parts["bus"], parts["window"]
    reset = parts["reset_sequence"]
    bucket = any_bucket(spec, geometry)
    spec.assume(~bus.soft_reset)
    spec.invariant(~reset.stopped & ~reset.clear)
    for number, entry in enumerate(bus.region):
        spec.assume(implies(tile.regions[number],
                            is_tracked(entry) & (entry.threshold == tile.bytes) & (entry.family == tile.family)))

    def promise(_, condition) -> None:
        spec.assume(condition)

    def need(condition) -> None:
        spec.claim(FITS, condition)

    stages = [ChannelAccount(spec, channel, tile, spec.assume, promise) for channel in channels]
    admission = window.admissions
    admits, admitted = moves(admission) & tile.has(admission.payload), Signal()
    spec.m.d.sync += admitted.eq(admitted | admits)
    spec.assume(tile.lawful(admission.valid, admission.payload, admission.payload.amount))
    spec.assume(implies(admission.valid & tile.has(admission.payload), (admission.payload.amount == 1) & ~admitted))
    spec.assume(sum(stage.came + stage.arriving for stage in stages) + (admitted | admits) <= tile.bytes)
    for channel in channels:
        assume_directions(spec, channel)
    inside = [Outstanding(spec, channel.dram, channel.retirement, bucket, geometry, need, promise)
              for channel in channels]
    outside = [Outstanding(spec, dram, retirement, bucket, geometry, spec.assume, lambda *_: None)
               for dram, retirement in zip(top.dram, top.retirement)]
    carried = NetworkAccount(spec, network, tile, geometry, need, promise)
    counted = [BankAccount(spec, bank, number, tile, geometry, need, promise) for number, bank in enumerate(banks)]
    merged = MergeAccount(spec, merge, tile, need, promise)

    came, given = (sum(counts) + admitted for counts in (
        [stage.came for stage in stages], [stage.taken + stage.shown for stage in stages]))
    offered = merge.merged.valid & tile.has(merge.merged.payload)
    spec.claim(ONCE, implies(offered, ~merged.went & (came == tile.bytes) & (given == tile.bytes)))
    entry = Array(bus.region)[merge.merged.payload.region]
    leaves = moves(merge.merged)
    for port, wanted in ((parts["table"].triggers, entry.send_dma), (parts["event_queue"].input, entry.event)):
        spec.claim(ROUTED, moves(port) == (leaves & wanted & ~window.foreign))
    waits = Cat(Cat(channel.busy for channel in channels), network.busy, Cat(bank.busy for bank in banks),
                merge.merged.valid, admission.valid).any()
    spec.claim(COMES, implies(~waits & (came == tile.bytes), merged.went))
    for stage, dram, order in zip(stages, top.dram, outside):
        request = dram.payload.request
        reads = (dram.valid & dram.payload.communication & is_value(request.op, Op.READ)
                 & (bucket_of(request.address, geometry) == bucket))
        spec.claim(SEEN, implies(reads & merged.went, (stage.taken == stage.came) & (order.count == 0)))

    spec.invariant(came <= tile.bytes)
    for number, (stage, there) in enumerate(zip(stages, carried.came)):
        spec.invariant(stage.went + (admitted if number == 0 else 0) == there)
    for number, (bank, there) in enumerate(zip(counted, carried.went)):
        own = tile.wg[:geometry.tracker.bank_bits] == number
        spec.invariant(bank.came == there)
        spec.invariant(implies(~own, (bank.came == 0) & ~bank.fired))
        spec.invariant(implies(bank.fired, bank.came == tile.bytes))
    spec.invariant(sum(bank.fired for bank in counted) == merged.came)
    spec.invariant(implies(merged.went, merged.came))
    for there, here in zip(inside, outside):
        spec.invariant((there.count == here.count) & (there.others == here.others))


def properties() -> list[Property]:
    def broken(what, claim, old, new):
        return Broken(what, claim, "gpu_top.py", old, new)

    return [Property("one trigger", "gpu_top", f"{ONCE}; {COMES}; {SEEN}; {ROUTED}", one_trigger, (
        broken("an update stays at the network's door", ONCE, "wiring.connect(m, channel.updates, port)",
               "m.d.comb += [port.valid.eq(channel.updates.valid), port.payload.eq(channel.updates.payload)]"),
        broken("an admission is counted and still offered", ONCE, "for source, go in zip(sources, goes)",
               "for source, go in zip(sources[:1], goes)"),
        broken("a bank's trigger is gone when the merge is busy", COMES,
               "wiring.connect(m, bank.triggers, merge.triggers[b])",
               "m.d.comb += [merge.triggers[b].valid.eq(bank.triggers.valid), bank.triggers.ready.eq(1), "
               "merge.triggers[b].payload.eq(bank.triggers.payload)]"),
        broken("a trigger that waits for the event queue is in the DMA table already", ROUTED,
               "to_table & (~to_events | events.input.ready)", "to_table"),
        broken("a tile that its workgroup does not have is sent on", ROUTED, "table.triggers.valid.eq(tile_known &",
               "table.triggers.valid.eq(merged.valid &"),
        broken("a trigger that waits for the DMA table has raised its event already", ROUTED,
               "to_events & (~to_table | table.triggers.ready)", "to_events"),
        broken("all channels hear of the first one's retirements", SEEN,
               "channel.retirement.eq(self.retirement[c])", "channel.retirement.eq(self.retirement[0])"),
        broken("all banks hear the threshold of the first region", FITS,
               "bank.thresholds[region].eq(entry.threshold)",
               "bank.thresholds[region].eq(bus.region[0].threshold)"),
        broken("each bank gets the updates of the one beside it", FITS,
               "wiring.connect(m, network.banks[b], bank.updates)",
               "wiring.connect(m, network.banks[(b + 1) % g.tracker.banks], bank.updates)"),
    ), geometry=SMALL, reason=REASON, depth=1, searches=(Search(SMALL, 12),), build=_wiring)]
