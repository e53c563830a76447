"""The `[dram]` section of a machine file: an HBM channel's organisation, timing and controller.

Every timing is a whole number of memory clock cycles, counted from command issue to command issue. The names are
JEDEC's with the suffix `_cycles`. Where a distance follows from others (read to write, write to precharge, ...) it is
a property here and nowhere else.

HBM3 halves each channel into two pseudo channels with a data bus and banks of their own: each of those is a channel
here.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from t3sim.base.line import LINE_BYTES
from t3sim.machine.section import Section, within

Cycles = Annotated[int, within(0, 1024)]  #: one distance between commands: ten times HBM2's longest at 10 GHz
#: "bank_group_high" is the bank group's most significant bit, where that lies apart from the others.
AddressField = Literal["row", "bank", "bank_group_high", "bank_group", "column", "column_high", "column_low"]


def is_power_of_two(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0


class Dram(Section):
    """One machine's DRAM channels.

    The defaults are the 1 GHz timings of the public V100 configuration of GPGPU-Sim (SM7_QV100), which the T3 paper
    cites for timings that its Table 1 omits, and `ccdwl_cycles` from that table. The configuration has no refresh
    (`trfc_cycles`, `trefi_cycles`), which comes from DRAMsim3's HBM2_8Gb_x128 file. It also has no activate window; 16
    cycles is JEDEC's 16 ns and adds nothing to 4 times tRRD, so the default behaves like that configuration.
    """

    # organisation
    channels: Annotated[int, within(1, 255)] = 32  #: per GPU; for HBM3, pseudo channels
    bank_groups: Annotated[int, within(1, 32)] = 4  #: of all stack IDs together
    #: JEDEC's SID: stacked dies, each with an equal share of the bank groups.
    stack_ids: Annotated[int, within(1, 4)] = 1
    banks_per_group: Annotated[int, within(1, 32)] = 4
    rows_per_bank: Annotated[int, within(1 << 10, 1 << 20)] = 16384  #: JEDEC: 2^13 to 2^16 in DRAMs of 8 to 32 Gbit
    row_bytes: Annotated[int, within(LINE_BYTES, 1 << 14)] = 2048  #: JEDEC: 1 to 8 KB
    column_bytes: Annotated[int, within(8, LINE_BYTES)] = 32  #: bytes of one column command
    burst_cycles: Annotated[int, within(1, 16)] = 1  #: data bus cycles of one column command
    # timing
    cl_cycles: Cycles = 14  #: read command to data
    cwl_cycles: Cycles = 2  #: write command to data
    trcdrd_cycles: Cycles = 14  #: activate to read
    trcdwr_cycles: Cycles = 11  #: activate to write: tRCD - (WL + 1), as GPGPU-Sim derives it
    trp_cycles: Cycles = 14  #: precharge to activate
    tras_cycles: Cycles = 33  #: activate to precharge
    trc_cycles: Cycles = 47  #: activate to activate, same bank
    tccd_s_cycles: Cycles = 1  #: column to column, other bank group
    tccd_l_cycles: Cycles = 2  #: column to column, same bank group
    tccd_r_cycles: Cycles = 1  #: read to read, other stack ID
    ccdwl_cycles: Cycles = 4  #: write to write, same bank group, after an op-and-store (T3, Table 1)
    ccdwl_applies_to: Literal["update", "write"] = "update"  #: "write": plain stores pay `ccdwl_cycles` as well
    trrd_s_cycles: Cycles = 4  #: activate to activate, other bank group
    trrd_l_cycles: Cycles = 4  #: activate to activate, same bank group
    tfaw_cycles: Cycles = 16  #: window with at most 4 activates
    twtr_s_cycles: Cycles = 3  #: end of write data to read, other bank group
    twtr_l_cycles: Cycles = 3  #: end of write data to read, same bank group
    twr_cycles: Cycles = 12  #: end of write data to precharge
    trtp_cycles: Cycles = 4  #: read to precharge
    trtrs_cycles: Cycles = 2  #: idle data bus cycles between read and write data
    #: "per_bank": one bank after the other, while the other banks serve requests.
    refresh: Literal["all_banks", "per_bank"] = "all_banks"
    trfc_cycles: Annotated[int, within(0, 1 << 13)] = 260  #: refresh to activate; with per_bank, of one bank (tRFCpb)
    trrefd_cycles: Cycles = 8  #: per_bank: refresh of a bank to refresh or activate of another bank
    #: Interval in which every bank is refreshed once; 0: no refresh.
    trefi_cycles: Annotated[int, within(0, 1 << 17)] = 3900
    refresh_stagger: bool = True  #: spread the channels' refreshes over the interval
    # address map, most significant field first
    address_fields: Annotated[tuple[AddressField, ...], Field(strict=False)] = (  # TOML has lists only
        "row", "bank", "column_high", "bank_group", "column_low")
    column_low_bits: Annotated[int, within(0, 16)] = 1  #: width of "column_low"
    bank_hash: bool = True  #: exclusive-or of row and column bits into bank group and bank
    # controller
    scheduler: Literal["fr_fcfs", "dramsim3", "gpgpusim"] = "fr_fcfs"
    queue_entries: Annotated[int, within(4, 127)] = 32  #: fr_fcfs, gpgpusim: lines in the unified queue
    entry_latency_cycles: Annotated[int, within(0, 128)] = 0  #: gpgpusim: latency from the arbiter to the queue
    write_high_watermark: Annotated[int, within(1, 127)] = 16  #: fr_fcfs: number of queued writes that starts a drain
    write_low_watermark: Annotated[int, within(0, 126)] = 4  #: fr_fcfs: number of queued writes that ends the drain
    #: Longest wait of a write before a drain (fr_fcfs).
    write_wait_limit_cycles: Annotated[int, within(0, 1 << 16)] = 256
    #: Requests to an open row before a conflicting request closes it.
    row_hit_limit: Annotated[int, within(1, 1 << 12)] = 32
    read_queue_entries: Annotated[int, within(1, 256)] = 32  #: dramsim3
    write_buffer_entries: Annotated[int, within(1, 256)] = 32  #: dramsim3
    command_queue_entries_per_bank: Annotated[int, within(1, 64)] = 8  #: dramsim3
    #: An idle controller drains above this number of writes (dramsim3).
    write_drain_minimum: Annotated[int, within(0, 256)] = 8

    @model_validator(mode="after")
    def _check(self) -> Dram:
        for name in ("bank_groups", "banks_per_group", "rows_per_bank", "row_bytes", "column_bytes"):
            if not is_power_of_two(getattr(self, name)):
                raise ValueError(f"{name} = {getattr(self, name)}: a power of two is needed")
        if self.banks > 32:
            raise ValueError(f"bank_groups x banks_per_group = {self.banks}: at most 32 banks are supported")
        if self.trc_cycles < self.tras_cycles + self.trp_cycles:
            raise ValueError(f"trc_cycles = {self.trc_cycles}: less than tras_cycles + trp_cycles = "
                             f"{self.tras_cycles + self.trp_cycles}")
        for short, long in (("tccd_s", "tccd_l"), ("trrd_s", "trrd_l"), ("twtr_s", "twtr_l")):
            if getattr(self, f"{long}_cycles") < getattr(self, f"{short}_cycles"):
                raise ValueError(f"{long}_cycles = {getattr(self, f'{long}_cycles')}: less than {short}_cycles = "
                                 f"{getattr(self, f'{short}_cycles')}")
        if self.ccdwl_cycles < self.tccd_l_cycles:
            raise ValueError(f"ccdwl_cycles = {self.ccdwl_cycles}: less than tccd_l_cycles = {self.tccd_l_cycles}")
        if self.cwl_cycles > self.cl_cycles + self.burst_cycles + self.trtrs_cycles:
            raise ValueError(f"cwl_cycles = {self.cwl_cycles}: more than cl + burst + trtrs, so write data would meet "
                             "read data on the bus")
        if self.bank_groups % self.stack_ids:
            raise ValueError(f"stack_ids = {self.stack_ids}: must divide bank_groups = {self.bank_groups}")
        if self.stack_ids > 1 and self.tccd_r_cycles < self.tccd_s_cycles:
            raise ValueError(f"tccd_r_cycles = {self.tccd_r_cycles}: less than tccd_s_cycles = {self.tccd_s_cycles}")
        if self.refresh == "per_bank":
            if self.trefi_cycles and self.refresh_interval_cycles <= self.trc_cycles + self.trrefd_cycles:
                raise ValueError(f"trefi_cycles = {self.trefi_cycles}: no time is left between refreshes of "
                                 f"{self.banks} banks, trc_cycles + trrefd_cycles = "
                                 f"{self.trc_cycles + self.trrefd_cycles} each")
            if self.trefi_cycles and self.trefi_cycles <= self.trfc_cycles + self.trc_cycles:
                raise ValueError(f"trefi_cycles = {self.trefi_cycles}: no time is left between refreshes of a bank, "
                                 f"trfc_cycles = {self.trfc_cycles}")
        elif self.trefi_cycles and self.trefi_cycles <= self.trfc_cycles + self.trc_cycles + self.banks:
            raise ValueError(f"trefi_cycles = {self.trefi_cycles}: no time is left between refreshes of "
                             f"trfc_cycles = {self.trfc_cycles}")
        if self.scheduler == "fr_fcfs":
            if self.write_high_watermark > self.queue_entries:
                raise ValueError(f"write_high_watermark = {self.write_high_watermark}: more than queue_entries = "
                                 f"{self.queue_entries}")
            if self.write_low_watermark >= self.write_high_watermark:
                raise ValueError(f"write_low_watermark = {self.write_low_watermark}: must be below "
                                 f"write_high_watermark = {self.write_high_watermark}")
        if self.scheduler != "gpgpusim" and self.entry_latency_cycles:
            raise ValueError(f"entry_latency_cycles = {self.entry_latency_cycles}: the {self.scheduler} scheduler has "
                             "none, 0 is allowed")
        if self.scheduler == "gpgpusim" and self.trefi_cycles:
            raise ValueError(f"trefi_cycles = {self.trefi_cycles}: the gpgpusim scheduler has no refresh, 0 is allowed")
        self._check_address_map()
        return self

    def _check_address_map(self) -> None:
        fields = self.address_fields
        if len(set(fields)) != len(fields):
            raise ValueError(f"address_fields = {list(fields)}: a field is named twice")
        if "bank_group_high" in fields and self.bank_groups == 1:
            raise ValueError(f"address_fields = {list(fields)}: one bank group has no bits")
        columns = {"column"} if "column" in fields else {"column_high", "column_low"}
        allowed = {"row", "bank", "bank_group"} | {"bank_group_high"} & set(fields) | columns
        if set(fields) != allowed:
            raise ValueError(f"address_fields = {list(fields)}: row, bank, bank_group and either column or both "
                             "column_high and column_low are needed")
        if fields[-1] not in ("column", "column_low") and self.columns_per_request > 1:
            raise ValueError(f"address_fields = {list(fields)}: a request spans {self.columns_per_request} columns, so "
                             "a column field must come last")
        if "column_low" in fields:
            request_bits = (self.columns_per_request - 1).bit_length()
            if not request_bits <= self.column_low_bits <= self.column_bits:
                raise ValueError(f"column_low_bits = {self.column_low_bits}: {request_bits} (one request) to "
                                 f"{self.column_bits} (one row of row_bytes = {self.row_bytes})")

    @property
    def banks(self) -> int:
        """Banks per channel."""
        return self.bank_groups * self.banks_per_group

    @property
    def refresh_interval_cycles(self) -> int:
        """Cycles from one refresh command to the next; 0 = none."""
        return self.trefi_cycles // self.banks if self.refresh == "per_bank" else self.trefi_cycles

    @property
    def refreshed(self) -> float:
        """Share of the time that a channel is not refreshed: all of it if only one bank refreshes at a time."""
        if self.refresh == "per_bank":
            return 1.0
        return 1 - self.trfc_cycles / self.trefi_cycles if self.trefi_cycles else 1.0

    @property
    def held_requests(self) -> int:
        """Requests that a channel holds: those of its queue and, of gpgpusim, on the way there and at each bank."""
        return self.queue_entries + (self.coming_requests + self.banks if self.scheduler == "gpgpusim" else 0)

    @property
    def coming_requests(self) -> int:
        """Requests on the way to the queue at most, one entering per `columns_per_request` cycles."""
        return self.entry_latency_cycles // self.columns_per_request + 1

    @property
    def by_column(self) -> Dram:
        """The channel under FR-FCFS with requests of one column each, as in DRAMsim3 and Ramulator."""
        return self.model_copy(update={"scheduler": "fr_fcfs", "column_bytes": LINE_BYTES,
                                       "row_bytes": self.row_bytes * LINE_BYTES // self.column_bytes})

    @property
    def columns_per_request(self) -> int:
        """Column commands of one 64-byte request; the dramsim3 scheduler's requests are one column each."""
        return 1 if self.scheduler == "dramsim3" else LINE_BYTES // self.column_bytes

    @property
    def request_bytes(self) -> int:
        """Bytes of one request."""
        return self.column_bytes * self.columns_per_request

    @property
    def column_bits(self) -> int:
        """Address bits that select a column within a row."""
        return (self.row_bytes // self.column_bytes - 1).bit_length()

    @property
    def channel_bytes(self) -> int:
        """Capacity of one channel."""
        return self.banks * self.rows_per_bank * self.row_bytes

    @property
    def peak_bytes_per_cycle(self) -> float:
        """Data bus limit of one channel."""
        return self.column_bytes / max(self.burst_cycles, self.tccd_s_cycles)

    @property
    def read_to_read_s_cycles(self) -> int:
        """Column to column of one direction, other bank group; the burst occupies the bus."""
        return max(self.burst_cycles, self.tccd_s_cycles)

    @property
    def read_to_read_l_cycles(self) -> int:
        """Column to column of one direction, same bank group."""
        return max(self.burst_cycles, self.tccd_l_cycles)

    @property
    def store_to_write_l_cycles(self) -> int:
        """Plain store to the next write in the same bank group."""
        return max(self.burst_cycles, self.ccdwl_cycles if self.ccdwl_applies_to == "write" else self.tccd_l_cycles)

    @property
    def update_to_write_l_cycles(self) -> int:
        """Op-and-store to the next write in the same bank group."""
        return max(self.burst_cycles, self.ccdwl_cycles)

    @property
    def read_to_write_cycles(self) -> int:
        """Read to write, any bank: the bus turnaround."""
        return self.cl_cycles + self.burst_cycles - self.cwl_cycles + self.trtrs_cycles

    @property
    def write_to_read_s_cycles(self) -> int:
        """Write to read, other bank group."""
        return self.cwl_cycles + self.burst_cycles + self.twtr_s_cycles

    @property
    def write_to_read_l_cycles(self) -> int:
        """Write to read, same bank group."""
        return self.cwl_cycles + self.burst_cycles + self.twtr_l_cycles

    @property
    def write_to_precharge_cycles(self) -> int:
        """Write to precharge, same bank."""
        return self.cwl_cycles + self.burst_cycles + self.twr_cycles

    @property
    def read_data_cycles(self) -> int:
        """Read command to the end of its data."""
        return self.cl_cycles + self.burst_cycles

    @property
    def write_data_cycles(self) -> int:
        """Write command to the end of its data."""
        return self.cwl_cycles + self.burst_cycles
