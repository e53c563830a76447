"""Lawful packets pass the ingress at once, and nothing else does; that is reported."""

from amaranth.hdl import Cat, Signal, Value

from t3sim.rtl.geometry import Geometry
from t3sim.rtl.layouts import ErrorCode, Op, Source
from t3sim.testbenches.formal.broken import Broken
from t3sim.testbenches.formal.property import Property
from t3sim.testbenches.formal.spec import Spec, implies, is_value

LAWFUL = "only lawful packets reach a memory channel, unchanged"
AT_ONCE = "a lawful packet reaches it in the cycle in which it is offered"
HOLDS = "a packet offered to a memory channel is stable until it is taken, while ranges and window are stable"
TOLD = "a refused packet was taken, and is reported once, in the next cycle, with its details"


def checked(spec: Spec, geometry: Geometry) -> None:
    """Claim what is refused; addresses are compared as whole numbers, a bit wider than they are."""
    m, ingress = spec.m, spec.design
    line_bytes = geometry.channel.request_bytes

    def line_of(address):
        return Value.cast(address)[6:]

    taken, details = [], []
    for arriving, accepted in zip(ingress.arriving, ingress.accepted):
        packet = arriving.payload
        last_byte = Signal(geometry.tracker.address_bits + 1)
        m.d.comb += last_byte.eq(packet.address + packet.bytes - 1)
        mapped = Cat(
            ((regions >> packet.region) & 1) & (line_of(packet.address) >= line_of(base))
            & (line_of(packet.address) <= line_of(last))
            for regions, base, last in zip(ingress.open, ingress.base, ingress.last)).any()
        here = (packet.region == 0) | ingress.any_tile | (
            (packet.wg >= ingress.head) & (packet.wg < ingress.limit) & (packet.wf < ingress.tiles))
        writes = is_value(packet.op, Op.STORE) | is_value(packet.op, Op.UPDATE)
        of_a_peer = is_value(packet.source, Source.REMOTE) | is_value(packet.source, Source.DMA)
        lawful = (mapped & here & writes & of_a_peer & (packet.bytes >= 1) & (packet.bytes <= line_bytes)
                  & (last_byte[6:] == line_of(packet.address)))
        spec.claim(LAWFUL, implies(accepted.valid, arriving.valid & lawful & (
            Value.cast(accepted.payload) == Value.cast(packet))))
        spec.claim(AT_ONCE, implies(arriving.valid & lawful, accepted.valid) & (arriving.ready == accepted.ready))
        taken.append(arriving.valid & arriving.ready & ~lawful)
        details.append(Cat(packet[name] for name, _ in ingress.error.details.shape()))
    before, told = spec.past(Cat(taken)), ingress.error.details
    spec.claim(TOLD, (ingress.refused == before) & (ingress.error.valid == before.any())
               & is_value(ingress.error.code, ErrorCode.ARRIVAL_REFUSED))
    for c, packet in enumerate(details):
        spec.claim(TOLD, implies(before[c] & ~before[:c].any(), Value.cast(told) == spec.past(packet)))


def passed_on(spec: Spec, _) -> None:
    """Claim what is passed on. Assumed: the link's streams keep to the rule."""
    ingress = spec.design
    what_is_open = Cat(*ingress.open, *ingress.base, *ingress.last, ingress.head, ingress.limit, ingress.tiles,
                       ingress.any_tile)
    stays = what_is_open == spec.past(what_is_open)
    for arriving, accepted in zip(ingress.arriving, ingress.accepted):
        arrival, passed = Value.cast(arriving.payload), Value.cast(accepted.payload)
        spec.assume(implies(spec.past(arriving.valid & ~arriving.ready),
                            arriving.valid & (arrival == spec.past(arrival))))
        spec.claim(HOLDS, implies(spec.past(accepted.valid & ~accepted.ready) & stays,
                                  accepted.valid & (passed == spec.past(passed))))


def properties() -> list[Property]:
    def broken(what, claim, old, new, file="link/ingress.py"):
        return Broken(what, claim, file, old, new)

    return [Property("checked", "ingress", f"{LAWFUL}; {AT_ONCE}; {TOLD}", checked, (
        broken("any operation", LAWFUL, "(packet.op == Op.STORE) | (packet.op == Op.UPDATE)", "1"),
        broken("a peer may claim to be this GPU", LAWFUL,
               "(packet.source == Source.REMOTE) | (packet.source == Source.DMA)", "1"),
        broken("a packet without bytes", LAWFUL, "(access.bytes != 0) & ", "", "layouts.py"),
        broken("a packet that ends in the next line", LAWFUL, "return in_line & writes",
               "return (packet.bytes != 0) & writes"),
        broken("a packet that ends a byte into the next line", LAWFUL, "access.bytes) <= line_bytes)",
               "access.bytes) <= line_bytes + 1)", "layouts.py"),
        broken("a packet that ends its line", AT_ONCE, "access.bytes) <= line_bytes)", "access.bytes) < line_bytes)",
               "layouts.py"),
        broken("the range has no beginning", LAWFUL, "(line >= base[line_bits:])", "1"),
        broken("the range is open to all regions", LAWFUL, "regions.bit_select(packet.region, 1)", "1"),
        broken("one workgroup beyond the window", LAWFUL, "packet.wg < self.limit", "packet.wg <= self.limit"),
        broken("a wavefront that no workgroup has", LAWFUL, "packet.wf < self.tiles", "packet.wf <= self.tiles"),
        broken("the last wavefront is refused", AT_ONCE, "packet.wf < self.tiles", "packet.wf + 1 < self.tiles"),
        broken("a finished workgroup", LAWFUL, "(packet.wg >= self.head) & ", ""),
        broken("the range without its last line", AT_ONCE, "(line <= last[line_bits:])", "(line < last[line_bits:])"),
        broken("the oldest workgroup is refused", AT_ONCE, "packet.wg >= self.head", "packet.wg > self.head"),
        broken("untracked stores need a workgroup", AT_ONCE, " | (packet.region == 0)", ""),
        broken("what waits is reported", TOLD, "arriving.valid & accepted.ready & ~lawful", "arriving.valid & ~lawful"),
        broken("what is refused is silent", TOLD, "self.error.valid.eq(refused.any())", "self.error.valid.eq(0)"),
    ), depth=1, quick=True), Property("passes on", "ingress", HOLDS, passed_on, (
        broken("it withdraws what waits when another channel is refused", HOLDS,
               "accepted.valid.eq(arriving.valid & lawful)",
               "accepted.valid.eq(arriving.valid & lawful & ~self.error.valid)"),
        broken("another payload while it waits", HOLDS, "accepted.payload.eq(arriving.payload)",
               "[accepted.payload.eq(arriving.payload), accepted.payload.wf.eq(self.error.valid)]"),
    ), quick=True)]
