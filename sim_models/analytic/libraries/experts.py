"""Experts on several GPUs: tokens are dispatched to them, one kernel multiplies all groups, outputs are combined.

The GPU with the most tokens sets the time. A piece of an exchange is a group's tokens, or a round's tiles: the first
piece and the GEMM of the last one are exposed.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property
from math import ceil
from typing import Any, NamedTuple

from t3sim.analytic.gemm import GemmKernel, grouped_kernel
from t3sim.analytic.libraries.collectives import exchange_ns, library_collective, token_bytes, triggered_ns
from t3sim.analytic.libraries.contention import TimedJob, grouped_job, stream_job
from t3sim.analytic.rings import pair_gb_per_s
from t3sim.machine import Machine
from t3sim.workload.routing import Routing
from t3sim.workload.transformer import Transformer

_OUT = "bf16"  #: of what is combined


@dataclass(frozen=True)
class ExpertsRun:
    """Dispatch, both GEMMs and combine under a mechanism."""

    mechanism: str
    ns: float
    units: int  #: compute units that exchanges hold while GEMMs run
    first_ns: float  #: until the first GEMM's end
    second_ns: float  #: from there

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, eq=False)
class _Layer:
    machine: Machine
    model: Transformer
    routing: Routing
    width: str

    @cached_property
    def rows(self) -> tuple[int, ...]:
        """Tokens of each expert of the GPU whose GEMMs take longest."""
        return max(filter(None, self.routing.groups), key=lambda rows: sum(
            grouped_kernel(self.machine, rows, *shape, self.width).ns for shape in self.shapes))

    @property
    def shapes(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Columns and depth of both GEMMs."""
        model = self.model
        return (model.feed_forward * (2 if model.gated else 1), model.hidden), (model.hidden, model.feed_forward)

    @property
    def sent(self) -> tuple[float, float]:
        """Bytes that the heaviest GPU dispatches, and combines, its own tokens included."""
        return tuple(self.routing.heaviest * token_bytes(self.model.hidden, dtype) for dtype in (self.width, _OUT))

    @property
    def sums_ns(self) -> float:
        """Time of a kernel that adds the outputs of each token's experts."""
        own_tokens = ceil(self.routing.tokens / self.routing.gpus)
        return stream_job(self.machine, 2.0 * own_tokens * (self.model.experts_per_token + 1) * self.model.hidden).ns

    @property
    def packed_ns(self) -> float:
        """Time of a kernel that sorts tokens by their experts."""
        return stream_job(self.machine, 2 * self.sent[0]).ns

    def kernel(self, gemm: int, units: int | None = None) -> GemmKernel:
        return grouped_kernel(self.machine, self.rows, *self.shapes[gemm], self.width, units)

    def job(self, gemm: int) -> TimedJob:
        return grouped_job(self.machine, self.rows, *self.shapes[gemm], self.width)

    def pieces(self, gemm: int, kernel: GemmKernel) -> int:
        """Return the parts of an exchange that a GEMM's tiles wait for, or that its rounds release."""
        rounds = max(1, ceil(kernel.tiles / kernel.units))
        return min(rounds, len(self.rows)) if gemm == 0 else rounds


def _in_turn(layer: _Layer) -> ExpertsRun:
    machine, gpus = layer.machine, layer.routing.gpus
    exchanges_ns = [library_collective(machine, "all_to_all", gpus, size).ns for size in layer.sent]
    first_ns = layer.packed_ns + exchanges_ns[0] + layer.job(0).ns
    second_ns = layer.job(1).ns + exchanges_ns[1] + layer.sums_ns
    return ExpertsRun("in-turn", first_ns + second_ns, 0, first_ns, second_ns)


def _exchanged(layer: _Layer, tokens: float) -> list[float]:
    return [exchange_ns(layer.machine, layer.routing.gpus, 1, token_bytes(layer.model.hidden, dtype), tokens, 0.0)
            for dtype in (layer.width, _OUT)]


def _low_latency(layer: _Layer) -> ExpertsRun:
    exchanges_ns = _exchanged(layer, layer.routing.heaviest)
    first_ns, second_ns = exchanges_ns[0] + layer.job(0).ns, layer.job(1).ns + exchanges_ns[1]
    return ExpertsRun("low-latency", first_ns + second_ns, 0, first_ns, second_ns)


def _beside(machine: Machine, alone: TimedJob, with_held_units: TimedJob, exchange: TimedJob) -> float:
    """Return the time of GEMMs during an exchange; `with_held_units`: with the units that it leaves.

    Power lowers their clock while both run, and memory serves one stream after the other.
    """
    power_loss = machine.sharing.power_share / (1 - machine.sharing.power_share)
    compute_ns = with_held_units.ns
    if exchange.ns < with_held_units.ns:
        compute_ns = alone.ns + exchange.ns * (1 - alone.ns / with_held_units.ns)
    memory_ns = (alone.memory_bytes + exchange.memory_bytes) / machine.memory_bytes_per_ns
    return max(compute_ns + min(compute_ns, exchange.ns) * power_loss, exchange.ns, memory_ns)


def _two_batches(layer: _Layer) -> ExpertsRun:
    """Play halves of the tokens: one's exchange runs beside the other's GEMMs, which read all weights twice.

    A token goes once to a GPU. There a kernel copies it for its experts, and one adds their outputs.
    """
    machine, exchanges_ns = layer.machine, _exchanged(layer, layer.routing.heaviest_once / 2)
    held_units = min(machine.sharing.kernel_units, machine.gpu.compute_units - 1)
    half_rows = tuple(ceil(one / 2) for one in layer.rows)

    def gemms(held_units: int) -> TimedJob:
        jobs = [grouped_job(machine, half_rows, *shape, layer.width, held_units) for shape in layer.shapes]
        copies_share = 1 + layer.routing.heaviest_once / layer.routing.heaviest
        jobs += [stream_job(machine, copies_share * size / 2) for size in layer.sent]
        return TimedJob(sum(one.ns for one in jobs), sum(one.memory_bytes for one in jobs))
    first_ns, second_ns = (ns + _beside(machine, gemms(0), gemms(held_units), TimedJob(ns, size))
                           for ns, size in zip(exchanges_ns, layer.sent))
    return ExpertsRun("two-batches", first_ns + second_ns, held_units, first_ns, second_ns)


def _fused_units(layer: _Layer) -> ExpertsRun:
    """Play a kernel for each GEMM, some of whose units bring tokens, or store outputs at other GPUs."""
    machine, gpus = layer.machine, layer.routing.gpus
    held_units = min(machine.sharing.kernel_units, machine.gpu.compute_units - 1)
    times_ns = []
    for gemm, size in enumerate(layer.sent):
        kernel = layer.kernel(gemm, machine.gpu.compute_units - held_units)
        pieces, compute_ns = layer.pieces(gemm, kernel), kernel.ns / (1 - machine.sharing.power_share)
        exchange_ns = size / gpus / pair_gb_per_s(machine, gpus) / machine.wires.all_efficiency
        times_ns.append(machine.kernels.launch_ns + 2 * machine.wires.latency_ns
                        + max(compute_ns + exchange_ns / pieces, exchange_ns + compute_ns / pieces))
    first_ns, second_ns = times_ns[0], times_ns[1] + layer.sums_ns
    return ExpertsRun("fused-units", first_ns + second_ns, held_units, first_ns, second_ns)


def _t3(layer: _Layer) -> ExpertsRun:
    """Play Track & Trigger: tokens are sent as they are packed, a group's tiles wait until memory has taken all of its.

    The second GEMM's stores go to the tokens' owners, weighted; memory adds them.
    """
    machine, times_ns = layer.machine, []
    for gemm, size in enumerate(layer.sent):
        exchange = TimedJob(triggered_ns(machine, "all_to_all", layer.routing.gpus, size, "direct"), 2 * size)
        gemm_job = layer.job(gemm)
        pieces = layer.pieces(gemm, layer.kernel(gemm))
        both_ns = _beside(machine, gemm_job, gemm_job, exchange)
        times_ns.append(max(both_ns + exchange.ns / pieces, exchange.ns + gemm_job.ns / pieces))
    first_ns, second_ns = layer.packed_ns + times_ns[0], times_ns[1]
    return ExpertsRun("t3", first_ns + second_ns, 0, first_ns, second_ns)


class ExpertsMechanism(NamedTuple):
    """A way to bring tokens to experts and back."""

    title: str
    source: str
    play: Callable[[_Layer], ExpertsRun]


#: By name, as `t3 overlap --expert-parallel` ranks them.
EXPERTS_MECHANISMS = {
    "in-turn": ExpertsMechanism("kernels in turn: sort tokens, exchange, multiply, exchange, add", "NCCL, RCCL",
                                _in_turn),
    "low-latency": ExpertsMechanism("GEMMs between kernels that send each token with a flag", "DeepEP",
                                    _low_latency),
    "two-batches": ExpertsMechanism("low-latency, half of the tokens next to the GEMMs of the other half",
                                    "DeepSeek-V3, arXiv 2412.19437, 3.4", _two_batches),
    "fused-units": ExpertsMechanism("one kernel per GEMM, some units exchange tokens", "Comet, arXiv 2502.19811",
                                    _fused_units),
    "t3": ExpertsMechanism("Track & Trigger: groups wait for their tokens, and memory adds outputs", "T3, ASPLOS 2024",
                           _t3),
}


def rank_experts(machine: Machine, model: Transformer, routing: Routing, width: str = "bf16") -> list[ExpertsRun]:
    """Return the mechanisms, the fastest first. `width`: of the GEMMs' operands and of what is dispatched."""
    layer = _Layer(machine, model, routing, width)
    return sorted((one.play(layer) for one in EXPERTS_MECHANISMS.values()), key=lambda one: one.ns)
