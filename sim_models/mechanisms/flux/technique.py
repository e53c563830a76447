"""Flux: one GEMM that stores at its output's owners, or whose workgroups wait for their tokens."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from t3sim.mechanisms import losses
from t3sim.mechanisms.flux.gathering import run_gathering
from t3sim.mechanisms.flux.storing import FluxOptions, run_flux
from t3sim.mechanisms.parts import (
    gemm_alone,
    only_a_reduce_scatter,
    overlapped,
    unlike_gpus,
    watched,
    watched_beside,
)
from t3sim.mechanisms.result import TechniqueResult, Tried
from t3sim.mechanisms.technique import Technique
from t3sim.runs.exchange import Exchange
from t3sim.runs.kernel_results import KernelResult, OverlappedKernels, Progress
from t3sim.runs.kernels import ALL_GATHER, Kernel
from t3sim.runs.phases import named
from t3sim.runs.plan import Plan


@dataclass(frozen=True)
class FluxGemm(Kernel):
    """The GEMM that stores at its output's owners, and the reduction after it; or that waits for its tokens' copies."""

    options: FluxOptions
    exchange: Exchange  #: whose topology it stores over, or its tokens come over

    needs_rtl, uses_depth, result_type = False, True, OverlappedKernels

    @property
    def name(self) -> str:
        gathers = f"-{self.options.pieces}" if self.exchange.before else ""
        return f"flux{'-gather' if gathers else ''}-{self.options.order}{gathers}-{self.exchange.topology}"

    @property
    def every_gpu(self) -> bool:
        return not self.options.mirrored

    def run(self, plan: Plan, progress: Progress, window_cycles: int = 0, threads: int = 1) -> OverlappedKernels:
        links = self.exchange.links(plan.workload.tp)
        if not self.exchange.before:
            return run_flux(plan.machine, plan.workload, self.options, links, progress)
        result = run_gathering(plan.machine, plan.workload, self.options, links, progress)
        return replace(result, dram=named(result.dram, ("gemm", None, "ag")))


def _refuses(plan: Plan) -> str | None:
    exchange = plan.exchange
    if (not exchange.before or exchange.of_experts) and (refused := only_a_reduce_scatter("flux", plan)):
        return refused
    if exchange.signal is not None:
        return (f"technique flux adds in a kernel after everything: exchange.signal = {exchange.signal} does not go "
                "with it")
    if refused := unlike_gpus("flux", plan):
        return refused
    if exchange.topology != "switch":
        return ("technique flux stores at every GPU, in a ring over the others' links too: it needs "
                "exchange.topology = switch")
    return None


def _kernels(plan: Plan) -> tuple[Kernel, ...]:
    """List its kernels, a fused one for each of the plan's options."""
    fused = (FluxGemm(options, plan.exchange) for options in _options(plan))
    return gemm_alone(plan), *fused, *(() if plan.exchange.before else (ALL_GATHER,))


def _options(plan: Plan) -> tuple[FluxOptions, ...]:
    """Return the options that are tried, of which the fastest counts."""
    return plan.options.get("flux", (FluxOptions(),))


def _combine(name: str, parts: Sequence[KernelResult], plan: Plan) -> TechniqueResult:
    """Put together its fastest choice: with the all-gather that follows, or that is inside."""
    clock_ghz = plan.machine.memory_clock_ghz
    options = _options(plan)
    alone, tried, after = parts[0], parts[1:1 + len(options)], parts[1 + len(options):]
    best = min(range(len(tried)), key=lambda index: tried[index].cycles)
    run, times = tried[best], tuple(
        Tried(asdict(option), one.cycles / clock_ghz) for option, one in zip(options, tried))
    if after:
        loss = losses.attribute_storing(
            watched(alone, clock_ghz), watched_beside(run), end=run.cycles, units=run.places,
            launches=run.launch_cycles, reduction=run.reduction_cycles)
        return replace(overlapped(name, run, loss, *after, clock_ghz), tried=times)
    loss = losses.attribute_sending(watched(alone, clock_ghz), watched_beside(run), end=run.cycles, units=run.places)
    return TechniqueResult(
        name=name, total_ns=run.cycles / clock_ghz,
        phases_ns={"gemm": run.gemm_cycles / clock_ghz,
                   "all-gather": (run.collective_end - run.collective_start) / clock_ghz},
        moved=run.dram, mc_cycles=run.simulated_cycles, rtl_in_loop=False, host_seconds=run.host_seconds,
        loss_ns={cause: cycles / clock_ghz for cause, cycles in loss.items()}, tried=times)


FLUX = Technique(
    "flux", "one GEMM whose epilogue stores tiles at their owners; then a reduction and the all-gather",
    "Flux, section 3", _kernels, _combine, _refuses)
