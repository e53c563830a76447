"""Current mechanisms to overlap a GEMM with its collective, and Track & Trigger for comparison.

`MECHANISMS`, at the end, has each with its source.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from math import ceil
from typing import NamedTuple

from t3sim.analytic.gemm import OPERAND_BYTES, GemmKernel, library_kernel
from t3sim.analytic.libraries.collectives import (
    copies_ns,
    library_collective,
    symmetric_ns,
    transfer_ns,
    triggered_ns,
    triggered_rate,
    ways,
)
from t3sim.analytic.libraries.contention import TimedJob, beside, collective_job, gemm_job
from t3sim.analytic.libraries.prompts import norm_ns
from t3sim.analytic.libraries.triggered import TileExchange, Tiles, TriggerLimits, trigger_limits, triggered_gemm
from t3sim.analytic.rings import pair_gb_per_s
from t3sim.base.errors import BadInput
from t3sim.machine import Machine

OPERATORS = {"gemm+ar": "all_reduce", "gemm+rs": "reduce_scatter", "ag+gemm": "all_gather", "a2a+gemm": "all_to_all"}

#: Track & Trigger, by each way and arbiter.
TRIGGERED = ("t3", "t3-mca+", "t3-direct")
#: Track & Trigger of one GPU in gate equivalents, without memories (`t3 area`, docs/results/area.md).
GATES = 452_000

#: Between kernels that the host launches as pieces of one operator: a launch, and an event between two streams (as in
#: a100-sxm's [host]).
_PIECE_NS = 8000.0
#: Units of a fused kernel that send, sum or poll instead of multiplying (Flux, FlagTree: 8 to 16).
_SENDERS = 12


@dataclass(frozen=True)
class OverlapPlan:
    """A GEMM of one GPU and the collective before or after it, on a machine."""

    machine: Machine = field(repr=False)
    operator: str
    gpus: int
    shape: tuple[int, int, int]
    width: str = "bf16"
    rows: int | None = None  #: of the collective, if not the GEMM's: tokens that several experts take are sent once
    #: Track & Trigger's, a machine of the cycle level; None: no limits of it are known.
    hardware: Machine | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.operator not in OPERATORS:
            raise BadInput(f"operator {self.operator[:40]!r} is unknown: allowed are {', '.join(OPERATORS)}")

    @property
    def kind(self) -> str:
        return OPERATORS[self.operator]

    @property
    def before(self) -> bool:
        """Say whether the collective comes before the GEMM."""
        return self.operator.endswith("+gemm")

    @property
    def size(self) -> float:
        """Bytes of the collective's whole tensor."""
        m, n, k = self.shape
        return 2.0 * (self.rows or m) * (k if self.before else n)

    @property
    def gemm_ns(self) -> float:
        return gemm_job(self.machine, *self.shape, self.width).ns

    def kernel(self, units: int | None = None) -> GemmKernel:
        return library_kernel(self.machine, *self.shape, self.width, units)

    def collective(self, mover: str = "units") -> TimedJob:
        return collective_job(self.machine, self.kind, self.gpus, self.size, mover)


@dataclass(frozen=True)
class OverlapTime:
    """An operator under a mechanism."""

    mechanism: str
    ns: float
    bound: str  #: GEMM, collective, or both where one follows the other
    units: int  #: compute units that the collective holds
    memory_bytes: float  #: that the collective moves in a GPU's memory
    losses_ns: dict[str, float] = field(default_factory=dict)  #: of Track & Trigger: what it takes beyond the GEMM


def possible(plan: OverlapPlan) -> tuple[str, ...]:
    """Return the mechanisms that the machine has for an operator."""
    return tuple(name for name, one in MECHANISMS.items() if plan.operator in one.operators
                 and (plan.machine.in_switch is not None or not one.in_switch)
                 and (plan.hardware is not None or not one.arbitrated))


def play(plan: OverlapPlan, mechanism: str) -> OverlapTime:
    """Play an operator under a mechanism. Raises BadInput."""
    if mechanism not in possible(plan):
        raise BadInput(f"mechanism {mechanism[:40]!r} is not possible for {plan.operator} on {plan.machine.name}: "
                       f"allowed are {', '.join(possible(plan))}")
    return MECHANISMS[mechanism].play(plan)


def _bound(gemm: float, other: float) -> str:
    return "GEMM" if gemm >= other else "collective"


def _one_after_the_other(mechanism: str, plan: OverlapPlan, collective_ns: float, job: TimedJob) -> OverlapTime:
    return OverlapTime(mechanism, plan.gemm_ns + collective_ns, "both", job.units, job.memory_bytes)


def _in_turn(plan: OverlapPlan) -> OverlapTime:
    job = plan.collective()
    packing_ns = 2 * plan.size / plan.machine.memory_bytes_per_ns if plan.kind == "all_to_all" else 0.0
    return OverlapTime("in-turn", plan.gemm_ns + job.ns + packing_ns, "both", job.units,
                       job.memory_bytes)


def _symmetric(plan: OverlapPlan) -> OverlapTime:
    return _one_after_the_other("symmetric", plan, symmetric_ns(plan.machine, plan.kind, plan.gpus, plan.size),
                                plan.collective())


def _direct(plan: OverlapPlan, way: str) -> OverlapTime:
    read_bytes = plan.size * (plan.gpus if way == "one-shot" else 2)  # by others, of this GPU's memory
    return _one_after_the_other(way, plan, ways(plan.machine, plan.kind, plan.gpus, plan.size)[way],
                                replace(plan.collective(), memory_bytes=read_bytes + plan.size))


def _fused_norm(plan: OverlapPlan) -> OverlapTime:
    """Play a kernel that norms a GPU's own tokens between its sums and its stores.

    Other mechanisms have a separate kernel for the norm; this one subtracts its time.
    """
    m, n, _ = plan.shape
    run = _symmetric(plan)
    saved_ns = norm_ns(plan.machine, plan.rows or m, n) - plan.machine.wires.latency_ns
    return replace(run, mechanism="fused-norm", ns=max(plan.gemm_ns, run.ns - saved_ns))


def _copy_engines(plan: OverlapPlan) -> OverlapTime:
    job = plan.collective("engines")
    return _one_after_the_other("copy-engines", plan, job.ns, job)


def _decomposed(plan: OverlapPlan) -> OverlapTime:
    """Play a piece of the GEMM per GPU during copies; each has a partial last round, a launch and an event."""
    machine, (m, n, k), gpus, wires = plan.machine, plan.shape, plan.gpus, plan.machine.wires
    piece_ns = library_kernel(machine, ceil(m / gpus), n, k, plan.width).ns
    slowdown = 1 / (1 - machine.sharing.power_share) - 1  # while a copy runs
    copy_ns = wires.copy_ns + plan.size / gpus / (pair_gb_per_s(machine, 2) * wires.copy_efficiency)
    end_ns = copied_ns = 0.0
    side_by_side = wires.kind == "full"  # a link for each copy
    for index in range(gpus):
        if plan.before:
            copied_ns = min(index, 1) * copy_ns if side_by_side else index * copy_ns
            end_ns = max(end_ns, copied_ns)
            last_copy_ns = copy_ns if side_by_side else (gpus - 1) * copy_ns
            end_ns += piece_ns + slowdown * min(piece_ns, max(0.0, last_copy_ns - end_ns)) + _PIECE_NS
        else:
            end_ns += piece_ns + slowdown * min(piece_ns, copy_ns if index else 0.0) + _PIECE_NS
            sent_ns = copy_ns if index < gpus - 1 else 0.0
            copied_ns = max(copied_ns, end_ns + sent_ns) if side_by_side else max(copied_ns, end_ns) + sent_ns
    if plan.kind in ("all_reduce", "reduce_scatter"):
        end_ns = copied_ns + machine.kernels.launch_ns + (gpus + 1) * plan.size / gpus / machine.memory_bytes_per_ns
    if plan.kind == "all_reduce":
        end_ns += copies_ns(machine, "all_gather", gpus, plan.size)
    return OverlapTime("decomposed", end_ns, _bound(gpus * piece_ns, gpus * copy_ns), 0, 2 * plan.size)


def fused(plan: OverlapPlan, transfer_ns: float, fixed_ns: float, senders: int) -> tuple[float, float]:
    """Return the time of a kernel of both, and of its GEMM.

    The first round of tiles (or the own rows) overlaps with no transfer, and the last transfer with no tile.
    """
    machine = plan.machine
    kernel = plan.kernel(machine.gpu.compute_units - senders)
    gemm_ns = kernel.ns / (1 - machine.sharing.power_share)
    rounds = max(1, ceil(kernel.tiles / kernel.units))
    exposed_ns = gemm_ns / (plan.gpus if plan.before else rounds)
    overlap_ns = max(gemm_ns + transfer_ns / plan.gpus, transfer_ns + exposed_ns)
    return machine.kernels.launch_ns + fixed_ns + overlap_ns, gemm_ns


def _flux(plan: OverlapPlan) -> OverlapTime:
    """Play a kernel that stores at owners, which then add, or that waits for rows from copy engines.

    On Hopper it pulls: 2 warps of each unit fetch a part of a tile from its GPU, store it, and fetch the next.
    """
    machine, gpus, size = plan.machine, plan.gpus, plan.size
    part_ns = size / gpus / pair_gb_per_s(machine, gpus)
    if plan.before:
        transfer_ns, fixed_ns = machine.wires.copy_ns + part_ns / machine.wires.copy_efficiency, machine.wires.copy_ns
    else:
        transfer_ns = part_ns / machine.wires.all_efficiency
        if machine.sharing.pull_gb_per_s is not None:
            transfer_ns = max(transfer_ns, size / (machine.gpu.compute_units * machine.sharing.pull_gb_per_s))
        fixed_ns = ((gpus + 1) * size / gpus / machine.memory_bytes_per_ns + machine.kernels.launch_ns
                    + machine.direct.phase_ns)
    if plan.kind == "all_reduce":
        fixed_ns += library_collective(machine, "all_gather", gpus, size).ns
    ns, gemm_ns = fused(plan, transfer_ns, fixed_ns, 0)
    return OverlapTime("flux", ns, _bound(gemm_ns, transfer_ns), 0, 2 * size)


def _fused_units(plan: OverlapPlan) -> OverlapTime:
    """Play a kernel in which some units only load rows from other GPUs, or store rows there."""
    machine, wires = plan.machine, plan.machine.wires
    units = min(machine.sharing.kernel_units, machine.gpu.compute_units - 1)
    transfer_ns = plan.size / plan.gpus / pair_gb_per_s(machine, plan.gpus) / wires.all_efficiency
    ns, gemm_ns = fused(plan, transfer_ns, 2 * wires.latency_ns, units)
    return OverlapTime("fused-units", ns, _bound(gemm_ns, transfer_ns), units, 2 * plan.size)


def _in_switch_fused(plan: OverlapPlan) -> OverlapTime:
    transfer = transfer_ns(plan.machine, plan.kind, plan.gpus, plan.size)
    ns, gemm_ns = fused(plan, transfer, 2 * plan.machine.in_switch.barrier_ns, _SENDERS)
    return OverlapTime("in-switch-fused", ns, _bound(gemm_ns, transfer), _SENDERS, 2 * plan.size)


def _sdma_chain(plan: OverlapPlan) -> OverlapTime:
    """Play copies that flags release. After a collective, the GEMM polls each shard and starts with its own.

    Before a collective, each round of tiles sets flags that release chains of poll, copy and signal, with a part of
    every shard; a kernel adds the received parts, and the sums of an all-reduce are then copied.
    """
    machine, gpus, size = plan.machine, plan.gpus, plan.size
    transfer_ns = copies_ns(machine, plan.kind if plan.before else "all_gather", gpus, size)
    # Power takes from the GEMM's clock while copies run.
    power_share = machine.sharing.power_share
    gemm_ns = plan.gemm_ns + min(plan.gemm_ns, transfer_ns) * power_share / (1 - power_share)
    polls_ns = 2 * machine.wires.latency_ns * gpus
    if plan.before:
        ns = max(gemm_ns + polls_ns, transfer_ns + gemm_ns / gpus)
    else:
        kernel, copy_ns = plan.kernel(), machine.wires.copy_ns
        rounds = min(gpus, ceil(kernel.tiles / kernel.units))
        last_copy_ns = copy_ns + (transfer_ns - copy_ns) / rounds  # when nothing is left to compute
        additions_ns = copies_ns(machine, "reduce_scatter", gpus, size) - transfer_ns
        copies_end_ns = transfer_ns + (rounds - 1) * copy_ns + gemm_ns / rounds
        ns = max(gemm_ns + polls_ns + last_copy_ns, copies_end_ns) + additions_ns
        ns += transfer_ns if plan.kind == "all_reduce" else 0.0
    return OverlapTime("sdma-chain", ns, _bound(gemm_ns, transfer_ns), 0, 2 * size)


def _t3(plan: OverlapPlan, way: str = "ring", ring_aware: bool = False) -> OverlapTime:
    """Play Track & Trigger: stores trigger the collective, and memory adds arriving data.

    An all-reduce's all-gather follows, as in the paper. `way`: of `collectives.WAYS`; `ring_aware`: the arbiters, which
    else alternate.
    """
    machine, name = plan.machine, f"t3{'-mca+' if ring_aware else '' if way == 'ring' else f'-{way}'}"

    def exchange(kind: str) -> TimedJob:
        ring = collective_job(machine, kind, plan.gpus, plan.size, "near-memory")
        return replace(ring, ns=triggered_ns(machine, kind, plan.gpus, plan.size, way))

    job = exchange({"all_reduce": "reduce_scatter", "all_to_all": "all_gather"}.get(plan.kind, plan.kind))
    bound, gemm_ns = _bound(plan.gemm_ns, job.ns), plan.gemm_ns
    if plan.before:
        ns = max(beside(machine, plan.shape, plan.width, job).ns, job.ns + gemm_ns / plan.gpus)
        return OverlapTime(name, ns, bound, 0, job.memory_bytes, {"inputs_not_there": ns - gemm_ns})
    tiles, limits = _tiles(plan), TriggerLimits() if plan.hardware is None else trigger_limits(plan.hardware)
    ring = TileExchange(plan.gpus, triggered_rate(machine, plan.gpus, way), machine.wires.latency_ns,
                        direct=way == "direct", turns=way == "ring" and not ring_aware,
                        staged=ring_aware and _staging_pays(plan, job, limits),
                        loads_bytes_per_ns=_loaded_bytes(plan) / gemm_ns, power_share=machine.sharing.power_share)
    run = triggered_gemm(gemm_ns, tiles, ring, limits)
    gather_ns = {"all_gather": exchange("all_gather").ns} if plan.kind == "all_reduce" else {}
    staged_bytes = 2 * plan.size / plan.gpus if ring.staged else 0.0
    return OverlapTime(name, run.ns + sum(gather_ns.values()), bound, 0, job.memory_bytes + staged_bytes,
                       run.losses_ns | gather_ns)


def _tiles(plan: OverlapPlan) -> Tiles:
    """Return the tiles that are tracked: the hardware's kernel's, or the library's if no hardware is known.

    To the BLAS library a tile's rows are the output's columns. A chunk has a tile at least.
    """
    (m, n, _), kernel = plan.shape, plan.kernel()
    count, units, at_once = kernel.tiles // kernel.split, kernel.units, kernel.units
    if plan.hardware is not None:
        gpu = plan.hardware.gpu
        count, units = ceil(n / gpu.tile_m) * ceil(m / gpu.tile_n), gpu.compute_units
        at_once = units * gpu.workgroups_per_cu
    count = max(count, plan.gpus)
    return Tiles(count, units, at_once, plan.size / count)


def _loaded_bytes(plan: OverlapPlan) -> float:
    """Return the bytes of operands that the GEMM reads from memory."""
    m, n, _ = plan.shape
    return gemm_job(plan.machine, *plan.shape, plan.width).memory_bytes - OPERAND_BYTES * m * n


def _staging_pays(plan: OverlapPlan, ring: TimedJob, limits: TriggerLimits) -> bool:
    """Say whether T3-MCA+ stages the first chunk: the rule of `t3sim.mechanisms.staging` on this level."""
    gemm = gemm_job(plan.machine, *plan.shape, plan.width)
    dram_ns = (gemm.memory_bytes + ring.memory_bytes) / plan.machine.memory_bytes_per_ns
    return gemm.ns > ring.ns and plan.size / plan.gpus > limits.buffer_bytes and dram_ns < gemm.ns / 2


class Mechanism(NamedTuple):
    """A way to run a GEMM and its collective."""

    title: str
    source: str
    play: Callable[[OverlapPlan], OverlapTime]
    operators: tuple[str, ...] = tuple(OPERATORS)
    in_switch: bool = False  #: only with a switch that adds
    arbitrated: bool = False  #: only with hardware whose arbiters are known


_REDUCED = ("gemm+ar", "gemm+rs")

#: By name, as `t3 overlap` ranks and `t3 techniques` lists them.
MECHANISMS = {
    "in-turn": Mechanism("the vendor's libraries, one after the other", "NCCL, RCCL", _in_turn),
    "symmetric": Mechanism("kernels over symmetric memory: the switch adds and copies, or direct copies",
                           "NCCL 2.27; torch multimem", _symmetric),
    "one-shot": Mechanism("each GPU loads and adds all others' outputs", "vLLM custom all-reduce; MSCCL++",
                          partial(_direct, way="one-shot"), ("gemm+ar",)),
    "two-shot": Mechanism("each GPU adds its part of all outputs, then loads the other sums",
                          "vLLM custom all-reduce; MSCCL++", partial(_direct, way="two-shot"), ("gemm+ar",)),
    "fused-norm": Mechanism("all-reduce and RMSNorm in one kernel; a separate norm's time is subtracted",
                            "TokenWeave, arXiv 2505.11329; TensorRT-LLM", _fused_norm, ("gemm+ar",)),
    "copy-engines": Mechanism("GEMM, then copies by engines, which hold no units", "NCCL 2.28 zero-CTA; ROCm/mori",
                              _copy_engines),
    "decomposed": Mechanism("a piece per GPU, launched by the host, next to copies of other pieces", "PyTorch async-TP",
                            _decomposed),
    "flux": Mechanism("one kernel whose tiles wait for, or store at, other GPUs", "Flux, arXiv 2406.06858, 3.1 and 4",
                      _flux),
    "fused-units": Mechanism("one kernel: some units exchange rows, the others multiply those that arrived",
                             "gcnasm opus_a2a_gemm_lsa; ROCm/iris", _fused_units, ("ag+gemm", "a2a+gemm")),
    "in-switch-fused": Mechanism("some of the GEMM's units let the switch add finished tiles",
                                 "FlagTree PR 861", _in_switch_fused, _REDUCED, in_switch=True),
    "sdma-chain": Mechanism("chains of poll, copy and signal, which a GEMM's flags release or which it polls",
                            "gcnasm opus_gemm_dist; ROCm/mori", _sdma_chain),
    "t3": Mechanism("Track & Trigger, near-memory addition around a ring; no units, no launch", "T3, ASPLOS 2024",
                    _t3),
    "t3-mca+": Mechanism("t3 with arbiters that let the GEMM go first while the ring is on time", "this project",
                         partial(_t3, ring_aware=True), arbitrated=True),
    "t3-direct": Mechanism("t3 with each tile sent directly to its owner", "T3, ASPLOS 2024, section 7.1",
                           partial(_t3, way="direct")),
}
