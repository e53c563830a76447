"""Sections about a GPU: its compute units and their kernels, its caches, its memory."""

from math import ceil
from typing import Annotated, Literal

from pydantic import Field, model_validator

from t3sim.base.errors import BadInput
from t3sim.base.line import LINE_BYTES
from t3sim.machine.dram import is_power_of_two
from t3sim.machine.levels import COMMERCIAL, CYCLE, ENGINES, NETWORK, QUEUE, TILES
from t3sim.machine.section import Count, NotNegative, Positive, Section, Share, Wait, needed_by, read_by, within
from t3sim.rtl.formats import FP16

ELEMENT_BYTES = FP16.width // 8  #: of the cycle level's tiles
_Edge = Annotated[int, within(8, 1024)]
Tile = Annotated[tuple[_Edge, _Edge], Field(strict=False)]  #: rows, columns
#: Numbers of parts that a library cuts K into.
SplitK = Annotated[tuple[Annotated[int, within(1, 64)], ...], Field(strict=False, min_length=1, max_length=16)]


def check_split_k(parts: tuple[int, ...]) -> None:
    """Refuse a library without a kernel of whole K, which small GEMMs use. Raises ValueError."""
    if 1 not in parts:
        raise ValueError(f"split_k = {list(parts)}: 1, whole K, must be among them")


class Gpu(Section):
    """Compute units, the tiled GEMM kernels that run on them, and the kernel that commands DMA engines."""

    #: Number of compute units; MI300X: 304.
    compute_units: Annotated[int, within(1, 1024)] = needed_by(CYCLE, TILES, COMMERCIAL)
    clock_ghz: Annotated[float, within(0.1, 10)] = needed_by(CYCLE, TILES)  #: clock of the compute units
    #: FLOP per cycle of one compute unit's matrix units, dense, 16-bit operands; H100: 4096.
    matrix_flop_per_cycle_per_cu: Annotated[int, within(1, 1 << 17)] = needed_by(CYCLE, TILES)
    #: Share of the peak in the main loop.
    matrix_efficiency: Annotated[float, within(0.01, 1)] = needed_by(CYCLE, TILES)
    #: Share of the peak with 8-bit operands, which is twice the 16-bit peak; None: no GEMM with 8 bits.
    matrix_efficiency_8_bits: Annotated[float, within(0.01, 1)] | None = read_by(CYCLE)
    #: Workgroups resident on a compute unit at once, up to the wavefronts that a CU of AMD or NVIDIA schedules.
    workgroups_per_cu: Annotated[int, within(1, 64)] = needed_by(CYCLE)
    #: Rows of C per workgroup; a column has whole 64-byte requests; CUTLASS: at most 256.
    tile_m: Annotated[int, within(32, 1024)] = needed_by(CYCLE)
    tile_n: Annotated[int, within(1, 1024)] = needed_by(CYCLE)  #: columns of C per workgroup
    #: Depth in K of one load of A and B; CUTLASS: 16 to 128.
    block_k: Annotated[int, within(1, 1024)] = needed_by(CYCLE)
    #: Parts of K (split-K): each has its own workgroup, and their sums are added.
    k_parts: Annotated[int, within(1, 64)] = read_by(CYCLE, default=1)
    #: Blocks of K that a workgroup can hold; with 1, it loads and computes in turn.
    load_buffers: Annotated[int, within(1, 8)] = needed_by(CYCLE)
    #: Direction of consecutive workgroups in the output: "hidden" streams weights, "tokens" streams activations,
    #: "shorter" takes the direction with fewer tiles, cluster by cluster (CUTLASS's `RasterOrderOptions::Heuristic`).
    workgroup_order: Literal["hidden", "tokens", "shorter"] = needed_by(CYCLE)
    #: Lines of workgroups in that direction that are numbered together (CUTLASS's threadblock swizzle); experts: 1.
    swizzle: Annotated[int, within(1, 64)] = read_by(CYCLE, default=1)
    #: Consecutive workgroups that load their shared operands only once.
    cluster: Annotated[int, within(1, 16)] = read_by(CYCLE, TILES, default=1)
    #: True: workgroups are dealt to compute units in turn, as in persistent kernels; false: the first free slot takes
    #: the next.
    by_turn: bool = read_by(CYCLE, default=False)
    wavefronts_per_workgroup: Annotated[int, within(1, 64)] = needed_by(CYCLE)  #: a workgroup of 1024 threads has 32
    prologue_ns: Wait = needed_by(CYCLE)  #: time of a workgroup before its first load
    epilogue_ns: Wait = needed_by(CYCLE)  #: time between a workgroup's last multiply-add and its first store
    #: Bandwidth of the port between a CU's L1 and the last-level cache, each direction.
    cu_bytes_per_ns: Annotated[float, within(0.1, 10_000)] = needed_by(CYCLE)
    #: FLOP (fp32) per cycle of one compute unit, for kernels without matrices; None: none can run; MI300X: 256.
    vector_flop_per_cycle_per_cu: Annotated[int, within(1, 1 << 17)] | None = read_by(CYCLE)
    #: Tiles of the GEMM library: rows, columns.
    tiles: Annotated[tuple[Tile, ...], Field(strict=False, min_length=1, max_length=32)] = needed_by(TILES)
    split_k: SplitK = needed_by(TILES)  #: numbers of parts into which the GEMM library may cut K; 1 must be among them
    #: Memory for the parts of a GEMM that is split along K.
    workspace_bytes: Annotated[int, within(0, 1 << 40)] = needed_by(TILES)
    #: Bandwidth from the LDS into a compute unit's matrix units, and into the LDS.
    lds_bytes_per_cycle_per_cu: Positive = needed_by(TILES)
    #: Rows and columns that a wavefront, or a group of wavefronts, multiplies from the LDS at once.
    matrix_block: Tile = needed_by(TILES)
    #: Blocks in flight that keep a compute unit's matrix units busy.
    blocks_at_once: Annotated[int, within(1, 64)] = needed_by(TILES)
    #: Time of a tile outside its main loop: first loads, last multiply-adds, stores.
    tile_ns: NotNegative = needed_by(TILES)
    l2_bytes_per_cycle: Positive = needed_by(TILES)  #: bandwidth of all compute units' loads from the last-level cache
    command_ns: NotNegative = needed_by(ENGINES, QUEUE)  #: time for a kernel to write a command into a queue
    doorbell_ns: NotNegative = needed_by(ENGINES, QUEUE)  #: time for a kernel to notify an engine
    observe_ns: NotNegative = needed_by(ENGINES)  #: time for a kernel to see an engine's signal

    @model_validator(mode="after")
    def _tiles_can_be_made(self) -> "Gpu":
        n, wavefronts = self.tile_n or 0, self.wavefronts_per_workgroup or 1  # None: not of the cycle level
        if n % wavefronts:
            raise ValueError(f"tile_n = {n} does not split evenly over wavefronts_per_workgroup = {wavefronts}")
        if (self.tile_m or 0) * ELEMENT_BYTES % 64:
            raise ValueError(f"tile_m = {self.tile_m} does not make tile columns of whole 64-byte requests")
        check_split_k(self.split_k or (1,))
        return self

    @property
    def wavefront_tile_bytes(self) -> int:
        """Output of one wavefront of a full tile."""
        return self.tile_m * self.tile_n // self.wavefronts_per_workgroup * ELEMENT_BYTES

    def matrix_rate(self, element_bytes: int) -> tuple[int, float]:
        """Return a compute unit's peak in operations per cycle, and its efficiency, for operands of this size.

        Raises BadInput.
        """
        if element_bytes > 1:
            return self.matrix_flop_per_cycle_per_cu, self.matrix_efficiency
        if self.matrix_efficiency_8_bits is None:
            raise BadInput("layer.dtype of 8 bits needs a machine with [gpu] matrix_efficiency_8_bits: h100-t3 and "
                           "mi300x-t3 have it")
        return 2 * self.matrix_flop_per_cycle_per_cu, self.matrix_efficiency_8_bits

    @property
    def peak_flop_per_ns(self) -> float:
        return self.compute_units * self.matrix_flop_per_cycle_per_cu * self.clock_ghz

    def tflop_per_s(self, flop: float, ns: float) -> tuple[float, float]:
        """Return the rate of a kernel, and the matrix units' peak."""
        return flop / ns / 1e3, self.peak_flop_per_ns / 1e3


class Occupancy(Section):
    """Limits on the wavefronts that a compute unit holds at once, and the registers that they share."""

    wavefronts_per_cu: Annotated[int, within(1, 1024)]  #: most wavefronts on a compute unit at once
    registers_per_lane: Annotated[int, within(1, 1 << 20)]  #: registers of all wavefronts on a SIMD unit together
    simd_units: Annotated[int, within(1, 64)]  #: SIMD units of a compute unit
    register_step: Annotated[int, within(1, 1 << 16)]  #: granularity of register allocation
    plain_registers: Annotated[int, within(1, 1 << 16)]  #: registers of a kernel that pools embeddings
    loads_at_once: Annotated[int, within(1, 1 << 16)]  #: loads in flight of a wavefront that adds up rows
    lds_bytes_per_cu: Annotated[int, within(1, 1 << 24)] = needed_by(CYCLE)  #: LDS of a compute unit
    wavefronts_per_workgroup: Count = needed_by(TILES)  #: wavefronts of a persistent kernel's workgroup
    sending_registers: Count = needed_by(TILES)  #: additional registers for calls of a communication library
    load_ns: NotNegative = needed_by(TILES)  #: latency of a load on an idle memory

    def held(self, registers: int) -> int:
        """Return how many wavefronts with this many registers a compute unit holds."""
        allocated = ceil(registers / self.register_step) * self.register_step
        return min(self.wavefronts_per_cu, self.registers_per_lane // allocated * self.simd_units)


class LlcSection(Section):
    """The last-level cache that compute units share (L2)."""

    size_bytes: Annotated[int, within(1 << 10, 1 << 30)]  #: B200: 126 MB
    line_bytes: Annotated[int, within(64, 1024)]  #: a multiple of the 64 bytes of a request
    ways: Annotated[int, within(1, 64)]
    replacement: Literal["lru", "srrip"]  #: replacement policy (`fabric.replacement`)
    #: Separate caches, each for an equal group of neighbouring compute units; MI300X: 8 (one per die).
    parts: Annotated[int, within(1, 64)] = read_by(CYCLE, default=1)
    #: Slices that each serve their loads in order; 0: one queue, first come, first served.
    slices: Annotated[int, within(0, 512)]
    slice_queue_loads: Annotated[int, within(1, 1024)]  #: capacity of a slice's queue, in loads
    hit_latency_ns: Wait  #: latency of a hit, from a CU's load to its data
    fill_latency_ns: Wait  #: latency that a miss adds to the DRAM's own
    bandwidth_bytes_per_ns: Annotated[float, within(1, 1_000_000)]  #: bandwidth of all banks together

    @model_validator(mode="after")
    def _whole_sets(self) -> "LlcSection":
        if self.size_bytes % (self.parts * self.line_bytes * self.ways):
            raise ValueError(f"size_bytes = {self.size_bytes} is not a whole number of sets of ways = {self.ways} "
                             f"lines of line_bytes = {self.line_bytes}{self._of_parts}")
        if not is_power_of_two(self.line_bytes):
            raise ValueError(f"line_bytes = {self.line_bytes}: a power of two is needed")
        sets = self.size_bytes // (self.parts * self.line_bytes * self.ways)
        if not is_power_of_two(sets):
            raise ValueError(f"size_bytes = {self.size_bytes} makes {sets} sets of ways = {self.ways} lines of "
                             f"line_bytes = {self.line_bytes}{self._of_parts}: a power of two is needed")
        return self

    @property
    def _of_parts(self) -> str:
        return f" in each of parts = {self.parts}" if self.parts > 1 else ""


class MemoryCacheSection(Section):
    """A memory-side cache: a slice before each memory channel, with lines of 64 bytes (`fabric.memory_cache`)."""

    size_bytes: Annotated[int, within(64, 1 << 30)]  #: of all slices together; MI300X: 256 MB
    ways: Annotated[int, within(1, 64)]
    replacement: Literal["lru", "srrip"]  #: replacement policy (`fabric.replacement`)
    #: Requests in a slice: in look-up, or waiting for one, for a line or for DRAM.
    requests: Annotated[int, within(1, 255)]
    hit_latency_ns: Wait  #: latency of a hit, from look-up to data, instead of DRAM's
    fill_latency_ns: Wait  #: latency that a miss adds to the DRAM's own
    bandwidth_bytes_per_ns: Annotated[float, within(1, 1_000_000)]  #: bandwidth of all slices together

    def sets(self, channels: int) -> int:
        """Return the sets of a slice. Raises ValueError unless they are a power of two."""
        sets, remainder = divmod(self.size_bytes, channels * self.ways * LINE_BYTES)
        if remainder or not is_power_of_two(sets):
            raise ValueError(f"[memory_cache] size_bytes = {self.size_bytes}: {channels} slices of ways = {self.ways} "
                             f"lines of {LINE_BYTES} bytes times a power of two are needed")
        return sets


class MemorySection(Section):
    """A GPU's memory, without its channels."""

    bandwidth_gb_per_s: Positive = needed_by(TILES, ENGINES, COMMERCIAL)  #: of all accesses together
    efficiency: Share = needed_by(TILES)  #: share of the peak for kernels that only move data
    line_bytes: Count = needed_by(NETWORK)  #: bytes of one random read

    @property
    def moved_bytes_per_ns(self) -> float:
        """The rate that kernels that only move data reach."""
        return self.bandwidth_gb_per_s * self.efficiency
