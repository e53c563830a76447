"""The Tracker bank with SECDED memories counts one arbitrary tile exactly while single bits of its words flip."""

from types import ModuleType, SimpleNamespace

from amaranth.hdl import Array, Cat, Elaboratable, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory

from t3sim.rtl.check_bits import columns
from t3sim.rtl.geometry import DmaGeometry, Geometry, TrackerGeometry
from t3sim.rtl.layouts import ErrorCode
from t3sim.testbenches.formal.broken import Broken
from t3sim.testbenches.formal.property import Property, Search
from t3sim.testbenches.formal.spec import Spec, implies
from t3sim.testbenches.formal.tile_account import CAUSE, ERRORS, FULL, HOLDS, NAMES, NONE_TWICE, Step, TileAccount

#: Cycles from an update that completes a tile to its trigger: three, two if its entry is corrected, two if that of
#: the update ahead is.
LATEST = 7

COMES = "a due trigger fires in the seventh cycle at the latest, if nothing is ahead of it"
CORRECTED = "no flipped bit is reported as uncorrectable"

LEAST = Geometry(TrackerGeometry(sets=1, ways=2, banks=1, wg_bits=4, wf_bits=1, address_bits=32, count_bits=10,
                                 protection="secded"), dma=DmaGeometry(regions=8))


class FlippingMemory(Elaboratable):
    """A memory whose read port gives each word with bit `flip` flipped: with none if the word has no such bit.

    The memory itself keeps what was written. With `flip` free in every cycle, each word that is read may differ from
    it in any one bit, whether that flipped for a moment or long ago.
    """

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.flip = Signal(range(memory.shape + 1))

    def mask(self, flip) -> Value:
        return Cat(flip == bit for bit in range(self.memory.shape))

    def write_port(self):
        return self.memory.write_port()

    def read_port(self):
        self.port = self.memory.read_port()
        self._found = Signal(self.memory.shape)
        return SimpleNamespace(addr=self.port.addr, en=self.port.en, data=self._found)

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.memory = self.memory
        m.d.comb += self._found.eq(self.port.data ^ self.mask(self.flip))
        return m


def _flipping(package: ModuleType, geometry: Geometry) -> wiring.Component:
    bank = package.track.tracker.TrackerBank(geometry)
    bank.tags = [FlippingMemory(memory) for memory in bank.tags]
    bank.entries = [FlippingMemory(memory) for memory in bank.entries]
    return bank


def counts(spec: Spec, geometry: Geometry) -> None:
    """Claim that the bank counts. Assumed: the region table does not change while an update is inside."""
    m, bank = spec.m, spec.design
    for memory in bank.tags + bank.entries:
        m.d.comb += memory.flip.eq(spec.any_sequence(memory.flip.shape()))
    table = Cat(*bank.thresholds, *bank.tracked, *bank.families)
    moving = spec.past(bank.busy | (bank.updates.valid & bank.updates.ready))
    spec.assume(implies(moving, table == spec.past(table)))

    account = TileAccount(spec, geometry, stages=2)
    waited = Signal(range(LATEST + 1))
    m.d.sync += waited.eq(Mux((account.due != account.leaves) & ~bank.triggers.valid, waited + 1, 0))
    spec.claim(COMES, implies(waited >= LATEST - 1, bank.triggers.valid))
    uncorrectable = bank.fault.valid & bank.fault.uncorrectable
    memory_error = bank.error.valid & (bank.error.code.as_value() == ErrorCode.TRACKER_MEMORY.value)
    spec.claim(CORRECTED, implies(uncorrectable, memory_error))
    spec.claim(CORRECTED, implies(memory_error, ~account.watched(bank.error.details)))

    fetched, ahead, valid, current = (spec.inside(name) for name in ("fetched", "ahead", "valid", "current"))
    first = account.step(fetched & account.watched(ahead), ahead, loads=account.accepted)
    second = account.step(valid & account.watched(current), current,
                          loads=spec.inside("accept") & first.here, source=first)
    account.pipeline(second, first)
    account.verdict(second)
    account.compared()
    account.of_this_bank(fetched, ahead)
    account.of_this_bank(valid, current)
    spec.invariant(implies(first.here, (first.judged["threshold"] == spec.inside("threshold")) & (
        first.judged["refused"] == (~spec.inside("tracked") | (spec.inside("threshold") == 0)))))
    families = Array(bank.families)
    foreign = families[first.before["region"]] != families[ahead.region]
    spec.invariant(implies(first.here, first.judged["foreign"] == (
        ~first.judged["refused"] & first.before["opened"] & foreign)))
    _memories(spec, geometry, account, first, second)
    _waits(spec, waited, first, second)


def _memories(spec: Spec, geometry: Geometry, account: TileAccount, first: Step, second: Step) -> None:
    """Note that the row's words are code words, that what was read of them is found, and what was found is searched."""
    m, bank, tracker = spec.m, spec.design, geometry.tracker
    row = spec.inside("row")
    sweeping, sweep, last_way = (spec.inside(name) for name in ("sweeping", "sweep", "last_way"))
    tag_words = [spec.peek(memory.memory, account.row) for memory in bank.tags]
    entry_words = [spec.peek(memory.memory, account.row) for memory in bank.entries]
    tags = [_data(word, spec.inside("last_tag").shape()) for word in tag_words]
    entries = [_data(word, spec.inside("last_entry").shape()) for word in entry_words]
    account.memory(tags, entries, second, account.state(second, first))

    spec.invariant(implies(sweeping, ~spec.inside("valid") & ~spec.inside("fetched") & (sweep < tracker.sets_per_bank)
                           & (last_way == 0)))
    coming, here, reading = Signal(), Signal(), Signal()
    m.d.comb += [
        coming.eq(spec.inside("fetched") & (spec.inside("new_index") == account.row)),
        here.eq(spec.inside("valid") & (spec.inside("index") == account.row)),
        reading.eq(second.here & ~spec.inside("right", row)),
    ]
    for way in range(tracker.ways):
        tag, word = tags[way], entry_words[way]
        spec.invariant(implies(sweeping & (account.row < sweep), tag_words[way] == 0))
        spec.invariant(implies(~sweeping, _is_code_word(tag_words[way], tag, tracker.protection)))
        mine = tag.valid & (tag.tag == account.tag)
        spec.invariant(implies(~sweeping & mine, _is_code_word(word, entries[way], tracker.protection)))

        # The row that was read is the memory but for the last write; so it is searched.
        same = last_way[way] & (spec.inside("last_index") == account.row)
        spec.invariant(implies(coming & ~same, bank.tags[way].port.data == tag_words[way]))
        spec.invariant(implies(coming & ~same & tag.valid, bank.entries[way].port.data == word))
        current = here & ~spec.inside("recent")[way]
        spec.invariant(implies(current, (row.used[way] == tag.valid) & (
            row.match[way] == (tag.valid & (tag.tag == spec.inside("tag"))))))

        # The entry that was chosen, with a flip of its own, and corrected.
        flip = Signal.like(bank.entries[way].flip)
        with m.If(spec.inside("accept")):
            m.d.sync += flip.eq(bank.entries[way].flip)
        mask = bank.entries[way].mask(flip)
        chosen, content = spec.inside("in_row")[way], Value.cast(entries[way])
        spec.invariant(implies(reading & chosen, spec.inside("word", row) == (word ^ mask)))
        spec.invariant(implies(second.here & ~reading & chosen, row.entry.as_value() == content))
    spec.invariant(implies(spec.inside("new", row), spec.inside("valid")))
    spec.invariant(implies(here, spec.inside("tags_lost", row) == 0))
    spec.invariant(implies(second.here, ~row.lost))


def _waits(spec: Spec, waited: Signal, first: Step, second: Step) -> None:
    """Note how long a trigger that is due may have waited, stage by stage."""
    row, valid = spec.inside("row"), spec.inside("valid")
    new, right = spec.inside("new", row), spec.inside("right", row)
    left = Signal(2)  # cycles that the last stage may still need for its entry
    spec.m.d.comb += left.eq(Mux(valid, Mux(new, 2, ~right), 0))
    none = ~spec.design.triggers.valid
    complete = second.here & second.judged["reached"]
    spec.invariant(waited < LATEST)
    spec.invariant(implies(none & complete, waited + left <= LATEST - 2))
    spec.invariant(implies(none & ~complete & first.here & first.judged["reached"], waited + left <= LATEST - 5))


def _data(word: Value, layout: data.StructLayout) -> data.View:
    return data.View(layout, word[:layout.size])


def _is_code_word(word: Value, content: data.View, protection: str) -> Value:
    content = Value.cast(content)
    checks = word[len(content):]
    return Cat(check == Cat(bit for bit, column in zip(content, columns(protection, len(content))) if column >> row & 1)
               .xor() for row, check in enumerate(checks)).all()


def properties() -> list[Property]:
    def broken(what, claim, old, new, file="track/corrected_row.py"):
        return Broken(what, claim, file, old, new)

    return [Property(
        "counts with flipped bits", "tracker", "SECDED: with at most one flipped bit in each word that is read, a tile "
        "fires if and only if its count reaches the threshold, once; no flipped bit is an error", counts, (
            broken("the last stage does not wait for the corrected entry", NONE_TWICE, "able & ~row.flawed",
                   "able", "track/tracker.py"),
            broken("an entry that was corrected counts as lost", COMES, "self.lost.eq(codec.uncorrectable)",
                   "self.lost.eq(codec.wrong)"),
            broken("the first address, not the smallest", NAMES, "hit & (stored.address < current.address)", "hit",
                   "track/tracker.py"),
            broken("an update that waits for its entry is an error", ERRORS, "wrong = (done & (refused",
                   "wrong = (valid & (refused", "track/tracker.py"),
            broken("every error is an unconfigured region", CAUSE,
                   "Mux(refused, ErrorCode.REGION_UNCONFIGURED,", "Mux(1, ErrorCode.REGION_UNCONFIGURED,",
                   "track/tracker.py"),
            broken("tags are compared as they were read", FULL, "data.View(self.last_tag.shape(), tag_codec.found)",
                   "data.View(self.last_tag.shape(), tag_codec.stored[:len(tag_codec.found)])"),
            broken("a tag that was corrected matches no tile", HOLDS,
                   "self._is_wanted(read) & ~tag_codec.uncorrectable", "self._is_wanted(read) & ~tag_codec.wrong"),
            broken("a bit that was corrected is an error", CORRECTED,
                   "memory_fault = row.fault.valid & row.fault.uncorrectable", "memory_fault = row.fault.valid",
                   "track/tracker.py"),
        ), geometry=LEAST, depth=1, searches=(Search(LEAST, 14),), build=_flipping, timeout_s=3600,
        reason="proof time: one set of two ways, tags of 6 bits and entries of 45, with 5 and 7 check bits")]
