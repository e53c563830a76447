"""The golden account of one arbitrary tile: what a Tracker bank must make of the updates that it accepts."""

from dataclasses import dataclass

from amaranth.hdl import Array, Cat, Mux, Signal, Value

from t3sim.rtl.geometry import Geometry
from t3sim.rtl.layouts import ErrorCode, Source, trigger
from t3sim.testbenches.formal.spec import Spec, at_most_one, implies

NONE_TWICE = "only due triggers fire, each once"
NAMES = "a trigger names the smallest address and the local update's region"
ERRORS = "an error is reported if and only if an update exceeds its tile, or its region is unmapped or foreign"
CAUSE = "an error names its cause"
FULL = "an update is refused as full only if every way holds another open tile"
HOLDS = "a tile has a way if and only if it is open"

_BEFORE = ("opened", "total", "region", "smallest")
_JUDGED = ("refused", "foreign", "reached", "exceeded", "threshold", "address", "owner")


@dataclass(frozen=True)
class Step:
    """A stage of the bank's pipeline. With an update of the tile `here`: the account before it, and what it must do."""

    here: Value
    update: Value
    before: dict[str, Signal]
    judged: dict[str, Signal]

    @property
    def after(self) -> Value:
        return self.before["total"] + self.update.amount


class TileAccount:
    """A golden account of one arbitrary tile (workgroup, wavefront), in the order of acceptance, and claims from it.

    Each update is judged by the region table of the cycle that accepted it. `stages` is the number of updates that
    the bank can hold in front of its queue. Assumed: every update is for a workgroup of this bank; what follows when
    one of the tile was refused for want of a way is not looked at.
    """

    def __init__(self, spec: Spec, geometry: Geometry, *, stages: int) -> None:
        tracker = geometry.tracker
        self._spec, self._geometry, self._stages = spec, geometry, stages
        self.wg, self.wf = spec.any_constant(tracker.wg_bits), spec.any_constant(tracker.wf_bits)
        self.tag = Cat(self.wf, self.wg[tracker.set_bits:])
        self.row = self.wg[tracker.bank_bits:tracker.set_bits]
        self._in_bank(spec.assume, 1, spec.design.updates.payload)
        self._count()
        self._triggers()
        self._errors()

    def watched(self, item) -> Value:
        return (item.wg == self.wg) & (item.wf == self.wf)

    def _in_bank(self, say, condition, item) -> None:
        bits = self._geometry.tracker.bank_bits
        say(implies(condition, item.wg[:bits] == self.wg[:bits]))

    def _count(self) -> None:
        m, bank, geometry = self._spec.m, self._spec.design, self._geometry
        tracker, update = geometry.tracker, bank.updates.payload
        self.opened, self.total = opened, total = Signal(), Signal(tracker.count_bits)
        self.region, self.smallest = region, smallest = Signal(geometry.dma.region_bits), Signal(tracker.address_bits)
        self.threshold, tracked = Signal(tracker.count_bits), Signal()
        with m.Switch(update.region):
            for number in range(1, geometry.dma.regions):
                with m.Case(number):
                    m.d.comb += [self.threshold.eq(bank.thresholds[number]), tracked.eq(bank.tracked[number])]
        self.accepted, self.refused, self.foreign, self.reached, self.exceeded = (Signal() for _ in range(5))
        self.address, self.owner = Signal(tracker.address_bits), Signal(geometry.dma.region_bits)
        after = Signal(max(tracker.count_bits, geometry.channel.amount_bits) + 1)
        m.d.comb += [
            self.accepted.eq(bank.updates.valid & bank.updates.ready & self.watched(update)),
            self.refused.eq(~tracked | (self.threshold == 0)),
            after.eq(total + update.amount),
            self.foreign.eq(~self.refused & opened & ~self._of_one_family(region, update.region)),
            self.reached.eq(~self.refused & ~self.foreign & (after == self.threshold)),
            self.exceeded.eq(~self.refused & ~self.foreign & (after > self.threshold)),
            self.address.eq(Mux(opened & (smallest < update.address), smallest, update.address)),
            self.owner.eq(Mux(opened & (update.source.as_value() != Source.LOCAL.value), region, update.region)),
        ]
        with m.If(self.accepted & ~self.refused & ~self.foreign):
            m.d.sync += [opened.eq(1), total.eq(after), region.eq(self.owner), smallest.eq(self.address)]
            with m.If(self.reached | self.exceeded):
                m.d.sync += [opened.eq(0), total.eq(0)]

    def _of_one_family(self, one, other) -> Value:
        families = Array(self._spec.design.families)
        return families[one] == families[other]

    def _triggers(self) -> None:
        """Follow one arbitrary one of the triggers that are due and have not left."""
        spec, m, bank = self._spec, self._spec.m, self._spec.design
        most = self._stages + 2
        self.due, self._ahead = due, ahead = Signal(range(most + 1)), Signal(range(most + 1))
        self._followed, self._expected = followed, expected = Signal(), Signal(trigger(self._geometry))
        self.leaves = leaves = Signal()
        fires = Signal()
        pick = spec.any_sequence(1)
        out = bank.triggers.payload
        m.d.comb += [
            fires.eq(self.accepted & self.reached),
            leaves.eq(bank.triggers.valid & bank.triggers.ready & self.watched(out)),
        ]
        m.d.sync += due.eq(due + fires - leaves)
        with m.If(leaves & followed):
            m.d.sync += [followed.eq(ahead != 0), ahead.eq(ahead - 1)]
        with m.If(fires & ~followed & pick):
            m.d.sync += [
                followed.eq(1), ahead.eq(due - leaves), expected.address.eq(self.address),
                expected.region.eq(self.owner), expected.wf.eq(self.wf), expected.wg.eq(self.wg),
            ]
        spec.claim(NONE_TWICE, implies(bank.triggers.valid & self.watched(out), due != 0))
        spec.claim(NAMES, implies(bank.triggers.valid & self.watched(out) & followed & (ahead == 0),
                                  out.as_value() == expected.as_value()))

    def _errors(self) -> None:
        """Claim that errors leave in order, a cycle after the last stage.

        Bit i of `causes`: the i-th is an unconfigured region; of `strangers`: it is a foreign one.
        """
        spec, m, bank = self._spec, self._spec.m, self._spec.design
        most = self._stages + 1
        self._due_errors, self._causes = errors, causes = Signal(range(most + 1)), Signal(most)
        self._strangers = strangers = Signal(most)
        self._reported = reported = Signal()
        bad, left = Signal(), Signal(range(most + 1))
        m.d.comb += [
            bad.eq(self.accepted & (self.refused | self.foreign | self.exceeded)),
            reported.eq(bank.error.valid & self.watched(bank.error.details)),
            left.eq(errors - reported),
        ]
        m.d.sync += [
            errors.eq(left + bad),
            causes.eq(Cat(Mux(bad & (left == place), self.refused, (causes >> reported)[place])
                          for place in range(most))),
            strangers.eq(Cat(Mux(bad & (left == place), self.foreign, (strangers >> reported)[place])
                             for place in range(most))),
        ]
        spec.claim(ERRORS, implies(reported, errors != 0))
        spec.claim(ERRORS, implies(errors == most, reported))
        spec.claim(CAUSE, implies(reported, bank.error.code.as_value() == Mux(
            causes[0], ErrorCode.REGION_UNCONFIGURED.value, Mux(
                strangers[0], ErrorCode.REGION_MISMATCH.value, ErrorCode.THRESHOLD_EXCEEDED.value))))

    # Invariants that tie the account to the bank.

    def step(self, here, update, *, loads, source: Step | None = None) -> Step:
        """Make a stage that takes its update in a cycle of `loads`: from the stage `source`, or as it is accepted."""
        def kept(names, values):
            registers = {name: Signal.like(getattr(self, name)) for name in names}
            with self._spec.m.If(loads):
                self._spec.m.d.sync += [registers[name].eq(
                    getattr(self, name) if values is None else values[name]) for name in names]
            return registers

        step = Step(here, update, kept(_BEFORE, source and source.before), kept(_JUDGED, source and source.judged))
        self._spec.invariant(implies(~step.before["opened"], step.before["total"] == 0))
        return step

    def state(self, *steps: Step) -> dict[str, Value]:
        """Return the account without the updates in `steps`, the oldest first."""
        state = {name: getattr(self, name) for name in _BEFORE}
        for step in reversed(steps):
            state = {name: Mux(step.here, step.before[name], state[name]) for name in _BEFORE}
        return state

    def pipeline(self, *steps: Step) -> None:
        """Note that what is in the bank's stages, the oldest first, then in its queue, is what the account expects."""
        self._spec.invariant(implies(~self.opened, self.total == 0))
        for number, step in enumerate(steps):
            self._judgement(step, self.state(*steps[number + 1:]))
        self._places(steps)
        self._places_of_errors(steps)

    def _judgement(self, step: Step, later: dict[str, Value]) -> None:
        spec, here, update, before, judged = self._spec, step.here, step.update, step.before, step.judged
        dropped = judged["refused"] | judged["foreign"]
        spec.invariant(implies(here, (judged["reached"] == (~dropped & (step.after == judged["threshold"])))
                               & (judged["exceeded"] == (~dropped & (step.after > judged["threshold"])))))
        spec.invariant(implies(here & judged["foreign"], before["opened"] & ~judged["refused"]))
        spec.invariant(implies(here, judged["address"] == Mux(
            before["opened"] & (before["smallest"] < update.address), before["smallest"], update.address)))
        spec.invariant(implies(here, judged["owner"] == Mux(
            before["opened"] & (update.source.as_value() != Source.LOCAL.value), before["region"], update.region)))
        closes = judged["reached"] | judged["exceeded"]
        spec.invariant(implies(here & ~dropped, (later["opened"] == ~closes)
                               & (later["total"] == Mux(closes, 0, step.after))
                               & implies(~closes, (later["smallest"] == judged["address"])
                                         & (later["region"] == judged["owner"]))))
        spec.invariant(implies(here & dropped, Cat(
            later[name] == before[name] for name in _BEFORE).all()))

    def _places(self, steps) -> None:
        """Note where the triggers that are due are: in the output, in the queue before it, in the stages."""
        spec = self._spec
        queue = spec.inside("queue")
        front, back = spec.inside("front", queue), spec.inside("back", queue)
        front_valid, back_valid = spec.inside("front_valid", queue), spec.inside("back_valid", queue)
        places = [(front_valid & self.watched(front), front), (back_valid & self.watched(back), back)]
        for step in steps:
            content = Signal(trigger(self._geometry))
            spec.m.d.comb += [content.address.eq(step.judged["address"]), content.region.eq(step.judged["owner"]),
                              content.wf.eq(self.wf), content.wg.eq(self.wg)]
            places.append((step.here & step.judged["reached"], content))
        spec.invariant(implies(back_valid, front_valid))
        spec.invariant(self.due == sum(present for present, _ in places))
        spec.invariant(implies(self._followed, self._ahead < self.due))
        passed = 0
        for present, content in places:
            spec.invariant(implies(self._followed & present & (self._ahead == passed),
                                   Value.cast(content) == Value.cast(self._expected)))
            passed = passed + present

    def _places_of_errors(self, steps) -> None:
        spec = self._spec
        passed = self._reported
        for step in steps:
            bad = step.here & (step.judged["refused"] | step.judged["foreign"] | step.judged["exceeded"])
            spec.invariant(implies(bad, ((self._causes >> passed)[0] == step.judged["refused"])
                                   & ((self._strangers >> passed)[0] == step.judged["foreign"])))
            passed = passed + bad
        spec.invariant(self._due_errors == passed)

    def of_this_bank(self, present, item) -> None:
        """Note that every update in a stage is this bank's, as those that come in are."""
        self._in_bank(self._spec.invariant, present, item)

    def verdict(self, step: Step) -> None:
        """Note what the bank's last stage was given as the verdict on its update."""
        spec, judged, amount = self._spec, step.judged, step.update.amount
        room = (judged["threshold"] - amount)[:self._geometry.tracker.count_bits]
        spec.invariant(implies(step.here, (spec.inside("refused") == judged["refused"])
                               & (spec.inside("over") == (amount > judged["threshold"]))
                               & (spec.inside("room") == room)))
        spec.invariant(implies(step.here & step.before["opened"] & ~judged["refused"],
                               spec.inside("allowed_regions").bit_select(step.before["region"], 1)
                               == ~judged["foreign"]))

    def compared(self) -> None:
        """Note what an earlier stage has compared for the last one: with the last write, and with the threshold."""
        spec, last_tag = self._spec, self._spec.inside("last_tag")
        same_set = Signal()
        spec.m.d.comb += same_set.eq(spec.inside("last_index") == spec.inside("index"))
        hit = same_set & spec.inside("last_way").any() & last_tag.valid & (last_tag.tag == spec.inside("tag"))
        spec.invariant(implies(spec.inside("valid"), (spec.inside("same_set") == same_set)
                               & (spec.inside("hit_recent") == hit)
                               & (spec.inside("suffices") == (spec.inside("over") | (spec.inside("room") == 0)))))

    def memory(self, tags, entries, last: Step, now: dict[str, Value]) -> None:
        """Note that the ways of the tile's row hold what the account says: `now`, before the updates in the stages.

        Claims, too, that only what other open tiles hold can make an update wait.
        """
        spec, bank = self._spec, self._spec.design
        sweeping = spec.inside("sweeping")
        holds, every = Signal(len(tags)), Signal()
        entry = Signal(entries[0].shape())
        spec.m.d.comb += [
            holds.eq(Cat(tag.valid & (tag.tag == self.tag) for tag in tags)),
            every.eq(Cat(tag.valid for tag in tags).all()),
        ]
        for way, content in enumerate(entries):
            with spec.m.If(holds[way]):
                spec.m.d.comb += entry.eq(content)
        spec.invariant(implies(sweeping, ~self.opened))
        spec.invariant(implies(~sweeping, at_most_one(holds) & (holds.any() == now["opened"])))
        spec.invariant(implies(~sweeping & now["opened"], (entry.count == now["total"])
                               & (entry.address == now["smallest"]) & (entry.region == now["region"])))
        for way in range(len(tags)):
            same = spec.inside("last_way")[way] & (spec.inside("last_index") == self.row)
            spec.invariant(implies(same, (Value.cast(tags[way]) == Value.cast(spec.inside("last_tag")))
                                   & (Value.cast(entries[way]) == Value.cast(spec.inside("last_entry")))))
        spec.claim(FULL, implies(last.here & bank.refused_full, every & ~holds.any() & ~last.before["opened"]))
        spec.assume(~spec.past(last.here & bank.refused_full))
        spec.claim(HOLDS, implies(~sweeping, holds.any() == now["opened"]))
