"""The account of one tile's bytes in each stage between a write and its trigger: what went in is inside or came out.

An account has two sides. `given(condition)` is what the stage needs of its surroundings, `say(claim, condition)` what
it promises. Here each stage is proved by itself: `given` assumes, `say` claims. In `one_trigger` the stages are put
together as the top wires them: there `say` assumes, and `given` claims.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

from amaranth.hdl import Cat, Mux, Signal, Value
from amaranth.lib import wiring

from t3sim.rtl.geometry import ChannelGeometry, DmaGeometry, Geometry, TrackerGeometry
from t3sim.rtl.track.update_network import GROUP
from t3sim.testbenches.formal.broken import Broken
from t3sim.testbenches.formal.conservation import queued, two_places
from t3sim.testbenches.formal.memory_channel import is_tracked
from t3sim.testbenches.formal.places import entries
from t3sim.testbenches.formal.property import Property, Search
from t3sim.testbenches.formal.spec import Spec, implies
from t3sim.testbenches.formal.tracker import counted

GIVEN = "a channel sends a tile's bytes to DRAM only if they were written, and once"
ALL_GIVEN = "an idle channel has sent all written bytes to DRAM"
REPORTED = "a channel reports a tile's bytes only if they were sent or are offered to DRAM, and once"
ALL_REPORTED = "an idle channel has reported all bytes sent to DRAM"
CARRIED = "the network delivers a tile's bytes to a bank only if they arrived, and once"
HOME = "each bank receives the updates of its own workgroups"
ALL_CARRIED = "an idle network has delivered all bytes"
OWN = "a bank fires only for its own workgroups"
FIRES = "a tile's bank fires once, when all bytes have arrived"
ALL_FIRED = "an idle bank has fired if all bytes have arrived"
MERGED = "each trigger that leaves the merge has arrived, and leaves once"
ALL_MERGED = "an idle merge has delivered every trigger"
AHEAD = "the workgroup of a trigger is known a cycle ahead"

#: Two of what there are several of; bytes are counted in few bits, for sums are what takes a solver long.
SMALL = Geometry(
    TrackerGeometry(sets=4, ways=2, banks=2, wg_bits=4, wf_bits=1, address_bits=32, count_bits=8),
    ChannelGeometry(channels=2, guard_buckets=2, queue_entries=4, dma_fifo=1, coalescer_timeout_cycles=2,
                    sample_bits=1),
    DmaGeometry(regions=8, engines=1, ready_commands=2, outstanding_lines=2, egress_lanes=1))
REASON = "sums are slow to solve: two of everything, and few bits for bytes"
#: as small, with sums of one or two parts
SUMMED = replace(SMALL, channel=replace(SMALL.channel, more_bits=1))

Given = Callable[[Value], None]
Say = Callable[[str, Value], None]


def counted_bytes(request) -> Value:
    """Return what a request counts: its bytes, of a sum those of all its parts."""
    return request.bytes * (request.more + 1) if "more" in request.shape().members else request.bytes


class Tile:
    """One arbitrary tile: the regions that its writes name, their family, and the bytes that complete it."""

    def __init__(self, spec: Spec, geometry: Geometry, wg=None, wf=None) -> None:
        tracker = geometry.tracker
        self.wg = spec.any_constant(tracker.wg_bits) if wg is None else wg
        self.wf = spec.any_constant(tracker.wf_bits) if wf is None else wf
        self.regions = spec.any_constant(geometry.dma.regions)
        self.family = spec.any_constant(geometry.dma.region_bits)
        self.bytes = spec.any_constant(tracker.count_bits)
        spec.assume((self.bytes != 0) & ~self.regions[0])

    def has(self, item) -> Value:
        return (item.wg == self.wg) & (item.wf == self.wf)

    def amount(self, there, item) -> Value:
        """Return the bytes of an update, if it is there and the tile's."""
        return Mux(there & self.has(item), item.amount, 0)

    def written(self, there, request) -> Value:
        """Return the bytes of a request, if it is there and writes the tile."""
        return Mux(there & is_tracked(request) & self.has(request), counted_bytes(request), 0)

    def lawful(self, there, item, amount) -> Value:
        """Return that an item has bytes, and names one of the tile's regions, if it is there and the tile's."""
        return implies(there & self.has(item), (amount != 0) & self.regions.bit_select(item.region, 1))

    def counter(self, spec: Spec, step):
        total = Signal(len(self.bytes))
        spec.m.d.sync += total.eq(total + step)
        return total


def moves(port) -> Value:
    return port.valid & port.ready


class ChannelAccount:
    """The tile's bytes in a channel, while nothing is forgotten.

    They are written (`came`), given to DRAM (`taken`; `shown`: offered to it), and reported (`went`).
    """

    def __init__(self, spec: Spec, channel, tile: Tile, given: Given, say: Say) -> None:
        given(~channel.forget)
        writes = (channel.compute, channel.inbound)
        self.arriving = arriving = sum(tile.written(moves(port), port.payload) for port in writes)
        for port in writes:
            given(implies(is_tracked(port.payload), tile.lawful(port.valid, port.payload, counted_bytes(port.payload))))
        given(implies(channel.dma.valid, ~is_tracked(channel.dma.payload)))
        self.came = tile.counter(spec, arriving)
        given(self.came + arriving <= tile.bytes)
        dram, updates = channel.dram, channel.updates
        self.shown = tile.written(dram.valid, dram.payload.request)
        self.taken = tile.counter(spec, Mux(dram.ready, self.shown, 0))
        self.went = tile.counter(spec, tile.amount(moves(updates), updates.payload))
        say(GIVEN, self.taken + self.shown <= self.came)
        say(ALL_GIVEN, implies(~channel.busy, self.taken == self.came))
        say(REPORTED, self.went + tile.amount(updates.valid, updates.payload) <= self.taken + self.shown)
        say(REPORTED, tile.lawful(updates.valid, updates.payload, updates.payload.amount))
        say(ALL_REPORTED, implies(~channel.busy, self.went == self.taken))


class NetworkAccount:
    """Bytes of the tile at each port: updates (`came`) and banks (`went`)."""

    def __init__(self, spec: Spec, network, tile: Tile, geometry: Geometry, given: Given, say: Say) -> None:
        arriving = [tile.amount(moves(port), port.payload) for port in network.updates]
        for port in network.updates:
            given(tile.lawful(port.valid, port.payload, port.payload.amount))
        self.came = [tile.counter(spec, amount) for amount in arriving]
        given(sum(came + amount for came, amount in zip(self.came, arriving)) <= tile.bytes)
        self.went = [tile.counter(spec, tile.amount(moves(port), port.payload)) for port in network.banks]
        offered = [tile.amount(port.valid, port.payload) for port in network.banks]
        say(CARRIED, sum(went + amount for went, amount in zip(self.went, offered)) <= sum(self.came))
        for number, port in enumerate(network.banks):
            say(CARRIED, tile.lawful(port.valid, port.payload, port.payload.amount))
            say(HOME, implies(port.valid, port.payload.wg[:geometry.tracker.bank_bits] == number))
        say(ALL_CARRIED, implies(~network.busy, sum(self.went) == sum(self.came)))


class BankAccount:
    """The tile's bytes in bank `number`.

    Assumed: the tile's regions are tracked, of one family, with its bytes as their threshold; its set has room, as the
    window sees to.
    """

    def __init__(self, spec: Spec, bank, number, tile: Tile, geometry: Geometry, given: Given, say: Say) -> None:
        updates, triggers, bits = bank.updates, bank.triggers, geometry.tracker.bank_bits
        given(implies(updates.valid, updates.payload.wg[:bits] == number))
        say(OWN, implies(triggers.valid, triggers.payload.wg[:bits] == number))
        own = tile.wg[:bits] == number
        arriving = tile.amount(moves(updates), updates.payload)
        given(tile.lawful(updates.valid, updates.payload, updates.payload.amount))
        for region, (threshold, family) in enumerate(zip(bank.thresholds, bank.families)):
            given(implies(tile.regions[region],
                          bank.tracked[region] & (threshold == tile.bytes) & (family == tile.family)))
        self.came = tile.counter(spec, arriving)
        given(self.came + arriving <= tile.bytes)
        self.fired = Signal()
        with spec.m.If(moves(triggers) & tile.has(triggers.payload)):
            spec.m.d.sync += self.fired.eq(1)
        say(FIRES, implies(own & triggers.valid & tile.has(triggers.payload),
                           (self.came == tile.bytes) & ~self.fired))
        say(ALL_FIRED, implies(own & ~bank.busy & (self.came == tile.bytes), self.fired))


class MergeAccount:
    def __init__(self, spec: Spec, merge, tile: Tile, given: Given, say: Say) -> None:
        arriving = Cat(moves(port) & tile.has(port.payload) for port in merge.triggers)
        self.came, self.went = Signal(), Signal()
        given(sum(arriving) + self.came <= 1)
        merged = merge.merged
        self.leaves = moves(merged) & tile.has(merged.payload)
        spec.m.d.sync += [self.came.eq(self.came | arriving.any()), self.went.eq(self.went | self.leaves)]
        say(MERGED, implies(merged.valid & tile.has(merged.payload), self.came & ~self.went))
        say(ALL_MERGED, implies(~merged.valid, self.came == self.went))


# Each by itself. A solver takes long for a sum over many places: every queue has an account of its own.

@dataclass(frozen=True)
class _Passage:
    """Bytes of the tile that went into a place where updates or requests wait, and that came out of it."""

    came: Value
    went: Value


def _passage(spec: Spec, tile: Tile, arriving, leaving, held) -> _Passage:
    passage = _Passage(tile.counter(spec, arriving), tile.counter(spec, leaving))
    spec.invariant(passage.came == passage.went + held)
    return passage


def _through(spec: Spec, tile: Tile, queue, places, amount) -> _Passage:
    """Follow the tile through a queue; `amount(there, item)`: bytes of what it holds."""
    return _passage(spec, tile, amount(moves(queue.input), queue.input.payload),
                    amount(moves(queue.output), queue.output.payload),
                    sum(amount(valid, item) for valid, item, *_ in places))


def _only(spec: Spec, *names: str) -> Say:
    """Claim only those of these names; the others are another property's, and assumed."""
    return lambda name, condition: spec.claim(name, condition) if name in names else spec.assume(condition)


def _given(spec: Spec, geometry: Geometry) -> None:
    channel, tile = spec.design, Tile(spec, geometry)
    account = ChannelAccount(spec, channel, tile, spec.assume, _only(spec, GIVEN, ALL_GIVEN))
    queues = [spec.inside(name) for name in ("compute_queue", "inbound_queue")]
    waiting = [_through(spec, tile, queue, entries(spec, queue), tile.written) for queue in queues]
    spec.invariant(account.came == sum(passage.came for passage in waiting))
    spec.invariant(account.taken + account.shown == sum(passage.went for passage in waiting))
    spec.invariant(account.came <= tile.bytes)
    for valid, item in entries(spec, spec.inside("dma_queue")):
        spec.invariant(implies(valid, ~is_tracked(item)))


def _reported(spec: Spec, geometry: Geometry) -> None:
    channel, tile = spec.design, Tile(spec, geometry)
    account = ChannelAccount(spec, channel, tile, spec.assume, _only(spec, REPORTED, ALL_REPORTED))
    queues = [spec.inside(name) for name in ("compute_queue", "inbound_queue")]
    for queue in queues:
        for valid, item in entries(spec, queue):
            spec.invariant(implies(is_tracked(item), tile.lawful(valid, item, counted_bytes(item))))
    for valid, item in entries(spec, spec.inside("dma_queue")):
        spec.invariant(implies(valid, ~is_tracked(item)))
    coalescer = spec.inside("coalescer")
    queue, accesses = spec.inside("queue", coalescer), coalescer.accesses
    access, held = spec.inside("access"), spec.inside("held", coalescer)
    access_valid, held_valid = spec.inside("access_valid"), spec.inside("held_valid", coalescer)
    places = two_places(spec, queue)
    for valid, item in ((access_valid, access), (held_valid, held), *places):
        spec.invariant(tile.lawful(valid, item, item.amount))
    granted = sum(tile.written(moves(queue.output), queue.output.payload) for queue in queues)
    joins = tile.amount(moves(accesses), accesses.payload)
    stages = [
        _passage(spec, tile, granted, joins, tile.amount(access_valid, access)),
        _passage(spec, tile, joins, tile.amount(moves(queue.input), queue.input.payload),
                 tile.amount(held_valid, held)),
        _through(spec, tile, queue, places, tile.amount),
    ]
    for before, after in pairwise(stages):
        spec.invariant(before.went == after.came)
    spec.invariant(account.taken + account.shown == stages[0].came)
    spec.invariant(account.went == stages[-1].went)


def _network(spec: Spec, geometry: Geometry) -> None:
    network, tile, bits = spec.design, Tile(spec, geometry), geometry.tracker.bank_bits
    account = NetworkAccount(spec, network, tile, geometry, spec.assume, spec.claim)

    def of(name: str) -> _Passage:
        places = queued(spec, name)
        for valid, item, _ in places:
            spec.invariant(tile.lawful(valid, item, item.amount))
            if name.startswith("bank"):
                spec.invariant(implies(valid, item.wg[:bits] == int(name.partition("_")[2])))
        return _through(spec, tile, spec.submodule(name), places, tile.amount)
    heads = [of(name) for name in spec.submodules() if name.startswith("group_")]
    for number, head in enumerate(heads):
        spec.invariant(head.came == sum(account.came[GROUP * number:GROUP * (number + 1)]))
    spec.invariant(sum(account.came) <= tile.bytes)
    for number in range(geometry.tracker.banks):
        tail, own = of(f"bank_{number}"), tile.wg[:bits] == number
        spec.invariant(tail.came == Mux(own, sum(head.went for head in heads), 0))
        spec.invariant(account.went[number] == tail.went)


class _Lemmas:
    """A specification whose claims another property makes: here they help to prove others."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec

    def __getattr__(self, name: str):
        return getattr(self._spec, name)

    def claim(self, name: str, condition) -> None:
        self._spec.invariant(condition)


def _bank(spec: Spec, geometry: Geometry) -> None:
    inner = counted(_Lemmas(spec), geometry)
    tile = Tile(spec, geometry, inner.wg, inner.wf)
    number = tile.wg[:geometry.tracker.bank_bits]
    account = BankAccount(spec, spec.design, number, tile, geometry, spec.assume, spec.claim)
    for valid, item in two_places(spec, spec.inside("queue")):
        spec.invariant(implies(valid, item.wg[:geometry.tracker.bank_bits] == number))
    complete = account.came == tile.bytes
    spec.invariant(account.came <= tile.bytes)
    spec.invariant(inner.total == Mux(complete, 0, account.came))
    spec.invariant(inner.opened == (~complete & (account.came != 0)))
    spec.invariant(implies(inner.opened, tile.regions.bit_select(inner.region, 1)))
    spec.invariant(inner.due + account.fired == complete)


def _merge(spec: Spec, geometry: Geometry) -> None:
    tile = Tile(spec, geometry)
    account = MergeAccount(spec, spec.design, tile, spec.assume, spec.claim)
    held = sum(valid & tile.has(item) for valid, item, _ in queued(spec, "queue"))
    spec.invariant(account.came == account.went + held)


def _ahead(spec: Spec, geometry: Geometry) -> None:
    merge = spec.design
    spec.claim(AHEAD, implies(merge.merged.valid, merge.merged.payload.wg == spec.past(merge.following)))


def _stage(block: str, statement: str, specify, broken: tuple[Broken, ...], name: str = "a tile's bytes",
           **options) -> Property:
    """Make a property with a `build` of its own: the block's other properties stand for it in mutation."""
    def build(package, geometry: Geometry) -> wiring.Component:
        return package.blocks.BLOCKS[block](geometry)
    return Property(name, block, statement, specify, broken, build=build, **options)


def properties() -> list[Property]:
    lost = ("streams/two_entry_queue.py", "self.input.ready.eq(~back_valid)", "self.input.ready.eq(1)")
    twice = ("streams/two_entry_queue.py", "front_valid.eq(back_valid | self.input.valid), back_valid.eq(0)",
             "front_valid.eq(back_valid | self.input.valid)")
    small, summed = ({"geometry": one, "searches": (Search(one, 12),), "reason": REASON} for one in (SMALL, SUMMED))
    return [
        _stage("memory_channel", GIVEN, _given, (
            Broken("a request goes twice", GIVEN, "channel/memory_channel.py",
                   "command_valid.eq(granted | (command_valid & ~self.dram.ready))",
                   "command_valid.eq(granted | command_valid)"),
            Broken("a request of the compute units that waits does not show", ALL_GIVEN, "channel/memory_channel.py",
                   "self.busy.eq(compute.valid | self.communication_waiting",
                   "self.busy.eq(self.communication_waiting"),
        ), name="a tile's bytes to DRAM", depth=1, **small),
        _stage("memory_channel", REPORTED, _reported, (
            Broken("a write is reported again while the coalescer is busy", REPORTED, "channel/memory_channel.py",
                   "access_valid.eq(~self.forget & (tracked | (access_valid & ~coalescer.accesses.ready)))",
                   "access_valid.eq(~self.forget & (tracked | access_valid))"),
            Broken("an update that the coalescer holds does not show", ALL_REPORTED, "channel/memory_channel.py",
                   "| coalescer.busy | ~guard.ready)", "| ~guard.ready)"),
            Broken("a sum counts as one of its parts", ALL_REPORTED, "channel/memory_channel.py",
                   "access.amount.eq(tapped.bytes * parts)", "access.amount.eq(tapped.bytes)"),
        ), depth=1, **summed),
        _stage("update_network", CARRIED, _network, (
            Broken("an entry stays after it left", CARRIED, *twice),
            Broken("an entry is overwritten", ALL_CARRIED, *lost),
            Broken("a head goes to the bank beside its own", HOME, "track/update_network.py",
                   "[:self._bank_bits] == bank", "[:self._bank_bits] == (bank ^ 1)"),
        ), depth=1, **small),
        _stage("tracker", FIRES, _bank, (
            Broken("each update counts a byte more", FIRES, "track/tracker.py",
                   "next_entry.count.eq(count + current.amount)", "next_entry.count.eq(count + current.amount + 1)"),
            Broken("a trigger names the workgroup beside its own", OWN, "track/tracker.py",
                   "queue.input.payload.wg.eq(current.wg)", "queue.input.payload.wg.eq(current.wg ^ 1)"),
            Broken("the last write is not forwarded: an update back to back is lost", ALL_FIRED, "track/tracker.py",
                   "recent.eq(Mux(same_set, last_way, 0))", "recent.eq(0)"),
        ), **small),
        _stage("trigger_merge", MERGED, _merge, (
            Broken("a trigger stays after it left", MERGED, *twice),
            Broken("a trigger is overwritten", ALL_MERGED, *lost),
        ), depth=1, quick=True, **small),
        _stage("trigger_merge", AHEAD, _ahead, (
            Broken("what waits behind is known too late", AHEAD, "streams/two_entry_queue.py",
                   "Mux(back_valid, back, self.input", "Mux(0, back, self.input"),
            Broken("a trigger that leaves is known again", AHEAD, "streams/two_entry_queue.py",
                   "Mux(front_valid & ~self.output.ready, front", "Mux(front_valid, front"),
        ), name="known ahead", depth=1, quick=True),
    ]
