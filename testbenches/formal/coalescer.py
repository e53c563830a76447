"""The coalescer adds up and delays, and loses no byte."""

from amaranth.hdl import Cat, Mux, Signal

from t3sim.rtl.geometry import Geometry
from t3sim.testbenches.formal.broken import Broken
from t3sim.testbenches.formal.property import Property, Search
from t3sim.testbenches.formal.spec import Spec, implies

PAID = "bytes that leave for a tile arrived for it"
EMPTY = "no bytes are held when the block is idle"
SOON = "an update is held no longer than the timeout"


def bytes_kept(spec: Spec, geometry: Geometry) -> None:
    """Count the bytes of one arbitrary tile and region that came in and have not left. Nothing is assumed."""
    m, dut, t = spec.m, spec.design, geometry.tracker
    wg, wf = spec.any_constant(t.wg_bits), spec.any_constant(t.wf_bits)
    region = spec.any_constant(geometry.dma.region_bits)

    def mine(item):
        return (item.wg == wg) & (item.wf == wf) & (item.region == region)

    def amount(port, moves):
        return Mux(moves & mine(port.payload), port.payload.amount, 0)

    kept = Signal(geometry.channel.amount_bits + 2)
    took, gave = dut.accesses.valid & dut.accesses.ready, dut.updates.valid & dut.updates.ready
    m.d.sync += kept.eq(kept + amount(dut.accesses, took) - amount(dut.updates, gave))
    spec.claim(PAID, amount(dut.updates, dut.updates.valid) <= kept)
    spec.claim(EMPTY, implies(~dut.busy, kept == 0))
    timeout = geometry.channel.coalescer_timeout_cycles
    quiet = Signal(range(timeout + 2))  # cycles without an access, in which every update that was offered was taken
    with m.If(took | (dut.updates.valid & ~dut.updates.ready)):
        m.d.sync += quiet.eq(0)
    with m.Elif(quiet != timeout + 1):
        m.d.sync += quiet.eq(quiet + 1)
    spec.claim(SOON, implies(quiet == timeout + 1, ~dut.busy))

    queue, held, held_valid = spec.inside("queue"), spec.inside("held"), spec.inside("held_valid")
    front, back = spec.inside("front", queue), spec.inside("back", queue)
    front_valid, back_valid = spec.inside("front_valid", queue), spec.inside("back_valid", queue)
    spec.invariant(implies(back_valid, front_valid))
    spec.invariant(kept == sum(Mux(valid & mine(item), item.amount, 0) for valid, item in (
        (held_valid, held), (front_valid, front), (back_valid, back))))
    waited = spec.inside("waited")
    spec.invariant(quiet <= timeout + 1)
    spec.invariant(waited <= timeout - 1)
    spec.invariant(implies(quiet != 0, ~back_valid))
    spec.invariant(implies(held_valid, waited >= Mux(quiet < timeout, quiet, timeout - 1)))
    spec.invariant(implies(quiet >= timeout + 1, ~Cat(held_valid, front_valid, back_valid).any()))
    spec.invariant(implies(quiet >= timeout, ~held_valid))


def properties() -> list[Property]:
    def broken(what, claim, old, new):
        return Broken(what, claim, "channel/coalescer.py", old, new)

    return [Property("bytes", "coalescer", "no bytes are lost, invented or held longer than the timeout", bytes_kept, (
        broken("another tile's bytes are added", PAID,
               "Cat(item.wg, item.wf, item.region)", "Cat(item.wg, item.region)"),
        broken("the sum overflows", EMPTY, "(key(held) == key(access)) & ~total[-1]", "(key(held) == key(access))"),
        broken("the held update never expires", SOON, "held_valid & ~joins & (accept | expired)",
               "held_valid & ~joins & accept"),
    ), quick=True, searches=(Search("small"), Search("default", 26)))]
