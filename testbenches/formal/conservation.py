"""Blocks that carry payloads between streams lose none, make none up, and send each where it belongs."""

from collections.abc import Callable

from amaranth.hdl import Cat, Signal, Value

from t3sim.rtl.address_map import channel_of_value
from t3sim.rtl.geometry import Geometry
from t3sim.testbenches.formal.broken import Broken
from t3sim.testbenches.formal.property import Property, Search
from t3sim.testbenches.formal.spec import Spec, at_most_one, implies, streams

ONCE = "every payload that leaves has arrived, and leaves once"
WHERE = "each payload leaves at its own output"
EMPTY = "no payload is inside when the block is idle"


def queued(spec: Spec, name: str, output: int | None = None) -> list[tuple]:
    """Return (valid, content, number of the output) of both places in the `TwoEntryQueue` that is submodule `name`."""
    return [(*place, output) for place in two_places(spec, spec.submodule(name))]


def two_places(spec: Spec, queue) -> list[tuple]:
    """Return (valid, content) of the two places in a `TwoEntryQueue`."""
    front, back = (spec.inside(f"{place}_valid", queue) for place in ("front", "back"))
    spec.invariant(implies(back, front))
    return [(front, spec.inside("front", queue)), (back, spec.inside("back", queue))]


def carries(destination: Callable, places: Callable):
    """Follow one arbitrary payload through a block.

    Bit 0 of the address means nothing to these blocks: it marks that payload, and no other has it while the marked one
    is inside.

    `destination(payload, geometry)` is the number of the output that a payload belongs to. `places(spec, geometry)`
    lists (valid, content, number of the output or None if that is not decided) of every place that one can be in.
    """
    def specify(spec: Spec, geometry: Geometry) -> None:
        m = spec.m
        sources, sinks = streams(spec.design, output=False), streams(spec.design)
        watched = spec.any_constant(sources[0][1].payload.shape())
        belongs = Signal(range(max(2, len(sinks))))
        m.d.comb += belongs.eq(destination(watched, geometry))

        def here(valid, content):
            return valid & content.address[0]

        def same(content):
            return Value.cast(content) == Value.cast(watched)

        present = places(spec, geometry)
        arrivals = Signal(len(sources))
        offers, leaves = Signal(len(sinks)), Signal()
        inside = Signal()
        m.d.comb += [
            arrivals.eq(Cat(here(port.valid & port.ready, port.payload) for _, port in sources)),
            offers.eq(Cat(here(port.valid, port.payload) for _, port in sinks)),
            leaves.eq(Cat(offer & port.ready for offer, (_, port) in zip(offers, sinks)).any()),
        ]
        m.d.sync += inside.eq((inside & ~leaves) | arrivals.any())
        spec.assume(at_most_one(Cat(arrivals, inside)))
        for _, port in sources:
            spec.assume(implies(here(port.valid, port.payload), same(port.payload)))
        spec.claim(ONCE, at_most_one(offers) & implies(offers.any(), inside))
        for _, port in sinks:
            spec.claim(ONCE, implies(here(port.valid, port.payload), same(port.payload)))
        for number, (_, port) in enumerate(sinks if len(sinks) > 1 else []):
            spec.claim(WHERE, implies(here(port.valid, port.payload), belongs == number))
        idle = ~spec.design.busy if hasattr(spec.design, "busy") else ~sinks[0][1].valid
        spec.claim(EMPTY, implies(idle, inside == 0))

        copies = Signal(len(present))
        m.d.comb += copies.eq(Cat(here(valid, content) for valid, content, _ in present))
        spec.invariant(at_most_one(copies) & (inside == copies.any()))
        for valid, content, output in present:
            spec.invariant(implies(here(valid, content), same(content)))
            if output is not None:
                spec.invariant(implies(here(valid, content), belongs == output))
    return specify


def _network(spec: Spec, geometry: Geometry) -> list[tuple]:
    groups = sum(name.startswith("group_") for name in spec.submodules())
    return [place for group in range(groups) for place in queued(spec, f"group_{group}")] + \
        [place for bank in range(geometry.tracker.banks) for place in queued(spec, f"bank_{bank}", bank)]


def _router(spec: Spec, geometry: Geometry) -> list[tuple]:
    return [place for engine in range(geometry.dma.engines) for place in queued(spec, f"queue{engine}")] + \
        [(port.valid, port.payload, number) for number, (_, port) in enumerate(streams(spec.design))]


def properties() -> list[Property]:
    lost = ("streams/two_entry_queue.py", "self.input.ready.eq(~back_valid)", "self.input.ready.eq(1)")
    twice = ("streams/two_entry_queue.py", "front_valid.eq(back_valid | self.input.valid), back_valid.eq(0)",
             "front_valid.eq(back_valid | self.input.valid)")
    statement = "every payload leaves once, at its own output; none is inside when idle"

    def one(block, destination, places, wrong, far="one_way", lost=lost, twice=twice):
        return Property("conservation", block, statement, carries(destination, places), (
            Broken("an entry is overwritten", EMPTY, *lost),
            Broken("an entry stays after it left", ONCE, *twice),
            *(Broken(what, WHERE, *change) for what, *change in wrong)),
            searches=(Search("small"), Search(far, 8)), quick=block == "trigger_merge",
            unsearched="" if far == "default" else "with 32 channels one of three violations is not found in 4 minutes")

    return [
        one("update_network", lambda update, g: update.wg[:g.tracker.bank_bits], _network,
            [("a head goes to the bank beside its own", "track/update_network.py", "[:self._bank_bits] == bank",
              "[:self._bank_bits] == (bank ^ 1)")]),
        one("line_router", lambda line, g: channel_of_value(line.address, g), _router,
            [("the channel is that of the neighbouring line", "dma/line_router.py",
              "channel_of_value(queue.output.payload.address, g)",
              "channel_of_value(queue.output.payload.address, g) ^ 1")]),
        one("trigger_merge", lambda trigger, g: 0, lambda spec, _: queued(spec, "queue", 0),
            [], far="default"),
    ]
