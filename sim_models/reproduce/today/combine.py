"""Experts' outputs at their tokens' owners: GEMM and combine on the RTL, over imbalance, beside the event level.

A quarter of each GPU and of the tokens is simulated; the event level has whole ones.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from t3sim.end_to_end.transformer import TODAY
from t3sim.libraries.experts import ExpertsRun, rank_experts
from t3sim.machine import Machine, load_machine
from t3sim.machine.fraction import fraction_of
from t3sim.machine.levels import COMMERCIAL
from t3sim.mechanisms.exchange import fused_with
from t3sim.reproduce.figure import Figure, Findings, Results, Setup, Table, Target, case, layer_result, layer_tasks
from t3sim.reproduce.paper import percent
from t3sim.routing import Routing, drawn
from t3sim.runs.operators import busiest, placement_of
from t3sim.schedule.placement import NOWHERE
from t3sim.study import plots
from t3sim.study.results import RunResult
from t3sim.workloads import ExpertsWorkload, experts_workload

_MACHINE, _WHOLE, _FRACTION, _GPUS = "h100-t3", "h100-sxm", 4, 4
_TOKENS, _HIDDEN, _DEPTH, _EXPERTS, _PER_TOKEN = 3584, 1024, 2048, 32, 4
_DTYPE, _ZIPF = "bf16", (0.0, 0.6, 1.2)
_TECHNIQUES, _OURS = ("sequential", "t3", "t3-mca", "ideal-overlap"), "t3-mca"
_EVENT = ("in-turn", "low-latency", "fused-units", "t3")
_EXCHANGE = fused_with("moe-combine")


@dataclass(frozen=True)
class _Case:
    """A popularity of the experts, and what follows from it."""

    machine: Machine
    whole: Machine
    zipf: float
    seed: int

    @cached_property
    def workload(self) -> ExpertsWorkload:
        shape = f"{_TOKENS}x{_HIDDEN}x{_DEPTH}"
        return replace(experts_workload(shape, _GPUS, f"{_EXPERTS}x{_PER_TOKEN}", self.zipf, self.seed), dtype=_DTYPE)

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
        return {one.mechanism: one for one in rank_experts(self.whole, model, self.routing, _DTYPE)}

    def over(self, mechanism: str) -> float:
        """Return how much longer the second GEMM and the combine take by a mechanism than by Track & Trigger."""
        return self.event[mechanism].second_ns / self.event["t3"].second_ns


def _cases(setup: Setup) -> list[_Case]:
    machine, whole = fraction_of(load_machine(_MACHINE), _FRACTION), load_machine(_WHOLE, COMMERCIAL)
    found = [_Case(machine, whole, zipf, setup.seed) for zipf in _ZIPF]
    return [replace(one, machine=_EXCHANGE.hardware(machine, one.workload)) for one in found]


def _tasks(setup: Setup) -> list[Any]:
    return [task for one in _cases(setup)
            for task in layer_tasks(setup, one.workload, _TECHNIQUES, one.machine, _EXCHANGE)]


def _evaluate(setup: Setup, results: Results) -> Findings:
    cases = _cases(setup)
    runs = [layer_result(setup, results, one.workload, _TECHNIQUES, one.machine, _EXCHANGE) for one in cases]
    ours, targets = {}, {}

    def quantity(name: str, value: float, unit: str = "%") -> None:
        ours[name], targets[name] = value, Target(name, unit, None, "beyond the papers")

    for one, run in zip(cases, runs):
        quantity(f"Zipf {one.zipf:g}: sequential over {_OURS}", percent(run.speedup[_OURS]))
        quantity(f"Zipf {one.zipf:g}: combine hidden", 100 * run.overlap_efficiency[_OURS])
        quantity(f"Zipf {one.zipf:g}: in turn over T3, event level", percent(one.over("in-turn")))
        quantity(f"Zipf {one.zipf:g}: low latency over T3, event level", percent(one.over("low-latency")))
    times = [run.techniques[_OURS].total_ns for run in runs]
    quantity(f"{_OURS}'s time at Zipf {_ZIPF[-1]:g} over even", times[-1] / times[0], "x")
    first, last = runs[0], runs[-1]
    return Findings(
        text=f"With the combine's sums at memory the second GEMM of {_EXPERTS} experts on {_GPUS} GPUs and its combine "
             f"are {percent(first.speedup[_OURS]):.0f} % faster than a kernel each if all experts are as popular, and "
             f"{percent(last.speedup[_OURS]):.0f} % with Zipf {_ZIPF[-1]:g}, where they take "
             f"{times[-1] / times[0]:.1f} times as long: all wait for the GPU with the most tokens. DeepEP's kernels, "
             f"on the event level, are {percent(cases[0].over('low-latency')):.0f} % and "
             f"{percent(cases[-1].over('low-latency')):.0f} % slower than Track & Trigger there.",
        cases=[case("today-combine", run, zipf=one.zipf, imbalance=one.workload.routing.imbalance,
                    event={name: one.event[name].second_ns for name in _EVENT}) for one, run in zip(cases, runs)],
        ours=ours, targets=targets,
        tables=[Table(f"Second GEMM and combine on {_GPUS} GPUs of 1/{_FRACTION} of {_MACHINE}, RTL in the loop (µs)",
                      ("Zipf", "imbalance", "padding", "GEMM", "combine", "sequential", "T3", "T3-MCA",
                       "ideal overlap", "T3-MCA gains"), [_row(*pair) for pair in zip(cases, runs)]),
                Table(f"The same on the event level, {_GPUS} GPUs of {_WHOLE}: slower than T3",
                      ("Zipf", "imbalance", "in turn", "DeepEP's kernels", "Comet's kernels"),
                      [(f"{one.zipf:g}", f"{one.routing.imbalance:.2f}",
                        *(f"{percent(one.over(name)):+.0f} %" for name in _EVENT[:-1])) for one in cases])],
        plots={"today-combine": lambda: _draw(cases, runs)})


def _row(one: _Case, run: RunResult) -> tuple[str, ...]:
    base = run.baseline
    assert base is not None
    alone = base.gemm_ns, base.phases_ns["combine"]
    times = [run.techniques[name].total_ns for name in _TECHNIQUES]
    return (f"{one.zipf:g}", f"{one.workload.routing.imbalance:.2f}", f"{100 * one.padding:.0f} %",
            *(f"{ns / 1e3:.1f}" for ns in (*alone, *times)),
            f"{percent(run.speedup[_OURS]):+.1f} %")


def _draw(cases: list[_Case], runs: list[RunResult]):
    picture, axes = plots.figure(2.6)
    zipf = [one.zipf for one in cases]
    axes.plot(zipf, [run.speedup[_OURS] for run in runs], "o-", color=plots.BLUE, markersize=4,
              label="T3-MCA over sequential, RTL in the loop")
    for name, label, colour in (("in-turn", "in turn over T3, event level", plots.GREY),
                                ("low-latency", "DeepEP's kernels over T3, event level", plots.ORANGE)):
        axes.plot(zipf, [one.over(name) for one in cases], "o--", color=colour, markersize=4, label=label)
    axes.axhline(1.0, color=plots.BLACK, linewidth=0.8)
    axes.set_xlabel("exponent of the experts' popularity")
    axes.set_ylabel("times as long")
    axes.legend(fontsize=7)
    return picture


COMBINE = Figure("today-combine", "Experts' outputs, added at their tokens' owners", _tasks, _evaluate,
                 short="combine", paper="today")
