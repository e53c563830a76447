"""Sections of a machine that the cycle level needs: its models, and the sizes of the Track & Trigger hardware."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from t3sim.formats import FP16
from t3sim.line import LINE_BYTES
from t3sim.machine.dram import Dram, is_power_of_two
from t3sim.machine.occupancy import Wavefronts
from t3sim.machine.section import Section, Wait, within
from t3sim.rtl.geometry import ChannelGeometry, DmaGeometry, Geometry, SwitchGeometry, TrackerGeometry, bits_for

_LONGEST_STEP_CYCLES = 100_000  #: half of `engine.end.IDLE_LIMIT`
_LONGEST_STARVATION = 65535  #: cycles; the register has 16 bits


class Gpu(Section):
    """Compute units and the tiled GEMM kernel that runs on them."""

    compute_units: Annotated[int, within(1, 1024)]  #: MI300X, the largest of its time, has 304
    clock_ghz: Annotated[float, within(0.1, 10)]
    matrix_flop_per_cycle_per_cu: Annotated[int, within(1, 1 << 17)]  #: H100: 4096 in fp16
    matrix_efficiency: Annotated[float, within(0.01, 1)]  #: of the peak, in the main loop
    #: Resident at once; as many wavefronts as a CU of AMD or NVIDIA schedules.
    workgroups_per_cu: Annotated[int, within(1, 64)]
    #: Rows of C per workgroup; a column is whole 64-byte requests; CUTLASS: at most 256.
    tile_m: Annotated[int, within(32, 1024)]
    tile_n: Annotated[int, within(1, 1024)]  #: columns of C per workgroup
    block_k: Annotated[int, within(1, 1024)]  #: depth of one load of A and B; CUTLASS: 16 to 128
    #: Parts that K is cut into, each computed by a workgroup of its own, whose sums are added (split-K).
    k_parts: Annotated[int, within(1, 64)] = 1
    load_buffers: Annotated[int, within(1, 8)]  #: blocks of K that a workgroup has room for; 1: it computes or it loads
    #: Along which extent of the output consecutive workgroups lie: "hidden" streams weights, "tokens" activations.
    workgroup_order: Literal["hidden", "tokens"]
    wavefronts_per_workgroup: Annotated[int, within(1, 64)]  #: a workgroup of 1024 threads has 32
    prologue_ns: Wait  #: of a workgroup, before its first load
    epilogue_ns: Wait  #: between its last multiply-add and its first store
    #: Port between a CU's L1 and the last-level cache, each direction.
    cu_bytes_per_ns: Annotated[float, within(0.1, 10_000)]
    #: fp32, for kernels that have no matrices; None: none can run. MI300X: 256
    vector_flop_per_cycle_per_cu: Annotated[int, within(1, 1 << 17)] | None = None

    @model_validator(mode="after")
    def _tile_splits_into_wavefronts(self) -> "Gpu":
        if self.tile_n % self.wavefronts_per_workgroup:
            raise ValueError(f"tile_n = {self.tile_n} does not split evenly over "
                             f"wavefronts_per_workgroup = {self.wavefronts_per_workgroup}")
        if self.tile_m * FP16.bytes % 64:
            raise ValueError(f"tile_m = {self.tile_m} does not make tile columns of whole 64-byte requests")
        return self

    @property
    def wavefront_tile_bytes(self) -> int:
        """Output of one wavefront of a full tile."""
        return self.tile_m * self.tile_n // self.wavefronts_per_workgroup * FP16.bytes

    @property
    def peak_flop_per_ns(self) -> float:
        return self.compute_units * self.matrix_flop_per_cycle_per_cu * self.clock_ghz


class Occupancy(Wavefronts):
    """Limits of how many workgroups of a kernel are resident, where it says what they need."""

    lds_bytes_per_cu: Annotated[int, within(1, 1 << 24)]


class Llc(Section):
    """The last-level cache (L2)."""

    size_bytes: Annotated[int, within(1 << 10, 1 << 30)]  #: MI300X: 256 MB
    line_bytes: Annotated[int, within(64, 1024)]  #: whole 64-byte requests
    ways: Annotated[int, within(1, 64)]
    replacement: Literal["lru", "srrip"]  #: which line makes room: `fabric.replacement`
    slices: Annotated[int, within(0, 512)]  #: that serve loads in order each; 0: whoever comes first is served
    slice_queue_loads: Annotated[int, within(1, 1024)]  #: that wait at a slice
    hit_latency_ns: Wait  #: from a CU's load to its data
    fill_latency_ns: Wait  #: what a miss adds besides the DRAM's own time
    bandwidth_bytes_per_ns: Annotated[float, within(1, 1_000_000)]  #: all banks together

    @model_validator(mode="after")
    def _whole_sets(self) -> "Llc":
        if self.size_bytes % (self.line_bytes * self.ways):
            raise ValueError(f"size_bytes = {self.size_bytes} is not a whole number of sets of ways = {self.ways} "
                             f"lines of line_bytes = {self.line_bytes}")
        if not is_power_of_two(self.line_bytes):
            raise ValueError(f"line_bytes = {self.line_bytes}: a power of two is needed")
        sets = self.size_bytes // (self.line_bytes * self.ways)
        if not is_power_of_two(sets):
            raise ValueError(f"size_bytes = {self.size_bytes} makes {sets} sets of ways = {self.ways} lines of "
                             f"line_bytes = {self.line_bytes}: a power of two is needed")
        return self


class Link(Section):
    """The ring's link to the next GPU, in one direction."""

    #: 1e9 bytes per second, which is bytes per ns; from Ethernet to NVLink x 10.
    bandwidth_gb_per_s: Annotated[float, within(0.1, 10_000)]
    latency_ns: Wait
    egress_buffer_bytes: Annotated[int, within(64, 1 << 26)]  #: what may wait to leave
    head_bytes: Annotated[int, within(1, 256)]  #: that a dispatch window's head takes on it
    #: before that: a store with room here holds its compute unit no longer; None: of the same size
    store_buffer_bytes: Annotated[int, within(64, 1 << 26)] | None = None

    @property
    def stores_bytes(self) -> int:
        """Return how many bytes of compute units' stores may wait for the egress buffer."""
        return self.egress_buffer_bytes if self.store_buffer_bytes is None else self.store_buffer_bytes


class Network(Section):
    """A GPU's network card, in one direction, where nodes are joined."""

    bandwidth_gb_per_s: Annotated[float, within(0.1, 10_000)]
    latency_ns: Wait


class Tracker(Section):
    """Sizes of the Tracker (T3 paper, section 4.2.1)."""

    sets: Annotated[int, within(1, 1 << 16)]
    ways: Annotated[int, within(1, 64)]
    banks: Annotated[int, within(1, 256)]
    wg_bits: Annotated[int, within(1, 24)]  #: of a tile's id
    count_bits: Annotated[int, within(8, 32)]
    protection: Literal["none", "parity", "secded"]  #: of its memories: `check_bits.PROTECTIONS`


class Channels(Section):
    """Memory channels and their controllers."""

    count: Annotated[int, within(1, 128)]
    interleave_bytes: Annotated[int, within(64, 1 << 16)]  #: at most some rows: beyond it a tile lies on one channel
    guard_buckets: Annotated[int, within(1, 256)]
    dma_fifo: Annotated[int, within(1, 64)]
    coalescer_timeout_cycles: Annotated[int, within(1, 255)]
    sample_bits: Annotated[int, within(1, 32)]
    #: Names of `t3sim.rtl.formats.SUMS`, a + between: what memory adds beside plain sums; plain: no more than those;
    #: None: what an exchange needs.
    sums: str | None = None


class Dma(Section):
    """The DMA command table and its engines (T3 paper, section 4.2.2)."""

    engines: Annotated[int, within(1, 8)]
    regions: Annotated[int, within(2, 64)]
    block_shapes: Annotated[int, within(1, 64)]  #: shapes of what one DMA command moves, of all regions together
    routes: Annotated[int, within(1, 64)]  #: destinations with offsets, of all regions together
    copies: Annotated[int, within(1, 64)]  #: destinations of one region
    ready_commands: Annotated[int, within(2, 4096)]
    outstanding_lines: Annotated[int, within(1, 65535)]
    egress_lanes: Annotated[int, within(1, 4)]
    ready_groups: Annotated[int, within(0, 4096)] = 0  #: counters of the ready table, which `ag-gemm` gives it; 0: none
    peers: Annotated[int, within(1, 31)]  #: GPUs whose dispatch windows' heads it knows: to so many it can send
    tiles_per_block: Annotated[int, within(1, 64)]  #: wavefront tiles that one DMA command moves


class Arbiter(Section):
    """The communication-aware arbiter, MCA (T3 paper, section 4.5): its limits."""

    #: Longest wait of communication at a channel; 0: for ever, "derived": `Machine.starvation_limit_cycles`.
    starvation_limit_cycles: Literal["derived"] | Annotated[int, Field(strict=True, ge=0, le=_LONGEST_STARVATION)]
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


class Collective(Section):
    """Collectives that run as kernels on the CUs: the sequential baseline, and the all-gather."""

    kernel_launch_ns: Wait
    workgroups_per_cu: Annotated[int, within(1, 64)]  #: of the copy or reduce kernel, resident at once
    workgroup_bytes: Annotated[int, Field(ge=64, le=65536, multiple_of=64)]  #: of the result, per workgroup
    workgroup_overhead_ns: Wait  #: a workgroup's own instructions, before its loads and after them


class Switch(Section):
    """Switch that adds the data that GPUs send (T3 paper, section 7.4); its clock is the memory's."""

    merge_sets: Annotated[int, within(1, 65536)]  #: of the table of sums at each port that wait for parts, or to leave
    merge_ways: Annotated[int, within(1, 16)]  #: lines of 64 bytes in each

    @model_validator(mode="after")
    def _can_be_built(self) -> "Switch":
        self.hardware()
        return self

    def hardware(self) -> SwitchGeometry:
        """Return the sizes of its hardware. Raises `GeometryError`."""
        return SwitchGeometry(merge_sets=self.merge_sets, merge_ways=self.merge_ways)


class Machine(Section):
    """One GPU of the ring, all of them alike."""

    name: Annotated[str, Field(min_length=1, max_length=80)]
    memory_clock_ghz: Annotated[float, within(0.1, 10)]  #: the clock of memory controllers and Track & Trigger hardware
    gpu: Gpu
    occupancy: Occupancy | None = None  #: None: only kernels that say nothing of registers can run
    llc: Llc
    link: Link
    tracker: Tracker
    channels: Channels
    dma: Dma
    arbiter: Arbiter
    collective: Collective
    dram: Dram
    switch: Switch | None = None
    network: Network | None = None

    @model_validator(mode="after")
    def _can_be_built(self) -> "Machine":
        if self.dram.channels != self.channels.count:
            raise ValueError(f"[dram] channels = {self.dram.channels} and [channels] count = {self.channels.count} "
                             "must agree")
        if self.llc.slices % self.channels.count:
            raise ValueError(f"[llc] slices = {self.llc.slices}: 0 or a multiple of [channels] count = "
                             f"{self.channels.count} is needed")
        geometry = self.geometry()
        if self.dram.held_requests >= 1 << (geometry.channel.occupancy_bits + 1):
            raise ValueError(f"[dram] queue_entries = {self.dram.queue_entries}: with a request in each of "
                             f"{self.dram.banks} banks there are more than the hardware's order guard counts")
        if self.tracker.ways < self.gpu.wavefronts_per_workgroup:
            raise ValueError(f"[tracker] ways = {self.tracker.ways}: a workgroup of [gpu] wavefronts_per_workgroup = "
                             f"{self.gpu.wavefronts_per_workgroup} needs as many in its set, or it could never start")
        if self.dma.ready_commands < self.gpu.wavefronts_per_workgroup:
            raise ValueError(f"[dma] ready_commands = {self.dma.ready_commands}: a workgroup of [gpu] "
                             f"wavefronts_per_workgroup = {self.gpu.wavefronts_per_workgroup} may make as many, or it "
                             "could never start")
        updates = 2 * self.gpu.wavefront_tile_bytes
        if updates >= 1 << geometry.tracker.count_bits:
            raise ValueError(f"[tracker] count_bits = {self.tracker.count_bits} cannot count the {updates} bytes that "
                             f"a wavefront tile of {self.gpu.wavefront_tile_bytes} bytes receives in a ring (tile_m x "
                             "tile_n over wavefronts_per_workgroup)")
        for name in ("egress_buffer_bytes", "store_buffer_bytes"):
            size = getattr(self.link, name)
            if size is not None and size < self.gpu.tile_m * FP16.bytes:
                raise ValueError(f"[link] {name} = {size} does not hold the {self.gpu.tile_m * FP16.bytes} bytes of "
                                 "one tile column")
        if self.dma.tiles_per_block > self.gpu.wavefronts_per_workgroup:
            raise ValueError(f"[dma] tiles_per_block = {self.dma.tiles_per_block} is more than [gpu] "
                             f"wavefronts_per_workgroup = {self.gpu.wavefronts_per_workgroup}")
        return self

    @model_validator(mode="after")
    def _keeps_moving(self) -> "Machine":
        """Refuse compute units that do something so seldom that their run would be taken for one that stands still."""
        gpu, residents = self.gpu, self.gpu.workgroups_per_cu
        flop = 2 * gpu.tile_m * gpu.tile_n * gpu.block_k * residents
        moved = max((gpu.tile_m + gpu.tile_n) * gpu.block_k, gpu.tile_m * gpu.tile_n) * FP16.bytes * residents
        matrix = gpu.matrix_flop_per_cycle_per_cu, gpu.matrix_efficiency
        rates = {"matrix_flop_per_cycle_per_cu = {}, matrix_efficiency = {}".format(*matrix):
                 flop / (matrix[0] * matrix[1] * gpu.clock_ghz),
                 f"cu_bytes_per_ns = {gpu.cu_bytes_per_ns}": moved / gpu.cu_bytes_per_ns}
        for rate, ns in rates.items():
            cycles = ns * self.memory_clock_ghz
            if cycles > _LONGEST_STEP_CYCLES:
                raise ValueError(f"[gpu] {rate}: a step of block_k = {gpu.block_k}, workgroups_per_cu = {residents} "
                                 f"takes {cycles:.1g} memory cycles, more than {_LONGEST_STEP_CYCLES}")
        return self

    @property
    def starvation_limit_cycles(self) -> int:
        """Memory cycles after which communication that waits at a channel goes first; 0: never.

        Derived: each line of a ring is written once and read once at a GPU, so a channel that serves communication this
        often keeps up with the link. At least 1, for a link as fast as the channels.
        """
        if self.arbiter.starvation_limit_cycles != "derived":
            return self.arbiter.starvation_limit_cycles
        link_bytes_per_cycle = self.link.bandwidth_gb_per_s / self.memory_clock_ghz
        between_requests = int(self.channels.count * LINE_BYTES / (2 * link_bytes_per_cycle))
        return min(max(between_requests, 1), _LONGEST_STARVATION)

    def geometry(self) -> Geometry:
        """Return the sizes of this machine's Track & Trigger hardware. Raises `GeometryError`."""
        return Geometry(
            tracker=TrackerGeometry(
                sets=self.tracker.sets, ways=self.tracker.ways, banks=self.tracker.banks,
                wg_bits=self.tracker.wg_bits, count_bits=self.tracker.count_bits,
                protection=self.tracker.protection,
                wf_bits=bits_for(self.gpu.wavefronts_per_workgroup)),
            channel=ChannelGeometry(
                channels=self.channels.count, interleave_bytes=self.channels.interleave_bytes,
                queue_entries=self.dram.queue_entries, guard_buckets=self.channels.guard_buckets,
                dma_fifo=self.channels.dma_fifo, coalescer_timeout_cycles=self.channels.coalescer_timeout_cycles,
                sample_bits=self.channels.sample_bits,
                sums="plain" if self.channels.sums is None else self.channels.sums),
            dma=DmaGeometry(
                regions=self.dma.regions, block_shapes=self.dma.block_shapes, routes=self.dma.routes,
                copies=self.dma.copies, engines=self.dma.engines, ready_commands=self.dma.ready_commands,
                outstanding_lines=self.dma.outstanding_lines, egress_lanes=self.dma.egress_lanes,
                peers=self.dma.peers, ready_groups=self.dma.ready_groups))
