"""The Tracker bank counts one arbitrary tile exactly."""

from amaranth.hdl import Cat, Mux, Signal, Value

from rtl.geometry import Geometry
from rtl.layouts import ErrorCode, Source, trigger

from .broken import Broken
from .property import Property
from .spec import Spec, implies


def counts(spec: Spec, geometry: Geometry) -> None:
    """A golden account of one arbitrary tile (workgroup, wavefront) against the bank.

    The region table may change in every cycle: each update is judged by the table of the cycle that accepted it.
    Assumed: every update is for a workgroup of this bank.
    """
    m, bank, tracker = spec.m, spec.design, geometry.tracker
    wg, wf = spec.any_constant(tracker.wg_bits), spec.any_constant(tracker.wf_bits)

    def watched(item):
        return (item.wg == wg) & (item.wf == wf)

    update = bank.updates.payload
    spec.assume(update.wg[:tracker.bank_bits] == wg[:tracker.bank_bits])

    # The golden account, in the order of acceptance.
    opened, total = Signal(), Signal(tracker.count_bits)
    region, smallest = Signal(geometry.dma.region_bits), Signal(tracker.address_bits)
    threshold, tracked = Signal(tracker.count_bits), Signal()
    with m.Switch(update.region):
        for number in range(1, geometry.dma.regions):
            with m.Case(number):
                m.d.comb += [threshold.eq(bank.thresholds[number]), tracked.eq(bank.tracked[number])]
    accepted, refused, reached, exceeded = Signal(), Signal(), Signal(), Signal()
    after = Signal(tracker.count_bits + 1)
    address = Signal(tracker.address_bits)
    owner = Signal(geometry.dma.region_bits)
    m.d.comb += [
        accepted.eq(bank.updates.valid & bank.updates.ready & watched(update)),
        refused.eq(~tracked | (threshold == 0)),
        after.eq(total + update.amount),
        reached.eq(~refused & (after == threshold)),
        exceeded.eq(~refused & (after > threshold)),
        address.eq(Mux(opened & (smallest < update.address), smallest, update.address)),
        owner.eq(Mux(opened & (update.source.as_value() != Source.LOCAL.value), region, update.region)),
    ]
    with m.If(accepted & ~refused):
        m.d.sync += [opened.eq(1), total.eq(after), region.eq(owner), smallest.eq(address)]
        with m.If(reached | exceeded):
            m.d.sync += [opened.eq(0), total.eq(0)]

    # Triggers that are due and have not left; one arbitrary one of them is followed.
    due, ahead = Signal(range(4)), Signal(range(4))
    followed = Signal()
    expected = Signal(trigger(geometry))
    fires, leaves = Signal(), Signal()
    pick = spec.any_sequence(1)
    out = bank.triggers.payload
    m.d.comb += [
        fires.eq(accepted & reached),
        leaves.eq(bank.triggers.valid & bank.triggers.ready & watched(out)),
    ]
    m.d.sync += due.eq(due + fires - leaves)
    with m.If(leaves & followed):
        m.d.sync += [followed.eq(ahead != 0), ahead.eq(ahead - 1)]
    with m.If(fires & ~followed & pick):
        m.d.sync += [
            followed.eq(1), ahead.eq(due - leaves),
            expected.address.eq(address), expected.region.eq(owner), expected.wf.eq(wf), expected.wg.eq(wg),
        ]
    spec.claim("no trigger that is not due, none twice", implies(
        bank.triggers.valid & watched(out), due != 0))
    spec.claim("a trigger that is due comes, in the second cycle at the latest if nothing is ahead of it", implies(
        spec.past(due != leaves), bank.triggers.valid))
    spec.claim("a trigger names the smallest address and the local update's region", implies(
        bank.triggers.valid & watched(out) & followed & (ahead == 0),
        out.as_value() == expected.as_value()))

    # Errors, which leave one cycle after the second stage, hence in order.
    errors, bad = Signal(range(3)), Signal()
    reported = Signal()
    m.d.comb += [
        bad.eq(accepted & (refused | exceeded)),
        reported.eq(bank.error.valid & watched(bank.error.details)),
    ]
    m.d.sync += errors.eq(errors + bad - reported)
    spec.claim("an error is reported for an update too many or without a region, and for no other", implies(
        reported, errors != 0))
    spec.claim("an error is reported for an update too many or without a region, and for no other", implies(
        errors == 2, reported))

    _pipeline(spec, geometry, locals())


def _pipeline(spec: Spec, geometry: Geometry, golden: dict) -> None:
    """Invariants that tie the bank's registers and memories to the golden account; and what a full set means."""
    m, bank, tracker = spec.m, spec.design, geometry.tracker
    wg, wf, watched = golden["wg"], golden["wf"], golden["watched"]
    accepted, opened, total = golden["accepted"], golden["opened"], golden["total"]
    ways = range(tracker.ways)
    tag = Cat(wf, wg[tracker.set_bits:])
    row = wg[tracker.bank_bits:tracker.set_bits]

    # The account before the update in the second stage, and what that update must do.
    before = {name: Signal.like(golden[name]) for name in ("opened", "total", "region", "smallest")}
    judged = {name: Signal.like(golden[name]) for name in ("refused", "reached", "exceeded", "threshold", "address",
                                                           "owner")}
    with m.If(accepted):
        m.d.sync += [kept.eq(golden[name]) for kept, name in zip(before.values(), before)]
        m.d.sync += [kept.eq(golden[name]) for kept, name in zip(judged.values(), judged)]

    def inner(name):
        return spec.inside(name)

    valid, current = inner("valid"), inner("current")
    second = Signal()
    m.d.comb += second.eq(valid & watched(current))
    now = {name: Mux(second, kept, golden[name]) for name, kept in before.items()}

    sweeping, sweep = inner("sweeping"), inner("sweep")
    rows = [spec.peek(bank.tags[way], row) for way in ways]
    entries = [spec.peek(bank.entries[way], row) for way in ways]
    holds = Signal(tracker.ways)
    m.d.comb += holds.eq(Cat(rows[way].valid & (rows[way].tag == tag) for way in ways))
    entry = Signal(entries[0].shape())
    for way in ways:
        with m.If(holds[way]):
            m.d.comb += entry.eq(entries[way])

    spec.invariant(implies(sweeping, ~valid & (sweep < tracker.sets_per_bank) & ~opened & (inner("last_way") == 0)))
    spec.invariant(implies(~opened, total == 0))
    spec.invariant(implies(~before["opened"], before["total"] == 0))
    for way in ways:
        spec.invariant(implies(sweeping & (row < sweep), ~rows[way].valid))
    with_one = Signal()
    m.d.comb += with_one.eq((holds & (holds - 1)) == 0)
    spec.invariant(implies(~sweeping, with_one & (holds.any() == now["opened"])))
    spec.invariant(implies(~sweeping & now["opened"], (entry.count == now["total"])
                           & (entry.address == now["smallest"]) & (entry.region == now["region"])))

    # The last write is in the memory, and the row that was read is the memory but for that write.
    last_way, last_tag, last_entry = inner("last_way"), inner("last_tag"), inner("last_entry")
    tag_reads, entry_reads = inner("tag_reads"), inner("entry_reads")
    here = Signal()
    m.d.comb += here.eq(valid & (current.wg[tracker.bank_bits:tracker.set_bits] == row))
    for way in ways:
        same = last_way[way] & (inner("last_index") == row)
        spec.invariant(implies(same, (Value.cast(rows[way]) == Value.cast(last_tag))
                               & (Value.cast(entries[way]) == Value.cast(last_entry))))
        spec.invariant(implies(here & ~same, (Value.cast(tag_reads[way].data) == Value.cast(rows[way]))))
        spec.invariant(implies(here & ~same & rows[way].valid,
                               Value.cast(entry_reads[way].data) == Value.cast(entries[way])))

    # What the first stage has compared for the second.
    same_set = Signal()
    m.d.comb += same_set.eq(inner("last_index") == inner("index"))
    spec.invariant(implies(valid, (inner("same_set") == same_set)
                           & (inner("hit_recent") == (same_set & last_way.any() & last_tag.valid
                                                      & (last_tag.tag == inner("tag"))))
                           & (inner("suffices") == (inner("over") | (inner("room") == 0)))))

    # The second stage's verdict.
    after = before["total"] + current.amount
    spec.invariant(implies(second, (inner("refused") == judged["refused"])
                           & (inner("over") == (current.amount > judged["threshold"]))
                           & (inner("room") == (judged["threshold"] - current.amount)[:tracker.count_bits])
                           & (judged["reached"] == (~judged["refused"] & (after == judged["threshold"])))
                           & (judged["exceeded"] == (~judged["refused"] & (after > judged["threshold"])))))
    spec.invariant(implies(second, judged["address"] == Mux(
        before["opened"] & (before["smallest"] < current.address), before["smallest"], current.address)))
    spec.invariant(implies(second, judged["owner"] == Mux(
        before["opened"] & (current.source.as_value() != Source.LOCAL.value), before["region"], current.region)))
    closes = judged["reached"] | judged["exceeded"]
    spec.invariant(implies(second & ~judged["refused"], (opened == ~closes) & (total == Mux(closes, 0, after))
                           & implies(~closes, (golden["smallest"] == judged["address"])
                                     & (golden["region"] == judged["owner"]))))
    spec.invariant(implies(second & judged["refused"], (opened == before["opened"]) & (total == before["total"])
                           & (golden["smallest"] == before["smallest"]) & (golden["region"] == before["region"])))

    # Where the triggers that are due are: output, behind it, second stage.
    queue = inner("queue")
    front, back = spec.inside("front", queue), spec.inside("back", queue)
    front_valid, back_valid = spec.inside("front_valid", queue), spec.inside("back_valid", queue)
    places = [(front_valid & watched(front), front), (back_valid & watched(back), back)]
    third = Signal(trigger(geometry))
    m.d.comb += [third.address.eq(judged["address"]), third.region.eq(judged["owner"]), third.wf.eq(wf),
                 third.wg.eq(wg)]
    places.append((second & judged["reached"], third))
    due, ahead, followed = golden["due"], golden["ahead"], golden["followed"]
    spec.invariant(implies(back_valid, front_valid))
    spec.invariant(due == sum(present for present, _ in places))
    spec.invariant(implies(followed, ahead < due))
    passed = 0
    for present, content in places:
        spec.invariant(implies(followed & present & (ahead == passed),
                               Value.cast(content) == Value.cast(golden["expected"])))
        passed = passed + present

    error_here = second & (judged["refused"] | judged["exceeded"])
    spec.invariant(golden["errors"] == error_here + golden["reported"])
    spec.claim("an error names its cause", implies(golden["reported"], bank.error.code.as_value() == Mux(
        spec.past(judged["refused"]), ErrorCode.REGION_UNCONFIGURED.value, ErrorCode.THRESHOLD_EXCEEDED.value)))

    spec.invariant(implies(valid, current.wg[:tracker.bank_bits] == wg[:tracker.bank_bits]))
    spec.invariant(implies(bank.stalled_full, valid & inner("waits")))

    # Only what other open tiles hold can make an update wait.
    every = Signal()
    m.d.comb += every.eq(Cat(entry.valid for entry in rows).all())
    spec.claim("an update waits for a way only if every way holds another tile that is open", implies(
        second & bank.stalled_full, every & ~holds.any() & ~before["opened"]))
    spec.claim("a tile has a way if and only if it is open", implies(~sweeping, holds.any() == now["opened"]))


def properties() -> list[Property]:
    def broken(what, claim, old, new):
        return Broken(what, claim, "tracker.py", old, new)

    none_twice = "no trigger that is not due, none twice"
    comes = "a trigger that is due comes, in the second cycle at the latest if nothing is ahead of it"
    names = "a trigger names the smallest address and the local update's region"
    errors = "an error is reported for an update too many or without a region, and for no other"
    return [Property(
        "counts", "tracker", "a tile fires if and only if its count reaches the threshold, once; no update is lost or "
        "counted twice; an entry freed is an entry usable", counts, (
            broken("fires beyond the threshold, too", none_twice, "complete.eq(~over & (count == room))",
                   "complete.eq(~over & (count >= room))"),
            broken("the last write is not forwarded: an update back to back is lost", comes,
                   "recent.eq(Mux(same_set, last_way, 0))", "recent.eq(0)"),
            broken("an entry that fired is not freed", none_twice, "next_tag.valid.eq(~closes)",
                   "next_tag.valid.eq(1)"),
            broken("an update counts twice when the trigger queue is full", none_twice,
                   "writes.eq(done & ~dropped &", "writes.eq(valid & ~waits & ~dropped &"),
            broken("the first address, not the smallest", names, "hit & (stored.address < current.address)", "hit"),
            broken("the local update's region is forgotten", names,
                   "hit & (current.source != Source.LOCAL), stored.region", "hit, stored.region"),
            broken("an update beyond the threshold is silent", errors,
                   "wrong = done & (refused | exceeds)", "wrong = done & refused"),
            broken("every error is an unconfigured region", "an error names its cause",
                   "Mux(refused, ErrorCode.REGION_UNCONFIGURED, ErrorCode.THRESHOLD_EXCEEDED)",
                   "ErrorCode.REGION_UNCONFIGURED"),
            broken("a full set holds up an update of a tile that is open",
                   "an update waits for a way only if every way holds another tile that is open",
                   "waits.eq(full & ~hit & ~suffices & ~refused)", "waits.eq(full & ~suffices & ~refused)"),
            broken("an entry beyond its threshold stays", "a tile has a way if and only if it is open",
                   "closes.eq(exceeds | complete)", "closes.eq(complete)"),
        ), depth=2, broken_geometry="least", broken_depth=14, quick=True)]
