"""APB slave of a switch: settings out, status and the first error in."""

from amaranth.hdl import C, Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from t3sim.rtl.control.apb import apb_signature
from t3sim.rtl.geometry import Geometry
from t3sim.rtl.order import follows
from t3sim.rtl.registers import EPOCH_BITS, SWITCH_COUNTERS, SWITCH_TIMEOUT_BITS, switch_registers
from t3sim.rtl.switch.packets import SwitchError, switch_error


class SwitchBus(wiring.Component):
    """Registers of a switch at an APB3 slave; the map is `t3sim.rtl.registers.switch_registers`.

    1. A transfer has one wait state. A write takes effect in the cycle in which `pready` is high. Every output is a
       register.
    2. `pslverr` answers an unmapped or misaligned address and a write to a read-only register; nothing changes. It also
       answers an illegal setting, which is an error too.
    3. The first error stays latched until CONTROL.clear_error. STATUS.error_overflow shows another error, in the same
       cycle or later. An error in the cycle of the clearing is latched.

    Members
    -------
    flush, clear_counters : Out(1)
        Pulses: EPOCH was written; clear all counters.
    restore : Out(ports)
        Pulses: a port gets all credits back.
    error : Out(1)
        Level: an error is latched.
    report : In(switch_error), several : In(1)
        An error in this cycle, if its code is one; and there is another.
    """

    def __init__(self, geometry: Geometry) -> None:
        self._geometry = geometry
        super().__init__({
            "apb": In(apb_signature(switch_registers(geometry).address_bits)),
            "whole": Out(geometry.switch.part_bits, init=1),
            "timeout": Out(SWITCH_TIMEOUT_BITS, init=(1 << SWITCH_TIMEOUT_BITS) - 1),
            "epoch": Out(EPOCH_BITS),
            "flush": Out(1),
            "clear_counters": Out(1),
            "restore": Out(geometry.switch.ports),
            "error": Out(1),
            "report": In(switch_error(geometry)),
            "several": In(1),
            "busy": In(1),
            "starved": In(geometry.switch.ports),
            "counters": In(32).array(len(SWITCH_COUNTERS)),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        apb, registers = self.apb, switch_registers(self._geometry)
        access = Signal()
        clears = Signal()
        refuses = Signal()  # a setting
        first = Signal(switch_error(self._geometry))
        overflow = Signal()
        m.d.comb += [access.eq(apb.psel & apb.penable & ~apb.pready), self.error.eq(first.code != SwitchError.NONE)]

        # Values to read, and legality of a written value.
        words = range(0, len(self.starved), 32)
        values = {"busy": self.busy, "starved": self.starved.any(), "error": self.error, "error_overflow": overflow,
                  "error_code": first.code.as_value(), "error_epoch": first.epoch, "error_port": first.port,
                  "error_source": first.source, "error_address_lo": first.address[:32],
                  "error_address_hi": first.address[32:],
                  **{name: getattr(self, name) for name in ("epoch", "whole", "timeout")},
                  **{f"starved{first // 32}": self.starved[first:first + 32] for first in words},
                  **{f"count_{name}": self.counters[number] for number, (name, _) in enumerate(SWITCH_COUNTERS)}}
        given = apb.pwdata
        possible = {
            "EPOCH": (given != 0) & (given >> EPOCH_BITS == 0) & (
                (given[:EPOCH_BITS] == self.epoch) | follows(given[:EPOCH_BITS], self.epoch)),
            "WHOLE": (given != 0) & (given <= self._geometry.most_parts) & ~self.busy,
            "TIMEOUT": (given != 0) & (given >> SWITCH_TIMEOUT_BITS == 0)}
        pulses = {"clear_error": clears, "clear_counters": self.clear_counters} | {
            f"restore{first // 32}": self.restore[first:first + 32] for first in words}

        # A transfer; undecoded addresses are refused.
        m.d.sync += [apb.pready.eq(access), self.flush.eq(0), *(pulse.eq(0) for pulse in pulses.values())]
        with m.If(access):
            m.d.sync += [apb.prdata.eq(0), apb.pslverr.eq(1)]
            with m.Switch(apb.paddr):
                for register in registers.fixed:
                    with m.Case(register.offset):
                        word = Cat(*(Cat(C(0, field.lsb - end), values.get(field.name, C(field.reset, field.width)))
                                     for end, field in zip([0, *(one.lsb + one.width for one in register.fields)],
                                                           register.fields)))
                        if register.access == "w1":
                            m.d.sync += [apb.pslverr.eq(0), *(pulses[field.name].eq(
                                Mux(apb.pwrite, given[field.lsb:field.lsb + field.width], 0))
                                for field in register.fields)]
                        elif register.access == "ro":
                            m.d.sync += [apb.pslverr.eq(apb.pwrite), apb.prdata.eq(word)]
                        else:
                            m.d.comb += refuses.eq(access & apb.pwrite & ~possible[register.name])
                            m.d.sync += [apb.pslverr.eq(refuses), apb.prdata.eq(word)]
                            with m.If(apb.pwrite & possible[register.name]):
                                m.d.sync += values[register.fields[0].name].eq(given)
                                if register.name == "EPOCH":
                                    m.d.sync += self.flush.eq(1)

        # The first error.
        reported = Signal()
        m.d.comb += reported.eq(self.report.code != SwitchError.NONE)
        with m.If(clears):
            m.d.sync += [first.eq(0), overflow.eq(0)]
        with m.If(reported | refuses):
            with m.If(~self.error | clears):
                m.d.sync += overflow.eq(self.several | (reported & refuses))
                with m.If(reported):
                    m.d.sync += first.eq(self.report)
                with m.Else():
                    m.d.sync += [first.code.eq(SwitchError.SETTING), first.port.eq(0), first.source.eq(0),
                                 first.epoch.eq(0), first.address.eq(apb.paddr)]
            with m.Else():
                m.d.sync += overflow.eq(1)
        return m
