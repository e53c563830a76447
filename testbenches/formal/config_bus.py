"""The bus keeps what is written, shows what it must, refuses the rest, and latches the first error."""

from dataclasses import replace

from amaranth.hdl import Cat, Const, Mux, Signal, Value
from amaranth.lib import data

from t3sim.rtl.geometry import Geometry
from t3sim.rtl.registers import FAULTS, SPACE_BYTES, Register, register_map
from t3sim.testbenches.formal.broken import Broken
from t3sim.testbenches.formal.property import Property, Search
from t3sim.testbenches.formal.spec import Spec, implies
from t3sim.testbenches.geometries import GEOMETRIES

#: With tables of other lengths than powers of two, several routes of a region, a doorbell, and a protected Tracker.
_ODD = replace(GEOMETRIES["small"], tracker=replace(GEOMETRIES["small"].tracker, protection="secded"), dma=replace(
    GEOMETRIES["small"].dma, regions=4, block_shapes=3, buffers=3, routes=5, copies=3, queue_commands=4))

KEPT = "a register holds the last accepted write; a soft reset clears the doorbell"
READ = "a read returns the register's, or the blocks', value of that cycle"
ANSWERED = "a transfer has one wait state, a table write two, and an error if and only if it is refused"
PULSED = "a command is a pulse of one cycle, as is a write of the doorbell"
FIRST = "the first error since the last clearing is latched"
FAULT = "the first uncorrectable fault since the last clearing is shown or, without one, the first corrected one"


def _word(register: Register, values) -> Value:
    """Return the register's 32 bits; `values(name)` is a field's, or None if it is a constant."""
    bits = [Const(0, 1)] * 32
    for part in register.fields:
        if part.width:
            value = values(part.name)
            value = Const(part.reset, part.width) if value is None else Value.cast(value)
            bits[part.lsb:part.lsb + part.width] = [value[bit] for bit in range(part.width)]
    return Cat(bits)


def _halved(layout: data.View, name: str) -> Value:
    if name in layout.shape().members:
        return Value.cast(layout[name])
    whole = Value.cast(layout[name[:-3]])
    return whole[:32] if name.endswith("_lo") else whole[32:]


def registers(spec: Spec, geometry: Geometry) -> None:
    """Follow one arbitrary register that can be written, and all others. Nothing is assumed, not even APB's rules."""
    m, bus, table = spec.m, spec.design, register_map(geometry)
    storing = spec.inside("table_write")
    waiting = Signal()
    access = bus.psel & bus.penable & ~bus.pready & ~waiting
    writes, reads = access & bus.pwrite, access & ~bus.pwrite
    offset = spec.any_constant(len(bus.paddr))

    clears = spec.past(writes & (bus.paddr == table["CONTROL"].offset) & bus.pwdata[
        table["CONTROL"].field("clear_error").lsb])
    first, overflow = Signal(bus.reports[0].shape()), Signal()
    reported = sum(report.valid for report in bus.reports)
    with m.If(clears):
        m.d.sync += Value.cast(first).eq(0)
    with m.If((reported != 0) & (~first.valid | clears)):
        for report in reversed(bus.reports):
            with m.If(report.valid):
                m.d.sync += first.eq(report)
    m.d.sync += overflow.eq(Mux(clears, reported > 1, overflow | (reported > 1) | ((reported != 0) & first.valid)))
    spec.claim(FIRST, bus.error == first.valid)
    corrected, lost = (Signal(bus.faults[0].shape(), name=name) for name in ("corrected", "lost"))
    for kept, grave in ((corrected, 0), (lost, 1)):
        with m.If(clears):
            m.d.sync += Value.cast(kept).eq(0)
        with m.If(~kept.valid | clears):
            for fault in reversed(bus.faults):
                with m.If(fault.valid & (fault.uncorrectable == grave)):
                    m.d.sync += kept.eq(fault)
    shown_fault = Signal(corrected.shape())
    m.d.comb += shown_fault.eq(Mux(lost.valid, lost, corrected))

    def live(name: str):
        """Return a field that cannot be written, and is no constant."""
        if name in ("error", "error_overflow"):
            return first.valid | (reported != 0) if name == "error" else overflow
        if name in bus.status.shape().members:
            return bus.status[name]
        if name.startswith("waits_"):
            return bus.waited[name.removeprefix("waits_")]
        if (counted := name.removeprefix("count_")) in bus.counters.shape().members:
            return bus.counters[counted]
        if name == "fault_kind":
            return Mux(lost.valid, FAULTS["uncorrectable"], Mux(corrected.valid, FAULTS["corrected"], FAULTS["none"]))
        if name.startswith("fault_"):
            return shown_fault[name.removeprefix("fault_")]
        if name.startswith("error_"):
            part = name.removeprefix("error_")
            return first.code if part == "code" else _halved(first.details, part)
        return getattr(bus, name, None)

    refused, shown, written, reset, mask, fixed = (Signal(32, name=name) for name in (
        "refused", "shown", "written", "reset", "mask", "fixed"))
    lawful, ever, is_read_only, late, pending, in_a_table = (Signal() for _ in range(6))
    with m.Switch(bus.paddr):
        for at, register, owner in table.all_registers():
            with m.Case(at):
                m.d.comb += [in_a_table.eq(owner is not None), refused.eq(bus.pwrite & (register.access == "ro"))]
                if register.access == "ro":
                    m.d.comb += [fixed.eq(_word(register, live)), is_read_only.eq(1)]
        with m.Default():
            m.d.comb += refused.eq(1)
    with m.Switch(offset):
        for at, register, owner in table.all_registers():
            if register.access == "rw":
                def values(name: str, owner=owner):
                    return bus.levels[name] if owner is None else _halved(getattr(bus, owner[0])[owner[1]], name)
                with m.Case(at):
                    m.d.comb += [shown.eq(_word(register, values)), reset.eq(register.reset), lawful.eq(1),
                                 mask.eq(sum(part.encode(part.mask) for part in register.fields))]
                    if owner is not None:
                        m.d.comb += [late.eq(1), pending.eq(storing.valid & (storing.space == at // SPACE_BYTES)
                                                            & (storing.word == at % SPACE_BYTES // 4))]
    with m.If(writes & (bus.paddr == offset) & ~refused[0]):
        m.d.sync += [written.eq(bus.pwdata & mask), ever.eq(1)]
    with m.Elif(bus.soft_reset & (offset == table["DOORBELL"].offset)):
        m.d.sync += [written.eq(0), ever.eq(1)]
    holds = Mux(ever, written, reset)
    before = Mux(spec.past(ever), spec.past(written), reset)
    m.d.sync += waiting.eq(writes & in_a_table & ~refused[0])
    spec.claim(KEPT, implies(lawful, shown == Mux(late & waiting, before, holds)))
    spec.invariant(storing.valid == waiting)
    spec.invariant(implies(waiting, ~bus.pready & ~bus.pslverr))
    spec.invariant(implies(lawful & late & waiting, holds == Mux(pending, storing.data & mask, before)))
    spec.claim(READ, implies(spec.past(reads & lawful & (bus.paddr == offset)), bus.prdata == spec.past(holds)))
    of_faults = bus.paddr == table["TRACKER_FAULT"].offset
    spec.claim(READ, implies(spec.past(reads & is_read_only & ~of_faults), bus.prdata == spec.past(fixed)))
    spec.claim(FAULT, implies(spec.past(reads & of_faults), bus.prdata == spec.past(fixed)))
    spec.claim(ANSWERED, bus.pready == spec.past(waiting | (access & ~(bus.pwrite & in_a_table & ~refused[0]))))
    spec.claim(ANSWERED, implies(bus.pready, bus.pslverr == spec.past(~waiting & refused[0])))
    spec.claim(PULSED, bus.rung == spec.past(writes & (bus.paddr == table["DOORBELL"].offset)))
    for part in (part for part in table["CONTROL"].fields if part.width):
        commanded = writes & (bus.paddr == table["CONTROL"].offset) & bus.pwdata[part.lsb]
        spec.claim(PULSED, getattr(bus, part.name) == spec.past(commanded))

    latched = spec.inside("error")
    spec.invariant(Value.cast(latched) == Value.cast(first))
    spec.invariant(spec.inside("overflow") == overflow)
    spec.invariant(Value.cast(spec.inside("fault")) == Value.cast(shown_fault))
    spec.invariant(implies(corrected.valid, ~corrected.uncorrectable) & implies(lost.valid, lost.uncorrectable))
    spec.invariant(implies(~corrected.valid, Value.cast(corrected) == 0) & implies(~lost.valid, Value.cast(lost) == 0))
    spec.invariant(bus.clear_error == clears)


def properties() -> list[Property]:
    def broken(what, claim, old, new):
        return Broken(what, claim, "control/config_bus.py", old, new)

    return [Property("registers", "config_bus", f"{KEPT}; {READ}; {ANSWERED}; {FIRST}; {FAULT}", registers, (
        broken("a write that is refused is kept", KEPT,
               "self.pready.eq(access | table_write.valid), table_write.valid.eq(0)",
               "self.pready.eq(access | table_write.valid), table_write.valid.eq(access & self.pwrite)"),
        broken("a write goes to all tables", KEPT,
               "table_write.valid & (table_write.space == table.base // SPACE_BYTES)", "table_write.valid"),
        broken("a table is written after its answer", ANSWERED,
               "self.pready.eq(~self.pwrite)", "self.pready.eq(1)"),
        broken("an entry reads as the one before it", READ, "held.eq(Array(words)[index])",
               "held.eq(Array(words)[index - 1])"),
        broken("a table goes on after its last entry", ANSWERED, "known.eq(index < table.entries)", "known.eq(1)"),
        broken("unaligned addresses are taken", ANSWERED, "aligned = self.paddr[:2] == 0", "aligned = 1"),
        broken("a command lasts", PULSED, "*(pulse.eq(0) for pulse in (*pulses.values(), *rings.values()))", ""),
        broken("the doorbell does not ring", PULSED, "rings[register.name].eq(1)", "rings[register.name].eq(0)"),
        broken("a soft reset leaves the doorbell", KEPT, "with m.If(self.soft_reset):", "with m.If(0):"),
        broken("the last error, not the first", FIRST,
               "with m.If(found & (~latched.valid | clear | replaces)):",
               "with m.If(found & (~latched.valid | replaces)):"),
        broken("an uncorrectable fault does not replace a corrected one", FAULT,
               "replaces = grave(chosen) & ~grave(latched)", "replaces = 0"),
        broken("a corrected fault hides an uncorrectable one of its cycle", FAULT,
               "[*((report.valid & grave(report), index) for index, report in enumerate(reports)), *candidates]",
               "candidates"),
        broken("the last uncorrectable fault, not the first", FAULT, "grave(chosen) & ~grave(latched)",
               "grave(chosen)"),
        broken("a fault stays after its clearing", FAULT,
               "self._first(m, self.faults, self.clear_error,", "self._first(m, self.faults, 0,"),
    ), depth=1, geometry=_ODD, searches=(Search(_ODD, 8),), quick=True,
        reason="short tables, few reporters of errors and of faults; more of them are alike")]
