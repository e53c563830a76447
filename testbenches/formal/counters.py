"""The performance counters count every event by one, over all their bits.

In simulation a counter's high bits are out of reach; here it may hold anything. Claims are about the ports of the
blocks in the top: what these do in a cycle, and what the bus gets to show.
"""

from types import ModuleType

from amaranth.hdl import Mux, Signal, Value

from t3sim.rtl.geometry import Geometry
from t3sim.rtl.link.ingress import groups
from t3sim.rtl.registers import counters
from t3sim.testbenches.formal.broken import Broken
from t3sim.testbenches.formal.property import Property, Search
from t3sim.testbenches.formal.spec import Spec
from t3sim.testbenches.geometries import GEOMETRIES

BY_ONE = "a counter grows by 1 for each event"
HALVES = "a counter's two halves together grow by the number of events, over all bits"

#: Counter -> cycles from an event to the counter; see GpuTop for why those with 3 are late.
_DELAYS = {"updates": 3, "triggers": 2, "commands": 2, "lines": 2, "packets": 2, "guard_stall": 3, "coalesced": 3,
           "set_full": 3, "errors": 2, "arrivals_refused": 2, "tracker_corrected": 2, "tracker_uncorrectable": 2}


def _events(spec: Spec, geometry: Geometry) -> dict[str, list]:
    """Return counter -> bits that are 1 in a cycle with an event."""
    top, parts = spec.design, spec.submodules()
    channels = [parts[f"channel_{number}"] for number in range(geometry.channel.channels)]
    banks = [parts[f"tracker_{number}"] for number in range(geometry.tracker.banks)]
    engines = [parts[f"engine_{number}"] for number in range(geometry.dma.engines)]

    def moves(port):
        return port.valid & port.ready

    events = {
        "updates": [moves(bank.updates) for bank in banks],
        "triggers": [moves(parts["merge"].merged)],
        "commands": [moves(engine.command) for engine in engines],
        "lines": [engine.issued.any() for engine in engines],
        "packets": [moves(port) for port in top.packets],
        "guard_stall": [channel.guard_stall for channel in channels],
        "coalesced": [channel.merged for channel in channels],
        "set_full": [bank.refused_full for bank in banks],
        "errors": [report.valid for report in parts["bus"].reports],
        "arrivals_refused": [parts[f"ingress_{index}"].refused[c] for index, channels in enumerate(groups(geometry))
                             for c in range(len(channels))],
    }
    if geometry.tracker.protection != "none":
        events |= {
            "tracker_corrected": [bank.fault.valid & ~bank.fault.uncorrectable for bank in banks],
            "tracker_uncorrectable": [bank.fault.valid & bank.fault.uncorrectable for bank in banks],
        }
    return events


def count(spec: Spec, geometry: Geometry) -> None:
    """Claim that the counter counts. Nothing is assumed."""
    m, bus = spec.m, spec.submodule("bus")
    cleared = spec.past(bus.clear_counters)
    events = _events(spec, geometry)
    assert events.keys() == {name for name, _ in counters(geometry)} - {"ready_high_water"}
    for name, bits in events.items():
        happened = Signal(8)
        m.d.comb += happened.eq(sum(Value.cast(bit) for bit in bits))
        for _ in range(_DELAYS[name]):
            happened = spec.past(happened)
        counter = bus.counters[name]
        spec.claim(BY_ONE, counter == Mux(cleared, 0, spec.past(counter) + happened)[:32])
        _ahead(spec, spec.submodule(f"count_{name}"))


def halves(spec: Spec, geometry: Geometry) -> None:
    """Claim that the halves together are the count. Nothing is assumed."""
    counter = spec.design
    _ahead(spec, counter)
    came = spec.past(spec.past(counter.amount))
    spec.claim(HALVES, counter.total == Mux(spec.past(counter.clear), 0, spec.past(counter.total) + came)[
        :len(counter.total)])


def _ahead(spec: Spec, counter) -> None:
    """Note that what is to become the upper half is right, but after a carry or a clearing."""
    low, high, next_high = (spec.inside(name, counter) for name in ("low", "high", "next_high"))
    spec.invariant((next_high == (high + 1)[:len(high)]) | (low < (1 << len(counter.amount)) - 1))


def _short(package: ModuleType, geometry: Geometry):
    """Make counters on `small` with halves of three bits, for the search of what is broken: a carry comes soon."""
    short = {"half_bits": 3, "amount_bits": 2} if geometry == GEOMETRIES["small"] else {}
    return package.control.event_counter.EventCounter(**short)


def properties() -> list[Property]:
    def broken(what, old, new, file="gpu_top.py", claim=BY_ONE):
        return Broken(what, claim, file, old, new)

    def in_counter(what, old, new):
        return broken(what, old, new, "control/event_counter.py", HALVES)

    return [Property(
        "counters", "gpu_top", "every event counter counts each event once, modulo 2^32", count, (
            broken("several events of one cycle are one", "counter.amount.eq(amount)",
                   "counter.amount.eq(amount.any())"),
            broken("clearing adds", "m.d.sync += [low.eq(0), high.eq(0)]", "m.d.sync += [low.eq(step + 1), high.eq(0)]",
                   "control/event_counter.py"),
            broken("a packet that waits counts in every cycle",
                   "ones(port.valid & port.ready for port in self.packets)",
                   "ones(port.valid for port in self.packets)"),
        ), geometry="protected", reason="it has every counter; other sizes only change how many blocks feed one",
        searches=(Search("least", 16), Search("protected", 16)), depth=4,
        # An own `build` keeps it from mutation, whose netlist has no blocks inside with ports.
        build=lambda package, geometry: package.gpu_top.GpuTop(geometry)),
        Property("a counter's halves", "gpu_top", HALVES, halves, (
            in_counter("a carry is lost", "with m.If(following[-1]):", "with m.If(0):"),
            in_counter("what is to become the upper half is what it was", "next_high.eq(high + 1)",
                       "next_high.eq(high)"),
            in_counter("a clearing leaves the upper half", "[low.eq(0), high.eq(0)]", "low.eq(0)"),
        ), depth=3, quick=True, searches=(Search("small", 40),), build=_short,
            unsearched="the default's first carry takes 257 cycles; on `small` the halves have "
            "three bits")]
