"""One sub-layer under each technique of the T3 paper's section 5.3: sums and maxima of kernels' times."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial

import numpy as np

from ..at_once import at_once
from ..cores import cores
from ..errors import BadInput
from ..machine import Machine
from ..mechanisms.exchange import IN_SWITCH, Exchange
from ..mechanisms.split_k import check_split_k
from ..runs import build, kernels
from ..runs.kernels import (
    ALL_GATHER,
    ALL_TO_ALL,
    GATHER_INPUT,
    GEMM,
    GEMM_PART,
    REDUCE_SCATTER,
    REDUCE_SCATTER_NMC,
    SWITCH_ALL_REDUCE,
    Decomposed,
    FusedGemm,
    FusedKernel,
    GatherAfter,
    GatheringGemm,
    GemmOnFewer,
    IsolatedKernel,
    Kernel,
    KernelResult,
    SendingKernel,
    StoringGemm,
)
from ..runs.overlapped import OverlappedKernels
from ..runs.skew import Skew
from ..support.output import collect_versions
from ..workloads import Workload
from . import losses
from .choices import Choices
from .estimate import every_gpu, kernel_seconds
from .results import BASELINE, RunResult, TechniqueResult

Progress = Callable[[str, float], None]


#: The techniques that fuse a GEMM and its collective, and how.
FUSIONS = {"t3": FusedGemm("round_robin"), "t3-mca": FusedGemm("mca"),
           "t3-mca+": FusedGemm("ring_aware", staged=True)}
BUILD = "build the RTL"


def fusions(choices: Choices = Choices()) -> Mapping[str, FusedGemm]:
    """Return how each technique fuses a GEMM with its collective."""
    own = FUSIONS if choices.policy is None else FUSIONS | {"t3": FusedGemm(choices.policy)}
    exchange = choices.exchange
    if (exchange.algorithm, exchange.topology) == ("ring", "switch"):  # nobody else uses a link's way through it
        exchange = replace(exchange, topology="ring")
    skew = Skew() if choices.skew is None and exchange.every_gpu else choices.skew
    return {name: replace(fusion, exchange=exchange, skew=skew, staged=fusion.staged and exchange.reduces)
            for name, fusion in own.items()}


def kernels_of(technique: str, choices: Choices = Choices()) -> tuple[Kernel, ...]:
    """List the kernels that a technique's result is made of.

    They are the GEMM alone, what it is fused with or what scatters, and, unless that is in it, what gathers.
    """
    fusion = fusions(choices).get(technique)
    slow = choices.skew if choices.skew and choices.skew.slows_collectives else None
    gemm = replace(GEMM_PART if choices.exchange.of_parts else GEMM, skew=choices.skew)
    if technique == "flux" and choices.exchange.before:
        return _flux_kernels(gemm, choices)
    if technique in ("decomposed", "flux") and choices.exchange.collective in ("ag", "a2a"):
        raise BadInput(f"technique {technique} is of a reduce-scatter: --operator {choices.exchange.operator} has none")
    if technique in ("decomposed", "flux") and choices.skew is not None:
        raise BadInput(f"technique {technique} has no GPUs that are not alike: --every-gpu does not go with it")
    if technique in ("decomposed", "flux") and choices.exchange.by_levels:
        raise BadInput(f"technique {technique} does not go with --algorithm {choices.exchange.algorithm}")
    if technique == "decomposed":
        return (GEMM, GemmOnFewer(choices.communication_units), Decomposed(choices.communication_units), ALL_GATHER)
    if technique == "flux":
        return _flux_kernels(gemm, choices)
    if technique == "fused-wg":
        return _sending_kernels(gemm, choices)
    if technique == "in-switch":
        if choices.exchange.collective not in ("rs", "ar"):
            raise BadInput(f"technique in-switch all-reduces: --operator {choices.exchange.operator} does not")
        if choices.exchange.topology != "switch":
            raise BadInput("technique in-switch adds and copies in a switch: it needs --topology switch")
        if choices.skew is not None:
            raise BadInput("technique in-switch has no GPUs that are not alike: --every-gpu does not go with it")
        return gemm, SWITCH_ALL_REDUCE
    if choices.exchange.by_levels and slow is not None:
        raise BadInput(f"--skew of a clock, units or a link does not go with --algorithm {choices.exchange.algorithm}: "
                       "its kernels alone have all GPUs and links alike")
    if fusion and choices.exchange.collective != "rs":
        return gemm, fusion
    if fusion and choices.exchange.by_levels:
        return gemm, fusion, replace(ALL_GATHER, exchange=choices.exchange)
    if fusion:
        gather = GatherAfter.after(fusion, choices.exchange.algorithm == IN_SWITCH)
        return gemm, fusion, gather if slow is None else replace(ALL_GATHER, skew=slow)
    if choices.exchange.before:
        return gemm, replace(GATHER_INPUT, skew=slow)
    scatter, gather = REDUCE_SCATTER_NMC if technique == "ideal-rs-nmc" else REDUCE_SCATTER, ALL_GATHER
    if choices.exchange.by_levels:
        scatter, gather = (replace(one, exchange=choices.exchange) for one in (scatter, gather))
    used = {"ag": (gather,), "a2a": (ALL_TO_ALL,)}.get(choices.exchange.collective, (scatter, gather))
    return gemm, *(one if slow is None else replace(one, skew=slow) for one in used)


def _flux_kernels(gemm: Kernel, choices: Choices) -> tuple[Kernel, ...]:
    """List its kernels, a fused one for each of its choices."""
    exchange = choices.exchange
    if exchange.signal is not None:
        raise BadInput(f"technique flux adds in a kernel after everything: --signal {exchange.signal} does not go with "
                       "it")
    if choices.skew is not None:
        raise BadInput("technique flux has no GPUs that are not alike: --every-gpu does not go with it")
    if exchange.topology != "switch":
        raise BadInput("technique flux stores at every GPU, in a ring over the others' links too: it needs "
                       "--topology switch")
    if exchange.before:
        return gemm, *(GatheringGemm(options, exchange) for options in choices.flux)
    return gemm, *(StoringGemm(options, exchange) for options in choices.flux), ALL_GATHER


def _sending_kernels(gemm: Kernel, choices: Choices) -> tuple[Kernel, ...]:
    exchange = choices.exchange
    if exchange.before or exchange.collective not in ("rs", "ar", "a2a"):
        raise BadInput(f"technique fused-wg adds what GPUs make, or sends each its part: --operator "
                       f"{exchange.operator} does neither")
    if exchange.topology not in ("switch", "full"):
        raise BadInput("technique fused-wg stores at every GPU, in a ring over the others' links too: it needs "
                       "--topology switch, or full with --algorithm direct")
    if choices.skew is not None:
        raise BadInput("technique fused-wg has no GPUs that are not alike: --every-gpu does not go with it")
    return gemm, SendingKernel(exchange), *((ALL_GATHER,) if exchange.collective == "rs" else ())


def technique_result(technique: str, done: Mapping[Kernel, KernelResult], clock_ghz: float,
                     choices: Choices = Choices()) -> TechniqueResult:
    """Make up a technique from its kernels on a machine with this memory clock."""
    parts, exchange = [done[kernel] for kernel in kernels_of(technique, choices)], choices.exchange
    if technique == "decomposed":
        return _decomposed(technique, *parts, clock_ghz)
    if technique == "flux":
        return _storing(technique, *parts, clock=clock_ghz, choices=choices)
    if technique == "fused-wg":
        return _sending(technique, *parts, clock=clock_ghz, exchange=exchange)
    if technique == "in-switch":
        return _in_turn(technique, parts[0], {"all-reduce": parts[1]}, exchange)
    if technique in FUSIONS and exchange.collective != "rs":
        return _fused_whole(technique, *parts, clock_ghz, exchange)
    if technique in FUSIONS:
        return _fused(technique, *parts, clock_ghz)
    phases = exchange.hides if exchange.of_parts or exchange.before else ("reduce-scatter", "all-gather")
    return _in_turn(technique, parts[0], dict(zip(phases, parts[1:])), exchange)


def _in_turn(name: str, gemm: IsolatedKernel, collectives: Mapping[str, IsolatedKernel],
             exchange: Exchange) -> TechniqueResult:
    """Add the phases of the baseline, of kernels around a switch, and of the ideals (arithmetic on isolated times).

    Everybody waits for the GPU whose GEMM ends last.
    """
    late_ns = gemm.start_ns
    g = gemm.ns + late_ns
    each = {phase: kernel.ns for phase, kernel in collectives.items()}
    in_turn = name in (BASELINE, "in-switch")
    simulated = (gemm, *collectives.values()) if in_turn else ()
    hidden = 0.0 if in_turn else sum(each[phase] for phase in exchange.hides)
    total, loss = max(g, hidden), {} if in_turn else {"link_tail": max(0.0, hidden - g)}
    for phase, ns in each.items():
        if in_turn or phase not in exchange.hides:
            total, loss[phase.replace("-", "_")] = total + ns, ns
    if late_ns:
        loss["late_start"] = late_ns
    return TechniqueResult(
        name=name, total_ns=total, phases_ns={"gemm": g, **each}, streams_bytes=_summed(gemm, *collectives.values()),
        mc_cycles=sum(kernel.simulated_cycles for kernel in simulated), rtl_in_loop=False,
        host_seconds=sum(kernel.host_seconds for kernel in simulated), loss_ns=loss)


def _watched(alone: IsolatedKernel, clock: float) -> losses.Watched:
    return losses.Watched(alone.ns * clock, np.array(alone.unit_cycles), np.array(alone.waited))


def _decomposed(name: str, alone: IsolatedKernel, fewer: IsolatedKernel, split: OverlappedKernels,
                gather: IsolatedKernel, clock: float) -> TechniqueResult:
    loss = losses.attribute_split(
        _watched(alone, clock), _watched(fewer, clock), _watched_beside(split), end=split.cycles, units=split.places,
        launches=split.launch_cycles)
    return _overlapped(name, split, loss, gather, clock)


def _storing(name: str, alone: IsolatedKernel, *fused: OverlappedKernels | IsolatedKernel, clock: float,
             choices: Choices) -> TechniqueResult:
    """Put together Flux's fastest choice: before an all-gather that follows, or behind one that is inside."""
    tried, after = fused[:len(choices.flux)], fused[len(choices.flux):]
    best = min(range(len(tried)), key=lambda index: tried[index].cycles)
    ran, details = tried[best], {"choice": asdict(choices.flux[best]), "tried": [
        {**asdict(options), "ns": one.cycles / clock} for options, one in zip(choices.flux, tried)]}
    if after:
        loss = losses.attribute_storing(
            _watched(alone, clock), _watched_beside(ran), end=ran.cycles, units=ran.places, launches=ran.launch_cycles,
            reduction=ran.reduction_cycles)
        return replace(_overlapped(name, ran, loss, *after, clock), details=details)
    loss = losses.attribute_sending(_watched(alone, clock), _watched_beside(ran), end=ran.cycles, units=ran.places)
    return TechniqueResult(
        name=name, total_ns=ran.cycles / clock,
        phases_ns={"gemm": ran.gemm_cycles / clock,
                   "all-gather": (ran.collective_end - ran.collective_start) / clock},
        streams_bytes={stream: count for stream, count in ran.dram.items() if not stream.startswith("rs_")},
        mc_cycles=ran.simulated_cycles, rtl_in_loop=False, host_seconds=ran.host_seconds,
        loss_ns={cause: cycles / clock for cause, cycles in loss.items()}, details=details)


def _sending(name: str, alone: IsolatedKernel, ran: OverlappedKernels, *gather: IsolatedKernel, clock: float,
             exchange: Exchange) -> TechniqueResult:
    loss = losses.attribute_sending(_watched(alone, clock), _watched_beside(ran), end=ran.cycles, units=ran.places)
    if gather:
        return _overlapped(name, ran, loss, *gather, clock)
    phase = "all-reduce" if exchange.collective == "ar" else exchange.hides[0]
    return TechniqueResult(
        name=name, total_ns=ran.cycles / clock,
        phases_ns={"gemm": ran.gemm_cycles / clock, phase: (ran.cycles - ran.collective_start) / clock},
        streams_bytes={stream.replace("rs_", f"{exchange.collective}_"): count for stream, count in ran.dram.items()
                       if not stream.startswith("ag_")},
        mc_cycles=ran.simulated_cycles, rtl_in_loop=False, host_seconds=ran.host_seconds,
        loss_ns={cause: cycles / clock for cause, cycles in loss.items()})


def _watched_beside(gemm: OverlappedKernels) -> losses.Watched:
    return losses.Watched(gemm.gemm_cycles, np.array(gemm.unit_cycles), np.array(gemm.waited))


def _overlapped(name: str, ran: OverlappedKernels, loss: Mapping[str, float], gather: IsolatedKernel,
                clock: float) -> TechniqueResult:
    return TechniqueResult(
        name=name, total_ns=ran.cycles / clock + gather.ns,
        phases_ns={"gemm": ran.gemm_cycles / clock, "reduce-scatter": (ran.cycles - ran.collective_start) / clock,
                   "all-gather": gather.ns},
        streams_bytes=_summed(ran, gather), mc_cycles=ran.simulated_cycles + gather.simulated_cycles,
        rtl_in_loop=False, host_seconds=ran.host_seconds + gather.host_seconds,
        loss_ns={cause: cycles / clock for cause, cycles in loss.items()} | {"all_gather": gather.ns})


def _loss_ns(alone: IsolatedKernel, fused: FusedKernel, clock: float,
             attribute: Callable[..., dict[str, float]] = losses.attribute) -> dict[str, float]:
    loss = attribute(
        _watched(alone, clock),
        losses.Watched(fused.gemm_cycles, np.array(fused.unit_cycles), np.array(fused.waited)),
        end=fused.cycles, units=fused.units)
    return {cause: cycles / clock for cause, cycles in loss.items()}


def _fused_whole(name: str, alone: IsolatedKernel, fused: FusedKernel, clock: float,
                 exchange: Exchange) -> TechniqueResult:
    """Put together a technique after which nothing follows: the collective's bytes are under its own name."""
    phase = exchange.hides[0] if exchange.of_parts or exchange.before else "all-reduce"
    loss = _loss_ns(alone, fused, clock, losses.attribute_gathered if exchange.before else losses.attribute)
    collective_end = fused.details["last_tile_cycle"] if exchange.before else fused.cycles
    return TechniqueResult(
        name=name, total_ns=fused.cycles / clock,
        phases_ns={"gemm": fused.gemm_cycles / clock, phase: (collective_end - fused.rs_start) / clock},
        streams_bytes={stream.replace("rs_", f"{exchange.collective}_"): count for stream, count in fused.dram.items()
                       if not stream.startswith("ag_")},
        mc_cycles=fused.cycles, rtl_in_loop=True, host_seconds=fused.host_seconds,
        loss_ns=loss, details=fused.details, gpus=fused.gpus)


def _fused(name: str, alone: IsolatedKernel, fused: FusedKernel, gather: IsolatedKernel,
           clock: float) -> TechniqueResult:
    return TechniqueResult(
        name=name, total_ns=fused.cycles / clock + gather.ns,
        phases_ns={"gemm": fused.gemm_cycles / clock, "reduce-scatter": (fused.cycles - fused.rs_start) / clock,
                   "all-gather": gather.ns},
        streams_bytes=_summed(fused, gather),
        mc_cycles=fused.cycles + gather.simulated_cycles, rtl_in_loop=True,
        host_seconds=fused.host_seconds + gather.host_seconds,
        loss_ns=_loss_ns(alone, fused, clock) | {"all_gather": gather.ns}, details=fused.details,
        gpus=fused.gpus)


def _summed(*parts: KernelResult) -> dict[str, int]:
    """Sum the bytes at one GPU's DRAM by stream."""
    return {stream: sum(part.dram.get(stream, 0) for part in parts)
            for stream in dict.fromkeys(stream for part in parts for stream in part.dram)}


def run_sublayer(workload: Workload, machine: Machine, techniques: Sequence[str], progress: Progress,
                 seed: int = 0, choices: Choices = Choices(), jobs: int | None = None) -> RunResult:
    """Simulate `workload` under each technique, fused ones with RTL in the loop at every cycle.

    `jobs`: simulations at once, as many as cores if not given; the results are the same.
    Raises SimulationError, ToolchainError, and what machine and tiling refuse.
    """
    check_split_k(machine, choices.exchange, techniques)
    if not choices.exchange.before:
        build.make_schedule(machine, workload)  # refuse before the work
    parts = {name: kernels_of(name, choices) for name in techniques}
    for kernel in {kernel for of_one in parts.values() for kernel in of_one}:
        kernels.refuse_early(kernel, machine, workload, seed)
    done = _simulated(parts, machine, workload, progress, seed, jobs or cores())
    return RunResult(
        workload=workload, machine=machine, seed=seed, versions=collect_versions(),
        techniques={name: technique_result(name, done, machine.memory_clock_ghz, choices) for name in techniques},
        policy=choices.policy, exchange=choices.exchange, skew=choices.skew)


def _simulated(parts: Mapping[str, Sequence[Kernel]], machine: Machine, workload: Workload, progress: Progress,
               seed: int, jobs: int) -> Mapping[Kernel, KernelResult]:
    """Simulate each kernel once; the longest begin first. `progress` hears of the techniques that they belong to."""
    seconds = {kernel: kernel_seconds(kernel, machine, workload) for of_one in parts.values() for kernel in of_one}
    shares = dict.fromkeys(seconds, 0.0)

    def told(key: Kernel | str, fraction: float) -> None:
        if key == BUILD:
            progress(BUILD, fraction)
            return
        shares[key] = fraction
        for name, of_one in parts.items():
            if key in of_one:
                share = sum(seconds[part] * shares[part] for part in of_one) / sum(seconds[part] for part in of_one)
                progress(name, 1.0 if all(shares[part] >= 1 for part in of_one) else min(0.99, share))

    order = sorted(seconds, key=lambda kernel: -seconds[kernel])
    # What has its own threads comes afterwards, one at a time, on all of them.
    together = {kernel: partial(_simulate, kernel, machine, workload, seed, 1)
                for kernel in order if not every_gpu(kernel)}
    in_turn = {kernel: partial(_simulate, kernel, machine, workload, seed, jobs)
               for kernel in order if every_gpu(kernel)}
    needs = {kernel: BUILD for kernel in together if kernel.needs_rtl}
    if any(kernel.needs_rtl for kernel in order):
        told(BUILD, 0.0)
        together = {BUILD: lambda _: kernels.rtl_library(machine.geometry()), **together}
    return {**at_once(together, jobs, told, needs), **at_once(in_turn, 1, told)}


def _simulate(kernel: Kernel, machine: Machine, workload: Workload, seed: int, threads: int,
              progress: Callable[[float], None]) -> KernelResult:
    return kernels.simulate(kernel, machine, workload, progress, seed, threads=threads)
