"""A stream from one clock to another: no word is lost, doubled or overtaken, whatever the two clocks do.

In a step of the proof either clock, both or neither has an edge. A flip-flop that takes what the other clock gives
takes of each bit that changed in the step before the old value or the new one, whatever it does with other bits: a
counter that changes in two bits may be taken for any other. In the first step both sides are reset, as after a
reset that was long enough.
"""

from contextlib import nullcontext
from pathlib import Path
from unittest.mock import patch

from amaranth.hdl import Assume, Cat, DomainRenamer, EnableInserter, Fragment, Module, Signal
from amaranth.lib import fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from t3sim.rtl.streams.clock_crossing import ClockCrossing
from t3sim.testbenches.formal.macros import Elaborated
from t3sim.testbenches.formal.solver import Verdict, check
from t3sim.testbenches.formal.spec import Spec, implies

FOLDER = Path(__file__).resolve().parents[2] / "build" / "formal"
DEPTH, WIDTH = 4, 2  #: words, bits of one
COUNTER_BITS = 3

ORDER = "the word that is read is the one that was written as that"
ROOM = "there are never more words inside than there is room for, nor fewer than none"


class _Synchronizers:
    """Synchronizers that take of each bit that changes the old value or the new one."""

    def __init__(self, late: dict[str, Signal]) -> None:
        self._late, self.stages = late, {}

    def get_ff_sync(self, crossing) -> Module:
        m, domain = Module(), crossing._o_domain
        before, first, last = (Signal.like(crossing.i, name=name) for name in ("before", "first", "last"))
        m.d.step += before.eq(crossing.i)
        m.d[domain] += [first.eq((crossing.i & ~self._late[domain]) | (before & self._late[domain])), last.eq(first)]
        m.d.comb += crossing.o.eq(last)
        self.stages[domain] = before, first, last
        return m

    def get_async_ff_sync(self, crossing) -> Module:
        m = Module()
        self.resets = Signal(2, init=0b11)
        m.d[crossing._o_domain] += self.resets.eq(self.resets << 1)
        m.d.comb += crossing.o.eq(self.resets[1])
        return m


class Interleaved(wiring.Component):
    """A crossing whose clocks are enables of one."""

    def __init__(self) -> None:
        super().__init__({"input": In(stream.Signature(WIDTH)), "output": Out(stream.Signature(WIDTH)),
                          "source": In(1), "sink": In(1), "late_source": In(COUNTER_BITS),
                          "late_sink": In(COUNTER_BITS)})

    def elaborate(self, platform) -> Module:
        m = Module()
        crossing = ClockCrossing(WIDTH, depth=DEPTH, source="source", sink="sink")
        self.synchronizers = _Synchronizers({"source": self.late_source, "sink": self.late_sink})
        fragment = Fragment.get(crossing, self.synchronizers)
        self.queue = crossing._queue
        enabled = EnableInserter({"source": self.source, "sink": self.sink})(fragment)
        merged = DomainRenamer({"source": "sync", "sink": "sync", "step": "sync"})(enabled)
        m.submodules.crossing = Elaborated(merged)
        m.d.comb += [
            crossing.input.payload.eq(self.input.payload), crossing.input.valid.eq(self.input.valid),
            self.input.ready.eq(crossing.input.ready), self.output.payload.eq(crossing.output.payload),
            self.output.valid.eq(crossing.output.valid), crossing.output.ready.eq(self.output.ready),
        ]
        return m


def specify(spec: Spec) -> None:
    """Follow one word, the n-th of those that any eight are, from its write to its read."""
    m, dut = spec.m, spec.design
    written, read, followed, word = Signal(COUNTER_BITS), Signal(COUNTER_BITS), Signal(COUNTER_BITS), Signal(WIDTH)
    inside, writes, reads, held = Signal(COUNTER_BITS), Signal(), Signal(), Signal()
    m.d.comb += [
        writes.eq(dut.source & dut.input.valid & dut.input.ready), reads.eq(dut.sink & dut.output.valid
                                                                           & dut.output.ready),
        followed.eq(spec.any_constant(COUNTER_BITS)), inside.eq(written - read),
        held.eq((followed - read)[:COUNTER_BITS] < inside),
    ]
    m.d.sync += [written.eq(written + writes), read.eq(read + reads)]
    with m.If(writes & (written == followed)):
        m.d.sync += word.eq(dut.input.payload)
    spec.claim(ORDER, implies(reads & (read == followed), dut.output.payload == word))
    spec.claim(ROOM, (inside <= DEPTH) & implies(reads, inside != 0) & implies(writes, inside != DEPTH))
    _invariants(spec, written, read, followed, word, held)


def _invariants(spec: Spec, written, read, followed, word, held) -> None:
    """State how the counters lie: what either side knows of the other's is late, and in order."""
    def behind(value):
        return (written - value)[:COUNTER_BITS]

    dut, queue = spec.design, spec.design.queue
    decode = fifo._gray_decode
    before_w, first_w, last_w = map(decode, dut.synchronizers.stages["sink"])
    before_r, first_r, last_r = map(decode, dut.synchronizers.stages["source"])
    resets = dut.synchronizers.resets
    spec.invariant((spec.inside("produce_w_bin", queue) == written)
                   & (spec.inside("produce_w_gry", queue) == fifo._gray_encode(written)))
    spec.invariant((spec.inside("consume_r_bin", queue) == read)
                   & (spec.inside("consume_r_gry", queue) == fifo._gray_encode(read)))
    late = [0, behind(before_w), behind(first_w), behind(last_w), behind(read), behind(before_r), behind(first_r),
            behind(last_r), behind(spec.inside("consume_w_bin", queue)), DEPTH]
    for sooner, later in zip(late, late[1:]):
        spec.invariant(sooner <= later)
    spec.invariant((behind(before_w) <= 1) & ((behind(before_r) - behind(read))[:COUNTER_BITS] <= 1))
    spec.invariant(implies(resets[0], resets[1] & (first_w == 0)))
    spec.invariant(implies(resets[1], (last_w == 0) & (read == 0)))
    storage = spec.inside("storage", queue)
    at = spec.peek(storage, followed[:-1])
    spec.invariant(implies(held, at == word))
    spec.invariant(implies(held & (read == followed) & (last_w != read), spec.inside("r_port", queue).data == word))


def _assume_reset(spec: Spec) -> None:
    """Let the first step find both sides reset."""
    dut, queue = spec.design, spec.design.queue
    known = [value for stages in dut.synchronizers.stages.values() for value in stages]
    known += [spec.inside(name, queue) for name in ("consume_r_bin", "consume_r_gry", "consume_w_bin")]
    first = Signal()
    spec.m.d.comb += first.eq(spec._sync.rst)
    spec.m.d.comb += Assume(~first | (Cat(*known) == 0))


def prove(*, gray: bool = True, only: str | None = None, mode: str = "prove", depth: int = 2) -> Verdict:
    """Prove the claims, or look for a run that breaks one; without `gray` counters are plain binary."""
    plain = {"_gray_encode": lambda value: value, "_gray_decode": lambda value: value}
    with patch.multiple(fifo, **plain) if not gray else nullcontext():
        spec = Spec(Interleaved(), only=only)
        specify(spec)
        _assume_reset(spec)
        text = spec.rtlil()
    return check(text, FOLDER / f"clock-crossing-{gray}-{mode}", mode=mode, depth=depth, timeout_s=600)
