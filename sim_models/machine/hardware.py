"""Sections for the sizes of the Track & Trigger hardware."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from t3sim.machine.levels import CYCLE, ENGINES
from t3sim.machine.section import NotNegative, Section, Wait, needed_by, within
from t3sim.rtl.geometry import SwitchGeometry

LONGEST_STARVATION = 65535  #: cycles; the register has 16 bits


class Tracker(Section):
    """Sizes of the Tracker (T3 paper, section 4.2.1), and its times where it is no RTL."""

    sets: Annotated[int, within(1, 1 << 16)] = needed_by(CYCLE)
    ways: Annotated[int, within(1, 64)] = needed_by(CYCLE)
    banks: Annotated[int, within(1, 256)] = needed_by(CYCLE)
    wg_bits: Annotated[int, within(1, 24)] = needed_by(CYCLE)  #: bits of the workgroup number in a tile's id
    count_bits: Annotated[int, within(8, 32)] = needed_by(CYCLE)  #: bits of the count of bytes in an entry
    #: Protection of the memories (`check_bits.PROTECTIONS`).
    protection: Literal["none", "parity", "secded"] = needed_by(CYCLE)
    trigger_ns: NotNegative = needed_by(ENGINES)  #: from the grant of the last write until an engine has the command
    copy_ns: NotNegative = needed_by(ENGINES)  #: from the engine's command to the first line read


class Channels(Section):
    """Memory channels and their controllers."""

    count: Annotated[int, within(1, 255)]
    interleave_bytes: Annotated[int, within(64, 1 << 16)]  #: a larger value would put a whole tile on one channel
    guard_buckets: Annotated[int, within(1, 256)]
    dma_fifo: Annotated[int, within(1, 64)]
    coalescer_timeout_cycles: Annotated[int, within(1, 255)]
    sample_bits: Annotated[int, within(1, 32)]
    #: Formats that memory adds besides plain sums: names of `t3sim.rtl.formats.SUMS`, joined by +; plain: no others;
    #: None: the formats that the exchange uses.
    sums: str | None = None
    #: Bits of a packet's count of the parts in a sum; an exchange in the switch sets it as its sums require.
    more_bits: Annotated[int, within(0, 7)] = 0


class Dma(Section):
    """The DMA command table and its engines (T3 paper, section 4.2.2)."""

    engines: Annotated[int, within(1, 8)]
    regions: Annotated[int, within(2, 64)]
    block_shapes: Annotated[int, within(1, 64)]  #: block shapes of DMA commands, for all regions together
    routes: Annotated[int, within(1, 64)]  #: destinations with offsets, for all regions together
    copies: Annotated[int, within(1, 64)]  #: destinations per region
    ready_commands: Annotated[int, within(2, 65535)]
    outstanding_lines: Annotated[int, within(1, 65535)]
    egress_lanes: Annotated[int, within(1, 8)]
    ready_groups: Annotated[int, within(0, 4096)] = 0  #: counters of the ready table, which `ag-gemm` uses; 0: no table
    peers: Annotated[int, within(1, 31)]  #: GPUs to which it can send; it keeps the head of each one's dispatch window
    tiles_per_block: Annotated[int, within(1, 64)]  #: wavefront tiles that one DMA command moves


class Arbiter(Section):
    """Limits of the communication-aware arbiter, MCA (T3 paper, section 4.5)."""

    #: Cycles since a channel last served communication, after which MCA serves it first; 0: never; "derived":
    #: `Machine.starvation_limit_cycles`.
    starvation_limit_cycles: Literal["derived"] | Annotated[int, Field(strict=True, ge=0, le=LONGEST_STARVATION)]
    #: DRAM queue occupancy from which communication waits; "auto": the hardware chooses; "none": it never waits.
    threshold: Literal["auto", "none"] | Annotated[int, Field(strict=True, ge=1, le=126)]
    #: Mean DRAM queue occupancy of the producer, in quarters of an entry: below these 3 values the threshold is none,
    #: 15 and 5; from the last value on it is 3.
    monitor_breakpoints: Annotated[
        tuple[Annotated[int, Field(strict=True, ge=0, le=255)], ...], Field(strict=False, min_length=3, max_length=3)]

    @model_validator(mode="after")
    def _rising(self) -> "Arbiter":
        if list(self.monitor_breakpoints) != sorted(self.monitor_breakpoints):
            raise ValueError(f"monitor_breakpoints = {list(self.monitor_breakpoints)} must rise")
        return self


class SwitchSection(Section):
    """Switch that adds the data that GPUs send (T3 paper, section 7.4), clocked like the memory."""

    #: Sets of each port's table of sums that wait for parts or for the link.
    merge_sets: Annotated[int, within(1, 65536)]
    merge_ways: Annotated[int, within(1, 16)]  #: lines of 64 bytes in each set
    timeout_ns: Wait  #: a sum without new parts leaves after 1 to 2 times this
    #: Parallel switches, each with a table at each port; lines are dealt to them in turn (with `gpus.every`).
    planes: Annotated[int, within(1, 16)] = 1
    rtl: bool = False  #: simulate the switch's RTL (with `gpus.every`) instead of a model of its size and latency

    @model_validator(mode="after")
    def _can_be_built(self) -> "SwitchSection":
        if self.planes & (self.planes - 1):
            raise ValueError(f"planes = {self.planes}: a power of two is needed")
        self.hardware()
        return self

    def hardware(self) -> SwitchGeometry:
        """Return the geometry of its RTL. Raises `GeometryError`."""
        return SwitchGeometry(merge_sets=self.merge_sets, merge_ways=self.merge_ways)
