"""Experts' GEMMs and their exchanges on the RTL, over imbalance, beside the event level.

Tokens come to the first GEMM, and what the second one makes is added at their owners. A quarter of each GPU and of the
tokens is simulated; the event level has whole ones.
"""

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from t3sim.analytic.libraries.experts import ExpertsRun, rank_experts
from t3sim.base import plots
from t3sim.collectives.schedule.placement import NOWHERE
from t3sim.machine import Machine, load_machine
from t3sim.machine.fraction import fraction_of
from t3sim.machine.levels import COMMERCIAL
from t3sim.papers.figure import (
    TECHNIQUE_TITLES,
    Figure,
    Findings,
    Quantities,
    Results,
    Scope,
    Table,
    case,
    layer_result,
    layer_tasks,
)
from t3sim.papers.paper import percent
from t3sim.runs.exchange import Exchange, fused_with
from t3sim.runs.operators import busiest, placement_of
from t3sim.study.results import RunResult
from t3sim.workload.routing import Routing, drawn
from t3sim.workload.transformer import TODAY
from t3sim.workload.workloads import ExpertsWorkload, experts_workload

_MACHINE, _WHOLE, _FRACTION, _GPUS = "h100-t3", "h100-sxm", 4, 4
_TOKENS, _HIDDEN, _DEPTH, _EXPERTS, _PER_TOKEN = 3584, 1024, 2048, 32, 4  # the first GEMM makes gates, too
_DTYPE, _ZIPF = "bf16", (0.0, 0.6, 1.2)
_NARROW, _NARROW_ZIPF = "e4m3", (0.0, 1.2)  # of tokens that are dispatched
_TECHNIQUES, _OURS = ("sequential", "t3", "t3-mca", "ideal-overlap"), "t3-mca"
_EVENT = ("in-turn", "low-latency", "fused-units", "t3")


@dataclass(frozen=True)
class _Half:
    """A GEMM of the experts and the exchange before or after it."""

    phase: str  #: of the exchange
    gemm: str
    shape: str
    first: bool  #: it is the first GEMM, to which tokens come
    hides: str  #: how the exchange hides

    @property
    def exchange(self) -> Exchange:
        return fused_with(f"moe-{self.phase}")

    @property
    def name(self) -> str:
        return f"today-{self.phase}"


@dataclass(frozen=True)
class _PopularityCase:
    """A popularity of the experts, and what follows from it."""

    half: _Half
    machine: Machine
    whole: Machine
    zipf: float
    seed: int
    dtype: str = _DTYPE

    @property
    def techniques(self) -> tuple[str, ...]:
        return tuple(name for name in _TECHNIQUES if self.dtype == _DTYPE or name != "t3")

    @cached_property
    def workload(self) -> ExpertsWorkload:
        workload = experts_workload(self.half.shape, _GPUS, f"{_EXPERTS}x{_PER_TOKEN}", self.zipf, self.seed,
                                    first=self.half.first)
        return replace(workload, dtype=self.dtype)

    @property
    def padding(self) -> float:
        """The share of the slowest GPU's tiles that is no token's."""
        placement, device = placement_of(self.machine, self.workload), busiest(self.machine, self.workload)
        assert placement is not None
        return float((placement.columns[device] == NOWHERE).mean())

    @cached_property
    def routing(self) -> Routing:
        """The routing of as many tokens as whole GPUs have."""
        return drawn(_GPUS, _EXPERTS, _PER_TOKEN, _TOKENS * _FRACTION, self.zipf, self.seed)

    @cached_property
    def event(self) -> dict[str, ExpertsRun]:
        """The event level's mechanisms."""
        model = replace(TODAY["mixtral-8x7b"].kinds[-1][0], hidden=_HIDDEN, feed_forward=_DEPTH, experts=_EXPERTS,
                        experts_per_token=_PER_TOKEN)
        return {run.mechanism: run for run in rank_experts(
            self.whole, model, self.routing, "fp8" if self.dtype == _NARROW else _DTYPE)}

    def event_ns(self, mechanism: str) -> float:
        """Return how long the GEMM and the exchange take by a mechanism of the event level."""
        run = self.event[mechanism]
        return run.first_ns if self.half.first else run.second_ns

    def over(self, mechanism: str) -> float:
        """Return how much longer they take by a mechanism than by Track & Trigger."""
        return self.event_ns(mechanism) / self.event_ns("t3")


def _cases(half: _Half, setup: Scope) -> list[_PopularityCase]:
    machine, whole = fraction_of(load_machine(_MACHINE), _FRACTION), load_machine(_WHOLE, COMMERCIAL)
    cases = [_PopularityCase(half, machine, whole, zipf, setup.seed) for zipf in _ZIPF]
    cases += [replace(cases[0], zipf=zipf, dtype=_NARROW) for zipf in _NARROW_ZIPF if half.first]
    for point in cases:  # all have the hardware of the one that needs most
        machine = half.exchange.hardware(machine, point.workload)
    return [replace(point, machine=machine) for point in cases]


def _tasks(half: _Half, setup: Scope) -> list[Any]:
    return [task for point in _cases(half, setup)
            for task in layer_tasks(setup, point.workload, point.techniques, point.machine, half.exchange)]


def _evaluate(half: _Half, setup: Scope, results: Results) -> Findings:
    all_cases, phase = _cases(half, setup), half.phase
    all_runs = [layer_result(setup, results, point.workload, point.techniques, point.machine, half.exchange)
                for point in all_cases]
    cases, runs = all_cases[:len(_ZIPF)], all_runs[:len(_ZIPF)]
    narrow_pairs = list(zip(all_cases, all_runs))[len(_ZIPF):]
    ours = Quantities("beyond the papers")
    for point, run in zip(cases, runs):
        ours.add(f"Zipf {point.zipf:g}: sequential over {_OURS}", percent(run.speedup[_OURS]), "%")
        ours.add(f"Zipf {point.zipf:g}: {phase} hidden", 100 * run.overlap_efficiency[_OURS], "%")
        ours.add(f"Zipf {point.zipf:g}: in turn over T3, event level", percent(point.over("in-turn")), "%")
        ours.add(f"Zipf {point.zipf:g}: low latency over T3, event level", percent(point.over("low-latency")), "%")
    for point, run in zip(cases, runs):
        if half.first:
            ours.add(f"Zipf {point.zipf:g}: a kernel that packs as it sends over {_OURS}",
                     percent(_packing_kernel_ratio(run)), "%")
    for point, run in narrow_pairs:
        ours.add(f"{_NARROW}, Zipf {point.zipf:g}: sequential over {_OURS}", percent(run.speedup[_OURS]), "%")
    times = [run.techniques[_OURS].total_ns for run in runs]
    ours.add(f"{_OURS}'s time at Zipf {_ZIPF[-1]:g} over even", times[-1] / times[0], "x")
    first, last = runs[0], runs[-1]
    return Findings(
        text=f"With {half.hides}, the {half.gemm} GEMM of {_EXPERTS} experts on {_GPUS} GPUs and its {phase} are "
             f"{percent(first.speedup[_OURS]):.0f} % faster than separate kernels if all experts are equally popular, "
             f"and {percent(last.speedup[_OURS]):.0f} % faster with Zipf {_ZIPF[-1]:g}. In this case they take "
             f"{times[-1] / times[0]:.1f} times as long, because all GPUs wait for the one with the most tokens. On "
             f"the event level DeepEP's kernels are {percent(cases[0].over('low-latency')):.0f} % and "
             f"{percent(cases[-1].over('low-latency')):.0f} % slower than Track & Trigger.",
        cases=[case(half.name, run, zipf=point.zipf, dtype=point.dtype, imbalance=point.workload.routing.imbalance,
                    event={name: point.event_ns(name) for name in _EVENT}) for point, run in zip(all_cases, all_runs)],
        ours=ours,
        tables=[Table(f"{half.gemm.capitalize()} GEMM and {phase} on {_GPUS} GPUs of 1/{_FRACTION} of {_MACHINE}, RTL "
                      "in the loop (µs)",
                      _columns(half, _TECHNIQUES), [_row(*pair) for pair in zip(cases, runs)]),
                *([Table(f"With tokens in {_NARROW}, RTL in the loop (µs)", _columns(half, all_cases[-1].techniques),
                         [_row(*pair) for pair in narrow_pairs])] if narrow_pairs else []),
                Table(f"Slowdown against T3 on the event level, {_GPUS} GPUs of {_WHOLE}",
                      ("Zipf", "imbalance", "in turn", "DeepEP's kernels", "Comet's kernels"),
                      [(f"{point.zipf:g}", f"{point.routing.imbalance:.2f}",
                        *(f"{percent(point.over(name)):+.0f} %" for name in _EVENT[:-1])) for point in cases])],
        plots={half.name: lambda: _draw(cases, runs)})


def _packing_kernel_ratio(run: RunResult) -> float:
    """Return how much longer kernels that pack as they send take than Track & Trigger, which packs first."""
    assert run.baseline is not None
    return (run.baseline.total_ns - run.baseline.packing_ns) / run.techniques[_OURS].total_ns


def _columns(half: _Half, techniques: tuple[str, ...]) -> tuple[str, ...]:
    return ("Zipf", "imbalance", "padding", *(("packing",) if half.first else ()), "GEMM", half.phase,
            *(TECHNIQUE_TITLES[name] for name in techniques), f"{TECHNIQUE_TITLES[_OURS]} gains")


def _row(point: _PopularityCase, run: RunResult) -> tuple[str, ...]:
    base = run.baseline
    assert base is not None
    part_ns = *((base.packing_ns,) if point.half.first else ()), base.gemm_ns, base.phases_ns[point.half.phase]
    technique_ns = [run.techniques[name].total_ns for name in point.techniques]
    return (f"{point.zipf:g}", f"{point.workload.routing.imbalance:.2f}", f"{100 * point.padding:.0f} %",
            *(f"{ns / 1e3:.1f}" for ns in (*part_ns, *technique_ns)),
            f"{percent(run.speedup[_OURS]):+.1f} %")


def _draw(cases: list[_PopularityCase], runs: list[RunResult]):
    figure, axes = plots.figure(2.6)
    zipf = [point.zipf for point in cases]
    axes.plot(zipf, [run.speedup[_OURS] for run in runs], "o-", color=plots.BLUE, markersize=4,
              label="kernels in turn over T3-MCA, RTL in the loop")
    for name, label, colour in (("in-turn", "kernels in turn over T3, event level", plots.GREY),
                                ("low-latency", "DeepEP's kernels over T3, event level", plots.ORANGE)):
        axes.plot(zipf, [point.over(name) for point in cases], "o--", color=colour, markersize=4, label=label)
    axes.axhline(1.0, color=plots.BLACK, linewidth=0.8)
    axes.set_xlabel("Zipf exponent of the experts' popularity")
    axes.set_ylabel("time relative to\nTrack & Trigger")
    plots.legend_above(axes, 3)
    return figure


def _figure(half: _Half, title: str) -> Figure:
    return Figure(half.name, title, partial(_tasks, half), partial(_evaluate, half), short=half.phase, paper="today")


DISPATCH = _figure(
    _Half("dispatch", "first", f"{_TOKENS}x{2 * _DEPTH}x{_HIDDEN}", True, "tiles that wait for their own tokens"),
    "Dispatch of tokens to their experts")
COMBINE = _figure(
    _Half("combine", "second", f"{_TOKENS}x{_HIDDEN}x{_DEPTH}", False, "sums of the combine at memory"),
    "Combine of experts' outputs at the tokens' owners")
