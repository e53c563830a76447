"""Parts of the switch: copies go to each port once, and what arrives with a credit has a place."""

from types import ModuleType

from amaranth.hdl import Mux, Signal, Value
from amaranth.lib import data, wiring

from t3sim.rtl.geometry import Geometry
from t3sim.testbenches.formal.broken import Broken
from t3sim.testbenches.formal.property import Property, Search
from t3sim.testbenches.formal.spec import Spec, implies

ONCE = "a packet is copied unchanged to each port of its mask once, and to no other, before the next packet"
NOWHERE = "a packet for no port is reported when it is taken"
ROOM = "a packet with a credit is not lost, and only spent credits return"
ALL = "all credits return when everything has left"
SPENT = "no more packets are on their way than there are credits"
GOES = "a packet is sent if and only if there is a credit"
_PACKET = data.StructLayout({"mark": 4})
_PLACES = 3


def copies(spec: Spec, geometry: Geometry) -> None:
    """Follow what one arbitrary port has of a packet. Assumed: what is offered stays."""
    m, dut = spec.m, spec.design
    port = spec.any_constant(range(geometry.switch.ports))
    spec.assume(port < geometry.switch.ports)
    packets = dut.packets
    stays = spec.past(packets.valid & ~packets.ready)
    spec.assume(implies(stays, packets.valid & (Value.cast(packets.payload) == Value.cast(spec.past(packets.payload)))))
    got, gets, wanted = Signal(), Signal(), packets.payload.to.bit_select(port, 1)
    for number, copy in enumerate(dut.copies):
        with m.If(port == number):
            m.d.comb += gets.eq(copy.valid & copy.ready)
        spec.claim(ONCE, implies(copy.valid & (port == number), packets.valid & wanted & ~got & (
            Value.cast(copy.payload) == Value.cast(packets.payload.packet))))
    taken = packets.valid & packets.ready
    spec.claim(ONCE, implies(taken, wanted == (got | gets)))
    spec.claim(NOWHERE, dut.nowhere == (taken & (packets.payload.to == 0)))
    m.d.sync += got.eq((got | gets) & ~taken)
    spec.invariant(spec.inside("have").bit_select(port, 1) == got)
    spec.invariant(implies(got, wanted & stays))


def receives(spec: Spec, _) -> None:
    """Count the sender's credits. Assumed: it sends only with one."""
    m, dut = spec.m, spec.design
    credits, inside = Signal(range(_PLACES + 1), init=_PLACES), Signal(range(_PLACES + 1))
    spec.assume(implies(dut.arriving.valid, credits != 0))
    leaves = dut.packets.valid & dut.packets.ready
    m.d.sync += [credits.eq(credits - dut.arriving.valid + dut.returned),
                 inside.eq(inside + dut.arriving.valid - leaves)]
    spec.claim(ROOM, ~dut.overrun & implies(dut.returned, credits != _PLACES) & implies(inside != 0, dut.packets.valid))
    spec.claim(ALL, implies(spec.past(~dut.packets.valid) & ~dut.packets.valid & ~dut.returned, credits == _PLACES))
    queue = spec.inside("queue")
    level = spec.inside("level", queue)
    spec.invariant(level == inside)
    spec.invariant(credits + inside + dut.returned == _PLACES)


def sends(spec: Spec, _) -> None:
    """Count packets that the other end still has. Nothing is assumed of the credits that come back, one or all."""
    m, dut = spec.m, spec.design
    out = Signal(range(_PLACES + 2))
    taken = dut.packets.valid & dut.packets.ready
    back = dut.returned & (out != 0)
    m.d.sync += out.eq(Mux(dut.restore, 0, out - back) + taken)
    spec.claim(SPENT, out <= _PLACES)
    spec.claim(GOES, (dut.packets.ready == (out != _PLACES)) & (dut.excess == (dut.returned & (out == 0)))
               & (dut.leaving.valid == spec.past(taken))
               & implies(dut.leaving.valid,
                         Value.cast(dut.leaving.payload) == Value.cast(spec.past(dut.packets.payload))))
    spec.invariant(spec.inside("spent") == out)


def _multicast(package: ModuleType, geometry: Geometry) -> wiring.Component:
    return package.switch.multicast.Multicast(geometry)


def _input(package: ModuleType, _) -> wiring.Component:
    return package.switch.credited_input.CreditedInput(_PACKET, _PLACES)


def _output(package: ModuleType, _) -> wiring.Component:
    return package.switch.credited_output.CreditedOutput(_PACKET, _PLACES)


def properties() -> list[Property]:
    def broken(what, claim, file, old, new):
        return Broken(what, claim, f"switch/{file}.py", old, new)

    few = {"reason": "3 places, and packets of 4 bits, which are only passed on", "geometry": "least",
           "searches": (Search("least", 12),), "quick": True}
    return [
        Property("copies", "switch", f"{ONCE}; {NOWHERE}", copies, (
            broken("who has it gets it again", ONCE, "multicast", "left.eq(incoming.to & ~have)",
                   "left.eq(incoming.to)"),
            broken("the next packet comes when one port has it", ONCE, "multicast", "(left & ~taken) == 0",
                   "(left & taken) != 0"),
            broken("who had the packet before lacks this one", ONCE, "multicast",
                   "Mux(self.packets.ready, 0, have | (left & taken))", "have | (left & taken)"),
            broken("every packet for no port is reported, also one that is not there", NOWHERE, "multicast",
                   "self.packets.valid & (incoming.to == 0)", "incoming.to == 0"),
        ), build=_multicast, quick=True, searches=(Search("small", 10), Search("default", 10))),
        Property("receives", "switch", f"{ROOM}; {ALL}", receives, (
            broken("a credit comes back for what arrives", ROOM, "credited_input",
                   "eq(self.packets.valid & self.packets.ready)", "eq(self.arriving.valid)"),
            broken("no credit comes back", ALL, "credited_input",
                   "eq(self.packets.valid & self.packets.ready)", "eq(0)"),
        ), build=_input, **few),
        Property("sends", "switch", f"{SPENT}; {GOES}", sends, (
            broken("what leaves costs nothing while a credit comes back", SPENT, "credited_output",
                   "self.excess)) + sends)", "self.excess)) + (sends & ~self.returned))"),
            broken("the packet beside the return of all credits costs nothing", SPENT, "credited_output",
                   "self.excess)) + sends)", "self.excess)) + (sends & ~self.restore))"),
            broken("not all credits come back", GOES, "credited_output", "Mux(self.restore, 0,",
                   "Mux(self.restore, spent >> 1,"),
            broken("a credit too many counts", GOES, "credited_output", "self.returned & (spent == 0)", "0"),
        ), build=_output, **few),
    ]
