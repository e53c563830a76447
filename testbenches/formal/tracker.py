"""The Tracker bank counts one arbitrary tile exactly."""

from amaranth.hdl import Signal, Value

from t3sim.rtl.geometry import Geometry, TrackerGeometry
from t3sim.rtl.layouts import ErrorCode
from t3sim.testbenches.formal.broken import Broken
from t3sim.testbenches.formal.property import Property, Search
from t3sim.testbenches.formal.spec import Spec, implies, is_value
from t3sim.testbenches.formal.tile_account import CAUSE, ERRORS, FULL, HOLDS, NAMES, NONE_TWICE, TileAccount

#: The paper's whole Tracker in one bank: every row of it is one of this memory's.
ONE_BANK = Geometry(tracker=TrackerGeometry(sets=256, ways=8, banks=1))

COMES = "a due trigger fires in the second cycle at the latest, if nothing is ahead of it"
TOLD = "an update refused in a full set, and nothing else, is a TRACKER_FULL error in the next cycle"


def told(spec: Spec, geometry: Geometry) -> None:
    """Claim that errors are reported. Nothing is assumed."""
    bank = spec.design
    full = bank.error.valid & is_value(bank.error.code, ErrorCode.TRACKER_FULL)
    spec.claim(TOLD, full == spec.past(bank.refused_full))


def counts(spec: Spec, geometry: Geometry) -> None:
    """Claim that each update is judged by the region table of the cycle that accepted it.

    The table may change in every cycle.
    """
    account = counted(spec, geometry)
    spec.claim(COMES, implies(spec.past(account.due != account.leaves), spec.design.triggers.valid))


def counted(spec: Spec, geometry: Geometry) -> TileAccount:
    """Tie an arbitrary tile's account to the bank's registers and memories."""
    bank, tracker = spec.design, geometry.tracker
    account = TileAccount(spec, geometry, stages=1)
    valid, current = spec.inside("valid"), spec.inside("current")
    second = account.step(valid & account.watched(current), current, loads=account.accepted)
    rows = [spec.peek(tags, account.row) for tags in bank.tags]
    entries = [spec.peek(memory, account.row) for memory in bank.entries]
    account.pipeline(second)
    account.verdict(second)
    account.compared()
    account.memory(rows, entries, second, account.state(second))
    account.of_this_bank(valid, current)

    sweeping, sweep, last_way = (spec.inside(name) for name in ("sweeping", "sweep", "last_way"))
    spec.invariant(implies(sweeping, ~valid & (sweep < tracker.sets_per_bank) & (last_way == 0)))
    # The row that was read is the memory but for the last write.
    here = Signal()
    spec.m.d.comb += here.eq(valid & (current.wg[tracker.bank_bits:tracker.set_bits] == account.row))
    for way, (tag_read, entry_read) in enumerate(zip(spec.inside("tag_reads"), spec.inside("entry_reads"))):
        spec.invariant(implies(sweeping & (account.row < sweep), ~rows[way].valid))
        same = last_way[way] & (spec.inside("last_index") == account.row)
        spec.invariant(implies(here & ~same, Value.cast(tag_read.data) == Value.cast(rows[way])))
        spec.invariant(implies(here & ~same & rows[way].valid,
                               Value.cast(entry_read.data) == Value.cast(entries[way])))
    return account


def properties() -> list[Property]:
    def broken(what, claim, old, new):
        return Broken(what, claim, "track/tracker.py", old, new)

    statement = ("a tile fires if and only if its count reaches the threshold, once; no update is lost or counted "
                 "twice; a freed entry is usable")
    wrong = (
        broken("fires beyond the threshold, too", NONE_TWICE, "complete.eq(~over & (count == room))",
               "complete.eq(~over & (count >= room))"),
        broken("the last write is not forwarded: an update back to back is lost", COMES,
               "recent.eq(Mux(same_set, last_way, 0))", "recent.eq(0)"),
        broken("an entry that fired is not freed", NONE_TWICE, "next_tag.valid.eq(~closes)",
               "next_tag.valid.eq(1)"),
        broken("an update counts twice when the trigger queue is full", NONE_TWICE,
               "writes.eq(done & ~dropped &", "writes.eq(valid & ~dropped &"),
        broken("the first address, not the smallest", NAMES, "hit & (stored.address < current.address)", "hit"),
        broken("the local update's region is forgotten", NAMES,
               "hit & (current.source != Source.LOCAL), stored.region", "hit, stored.region"),
        broken("an update beyond the threshold is silent", ERRORS,
               "wrong = done & (dropped | set_full | exceeds)", "wrong = done & (dropped | set_full)"),
        broken("every error is an unconfigured region", CAUSE,
               "Mux(refused, ErrorCode.REGION_UNCONFIGURED,", "Mux(1, ErrorCode.REGION_UNCONFIGURED,"),
        broken("an update of a foreign region counts", NONE_TWICE,
               "wrong_family.eq(hit & ~refused & ~allowed_regions.bit_select(stored.region, 1))", "wrong_family.eq(0)"),
        broken("a foreign region is reported as an excess", CAUSE, "wrong_family, ErrorCode.REGION_MISMATCH,",
               "0, ErrorCode.REGION_MISMATCH,"),
        broken("an update of an open tile is refused in a full set", FULL,
               "set_full.eq(full & ~hit & ~suffices & ~refused)", "set_full.eq(full & ~suffices & ~refused)"),
        broken("an entry beyond its threshold stays", HOLDS, "closes.eq(exceeds | complete)",
               "closes.eq(complete)"),
    )
    least = Search("least", 14)
    return [
        Property("told", "tracker", TOLD, told, (
            broken("a refused update is silent", TOLD, "wrong = done & (dropped | set_full | exceeds)",
                   "wrong = done & (dropped | exceeds)"),
            broken("it is reported as an excess", TOLD, "Mux(set_full, ErrorCode.TRACKER_FULL,",
                   "Mux(0, ErrorCode.TRACKER_FULL,"),
            broken("one that waits for its trigger's place is reported", TOLD, "self.refused_full.eq(done & set_full)",
                   "self.refused_full.eq(valid & set_full)"),
        ), depth=1, searches=(least, Search("default", 46, skip=33)), quick=True),
        Property("counts", "tracker", statement, counts, wrong, depth=2,
                 searches=(least, Search("default", 46, skip=33)), quick=True),
        Property("counts, one bank of all sets", "tracker", statement, counts, wrong, depth=2, geometry=ONE_BANK,
                 reason="the paper's 256 sets of 8 ways in one bank; the default has 8 banks of 32 sets",
                 searches=(least,), timeout_s=1800,
                 unsearched="its 256 rows are cleared after a reset: in 270 cycles the solver finds two violations in "
                 "minutes, others not",
                 # An own `build`: the other property stands for both in mutation.
                 build=lambda package, geometry: package.track.tracker.TrackerBank(geometry)),
    ]
