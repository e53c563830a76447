"""APB slave: configuration out, status and the first error in."""

from amaranth.hdl import Array, C, Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from t3sim.rtl.control.watchdog import waits_layout
from t3sim.rtl.formats import NUMBERS, PLAIN_SUMS
from t3sim.rtl.geometry import Geometry, GeometryError
from t3sim.rtl.layouts import ErrorCode, error_report, fault_report, mapping_tables
from t3sim.rtl.registers import FAULTS, SPACE_BYTES, STATUS_BITS, WAITS, counters, register_map


def config_layout(geometry: Geometry) -> data.StructLayout:
    """Lay out every writable field outside the tables, by its name in the register map."""
    return data.StructLayout({field.name: field.width for register in register_map(geometry).fixed
                              if register.access == "rw" for field in register.fields})


def status_layout() -> data.StructLayout:
    return data.StructLayout({name: 1 for name, _ in STATUS_BITS})


def counters_layout(geometry: Geometry) -> data.StructLayout:
    return data.StructLayout({name: 32 for name, _ in counters(geometry)})


def _lowest(candidates):
    """Return (any, index) of the lowest valid one, as a tree; `candidates` are (valid, index) pairs in order."""
    if len(candidates) == 1:
        return candidates[0]
    middle = len(candidates) // 2
    (low, low_index), (high, high_index) = _lowest(candidates[:middle]), _lowest(candidates[middle:])
    return low | high, Mux(low, low_index, high_index)


def _several(bits):
    """Return (any, more than one) of `bits`, as a tree."""
    if len(bits) == 1:
        return bits[0], C(0, 1)
    (low, lows), (high, highs) = _several(bits[:len(bits) // 2]), _several(bits[len(bits) // 2:])
    return low | high, lows | highs | (low & high)


class ConfigBus(wiring.Component):
    """Registers of one GPU at an APB3 slave (T3 paper, section 4.4: `remote_map` and `dma_map`).

    The map is `t3sim.rtl.registers.register_map`.

    1. A transfer has one wait state, a write to a table two. A write takes effect in the cycle in which `pready` is
       high. Every output is a register.
    2. `pslverr` answers an unmapped or misaligned address and a write to a read-only register; nothing changes. It also
       answers a region with a sum that memory lacks, which is an error too.
    3. The first error stays latched until CONTROL.clear_error; the lowest index wins within a cycle.
       STATUS.error_overflow shows another error, in the same cycle or later. An error in the cycle of the clearing is
       latched.
    4. STATUS.error shows an error a cycle before `error` does.

    Parameters
    ----------
    reporters : int
        Blocks that report errors, at least 1.

    Members
    -------
    paddr, psel, penable, pwrite, pwdata : In
        `paddr` has `register_map(geometry).address_bits` bits, data 32.
    levels : Out(config_layout(geometry))
        Writable fields outside the tables.
    soft_reset, restart, clear_error, clear_counters : Out(1)
        Pulses.
    error : Out(1)
        Level: an error is latched.
    sum_refused : Out(1)
        Only with wide sums. Pulse, in the next cycle: a region with an unknown sum was refused, the bus's own error.
    faults : In(fault_report(geometry)).array(banks)
        Only with a protected Tracker. The first fault is latched like the first error, but an uncorrectable one
        replaces a corrected one, also in the same cycle.
    rung, resume_queue, skip_command : Out(1), queue_taken : In
        Only with a command queue. `rung` is a pulse: `levels.doorbell` was written. A soft reset clears that level.
    counters : In(counters_layout(geometry))
        32-bit values.
    """

    def __init__(self, geometry: Geometry, *, reporters: int = 1):
        if type(reporters) is not int or reporters < 1:
            raise GeometryError(f"reporters={reporters!r} is impossible: at least 1 is needed")
        self._geometry = geometry
        self._map = register_map(geometry)
        queue = {} if not geometry.dma.queue_commands else {
            "rung": Out(1), "resume_queue": Out(1), "skip_command": Out(1),
            "queue_taken": In(geometry.dma.queue_commands.bit_length())}
        sums = {"sum_refused": Out(1)} if geometry.channel.wide_sums else {}
        faults = {} if geometry.tracker.protection == "none" else {
            "faults": In(fault_report(geometry)).array(geometry.tracker.banks)}
        super().__init__({
            "paddr": In(self._map.address_bits),
            "psel": In(1),
            "penable": In(1),
            "pwrite": In(1),
            "pwdata": In(32),
            "prdata": Out(32),
            "pready": Out(1),
            "pslverr": Out(1),
            "levels": Out(config_layout(geometry)),
            "soft_reset": Out(1),
            "restart": Out(1),
            "clear_error": Out(1),
            "clear_counters": Out(1),
            **{name: Out(layout).array(entries) for name, (layout, entries) in mapping_tables(geometry).items()},
            "error": Out(1),
            "reports": In(error_report(geometry)).array(reporters),
            **faults,
            **sums,
            **queue,
            "status": In(status_layout()),
            "waited": In(waits_layout()),
            "counters": In(counters_layout(geometry)),
            "chosen_threshold": In(7),
            "monitor_mean": In(16),
        })

    def elaborate(self, platform):
        m = Module()
        registers = self._map
        levels = self._config_registers(m)
        refuses = Signal()
        unknown, own = self._sum_unknown(m, refuses)
        reports = [*self.reports, *own]
        if own:
            m.d.sync += self.sum_refused.eq(refuses)
        error = self._first(m, reports, self.clear_error)
        overflow = self._overflow(m, error, self.clear_error, reports)
        fault = None
        if self._geometry.tracker.protection != "none":
            fault = self._first(m, self.faults, self.clear_error, lambda report: report.uncorrectable)
        live = self._read_only(error, fault) | {
            "error": error.valid | Cat(report.valid for report in reports).any(), "error_overflow": overflow}
        pulses = {"soft_reset": self.soft_reset, "restart": self.restart, "clear_counters": self.clear_counters,
                  "clear_error": self.clear_error}
        rings = {}
        if self._geometry.dma.queue_commands:
            pulses |= {"resume_queue": self.resume_queue, "skip_command": self.skip_command}
            rings["DOORBELL"] = self.rung

        # The fixed registers have one address space, and each table has one.
        space_bits = (SPACE_BYTES - 1).bit_length()
        aligned = self.paddr[:2] == 0
        space = self.paddr[space_bits:]
        # Tables are written a cycle later from a register, because driving them all from the bus takes most of a cycle.
        table_write = Signal(data.StructLayout({"valid": 1, "space": len(space), "word": space_bits - 2, "data": 32}))

        access = self.psel & self.penable & ~self.pready & ~table_write.valid
        m.d.sync += [self.pready.eq(access | table_write.valid), table_write.valid.eq(0),
                     *(pulse.eq(0) for pulse in (*pulses.values(), *rings.values()))]
        if rings:
            with m.If(self.soft_reset):
                m.d.sync += levels["doorbell"].eq(0)
        with m.If(access):
            m.d.sync += [self.prdata.eq(0), self.pslverr.eq(1), table_write.space.eq(space),
                         table_write.word.eq(self.paddr[2:space_bits]), table_write.data.eq(self.pwdata)]
            with m.If(aligned & (space == 0)):
                with m.Switch(self.paddr[2:space_bits]):
                    for register in registers.fixed:
                        with m.Case(register.offset >> 2):
                            m.d.sync += self.pslverr.eq(self.pwrite & (register.access == "ro"))
                            if register.access == "w1":
                                m.d.sync += [pulses[f.name].eq(self.pwrite & self.pwdata[f.lsb])
                                             for f in register.fields if f.width]
                            elif register.access == "rw":
                                m.d.sync += self.prdata.eq(self._word(register, levels))
                                with m.If(self.pwrite):
                                    m.d.sync += [levels[f.name].eq(self.pwdata[f.lsb:]) for f in register.fields]
                                    if register.name in rings:
                                        m.d.sync += rings[register.name].eq(1)
                            else:
                                m.d.sync += self.prdata.eq(self._word(register, live))
            for table in registers.tables:
                inside, word = self._decoded(m, table, self.paddr[2:space_bits])
                with m.If(aligned & (space == table.base // SPACE_BYTES) & inside):
                    m.d.sync += [
                        self.prdata.eq(word),
                        self.pslverr.eq(0),
                        self.pready.eq(~self.pwrite),
                        table_write.valid.eq(self.pwrite),
                    ]
                    if table.name == "region" and own:
                        with m.If(unknown):
                            m.d.sync += [self.pslverr.eq(1), self.pready.eq(1), table_write.valid.eq(0)]
                            m.d.comb += refuses.eq(access)
        for table in registers.tables:
            word_bits = (table.stride >> 2).bit_length() - 1
            for index, entry in enumerate(getattr(self, table.name)):
                with m.If(table_write.valid & (table_write.space == table.base // SPACE_BYTES)
                          & (table_write.word[word_bits:] == index)):
                    with m.Switch(table_write.word[:word_bits]):
                        for register in table.registers:
                            with m.Case(register.offset >> 2):
                                fields = self._entry_fields(entry)
                                m.d.sync += [fields[f.name].eq(table_write.data[f.lsb:])
                                             for f in register.fields if f.width]

        m.d.comb += self.error.eq(error.valid)
        return m

    @staticmethod
    def _first(m, reports, clear, grave=None):
        """Latch the first report since the clearing; a `grave` one replaces one that is not."""
        latched = Signal(reports[0].shape())
        chosen = Signal(reports[0].shape())
        candidates = [(report.valid, index) for index, report in enumerate(reports)]
        replaces = 0
        if grave is not None:
            candidates = [*((report.valid & grave(report), index) for index, report in enumerate(reports)), *candidates]
            replaces = grave(chosen) & ~grave(latched)
        found, winner = _lowest(candidates)
        m.d.comb += chosen.eq(Array(report.as_value() for report in reports)[winner])
        with m.If(clear):
            m.d.sync += latched.eq(0)
        with m.If(found & (~latched.valid | clear | replaces)):
            m.d.sync += latched.eq(chosen)
        return latched

    def _sum_unknown(self, m, refuses):
        """Return whether a region with an unknown sum is written, and its error report if the geometry has one.

        `refuses`: the write is done in this cycle.
        """
        wide = self._geometry.channel.wide_sums
        if not wide:
            return None, []
        actions, table = self._map["REGION_ACTIONS"], self._map.table("region")
        field, word_bits = actions.field("sum"), (table.stride >> 2).bit_length() - 1
        asked = self.pwdata[field.lsb:field.lsb + field.width]
        known = Cat(asked == NUMBERS[one.name] for one in (*PLAIN_SUMS, *wide)).any()
        report = Signal(error_report(self._geometry), name="sum_report")
        # `valid` is not set where it is decoded: if parts of a signal were conditional, its constant parts would become
        # an `always @*` without inputs, which a Verilog simulator need never run.
        m.d.comb += [report.valid.eq(refuses), report.code.eq(ErrorCode.SUM_UNKNOWN),
                     report.details.region.eq(self.paddr[2 + word_bits:])]
        return self.pwrite & (self.paddr[2:2 + word_bits] == actions.offset >> 2) & ~known, [report]

    def _overflow(self, m, error, clear, reports):
        overflow = Signal()
        reported, several = _several([report.valid for report in reports])
        with m.If(clear):
            m.d.sync += overflow.eq(several)
        with m.Elif(several | (error.valid & reported)):
            m.d.sync += overflow.eq(1)
        return overflow

    def _config_registers(self, m):
        levels = {}
        for register in self._map.fixed:
            if register.access == "rw":
                for f in register.fields:
                    levels[f.name] = Signal(f.width, name=f.name, init=f.reset)
                    m.d.comb += self.levels[f.name].eq(levels[f.name])
        return levels

    def _read_only(self, latched, fault):
        values = {name: self.status[name] for name, _ in STATUS_BITS}
        values |= {f"waits_{name}": self.waited[name] for name, _ in WAITS}
        values |= {f"count_{name}": self.counters[name] for name, _ in counters(self._geometry)}
        if fault is not None:
            kind = Mux(fault.uncorrectable, FAULTS["uncorrectable"], FAULTS["corrected"])
            values |= {"fault_set": fault.set, "fault_in_entry": fault.in_entry, "fault_way": fault.way,
                       "fault_kind": Mux(fault.valid, kind, FAULTS["none"])}
        if self._geometry.dma.queue_commands:
            values["queue_taken"] = self.queue_taken
        return values | {
            "error_code": latched.code.as_value(),
            "error_wf": latched.details.wf,
            "error_region": latched.details.region,
            "error_wg": latched.details.wg,
            "error_address_lo": latched.details.address[:32],
            "error_address_hi": latched.details.address[32:],
            "chosen_threshold": self.chosen_threshold,
            "monitor_mean": self.monitor_mean,
        }

    @staticmethod
    def _entry_fields(entry):
        """Return the slices of a table's entry by register field name."""
        fields = {}
        for name, _ in entry.shape():
            value = getattr(entry, name)
            fields |= {name: value, f"{name}_lo": value[:32], f"{name}_hi": value[32:]}
        return fields

    @staticmethod
    def _word(register, values):
        """Return the register's 32 bits; a field without a value reads as its reset value."""
        word, position = [], 0
        for f in register.fields:
            if f.width:
                word += [C(0, f.lsb - position)] if f.lsb > position else []
                word.append(values[f.name] if f.name in values else C(f.reset, f.width))
                position = f.lsb + f.width
        return Cat(word)

    def _decoded(self, m, table, word):
        """Return whether a table has this word, and its value: first selected per register, then among registers."""
        word_bits = (table.stride >> 2).bit_length() - 1
        index = word[word_bits:]
        entries = getattr(self, table.name)
        known, held = Signal(name=f"known_{table.name}"), Signal(32, name=f"held_{table.name}")
        with m.Switch(word[:word_bits]):
            for register in table.registers:
                words = [self._word(register, self._entry_fields(entry)) for entry in entries]
                with m.Case(register.offset >> 2):
                    m.d.comb += [known.eq(index < table.entries), held.eq(Array(words)[index])]
        return known, held
