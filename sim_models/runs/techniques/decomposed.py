"""A GEMM per chunk of a ring reduce-scatter, whose kernels run beside the GEMMs on some compute units."""

from collections.abc import Sequence
from functools import partial

from t3sim.runs.kernels import ALL_GATHER, GEMM, Decomposed, GemmOnFewer, Kernel, KernelResult
from t3sim.runs.plan import Plan
from t3sim.runs.techniques import losses
from t3sim.runs.techniques.parts import only_a_reduce_scatter, overlapped, watched, watched_beside
from t3sim.runs.techniques.result import TechniqueResult
from t3sim.runs.techniques.technique import Technique


def _kernels(plan: Plan) -> tuple[Kernel, ...]:
    units = plan.communication_units
    return GEMM, GemmOnFewer(units), Decomposed(units), ALL_GATHER


def _combine(name: str, parts: Sequence[KernelResult], plan: Plan) -> TechniqueResult:
    (alone, fewer, split, gather), clock_ghz = parts, plan.machine.memory_clock_ghz
    loss = losses.attribute_split(
        watched(alone, clock_ghz), watched(fewer, clock_ghz), watched_beside(split), end=split.cycles,
        units=split.places, launches=split.launch_cycles)
    return overlapped(name, split, loss, gather, clock_ghz)


DECOMPOSED = Technique(
    "decomposed",
    "a GEMM per chunk, each a kernel; the ring's kernels beside them on some compute units; all-gather",
    "Flux, section 2.2", _kernels, _combine, partial(only_a_reduce_scatter, "decomposed"))
