"""Mechanisms that users of today have to overlap a GEMM with its collective, and Track & Trigger beside them.

| name | what, and its source |
|---|---|
| in-turn | the vendor's libraries one after the other |
| symmetric | kernels over symmetric memory: sums and copies in the switch, else direct (NCCL 2.27, torch multimem) |
| copy-engines | copies by engines, in turn (NCCL 2.28 zero-CTA, mori SDMA) |
| decomposed | a GEMM in as many pieces as GPUs beside copies, each launched by the host (PyTorch async-TP) |
| flux | one kernel whose tiles wait for, or store at, other GPUs (Flux, arXiv 2406.06858, sections 3.1 and 4) |
| in-switch-fused | a GEMM whose finished tiles are summed in the switch by a few of its units (FlagTree PR 861) |
| sdma-chain | copies that a kernel's flags release and that it polls (gcnasm opus_gemm_dist, mori) |
| t3 | Track & Trigger with near-memory addition: no units, no launch (T3, ASPLOS 2024) |
"""

from dataclasses import dataclass
from math import ceil

from ..errors import BadInput
from ..machine.commercial import Commercial
from .algorithms import copies_ns, library_collective
from .contention import beside, collective_job, gemm_job
from .direct import direct_ns
from .gemm import best
from .in_switch import in_switch_ns, transfer_ns
from .links import pair_gb_per_s

OPERATORS = {"gemm+ar": "all_reduce", "gemm+rs": "reduce_scatter", "ag+gemm": "all_gather", "a2a+gemm": "all_to_all"}
MECHANISMS = ("in-turn", "symmetric", "copy-engines", "decomposed", "flux", "in-switch-fused", "sdma-chain", "t3")

#: Track & Trigger of one GPU in gate equivalents, without memories (`t3 area`, docs/area.md).
GATES = 419_000

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


def possible(machine: Commercial, setting: Setting) -> tuple[str, ...]:
    """Return the mechanisms that a machine has for an operator."""
    left_out = set()
    if machine.in_switch is None or setting.operator not in ("gemm+ar", "gemm+rs"):
        left_out.add("in-switch-fused")
    if setting.operator not in ("ag+gemm", "a2a+gemm"):
        left_out.add("sdma-chain")
    return tuple(name for name in MECHANISMS if name not in left_out)


def play(machine: Commercial, setting: Setting, mechanism: str) -> Run:
    """Play an operator under a mechanism. Raises BadInput."""
    if mechanism not in possible(machine, setting):
        raise BadInput(f"mechanism {mechanism[:40]!r} is not possible for {setting.operator} on {machine.name}: "
                       f"allowed are {', '.join(possible(machine, setting))}")
    return _PLAYED[mechanism](machine, setting)


def _gemm_ns(machine: Commercial, setting: Setting, units: int | None = None) -> float:
    return gemm_job(machine, *setting.shape, setting.width, units).ns


def _bound(gemm: float, other: float) -> str:
    return "GEMM" if gemm >= other else "collective"


def _in_turn(machine: Commercial, setting: Setting) -> Run:
    job = collective_job(machine, setting.kind, setting.gpus, setting.size, library="torch")
    gemm = _gemm_ns(machine, setting)
    packed = 2 * setting.size / machine.memory_bytes_per_ns if setting.kind == "all_to_all" else 0.0
    return Run("in-turn", gemm + job.ns + packed, "one after the other", job.units, job.memory_bytes)


def symmetric_ns(machine: Commercial, kind: str, gpus: int, size: float) -> float:
    """Return the time of kernels over symmetric memory."""
    found = [direct_ns(machine, kind, gpus, size)]
    if machine.in_switch is not None and kind != "all_to_all":
        found.append(in_switch_ns(machine, kind, gpus, size))
    return min(found)


def _symmetric(machine: Commercial, setting: Setting) -> Run:
    job = collective_job(machine, setting.kind, setting.gpus, setting.size)
    ns = _gemm_ns(machine, setting) + symmetric_ns(machine, setting.kind, setting.gpus, setting.size)
    return Run("symmetric", ns, "one after the other", job.units, job.memory_bytes)


def _copy_engines(machine: Commercial, setting: Setting) -> Run:
    job = collective_job(machine, setting.kind, setting.gpus, setting.size, "engines")
    return Run("copy-engines", _gemm_ns(machine, setting) + job.ns, "one after the other", 0, job.memory_bytes)


def _decomposed(machine: Commercial, setting: Setting) -> Run:
    """Play pieces beside copies: a piece per GPU, whose tiles fill rounds badly, and each with its launch and event."""
    (m, n, k), gpus, wires = setting.shape, setting.gpus, machine.wires
    piece = best(machine, ceil(m / gpus), n, k, setting.width).ns
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


def _fused(machine: Commercial, setting: Setting, transfer: float, fixed: float, senders: int) -> tuple[float, float]:
    """Return the time of one kernel of both, and its GEMM's.

    The first round of tiles has nothing to send, or the own rows come first; the last has nothing to hide behind.
    """
    units = machine.gpu.compute_units - senders
    kernel = best(machine, *setting.shape, setting.width, units)
    gemm = kernel.ns / (1 - machine.sharing.power_share)
    rounds = max(1, ceil(kernel.tiles / kernel.units))
    exposed = gemm / (setting.gpus if setting.before else rounds)
    return machine.kernels.launch_ns + fixed + max(gemm + transfer / setting.gpus, transfer + exposed), gemm


def _flux(machine: Commercial, setting: Setting) -> Run:
    """Play a kernel that stores at owners, which then add, or that waits for rows that copy engines bring."""
    gpus, size = setting.gpus, setting.size
    part = size / gpus / pair_gb_per_s(machine, gpus)
    if setting.before:
        transfer, fixed = machine.wires.copy_ns + part / machine.wires.copy_efficiency, machine.wires.copy_ns
        ns, gemm = _fused(machine, setting, transfer, fixed, 0)
        return Run("flux", ns, _bound(gemm, transfer), 0, 2 * size)
    transfer = part / machine.wires.all_efficiency
    adds = (gpus + 1) * size / gpus / machine.memory_bytes_per_ns + machine.kernels.launch_ns + machine.direct.phase_ns
    if setting.kind == "all_reduce":
        adds += library_collective(machine, "all_gather", gpus, size, library="torch").ns
    ns, gemm = _fused(machine, setting, transfer, adds, 0)
    return Run("flux", ns, _bound(gemm, transfer), 0, 2 * size)


def _in_switch_fused(machine: Commercial, setting: Setting) -> Run:
    switch = machine.in_switch
    transfer = transfer_ns(machine, setting.kind, setting.gpus, setting.size)
    ns, gemm = _fused(machine, setting, transfer, 2 * switch.barrier_ns, _SENDERS)
    return Run("in-switch-fused", ns, _bound(gemm, transfer), _SENDERS, 2 * setting.size)


def _sdma_chain(machine: Commercial, setting: Setting) -> Run:
    """Play copies that flags release: the GEMM polls each shard and starts with its own."""
    transfer = copies_ns(machine, setting.kind, setting.gpus, setting.size)
    whole = gemm_job(machine, *setting.shape, setting.width).ns / (1 - machine.sharing.power_share)
    ns = max(whole + 2 * machine.wires.latency_ns * setting.gpus, transfer + whole / setting.gpus)
    return Run("sdma-chain", ns, _bound(whole, transfer), 0, 2 * setting.size)


def _t3(machine: Commercial, setting: Setting) -> Run:
    """Play Track & Trigger: the collective is triggered by what is stored, and memory adds what arrives.

    An all-reduce's all-gather comes after it, as the paper has it.
    """
    kind = {"all_reduce": "reduce_scatter"}.get(setting.kind, setting.kind)
    job = collective_job(machine, kind if kind != "all_to_all" else "all_gather", setting.gpus, setting.size,
                         "near-memory")
    found = beside(machine, setting.shape, setting.width, job)
    rounds = max(1, ceil(best(machine, *setting.shape, setting.width).tiles / machine.gpu.compute_units))
    gemm = _gemm_ns(machine, setting)
    ns = max(found.ns, job.ns + gemm / (setting.gpus if setting.before else rounds))
    if setting.kind == "all_reduce":
        ns += collective_job(machine, "all_gather", setting.gpus, setting.size, "near-memory").ns
    return Run("t3", ns, _bound(gemm, job.ns), 0, job.memory_bytes)


_PLAYED = {"in-turn": _in_turn, "symmetric": _symmetric, "copy-engines": _copy_engines, "decomposed": _decomposed,
           "flux": _flux, "in-switch-fused": _in_switch_fused, "sdma-chain": _sdma_chain, "t3": _t3}
