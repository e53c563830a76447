"""A near-memory ALU whose sums are wider than the elements that arrive."""

from typing import NamedTuple

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from t3sim.rtl.channel.converters import from_fixed, product, to_fixed, to_fp16, to_narrow, upper_half, widened
from t3sim.rtl.channel.fp_adder import FpAdder
from t3sim.rtl.formats import (
    BF16,
    E4M3,
    E5M2,
    FIXED,
    FIXED_BITS,
    FIXED_NONE,
    FP16,
    FP32,
    NUMBERS,
    PLAIN_SUMS,
    RANDOM_BITS,
    SUM_BITS,
    FloatFormat,
    Sum,
    random_seed,
    random_steps,
)
from t3sim.rtl.geometry import Geometry
from t3sim.rtl.streams.moving_together import moving_together


class WideOp(enum.Enum, shape=2):
    """Operation on the column in memory."""

    ADD = 0  #: old + new
    STORE = 1  #: new, bits unchanged
    XOR = 2  #: old XOR new
    DRAIN = 3  #: only read: old, rounded to the format in which sums leave memory


def operands(column_bytes: int) -> data.StructLayout:
    """Lay out one operation on a column of sums.

    Elements that are narrower than their sums, and results of DRAIN, are packed into the lowest bits.
    """
    return data.StructLayout({
        "old": 8 * column_bytes,  # column in memory, lowest address in the lowest bits
        "new": 8 * column_bytes,
        "op": WideOp,
        "sum": SUM_BITS,  # index into `SUMS`; with a sum that is absent, memory is unchanged
        "scale": 32,  # of the arriving elements, e8m0 or fp32; in fixed point the unit's, e8m0, also for DRAIN
        "narrow": 1,  # DRAIN returns 8-bit elements over an e8m0 scale, if the arriving ones have 8 bits
        "saturate": 1,  # elements that are too large become the largest one
    })


def _moves(request) -> Value:
    """Return whether bits pass unchanged, 32 at a time."""
    return (request.op == WideOp.STORE) | (request.op == WideOp.XOR)


class _Kind(NamedTuple):
    operands: FloatFormat
    result: FloatFormat
    by_chance: bool = False  #: stochastic rounding


class WideAlu(wiring.Component):
    """Op-and-store on columns of sums: fp32 or fixed point, for elements that arrive in 8, 16 or 32 bits.

    1. A finite element is converted exactly, added, and rounded once. NaN results are the positive quiet NaN.
    2. Fixed point adds integers, so the result does not depend on the order. A sum that overflows becomes `FIXED_NONE`
       and stays so.
    3. An element with an fp32 scale is multiplied, and the product is rounded to fp32, before it is added.
    4. Columns leave in order, `latency` cycles after they entered if the consumer is ready.

    The whole pipeline moves together, but a lane's stage is enabled only if a column enters it. Random bits for
    stochastic rounding come from one register per 16 bits of a column, which steps 16 times for each column that
    leaves.

    Parameters
    ----------
    geometry : Geometry
        `channel.sums` names the sums in addition to `PLAIN_SUMS`.
    column_bytes : int
        Bytes of one DRAM column access: a multiple of 4.
    channel : int
        Number of its memory channel, so that no two channels round by the same random bits.

    Members
    -------
    operands : In(stream(operands(column_bytes)))
        Columns to combine, at most one per cycle.
    result : Out(stream({"column"}))
        Columns to write or, for DRAIN, to return to the reader; one for each accepted.
    """

    _LATENCY = FpAdder.LATENCY + 1  #: from a column whose elements are as wide as they are added

    #: lane implementation, replaced by tests
    adder = FpAdder

    def __init__(self, geometry: Geometry, column_bytes: int = 32, channel: int = 0):
        self.sums = (*PLAIN_SUMS, *geometry.channel.wide_sums)
        self.column_bytes, self.channel = column_bytes, channel
        #: stages of slow conversions, and one more to choose among several
        wider = [one for one in self.sums if one.total != one.arrives]
        self._chooses = len(wider) > 1
        self._waits = self._chooses + max((3 * one.by_fp32 + (one.total is FIXED or one.drained == FP16)
                                           for one in wider), default=0)
        self.latency = self._LATENCY + self._waits
        super().__init__({
            "operands": In(stream.Signature(operands(column_bytes))),
            "result": Out(stream.Signature(data.StructLayout({"column": 8 * column_bytes}))),
        })

    def elaborate(self, platform):
        m = Module()
        move, valid = moving_together(m, self.operands, self.result, self.latency)

        requests = [self.operands.payload]  # in each conversion stage
        for stage in range(self._waits):
            held = Signal(self.operands.payload.shape(), name=f"request{stage}", reset_less=True)
            with m.If(move):
                m.d.sync += held.eq(requests[-1])
            requests.append(held)
        request = requests[-1]
        chosen = {one: request.sum == NUMBERS[one.name] for one in self.sums}
        drains = request.op == WideOp.DRAIN
        known = Signal()
        m.d.comb += known.eq(Cat(*chosen.values()).any())
        kinds = self._kinds()
        controls = {  # for each stage
            "keep": (request.op == WideOp.STORE) | (request.op == WideOp.XOR) | ~known | self._is(chosen, lambda one: (
                one.total == one.arrives)) & drains | self._is(chosen, lambda one: one.drained == FP16) & drains,
            "paired": self._is(chosen, lambda one: one.total is not FIXED and one.total.width == 16) & ~_moves(request),
            "fixed": self._is(chosen, lambda one: one.total is FIXED) & (request.op == WideOp.ADD),
            "packs": self._is(chosen, lambda one: one.total != one.arrives) & drains,
            "narrows": self._is(chosen, lambda one: one.narrows) & drains & request.narrow,
            "e5m2": self._is(chosen, lambda one: one.arrives == E5M2),
            "saturates": request.saturate,
        }
        stages = {}
        for name, value in controls.items():
            stages[name] = [Signal(name=f"{name}{stage}") for stage in range(self._LATENCY)]
            with m.If(move):
                for before, after in zip((value, *stages[name]), stages[name]):
                    m.d.sync += after.eq(before)
        format_of = {half: self._format(m, chosen, ~_moves(request), drains, kinds[half], half, move)
                     for half in ("low", "high")}
        scales = [Signal(8, name=f"narrow_scale{stage}") for stage in range(2)]  # of 8-bit elements that leave
        unscaled = self._is(chosen, lambda one: not one.scaled)
        with m.If(move):
            m.d.sync += [scales[0].eq(Mux(unscaled, 127, request.scale)), scales[1].eq(scales[0])]

        results, elements = [], []
        for number in range(self.column_bytes // 4):
            b, a = self._arrives(m, requests, number, chosen, known, move)
            held = {}
            for name, value in (("a", a), ("b", b)):
                held[name] = Signal(32, name=f"{name}_{number}", reset_less=True)
                with m.If(move):
                    m.d.sync += held[name].eq(value)
            lanes = []
            for half, first in (("low", 0), ("high", 16)):
                by_chance = tuple(place for place, kind in enumerate(kinds[half]) if kind.by_chance)
                lane = self.adder(tuple(kind.operands for kind in kinds[half]),
                                  tuple(kind.result for kind in kinds[half]), by_chance)
                m.submodules[f"{half}{number}"] = lane
                m.d.comb += [
                    lane.a.eq(held["a"][first:]), lane.b.eq(held["b"][first:]), lane.format.eq(format_of[half]),
                    lane.keep_b.eq(stages["keep"][0]), lane.enable.eq(Mux(move, valid[self._waits:], 0)),
                ]
                if by_chance:
                    m.d.comb += lane.random.eq(self._random(m, 2 * number + (half == "high"), move & valid[-2]))
                lanes.append(lane.result)
            low, high = lanes
            result = Mux(stages["paired"][-1], Cat(low[:16], high[:16]), low)
            if any(one.total is FIXED for one in self.sums):
                fixed = self._fixed_sum(m, number, request, held["a"], move)
                result = Mux(stages["fixed"][-1], fixed, result)
            results.append(result)
            elements.append(self._narrow(m, number, held["a"], scales[1], stages, move))
        column = Mux(stages["packs"][-1], Cat(*(one[:16] for one in results)), Cat(*results))
        if self._narrow_formats:
            column = Mux(stages["narrows"][-1], Cat(*elements), column)
        m.d.comb += self.result.payload.column.eq(column)
        return m

    @property
    def _narrow_formats(self) -> list[FloatFormat]:
        return [one for one in (E4M3, E5M2) if any(each.narrows and each.arrives == one for each in self.sums)]

    def _narrow(self, m: Module, number: int, old: Value, scale: Value, stages: dict[str, list[Signal]],
                move: Value) -> Value:
        """Return a slice's sum in 8 bits, computed in parallel with the lanes and delayed to their latency."""
        found = [to_narrow(m, old, scale, stages["saturates"][2], form, move, f"narrow{number}_{form.exponent_bits}")
                 for form in self._narrow_formats]
        if not found:
            return Const(0, 8)
        value = found[0] if len(found) == 1 else Mux(stages["e5m2"][3], found[1], found[0])
        for stage in range(self._LATENCY - 4):
            later = Signal(8, name=f"narrow{number}_later{stage}")
            with m.If(move):
                m.d.sync += later.eq(value)
            value = later
        return value

    def _is(self, chosen: dict[Sum, Value], what) -> Value:
        return Cat(Const(0, 1), *(value for one, value in chosen.items() if what(one))).any()

    def _kinds(self) -> dict[str, list[_Kind]]:
        sums = {_Kind(one.total, one.total, one.by_chance) for one in self.sums if one.total is not FIXED}
        drains = {_Kind(FP32, one.drained) for one in self.sums if one.total != one.arrives and one.drained == BF16}
        order, first = sorted(sums | drains, key=str), _Kind(FP32, FP32)
        return {"low": [first, *(kind for kind in order if kind != first)],
                "high": [kind for kind in order if kind.operands.width == 16]}

    def _format(self, m: Module, chosen: dict[Sum, Value], adds: Value, drains: Value, kinds: list[_Kind], half: str,
                move: Value) -> Signal:
        """Return the lane's kind of sum for the operands in registers.

        Operands that pass unchanged use the lane's first kind, fp32.
        """
        number, held = (Signal(range(max(2, len(kinds))), name=f"{half}_format{text}") for text in ("", "_held"))
        for one, is_chosen in chosen.items():
            added, drained = _Kind(one.total, one.total, one.by_chance), _Kind(FP32, one.drained)
            with m.If(is_chosen & adds):
                if one.total is not FIXED and added in kinds:
                    m.d.comb += number.eq(kinds.index(added))
                if one.total != one.arrives and drained in kinds:
                    with m.If(drains):
                        m.d.comb += number.eq(kinds.index(drained))
                elif one.total != one.arrives:
                    with m.If(drains):
                        m.d.comb += number.eq(0)
        with m.If(move):
            m.d.sync += held.eq(number)
        return held

    def _arrives(self, m: Module, requests: list, number: int, chosen: dict[Sum, Value], known: Value,
                 move: Value) -> tuple[Value, Value]:
        """Return the two addends of a 32-bit slice; for DRAIN, two numbers whose sum is drained.

        `requests`: the column in each of its stages.
        """
        here, request = slice(32 * number, 32 * number + 32), requests[-1]
        *_, early, late = (None, *(requests[:-1] if self._chooses else requests))
        old, new = request.old[here], request.new[here]
        a, b = Signal(32, name=f"a_next{number}"), Signal(32, name=f"b_next{number}")
        m.d.comb += [a.eq(old), b.eq(new ^ Mux(request.op == WideOp.XOR, old, 0))]

        def ready(value: Value, name: str) -> Value:
            """Register a value converted in the stage `late`, if one of several is to be chosen."""
            if not self._chooses:
                return value
            held = Signal(32, name=f"{name}_ready", reset_less=True)
            with m.If(move):
                m.d.sync += held.eq(value)
            return held

        halves, small, wides = (), None, {}
        if any(one.total is FIXED for one in self.sums):
            upper = Signal(16, name=f"upper{number}", reset_less=True)
            with m.If(move):
                m.d.sync += upper.eq(upper_half(early.old[here]))
            halves = [ready(half, f"half{number}_{place}") for place, half in enumerate(from_fixed(
                m, late.old[here], upper, late.scale[:8], f"old{number}"))]
        if any(one.total == FP32 and one.drained == FP16 for one in self.sums):
            small = ready(to_fp16(m, early.old[here], move, f"old{number}"), f"small{number}")
        for one in self.sums:
            if one.total in (one.arrives, FIXED):
                continue
            way = "multiplied" if one.by_fp32 else "scaled" if one.scaled else "as it is"
            if (one.arrives, way) not in wides:
                first, name = one.arrives.width * number, f"new{number}_{one.arrives.exponent_bits}{way[0]}"
                part = slice(first, first + one.arrives.width)
                if one.by_fp32:
                    entered = requests[0]
                    wide = product(m, entered.new[part], one.arrives, entered.scale, move, name)
                else:
                    wide = widened(m, late.new[part], one.arrives, late.scale[:8] if way == "scaled" else None, name)
                wides[one.arrives, way] = ready(wide, name)
            with m.If(chosen[one] & (request.op == WideOp.ADD)):
                m.d.comb += b.eq(wides[one.arrives, way])
        with m.If(request.op == WideOp.DRAIN):
            m.d.comb += b.eq(old)
            for one in self.sums:
                if one.total is FIXED:
                    with m.If(chosen[one]):
                        m.d.comb += [port.eq(half) for port, half in zip((a, b), halves)]
                elif one.total != one.arrives:
                    with m.If(chosen[one]):
                        m.d.comb += b.eq(small if one.drained == FP16 else 1 << 31)  # -0, the identity of addition
        with m.If(~known):
            m.d.comb += b.eq(old)
        return b, a

    def _fixed_sum(self, m: Module, number: int, request, old: Value, move: Value) -> Value:
        """Return a slice's fixed-point sum, in parallel with the lanes: two stages convert, the next one adds."""
        wide = Signal(32, name=f"wide_next{number}")
        for one in self.sums:
            if one.total is FIXED:
                first = one.arrives.width * number
                with m.If(request.sum == NUMBERS[one.name]):
                    m.d.comb += wide.eq(widened(m, request.new[first:first + one.arrives.width], one.arrives, None, ""))
        wide_held, scale = Signal(32, name=f"wide_held{number}"), Signal(8, name=f"scale{number}")
        part = to_fixed(m, wide_held, scale, move, f"part{number}")
        before = [Signal(FIXED_BITS, name=f"before{number}_{stage}") for stage in range(2)]
        total = Signal(FIXED_BITS + 1, name=f"total{number}")
        m.d.comb += total.eq(part.as_signed() + before[1].as_signed())
        none = (part == FIXED_NONE) | (before[1] == FIXED_NONE) | (total[-1] != total[-2])
        later = [Signal(FIXED_BITS, name=f"fixed{number}_{stage}") for stage in range(self._LATENCY - 3)]
        with m.If(move):
            m.d.sync += [
                wide_held.eq(wide), scale.eq(request.scale), before[0].eq(old), before[1].eq(before[0]),
                later[0].eq(Mux(none, FIXED_NONE, total)),
                *(after.eq(one) for one, after in zip(later, later[1:])),
            ]
        return later[-1]

    def _random(self, m: Module, lane: int, step: Value) -> Signal:
        seed = random_seed(self.channel * (self.column_bytes // 2) + lane)
        state = Signal(RANDOM_BITS, init=seed, name=f"random{lane}")
        reached = [random_steps(1 << bit) for bit in range(RANDOM_BITS)]  # steps are linear
        with m.If(step):
            m.d.sync += state.eq(Cat(*(Cat(*(state[bit] for bit, bits in enumerate(reached) if bits >> place & 1)).xor()
                                       for place in range(RANDOM_BITS))))
        return state
