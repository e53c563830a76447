"""Transaction-level reference of `t3sim.rtl.control.config_bus`: what each APB transfer does and what it reads.

The model holds only stored state: the fields that software wrote, and the first error. Status, counters and
the monitor's values are passed to `read` as they are in the cycle of the access.
"""

from typing import NamedTuple

from t3sim.rtl.formats import NUMBERS, PLAIN_SUMS
from t3sim.rtl.geometry import Geometry
from t3sim.rtl.registers import ERRORS, FAULTS, register_map


class ErrorReport(NamedTuple):
    """One error: the code and the fields of `t3sim.rtl.layouts.error`."""

    code: int
    address: int
    region: int
    wf: int
    wg: int


class FaultReport(NamedTuple):
    """Flipped bits in the Tracker, as in `t3sim.rtl.layouts.fault_report`."""

    uncorrectable: int
    in_entry: int
    way: int
    set: int


class ConfigBusModel:
    """Transfers and error reports in, stored fields out."""

    def __init__(self, geometry: Geometry):
        self._map = register_map(geometry)
        wide = geometry.channel.wide_sums
        self._sums = {NUMBERS[one.name] for one in (*PLAIN_SUMS, *wide)} if wide else set()
        self._registers = {offset: (register, owner) for offset, register, owner in self._map.all_registers()}
        self.reset()

    def reset(self) -> None:
        self.fields = {(owner, f.name): f.reset for register, owner in self._registers.values()
                       if register.access == "rw" for f in register.fields}
        self.first_error = self.first_fault = None
        self.overflow = False  #: an error was reported besides the first

    def value(self, name: str, owner: tuple[str, int] | None = None) -> int:
        """Return a stored field, of a table's entry if given; the halves of a 64-bit one are `name_lo`, `name_hi`."""
        return self.fields[owner, name]

    def entry(self, table: str, index: int) -> dict:
        """Return a table's entry under the field names of its layout in `t3sim.rtl.layouts`."""
        fields = {f.name: self.fields[(table, index), f.name] for register in self._map.table(table).registers
                  for f in register.fields}
        for name in [name.removesuffix("_lo") for name in fields if name.endswith("_lo")]:
            fields[name] = fields.pop(f"{name}_lo") | fields.pop(f"{name}_hi") << 32
        return fields

    def write(self, offset: int, value: int) -> tuple[bool, set]:
        """Write a register; return (pslverr, names of the pulses that this write gives)."""
        if offset not in self._registers or self._registers[offset][0].access == "ro":
            return True, set()
        register, owner = self._registers[offset]
        if register.access == "w1":
            pulses = {f.name for f in register.fields if f.decode(value)}
            if "soft_reset" in pulses and (None, "doorbell") in self.fields:
                self.fields[None, "doorbell"] = 0
            if "clear_error" in pulses:
                self.first_error = self.first_fault = None
                self.overflow = False
            return False, pulses
        if register.name == "REGION_ACTIONS" and self._sums and register.field("sum").decode(value) not in self._sums:
            self.report([ErrorReport(ERRORS["sum_unknown"], 0, owner[1], 0, 0)])
            return True, set()
        for f in register.fields:
            self.fields[owner, f.name] = f.decode(value)
        return False, {"rung"} if register.name == "DOORBELL" else set()

    def read(self, offset: int, live: dict | None = None) -> tuple[bool, int]:
        """Return (pslverr, data); `live` has the values of the fields that other blocks supply."""
        if offset not in self._registers:
            return True, 0
        register, owner = self._registers[offset]
        error = self.first_error or ErrorReport(0, 0, 0, 0, 0)
        known = {"error": self.first_error is not None, "error_overflow": self.overflow, "error_code": error.code,
                 "error_wf": error.wf, "error_region": error.region, "error_wg": error.wg,
                 "error_address_lo": error.address & 0xFFFFFFFF, "error_address_hi": error.address >> 32,
                 **(live or {})}
        if self.first_fault:
            fault = self.first_fault
            known |= {"fault_set": fault.set, "fault_way": fault.way, "fault_in_entry": fault.in_entry,
                      "fault_kind": FAULTS["uncorrectable" if fault.uncorrectable else "corrected"]}
        word = 0
        if register.access != "w1":
            for f in register.fields:
                word |= f.encode(int(known.get(f.name, self.fields.get((owner, f.name), f.reset))))
        return False, word

    def report(self, reports: list) -> None:
        """Take the errors of one cycle, one `ErrorReport` or None per reporter."""
        for report in filter(None, reports):
            self.overflow |= self.first_error is not None
            self.first_error = self.first_error or report

    def report_faults(self, reports: list) -> None:
        """Take the flipped bits found in one cycle, one `FaultReport` or None per bank.

        Of those that cannot be corrected the first is kept; of the others the first, until there is such a one.
        """
        for fault in filter(None, reports):
            if not self.first_fault or fault.uncorrectable > self.first_fault.uncorrectable:
                self.first_fault = fault
