"""Mechanisms that users of today have to overlap a GEMM with its collective, and Track & Trigger beside them.

`MECHANISMS`, at the end, has each with its source.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from math import ceil
from typing import NamedTuple

from t3sim.analytic.gemm import GemmKernel, library_kernel
from t3sim.analytic.libraries.collectives import (
    copies_ns,
    library_collective,
    symmetric_ns,
    transfer_ns,
    triggered_ns,
    ways,
)
from t3sim.analytic.libraries.contention import TimedJob, beside, collective_job, gemm_job
from t3sim.analytic.libraries.prompts import norm_ns
from t3sim.analytic.rings import pair_gb_per_s
from t3sim.base.errors import BadInput
from t3sim.machine import Machine

OPERATORS = {"gemm+ar": "all_reduce", "gemm+rs": "reduce_scatter", "ag+gemm": "all_gather", "a2a+gemm": "all_to_all"}

#: Track & Trigger, by either way.
TRIGGERED = ("t3", "t3-direct")
#: Track & Trigger of one GPU in gate equivalents, without memories (`t3 area`, docs/results/area.md).
GATES = 455_000

#: Between kernels that the host launches as pieces of one operator: a launch, and an event between two streams (as in
#: a100-nvlink's [host]).
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

    def collective(self, mover: str = "units", library: str = "") -> TimedJob:
        return collective_job(self.machine, self.kind, self.gpus, self.size, mover, library)


@dataclass(frozen=True)
class OverlapTime:
    """An operator under a mechanism."""

    mechanism: str
    ns: float
    bound: str
    units: int  #: compute units that the collective holds
    memory_bytes: float  #: that the collective moves in a GPU's memory


def possible(plan: OverlapPlan) -> tuple[str, ...]:
    """Return the mechanisms that the machine has for an operator."""
    return tuple(name for name, one in MECHANISMS.items() if plan.operator in one.operators
                 and (plan.machine.in_switch is not None or not one.in_switch))


def play(plan: OverlapPlan, mechanism: str) -> OverlapTime:
    """Play an operator under a mechanism. Raises BadInput."""
    if mechanism not in possible(plan):
        raise BadInput(f"mechanism {mechanism[:40]!r} is not possible for {plan.operator} on {plan.machine.name}: "
                       f"allowed are {', '.join(possible(plan))}")
    return MECHANISMS[mechanism].play(plan)


def _bound(gemm: float, other: float) -> str:
    return "GEMM" if gemm >= other else "collective"


def _one_after_the_other(mechanism: str, plan: OverlapPlan, collective_ns: float, job: TimedJob) -> OverlapTime:
    return OverlapTime(mechanism, plan.gemm_ns + collective_ns, "one after the other", job.units, job.memory_bytes)


def _in_turn(plan: OverlapPlan) -> OverlapTime:
    job = plan.collective(library="torch")
    packed = 2 * plan.size / plan.machine.memory_bytes_per_ns if plan.kind == "all_to_all" else 0.0
    return OverlapTime("in-turn", plan.gemm_ns + job.ns + packed, "one after the other", job.units, job.memory_bytes)


def _symmetric(plan: OverlapPlan) -> OverlapTime:
    return _one_after_the_other("symmetric", plan, symmetric_ns(plan.machine, plan.kind, plan.gpus, plan.size),
                                plan.collective())


def _direct(plan: OverlapPlan, way: str) -> OverlapTime:
    read = plan.size * (plan.gpus if way == "one-shot" else 2)  # by others, of this GPU's memory
    return _one_after_the_other(way, plan, ways(plan.machine, plan.kind, plan.gpus, plan.size)[way],
                                replace(plan.collective(), memory_bytes=read + plan.size))


def _fused_norm(plan: OverlapPlan) -> OverlapTime:
    """Play a kernel that norms a GPU's own tokens between its sums and its stores.

    The others leave the norm to a kernel of its own, whose time this one saves: it is subtracted.
    """
    m, n, _ = plan.shape
    run = _symmetric(plan)
    saved = norm_ns(plan.machine, plan.rows or m, n) - plan.machine.wires.latency_ns
    return replace(run, mechanism="fused-norm", ns=max(plan.gemm_ns, run.ns - saved))


def _copy_engines(plan: OverlapPlan) -> OverlapTime:
    job = plan.collective("engines")
    return _one_after_the_other("copy-engines", plan, job.ns, job)


def _decomposed(plan: OverlapPlan) -> OverlapTime:
    """Play pieces beside copies: a piece per GPU, whose tiles fill rounds badly, and each with its launch and event."""
    machine, (m, n, k), gpus, wires = plan.machine, plan.shape, plan.gpus, plan.machine.wires
    piece = library_kernel(machine, ceil(m / gpus), n, k, plan.width).ns
    slower = 1 / (1 - machine.sharing.power_share) - 1  # while a copy runs
    hop = wires.copy_ns + plan.size / gpus / (pair_gb_per_s(machine, 2) * wires.copy_efficiency)
    end = copied = 0.0
    side_by_side = wires.kind == "full"  # a link for each copy
    for place in range(gpus):
        if plan.before:
            copied = min(place, 1) * hop if side_by_side else place * hop
            end = max(end, copied)
            last = hop if side_by_side else (gpus - 1) * hop
            end += piece + slower * min(piece, max(0.0, last - end)) + _PIECE_NS
        else:
            end += piece + slower * min(piece, hop if place else 0.0) + _PIECE_NS
            sent = hop if place < gpus - 1 else 0.0
            copied = max(copied, end + sent) if side_by_side else max(copied, end) + sent
    if plan.kind in ("all_reduce", "reduce_scatter"):
        end = copied + machine.kernels.launch_ns + (gpus + 1) * plan.size / gpus / machine.memory_bytes_per_ns
    if plan.kind == "all_reduce":
        end += copies_ns(machine, "all_gather", gpus, plan.size)
    return OverlapTime("decomposed", end, _bound(gpus * piece, gpus * hop), 0, 2 * plan.size)


def fused(plan: OverlapPlan, transfer: float, fixed: float, senders: int) -> tuple[float, float]:
    """Return the time of one kernel of both, and its GEMM's.

    The first round of tiles has nothing to send, or the own rows come first; the last has nothing to hide behind.
    """
    machine = plan.machine
    kernel = plan.kernel(machine.gpu.compute_units - senders)
    gemm = kernel.ns / (1 - machine.sharing.power_share)
    rounds = max(1, ceil(kernel.tiles / kernel.units))
    exposed = gemm / (plan.gpus if plan.before else rounds)
    return machine.kernels.launch_ns + fixed + max(gemm + transfer / plan.gpus, transfer + exposed), gemm


def _flux(plan: OverlapPlan) -> OverlapTime:
    """Play a kernel that stores at owners, which then add, or that waits for rows that copy engines bring.

    Hopper's pulls instead: two warps of each unit fetch a part of a tile from its GPU, store it, and fetch the next.
    """
    machine, gpus, size = plan.machine, plan.gpus, plan.size
    part = size / gpus / pair_gb_per_s(machine, gpus)
    if plan.before:
        transfer, fixed = machine.wires.copy_ns + part / machine.wires.copy_efficiency, machine.wires.copy_ns
    else:
        transfer = part / machine.wires.all_efficiency
        if machine.sharing.pull_gb_per_s is not None:
            transfer = max(transfer, size / (machine.gpu.compute_units * machine.sharing.pull_gb_per_s))
        fixed = ((gpus + 1) * size / gpus / machine.memory_bytes_per_ns + machine.kernels.launch_ns
                 + machine.direct.phase_ns)
    if plan.kind == "all_reduce":
        fixed += library_collective(machine, "all_gather", gpus, size, library="torch").ns
    ns, gemm = fused(plan, transfer, fixed, 0)
    return OverlapTime("flux", ns, _bound(gemm, transfer), 0, 2 * size)


def _fused_units(plan: OverlapPlan) -> OverlapTime:
    """Play a kernel some of whose units bring rows from, or store them at, other GPUs, and multiply nothing."""
    machine, wires = plan.machine, plan.machine.wires
    units = min(machine.sharing.kernel_units, machine.gpu.compute_units - 1)
    transfer = plan.size / plan.gpus / pair_gb_per_s(machine, plan.gpus) / wires.all_efficiency
    ns, gemm = fused(plan, transfer, 2 * wires.latency_ns, units)
    return OverlapTime("fused-units", ns, _bound(gemm, transfer), units, 2 * plan.size)


def _in_switch_fused(plan: OverlapPlan) -> OverlapTime:
    transfer = transfer_ns(plan.machine, plan.kind, plan.gpus, plan.size)
    ns, gemm = fused(plan, transfer, 2 * plan.machine.in_switch.barrier_ns, _SENDERS)
    return OverlapTime("in-switch-fused", ns, _bound(gemm, transfer), _SENDERS, 2 * plan.size)


def _sdma_chain(plan: OverlapPlan) -> OverlapTime:
    """Play copies that flags release. After a collective the GEMM polls each shard and starts with its own.

    Before one a round of tiles sets flags, for which chains of poll, copy and signal wait, a part of every shard each;
    a kernel adds what has come, and the sums of an all-reduce are copied in turn.
    """
    machine, gpus, size = plan.machine, plan.gpus, plan.size
    transfer = copies_ns(machine, plan.kind if plan.before else "all_gather", gpus, size)
    # Power takes from the GEMM's clock while copies run.
    power = machine.sharing.power_share
    whole = plan.gemm_ns + min(plan.gemm_ns, transfer) * power / (1 - power)
    polls = 2 * machine.wires.latency_ns * gpus
    if plan.before:
        ns = max(whole + polls, transfer + whole / gpus)
    else:
        kernel, copy_ns = plan.kernel(), machine.wires.copy_ns
        rounds = min(gpus, ceil(kernel.tiles / kernel.units))
        last = copy_ns + (transfer - copy_ns) / rounds  # when nothing is left to compute
        adds = copies_ns(machine, "reduce_scatter", gpus, size) - transfer
        ns = max(whole + polls + last, transfer + (rounds - 1) * copy_ns + whole / rounds) + adds
        ns += transfer if plan.kind == "all_reduce" else 0.0
    return OverlapTime("sdma-chain", ns, _bound(whole, transfer), 0, 2 * size)


def _t3(plan: OverlapPlan, way: str = "ring") -> OverlapTime:
    """Play Track & Trigger: the collective is triggered by what is stored, and memory adds what arrives.

    An all-reduce's all-gather comes after it, as the paper has it. `way`: of `collectives.WAYS`.
    """
    def exchange(kind: str) -> TimedJob:
        ring = collective_job(plan.machine, kind, plan.gpus, plan.size, "near-memory")
        return replace(ring, ns=triggered_ns(plan.machine, kind, plan.gpus, plan.size, way))

    job = exchange({"all_reduce": "reduce_scatter", "all_to_all": "all_gather"}.get(plan.kind, plan.kind))
    together = beside(plan.machine, plan.shape, plan.width, job)
    rounds = max(1, ceil(plan.kernel().tiles / plan.machine.gpu.compute_units))
    ns = max(together.ns, job.ns + plan.gemm_ns / (plan.gpus if plan.before else rounds))
    if plan.kind == "all_reduce":
        ns += exchange("all_gather").ns
    return OverlapTime("t3" if way == "ring" else f"t3-{way}", ns, _bound(plan.gemm_ns, job.ns), 0, job.memory_bytes)


class Mechanism(NamedTuple):
    """A way to run a GEMM and its collective."""

    title: str
    source: str
    play: Callable[[OverlapPlan], OverlapTime]
    operators: tuple[str, ...] = tuple(OPERATORS)
    in_switch: bool = False  #: only with a switch that adds


_REDUCED = ("gemm+ar", "gemm+rs")

#: By name, as `t3 overlap` ranks and `t3 techniques` lists them.
MECHANISMS = {
    "in-turn": Mechanism("the vendor's libraries, one after the other", "NCCL, RCCL", _in_turn),
    "symmetric": Mechanism("kernels over symmetric memory: the switch adds and copies, else direct",
                           "NCCL 2.27; torch multimem", _symmetric),
    "one-shot": Mechanism("each GPU loads and adds all others' outputs", "vLLM custom all-reduce; MSCCL++",
                          partial(_direct, way="one-shot"), ("gemm+ar",)),
    "two-shot": Mechanism("each GPU adds its part of them, then loads the sums of the others",
                          "vLLM custom all-reduce; MSCCL++", partial(_direct, way="two-shot"), ("gemm+ar",)),
    "fused-norm": Mechanism("all-reduce and RMSNorm in one kernel; the norm that it saves is subtracted",
                            "TokenWeave, arXiv 2505.11329; TensorRT-LLM", _fused_norm, ("gemm+ar",)),
    "copy-engines": Mechanism("copies by engines, which hold no units, in turn", "NCCL 2.28 zero-CTA; ROCm/mori",
                              _copy_engines),
    "decomposed": Mechanism("as many pieces as GPUs, each launched by the host, beside copies", "PyTorch async-TP",
                            _decomposed),
    "flux": Mechanism("one kernel whose tiles wait for, or store at, other GPUs", "Flux, arXiv 2406.06858, 3.1 and 4",
                      _flux),
    "fused-units": Mechanism("one kernel: some units exchange rows, the rest multiply what has come",
                             "gcnasm opus_a2a_gemm_lsa; ROCm/iris", _fused_units, ("ag+gemm", "a2a+gemm")),
    "in-switch-fused": Mechanism("finished tiles are summed in the switch by some of the GEMM's units",
                                 "FlagTree PR 861", _in_switch_fused, _REDUCED, in_switch=True),
    "sdma-chain": Mechanism("chains of poll, copy and signal that a GEMM's flags release, or that it polls",
                            "gcnasm opus_gemm_dist; ROCm/mori", _sdma_chain),
    "t3": Mechanism("Track & Trigger with near-memory addition around a ring: no units, no launch", "T3, ASPLOS 2024",
                    _t3),
    "t3-direct": Mechanism("the same, each tile straight to its owner", "T3, ASPLOS 2024, section 7.1",
                            partial(_t3, way="direct")),
}
