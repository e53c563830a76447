"""Mechanisms that users of today have to overlap a GEMM with its collective, and Track & Trigger beside them.

`MECHANISMS`, at the end, has each with its source.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil
from typing import NamedTuple

from t3sim.analytic.gemm import library_kernel
from t3sim.analytic.libraries.collectives import (
    copies_ns,
    library_collective,
    symmetric_ns,
    transfer_ns,
    triggered_ns,
    ways,
)
from t3sim.analytic.libraries.contention import Job, beside, collective_job, gemm_job
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
class Setting:
    """A GEMM of one GPU and the collective before or after it; `size`: bytes of the collective's whole tensor."""

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
        m, n, k = self.shape
        return 2.0 * (self.rows or m) * (k if self.before else n)


@dataclass(frozen=True)
class Run:
    """An operator under a mechanism."""

    mechanism: str
    ns: float
    bound: str
    units: int  #: compute units that the collective holds
    memory_bytes: float  #: that the collective moves in a GPU's memory


def possible(machine: Machine, setting: Setting) -> tuple[str, ...]:
    """Return the mechanisms that a machine has for an operator."""
    return tuple(name for name, one in MECHANISMS.items() if setting.operator in one.operators
                 and (machine.in_switch is not None or not one.in_switch))


def play(machine: Machine, setting: Setting, mechanism: str) -> Run:
    """Play an operator under a mechanism. Raises BadInput."""
    if mechanism not in possible(machine, setting):
        raise BadInput(f"mechanism {mechanism[:40]!r} is not possible for {setting.operator} on {machine.name}: "
                       f"allowed are {', '.join(possible(machine, setting))}")
    return MECHANISMS[mechanism].play(machine, setting)


def _gemm_ns(machine: Machine, setting: Setting) -> float:
    return gemm_job(machine, *setting.shape, setting.width).ns


def _bound(gemm: float, other: float) -> str:
    return "GEMM" if gemm >= other else "collective"


def _in_turn(machine: Machine, setting: Setting) -> Run:
    job = collective_job(machine, setting.kind, setting.gpus, setting.size, library="torch")
    gemm = _gemm_ns(machine, setting)
    packed = 2 * setting.size / machine.memory_bytes_per_ns if setting.kind == "all_to_all" else 0.0
    return Run("in-turn", gemm + job.ns + packed, "one after the other", job.units, job.memory_bytes)


def _symmetric(machine: Machine, setting: Setting) -> Run:
    job = collective_job(machine, setting.kind, setting.gpus, setting.size)
    ns = _gemm_ns(machine, setting) + symmetric_ns(machine, setting.kind, setting.gpus, setting.size)
    return Run("symmetric", ns, "one after the other", job.units, job.memory_bytes)


def _direct(machine: Machine, setting: Setting, way: str) -> Run:
    job = collective_job(machine, setting.kind, setting.gpus, setting.size)
    ns = _gemm_ns(machine, setting) + ways(machine, setting.kind, setting.gpus, setting.size)[way]
    read = setting.size * (setting.gpus if way == "one-shot" else 2)  # by others, of this GPU's memory
    return Run(way, ns, "one after the other", job.units, read + setting.size)


def _one_shot(machine: Machine, setting: Setting) -> Run:
    return _direct(machine, setting, "one-shot")


def _two_shot(machine: Machine, setting: Setting) -> Run:
    return _direct(machine, setting, "two-shot")


def _fused_norm(machine: Machine, setting: Setting) -> Run:
    """Play a kernel that norms a GPU's own tokens between its sums and its stores.

    The others leave the norm to a kernel of its own, whose time this one saves: it is subtracted.
    """
    m, n, _ = setting.shape
    run = _symmetric(machine, setting)
    saved = norm_ns(machine, setting.rows or m, n) - machine.wires.latency_ns
    return Run("fused-norm", max(_gemm_ns(machine, setting), run.ns - saved), run.bound, run.units, run.memory_bytes)


def _copy_engines(machine: Machine, setting: Setting) -> Run:
    job = collective_job(machine, setting.kind, setting.gpus, setting.size, "engines")
    return Run("copy-engines", _gemm_ns(machine, setting) + job.ns, "one after the other", 0, job.memory_bytes)


def _decomposed(machine: Machine, setting: Setting) -> Run:
    """Play pieces beside copies: a piece per GPU, whose tiles fill rounds badly, and each with its launch and event."""
    (m, n, k), gpus, wires = setting.shape, setting.gpus, machine.wires
    piece = library_kernel(machine, ceil(m / gpus), n, k, setting.width).ns
    slower = 1 / (1 - machine.sharing.power_share) - 1  # while a copy runs
    hop = wires.copy_ns + setting.size / gpus / (pair_gb_per_s(machine, 2) * wires.copy_efficiency)
    end = copied = 0.0
    side_by_side = wires.kind == "full"  # a link for each copy
    for place in range(gpus):
        if setting.before:
            copied = min(place, 1) * hop if side_by_side else place * hop
            end = max(end, copied)
            last = hop if side_by_side else (gpus - 1) * hop
            end += piece + slower * min(piece, max(0.0, last - end)) + _PIECE_NS
        else:
            end += piece + slower * min(piece, hop if place else 0.0) + _PIECE_NS
            sent = hop if place < gpus - 1 else 0.0
            copied = max(copied, end + sent) if side_by_side else max(copied, end) + sent
    if setting.kind in ("all_reduce", "reduce_scatter"):
        end = copied + machine.kernels.launch_ns + (gpus + 1) * setting.size / gpus / machine.memory_bytes_per_ns
    if setting.kind == "all_reduce":
        end += copies_ns(machine, "all_gather", gpus, setting.size)
    return Run("decomposed", end, _bound(gpus * piece, gpus * hop), 0, 2 * setting.size)


def fused(machine: Machine, setting: Setting, transfer: float, fixed: float, senders: int) -> tuple[float, float]:
    """Return the time of one kernel of both, and its GEMM's.

    The first round of tiles has nothing to send, or the own rows come first; the last has nothing to hide behind.
    """
    units = machine.gpu.compute_units - senders
    kernel = library_kernel(machine, *setting.shape, setting.width, units)
    gemm = kernel.ns / (1 - machine.sharing.power_share)
    rounds = max(1, ceil(kernel.tiles / kernel.units))
    exposed = gemm / (setting.gpus if setting.before else rounds)
    return machine.kernels.launch_ns + fixed + max(gemm + transfer / setting.gpus, transfer + exposed), gemm


def _flux(machine: Machine, setting: Setting) -> Run:
    """Play a kernel that stores at owners, which then add, or that waits for rows that copy engines bring.

    Hopper's pulls instead: two warps of each unit fetch a part of a tile from its GPU, store it, and fetch the next.
    """
    gpus, size = setting.gpus, setting.size
    part = size / gpus / pair_gb_per_s(machine, gpus)
    if setting.before:
        transfer, fixed = machine.wires.copy_ns + part / machine.wires.copy_efficiency, machine.wires.copy_ns
        ns, gemm = fused(machine, setting, transfer, fixed, 0)
        return Run("flux", ns, _bound(gemm, transfer), 0, 2 * size)
    transfer = part / machine.wires.all_efficiency
    if machine.sharing.pull_gb_per_s is not None:
        transfer = max(transfer, size / (machine.gpu.compute_units * machine.sharing.pull_gb_per_s))
    adds = (gpus + 1) * size / gpus / machine.memory_bytes_per_ns + machine.kernels.launch_ns + machine.direct.phase_ns
    if setting.kind == "all_reduce":
        adds += library_collective(machine, "all_gather", gpus, size, library="torch").ns
    ns, gemm = fused(machine, setting, transfer, adds, 0)
    return Run("flux", ns, _bound(gemm, transfer), 0, 2 * size)


def _fused_units(machine: Machine, setting: Setting) -> Run:
    """Play a kernel some of whose units bring rows from, or store them at, other GPUs, and multiply nothing."""
    units = min(machine.sharing.kernel_units, machine.gpu.compute_units - 1)
    part = setting.size / setting.gpus / pair_gb_per_s(machine, setting.gpus)
    transfer, wires = part / machine.wires.all_efficiency, machine.wires
    ns, gemm = fused(machine, setting, transfer, 2 * wires.latency_ns, units)
    return Run("fused-units", ns, _bound(gemm, transfer), units, 2 * setting.size)


def _in_switch_fused(machine: Machine, setting: Setting) -> Run:
    switch = machine.in_switch
    transfer = transfer_ns(machine, setting.kind, setting.gpus, setting.size)
    ns, gemm = fused(machine, setting, transfer, 2 * switch.barrier_ns, _SENDERS)
    return Run("in-switch-fused", ns, _bound(gemm, transfer), _SENDERS, 2 * setting.size)


def _sdma_chain(machine: Machine, setting: Setting) -> Run:
    """Play copies that flags release. After a collective the GEMM polls each shard and starts with its own.

    Before one a round of tiles sets flags, for which chains of poll, copy and signal wait, a part of every shard each;
    a kernel adds what has come, and the sums of an all-reduce are copied in turn.
    """
    gpus, size = setting.gpus, setting.size
    transfer = copies_ns(machine, setting.kind if setting.before else "all_gather", gpus, size)
    alone = gemm_job(machine, *setting.shape, setting.width).ns
    # Power takes from the GEMM's clock while copies run.
    whole = alone + min(alone, transfer) * machine.sharing.power_share / (1 - machine.sharing.power_share)
    polls = 2 * machine.wires.latency_ns * gpus
    if setting.before:
        ns = max(whole + polls, transfer + whole / gpus)
    else:
        kernel, copy_ns = library_kernel(machine, *setting.shape, setting.width), machine.wires.copy_ns
        rounds = min(gpus, ceil(kernel.tiles / kernel.units))
        last = copy_ns + (transfer - copy_ns) / rounds  # when nothing is left to compute
        adds = copies_ns(machine, "reduce_scatter", gpus, size) - transfer
        ns = max(whole + polls + last, transfer + (rounds - 1) * copy_ns + whole / rounds) + adds
        ns += transfer if setting.kind == "all_reduce" else 0.0
    return Run("sdma-chain", ns, _bound(whole, transfer), 0, 2 * size)


def _t3(machine: Machine, setting: Setting, way: str = "ring") -> Run:
    """Play Track & Trigger: the collective is triggered by what is stored, and memory adds what arrives.

    An all-reduce's all-gather comes after it, as the paper has it. `way`: of `triggered.WAYS`.
    """
    def exchange(kind: str) -> Job:
        ring = collective_job(machine, kind, setting.gpus, setting.size, "near-memory")
        return replace(ring, ns=triggered_ns(machine, kind, setting.gpus, setting.size, way))

    job = exchange({"all_reduce": "reduce_scatter", "all_to_all": "all_gather"}.get(setting.kind, setting.kind))
    found = beside(machine, setting.shape, setting.width, job)
    rounds = max(1, ceil(library_kernel(machine, *setting.shape, setting.width).tiles / machine.gpu.compute_units))
    gemm = _gemm_ns(machine, setting)
    ns = max(found.ns, job.ns + gemm / (setting.gpus if setting.before else rounds))
    if setting.kind == "all_reduce":
        ns += exchange("all_gather").ns
    return Run("t3" if way == "ring" else f"t3-{way}", ns, _bound(gemm, job.ns), 0, job.memory_bytes)


def _t3_direct(machine: Machine, setting: Setting) -> Run:
    return _t3(machine, setting, "direct")


class Mechanism(NamedTuple):
    """A way to run a GEMM and its collective."""

    title: str
    source: str
    play: Callable[[Machine, Setting], Run]
    operators: tuple[str, ...] = tuple(OPERATORS)
    in_switch: bool = False  #: only with a switch that adds


_REDUCED = ("gemm+ar", "gemm+rs")

#: By name, as `t3 overlap` ranks and `t3 techniques` lists them.
MECHANISMS = {
    "in-turn": Mechanism("the vendor's libraries, one after the other", "NCCL, RCCL", _in_turn),
    "symmetric": Mechanism("kernels over symmetric memory: the switch adds and copies, else direct",
                           "NCCL 2.27; torch multimem", _symmetric),
    "one-shot": Mechanism("each GPU loads and adds all others' outputs", "vLLM custom all-reduce; MSCCL++", _one_shot,
                          ("gemm+ar",)),
    "two-shot": Mechanism("each GPU adds its part of them, then loads the sums of the others",
                          "vLLM custom all-reduce; MSCCL++", _two_shot, ("gemm+ar",)),
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
    "t3-direct": Mechanism("the same, each tile straight to its owner", "T3, ASPLOS 2024, section 7.1", _t3_direct),
}
