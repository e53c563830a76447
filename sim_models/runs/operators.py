"""Operators at a machine's rates: how a workload's output is cut, where its data lie, and which kernel makes it."""

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace

import numpy as np

from t3sim.base.custom import make_custom, of_a_user, of_kind
from t3sim.base.errors import BadInput
from t3sim.collectives.schedule.placement import NOWHERE, Placement
from t3sim.machine import Machine
from t3sim.machine.formats import FP16
from t3sim.machine.gpu import Occupancy
from t3sim.workload.operators.embedding import INDEX_BYTES, Embedding, embedding_tiling
from t3sim.workload.operators.gemm import Gemm, Matrix
from t3sim.workload.operators.gemv import ROWS, Gemv, gemv_tiling
from t3sim.workload.operators.grouped import GroupedGemm, Groups
from t3sim.workload.operators.kernel_table import KernelTable, Resources
from t3sim.workload.operators.operator import Operator
from t3sim.workload.operators.tiling import Tiling, TilingError
from t3sim.workload.workloads import (
    MOST_DECODED,
    CustomWorkload,
    DecodeWorkload,
    DispatchWorkload,
    EmbeddingWorkload,
    ExpertsWorkload,
    GemvWorkload,
    Workload,
)

_ALIGN = 1 << 20
#: Kernels of few tokens: rows of a tile, elements of K in a step, registers besides the sums.
_DECODE_TILE, _DECODE_BLOCK_K, _DECODE_REGISTERS = 64, 64, 40
_LANES = 32  #: of a wavefront, at least


def _up(value: int, unit: int = _ALIGN) -> int:
    return -(-value // unit) * unit


@dataclass(frozen=True)
class Addresses:
    """Addresses of one GPU's matrices, in bytes. The same on every device but for the output.

    To the BLAS library A holds the weights and B the activations.
    """

    a: int
    a_pitch: int
    b: int
    b_pitch: int
    c: int
    copies: int  #: what a ring reduce-scatter without near-memory compute receives

    @classmethod
    def of(cls, workload: Workload, tiling: Tiling) -> "Addresses":
        along_k, along_m = workload.k * workload.format.bytes, workload.n * workload.format.bytes
        a_pitch, a_lines = (along_k, workload.n) if workload.weights_transposed else (along_m, workload.k)
        of_column = workload.exchanged_elements * workload.format.bytes if isinstance(workload, DispatchWorkload) else (
            along_k)
        a_pitch, b_pitch = _up(a_pitch, 256), _up(of_column, 256)
        a_bytes, b_bytes = a_pitch * a_lines, b_pitch * workload.m
        if isinstance(workload, EmbeddingWorkload):  # tables, and lists of rows
            a_bytes, b_bytes = workload.table_bytes, workload.m * workload.k * INDEX_BYTES
        if isinstance(workload, ExpertsWorkload):
            a_bytes *= workload.experts // workload.tp
            b_bytes = b_pitch * max(map(sum, workload.routing.groups))
        b = _up(a_bytes)
        c = b + _up(b_bytes)
        copies = c + _up(tiling.output_bytes) + workload.tp * _ALIGN
        return cls(0, a_pitch, b, b_pitch, c, copies)


def make_tiling(machine: Machine, workload: Workload) -> Tiling:
    """Cut the output into tiles. C[M, N], kept by rows, is N x M to the BLAS library. Raises TilingError."""
    gpu, element_bytes = machine.gpu, workload.sum_bytes
    if isinstance(workload, GemvWorkload):
        return gemv_tiling(workload.m, element_bytes)
    if isinstance(workload, EmbeddingWorkload):
        return embedding_tiling(workload.m, workload.n, gpu.wavefronts_per_workgroup, element_bytes)
    if isinstance(workload, DecodeWorkload):
        return _decode_tiling(machine, workload)
    _check_columns(machine, workload)
    if isinstance(workload, DispatchWorkload):
        return _placement(machine, workload).tilings[busiest(machine, workload)]
    if isinstance(workload, ExpertsWorkload):
        return _tokens_tiling(machine, workload)
    tiling = Tiling(workload.n, workload.m, gpu.tile_m, gpu.tile_n, gpu.wavefronts_per_workgroup, element_bytes)
    if gpu.workgroup_order == "shorter":
        high, wide = (gpu.cluster, 1) if gpu.tile_m <= gpu.tile_n else (1, gpu.cluster)  # near to a square
        along_n = -(-tiling.tile_columns // wide) * wide <= -(-tiling.tile_rows // high) * high
        return replace(tiling, along_n=along_n, abreast=(high if along_n else wide) * gpu.swizzle)
    return replace(tiling, along_n=gpu.workgroup_order == "tokens", abreast=gpu.swizzle)


def _check_columns(machine: Machine, workload: Workload) -> None:
    """Refuse links that do not hold a tile's column. Raises TilingError."""
    gpu, element_bytes = machine.gpu, workload.sum_bytes
    for name in ("egress_buffer_bytes", "store_buffer_bytes"):
        size = getattr(machine.link, name)
        if size is not None and size < gpu.tile_m * element_bytes:
            raise TilingError(f"[link] {name} = {size} does not hold the {gpu.tile_m * element_bytes} bytes of one "
                              f"tile column in {workload.dtype}")


def _tokens_tiling(machine: Machine, workload: ExpertsWorkload) -> Tiling:
    """Cut the tokens' sums into whole tiles, of which each GPU's tokens are some.

    Tiles are as wide as the machine's, or half of it, a quarter, ..., down to a token for each wavefront.
    """
    gpu, tokens_each = machine.gpu, workload.m // workload.tp
    columns = gpu.tile_n
    while tokens_each % columns and columns % (2 * gpu.wavefronts_per_workgroup) == 0:
        columns //= 2
    if tokens_each % columns:
        raise TilingError(f"M={workload.m}: each of {workload.tp} GPUs has {tokens_each} tokens, which tiles must hold "
                          f"without a rest: a multiple of {columns} is needed")
    if workload.n % gpu.tile_m:
        raise TilingError(f"N={workload.n} is no multiple of {gpu.tile_m}: experts' outputs are cut into whole tiles")
    return Tiling(workload.n, workload.m, gpu.tile_m, columns, gpu.wavefronts_per_workgroup, workload.sum_bytes)


def placement_of(machine: Machine, workload: Workload, along_n: bool = False) -> Placement | None:
    """Say what each GPU's workgroups make, if those are not the output's tiles: experts' tokens, padded to tiles.

    The tokens of an expert come by their owner, that of the next GPU first. `along_n`: as in `Tiling`, expert after
    expert for some rows before the next rows. Raises BadInput.
    """
    return _placement(machine, workload, along_n) if isinstance(workload, ExpertsWorkload) else None


def _placement(machine: Machine, workload: ExpertsWorkload, along_n: bool = False) -> Placement:
    gpu, experts_each, tokens_each = machine.gpu, workload.experts // workload.tp, workload.m // workload.tp
    experts_of_tokens = workload.routing.experts_of
    tilings, columns, parts = [], [], []
    for device in range(workload.tp):
        token, place = np.nonzero(experts_of_tokens // experts_each == device)
        expert = experts_of_tokens[token, place]
        order = np.lexsort((token, (token // tokens_each - device - 1) % workload.tp, expert))
        counts = np.bincount(expert - device * experts_each, minlength=experts_each)
        padded = -(-counts // gpu.tile_n) * gpu.tile_n
        at = np.arange(len(token)) + np.repeat(np.cumsum(padded) - padded - np.cumsum(counts) + counts, counts)
        tilings.append(Tiling(workload.n, max(gpu.tile_n, int(padded.sum())), gpu.tile_m, gpu.tile_n,
                              gpu.wavefronts_per_workgroup, workload.sum_bytes, along_n))
        token_and_place = np.full((2, tilings[-1].n), NOWHERE)
        token_and_place[:, at] = token[order], place[order]
        columns.append(token_and_place[0])
        parts.append(token_and_place[1])
    return Placement(tuple(tilings), tuple(columns), tuple(parts), workload.per_token)


def busiest(machine: Machine, workload: Workload, among: Iterable[int] | None = None) -> int:
    """Return the GPU whose workgroups are the most, of all or those `among` them; the first if all have as many."""
    placement = placement_of(machine, workload)
    gpus = sorted(range(workload.tp) if among is None else among)
    return gpus[0] if placement is None else max(gpus, key=lambda gpu: len(placement.workgroups(gpu)))


def _decode_tiling(machine: Machine, workload: Workload) -> Tiling:
    """Cut the output of few tokens: tiles as wide as these are many, up to the machine's."""
    gpu = machine.gpu
    columns = gpu.wavefronts_per_workgroup
    while columns < min(workload.m, gpu.tile_n):
        columns *= 2
    return Tiling(workload.n, workload.m, _DECODE_TILE, columns, gpu.wavefronts_per_workgroup, workload.sum_bytes)


def with_its_kernel(machine: Machine, workload: Workload, parts: int = 1) -> Workload:
    """Return a GEMM of few tokens with the kernel that leaves the fullest compute unit less of the output to make.

    That is the machine's for large GEMMs, or the one whose tile is as small as the tokens are few; the former if they
    are equal, and where K is cut, or no unit holds the other. `parts`: GPUs that share the tokens.
    """
    tokens = -(-workload.m // parts)
    if (type(workload) is not Workload or tokens > MOST_DECODED or machine.occupancy is None
            or machine.gpu.k_parts > 1):
        return workload
    few = DecodeWorkload(**{field.name: getattr(workload, field.name) for field in fields(workload)})
    large, small = (make_tiling(machine, replace(one, m=tokens)) for one in (workload, few))
    fits = _decode_resources(machine, few, small).lds_bytes <= machine.occupancy.lds_bytes_per_cu
    return few if fits and _fullest(machine, small) < _fullest(machine, large) else workload


def _decode_resources(machine: Machine, workload: DecodeWorkload, tiling: Tiling) -> Resources:
    """Return what a workgroup of the kernel for few tokens needs: its sums, and a block of K more than it loads."""
    wavefronts = machine.gpu.wavefronts_per_workgroup
    return Resources(
        wavefronts, _DECODE_REGISTERS + tiling.tile_m * tiling.tile_n // (wavefronts * _LANES),
        (1 + machine.gpu.load_buffers) * (tiling.tile_m + tiling.tile_n) * _DECODE_BLOCK_K * workload.format.bytes)


def _fullest(machine: Machine, tiling: Tiling) -> int:
    """Return the elements of the output that the compute unit with most tiles makes, ragged tiles counted whole."""
    return -(-tiling.tiles // machine.gpu.compute_units) * tiling.tile_m * tiling.tile_n


@dataclass(frozen=True)
class _Custom:
    """A user's operator; raises BadInput if its kernel is none."""

    source: str  #: its reference
    operator: Operator

    @property
    def resources(self) -> Resources | None:
        resources = getattr(self.operator, "resources", None)
        if resources is None:
            return None
        return of_kind(f"layer.operator = {self.source}'s resources", resources, Resources)

    def work(self, gpu: int) -> KernelTable:
        with of_a_user(f"layer.operator = {self.source}"):
            table = self.operator.work(gpu)
        return of_kind(f"layer.operator = {self.source}'s work", table, KernelTable)


def make_operator(machine: Machine, workload: Workload, tiling: Tiling,
                  c_base: int | None = None) -> Operator:
    """Make the operator that makes a workload's output, which is where `Addresses` puts it if not at `c_base`.

    Raises BadInput for a machine that does not say what it needs.
    """
    if machine.gpu.k_parts > 1 and isinstance(workload, GemvWorkload | EmbeddingWorkload):
        raise BadInput(f"[gpu] k_parts = {machine.gpu.k_parts} (layer.split_k) cuts a GEMM's K: a {workload.kind} has "
                       "1")
    if isinstance(workload, CustomWorkload):
        at = Addresses.of(workload, tiling).c if c_base is None else c_base
        return _Custom(workload.source, make_custom("layer.operator", workload.source, Operator, machine, workload,
                                                    tiling, at))
    if isinstance(workload, GemvWorkload):
        return _gemv(machine, workload, tiling, c_base)
    if isinstance(workload, EmbeddingWorkload):
        return _embedding(machine, workload, tiling, c_base)
    if isinstance(workload, ExpertsWorkload):
        return experts_operator(machine, workload, c_base, tiling.along_n)
    return gemm_operator(machine, workload, tiling, c_base)


def gemm_operator(machine: Machine, workload: Workload, tiling: Tiling, c_base: int | None = None,
                  b: Matrix | None = None) -> Gemm:
    """Make the GEMM at the machine's rates.

    Its output is where `Addresses` puts it if not at `c_base`, its activations if not at `b`.
    """
    gpu, at, clock = machine.gpu, Addresses.of(workload, tiling), machine.memory_clock_ghz
    elements, block_k, resources = tiling.tile_m * tiling.tile_n, gpu.block_k, Resources()
    peak, efficiency = gpu.matrix_rate(workload.format.bytes)
    if workload.format.bytes == 1:  # steps are as many bytes deep
        block_k *= FP16.bytes
    if isinstance(workload, DecodeWorkload):
        block_k, resources = _DECODE_BLOCK_K, _decode_resources(machine, workload, tiling)
    return Gemm(
        tiling=tiling, k=workload.k, block_k=block_k, a=Matrix(at.a, at.a_pitch),
        a_along_k=workload.weights_transposed, b=b or Matrix(at.b, at.b_pitch),
        c_base=at.c if c_base is None else c_base,
        cycles_per_k=2 * elements / peak / efficiency / gpu.clock_ghz * clock,
        launch_cycles=gpu.prologue_ns * clock,
        epilogue_cycles=gpu.epilogue_ns * clock * (elements / (gpu.tile_m * gpu.tile_n)),  # sums through the LDS
        buffers=gpu.load_buffers, resources=resources, parts=gpu.k_parts, cluster=gpu.cluster, by_turn=gpu.by_turn,
        operand_bytes=workload.format.bytes)


def largest_gemm(machine: Machine, workload: Workload) -> Gemm:
    """Make the GEMM of the GPU whose workgroups are the most."""
    operator = make_operator(machine, workload, make_tiling(machine, workload))
    if isinstance(operator, GroupedGemm):
        operator = operator.gpus[busiest(machine, workload)].gemm
    assert isinstance(operator, Gemm)
    return operator


def _gemv(machine: Machine, workload: Workload, tiling: Tiling, c_base: int | None) -> Gemv:
    gpu, at, clock = machine.gpu, Addresses.of(workload, tiling), machine.memory_clock_ghz
    return Gemv(
        tiling=tiling, k=workload.k, matrix=Matrix(at.b, at.b_pitch), vector_base=at.a,
        output_base=at.c if c_base is None else c_base, cycles_per_k=_vector_cycles(machine, 2 * ROWS),
        launch_cycles=gpu.prologue_ns * clock, reduction_cycles=machine.collective.workgroup_overhead_ns * clock,
        wavefronts=gpu.wavefronts_per_workgroup)


def _embedding(machine: Machine, workload: EmbeddingWorkload, tiling: Tiling, c_base: int | None) -> Embedding:
    has, at = _occupancy(machine), Addresses.of(workload, tiling)
    most, end = machine.dram.channels * machine.dram.channel_bytes, at.c + tiling.output_bytes
    if end > most:
        raise BadInput(f"tables, lists and sums have {end / 1e9:,.1f} GB: machine {machine.name} has {most / 1e9:,.1f}")
    return Embedding(
        tiling=tiling, tables=workload.tables, pooled=workload.k, weights=workload.weights(), tables_base=at.a,
        lists_base=at.b, output_base=at.c if c_base is None else c_base, rows_at_once=has.loads_at_once,
        # An addition has half the operations of a fused multiply-add.
        cycles_per_row=_vector_cycles(machine, 2 * workload.n * tiling.wavefronts),
        launch_cycles=machine.gpu.prologue_ns * machine.memory_clock_ghz, registers=has.plain_registers,
        seed=workload.seed)


def experts_operator(machine: Machine, workload: ExpertsWorkload, c_base: int | None = None, along_n: bool = False,
                     inputs: Matrix | None = None) -> GroupedGemm:
    """Make the GEMMs of experts' tokens. Raises BadInput for more than memory holds.

    `inputs`: where a device's tokens are, if not where `Addresses` puts them; `along_n`: as for `placement_of`.
    """
    placement, tiling = _placement(machine, workload, along_n), make_tiling(machine, workload)
    at, copied = Addresses.of(workload, tiling), tiling.output_bytes
    if isinstance(workload, DispatchWorkload):
        copied = _up(workload.exchanged_elements * workload.format.bytes, 256) * workload.m * workload.per_token
    most, end = machine.dram.channels * machine.dram.channel_bytes, at.copies + copied
    if end > most:
        raise BadInput(f"weights, tokens and what experts make have {end / 1e9:,.1f} GB: machine {machine.name} has "
                       f"{most / 1e9:,.1f}")
    experts_each, grouped_gemms = workload.experts // workload.tp, []
    for device, device_tiling in enumerate(placement.tilings):
        tile = np.arange(device_tiling.tile_columns)
        columns = (placement.of_tiles(placement.columns[device], device) != NOWHERE).sum(axis=1)
        counts = workload.routing.counts[:, device * experts_each:(device + 1) * experts_each].sum(axis=0)
        ends = np.cumsum(-(-counts // device_tiling.tile_n))
        group = np.minimum(np.searchsorted(ends, tile, side="right"), experts_each - 1)
        gemm = gemm_operator(machine, workload, device_tiling, c_base, inputs)
        # Neighbours have other weights, and one may wait for its tokens: whichever place is free goes on.
        grouped_gemms.append(Groups(replace(gemm, cluster=1, by_turn=False), group, columns))
    lines = workload.n if workload.weights_transposed else workload.k
    scales = workload.exchanged_elements - workload.k if isinstance(workload, DispatchWorkload) else 0
    return GroupedGemm(grouped_gemms, at.a_pitch * lines, scales * workload.format.bytes)


def _vector_cycles(machine: Machine, flop: int) -> float:
    """Return the memory cycles that a unit's vector lanes take. Raises BadInput for a machine without them."""
    rate = machine.gpu.vector_flop_per_cycle_per_cu
    if rate is None:
        raise BadInput(f"machine {machine.name} has no [gpu] vector_flop_per_cycle_per_cu: kernels without matrices "
                       "need it")
    return flop / rate / machine.gpu.clock_ghz * machine.memory_clock_ghz


def _occupancy(machine: Machine) -> Occupancy:
    if machine.occupancy is None:
        raise BadInput(f"machine {machine.name} has no [occupancy]: a kernel that says what registers it needs, needs "
                       "it")
    return machine.occupancy


def resident(machine: Machine, resources: Resources) -> int:
    """Return how many workgroups of a kernel are resident on a unit at once. Raises BadInput if not one is."""
    if not resources.wavefronts:
        return machine.gpu.workgroups_per_cu
    has = _occupancy(machine)
    workgroups = has.held(max(1, resources.registers)) // resources.wavefronts
    if resources.lds_bytes:
        workgroups = min(workgroups, has.lds_bytes_per_cu // resources.lds_bytes)
    if not workgroups:
        raise BadInput(f"a workgroup of {resources.wavefronts} wavefronts with {resources.registers} registers each "
                       f"and {resources.lds_bytes} bytes of LDS is more than a compute unit of machine {machine.name} "
                       "holds")
    return workgroups


def workgroups_at_once(machine: Machine, workload: Workload) -> int:
    """Return how many workgroups of a workload's kernel a GPU runs at once. Raises BadInput and TilingError."""
    operator = make_operator(machine, workload, make_tiling(machine, workload))
    resources = getattr(operator, "resources", None) or operator.work(0).resources  # a table takes its time
    return machine.gpu.compute_units * resident(machine, resources)
