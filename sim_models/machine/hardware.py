"""Sections about the Track & Trigger hardware: its sizes."""

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
    wg_bits: Annotated[int, within(1, 24)] = needed_by(CYCLE)  #: of a tile's id
    count_bits: Annotated[int, within(8, 32)] = needed_by(CYCLE)
    #: Of its memories: `check_bits.PROTECTIONS`.
    protection: Literal["none", "parity", "secded"] = needed_by(CYCLE)
    trigger_ns: NotNegative = needed_by(ENGINES)  #: from the last write's grant to an engine that has its command
    copy_ns: NotNegative = needed_by(ENGINES)  #: from there to the first line read


class Channels(Section):
    """Memory channels and their controllers."""

    count: Annotated[int, within(1, 255)]
    interleave_bytes: Annotated[int, within(64, 1 << 16)]  #: at most some rows: beyond it a tile lies on one channel
    guard_buckets: Annotated[int, within(1, 256)]
    dma_fifo: Annotated[int, within(1, 64)]
    coalescer_timeout_cycles: Annotated[int, within(1, 255)]
    sample_bits: Annotated[int, within(1, 32)]
    #: Names of `t3sim.rtl.formats.SUMS`, a + between: what memory adds beside plain sums; plain: no more than those;
    #: None: what an exchange needs.
    sums: str | None = None
    #: For how many parts of a sum a packet may count; an exchange in the switch gives it what its sums need.
    more_bits: Annotated[int, within(0, 7)] = 0


class Dma(Section):
    """The DMA command table and its engines (T3 paper, section 4.2.2)."""

    engines: Annotated[int, within(1, 8)]
    regions: Annotated[int, within(2, 64)]
    block_shapes: Annotated[int, within(1, 64)]  #: shapes of what one DMA command moves, of all regions together
    routes: Annotated[int, within(1, 64)]  #: destinations with offsets, of all regions together
    copies: Annotated[int, within(1, 64)]  #: destinations of one region
    ready_commands: Annotated[int, within(2, 4096)]
    outstanding_lines: Annotated[int, within(1, 65535)]
    egress_lanes: Annotated[int, within(1, 8)]
    ready_groups: Annotated[int, within(0, 4096)] = 0  #: counters of the ready table, which `ag-gemm` gives it; 0: none
    peers: Annotated[int, within(1, 31)]  #: GPUs whose dispatch windows' heads it knows: to so many it can send
    tiles_per_block: Annotated[int, within(1, 64)]  #: wavefront tiles that one DMA command moves


class Arbiter(Section):
    """The communication-aware arbiter, MCA (T3 paper, section 4.5): its limits."""

    #: Longest wait of communication at a channel; 0: for ever, "derived": `Machine.starvation_limit_cycles`.
    starvation_limit_cycles: Literal["derived"] | Annotated[int, Field(strict=True, ge=0, le=LONGEST_STARVATION)]
    #: DRAM queue occupancy from which communication is held back: "auto" lets the hardware choose, "none" never does.
    threshold: Literal["auto", "none"] | Annotated[int, Field(strict=True, ge=1, le=126)]
    #: Means of the producer's DRAM queue occupancy, in quarters of an entry, below which the threshold is
    #: none, 15 and 5; 3 from the last one on.
    monitor_breakpoints: Annotated[
        tuple[Annotated[int, Field(strict=True, ge=0, le=255)], ...], Field(strict=False, min_length=3, max_length=3)]

    @model_validator(mode="after")
    def _rising(self) -> "Arbiter":
        if list(self.monitor_breakpoints) != sorted(self.monitor_breakpoints):
            raise ValueError(f"monitor_breakpoints = {list(self.monitor_breakpoints)} must rise")
        return self


class SwitchSection(Section):
    """Switch that adds the data that GPUs send (T3 paper, section 7.4); its clock is the memory's."""

    merge_sets: Annotated[int, within(1, 65536)]  #: of the table of sums at each port that wait for parts, or to leave
    merge_ways: Annotated[int, within(1, 16)]  #: lines of 64 bytes in each
    timeout_ns: Wait  #: after which a sum leaves as it is, if no part comes; at the latest after twice as long
    #: Switches side by side, each with a table at each port, where every GPU is simulated: lines take turns.
    planes: Annotated[int, within(1, 16)] = 1
    rtl: bool = False  #: its RTL, where every GPU is simulated; else a model of its size and latency

    @model_validator(mode="after")
    def _can_be_built(self) -> "SwitchSection":
        if self.planes & (self.planes - 1):
            raise ValueError(f"planes = {self.planes}: a power of two is needed")
        self.hardware()
        return self

    def hardware(self) -> SwitchGeometry:
        """Return the sizes of its hardware. Raises `GeometryError`."""
        return SwitchGeometry(merge_sets=self.merge_sets, merge_ways=self.merge_ways)
