"""A scenario whose layer's collectives are hidden on GPUs that are sold: mechanisms ranked by models of libraries."""

import csv
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from t3sim.analytic.gemm import width_of
from t3sim.analytic.libraries.experts import ExpertsRun, rank_experts
from t3sim.analytic.libraries.mechanisms import TRIGGERED, OverlapPlan
from t3sim.analytic.libraries.prompts import model_of
from t3sim.analytic.libraries.ranking import Ranked, layer_plans, rank
from t3sim.analytic.validation.comparison import expected_error
from t3sim.analytic.validation.nearby import error_near, measured_name, range_of_rows
from t3sim.analytic.validation.requests import (
    Collective,
    ExpertsExchange,
    GemmRequest,
    Norm,
    OverlapRequest,
    Request,
)
from t3sim.base.bounded import read_json, reading
from t3sim.base.errors import BadInput
from t3sim.machine import Machine, load_machine
from t3sim.machine.levels import COMMERCIAL
from t3sim.machine.load import cycle_machine_of
from t3sim.runs.operators import with_its_kernel
from t3sim.runs.plan import Plan
from t3sim.study.scenario.kinds import check_keys
from t3sim.study.scenario.scenario import Scenario, setting
from t3sim.study.tasks.store import KeptResults
from t3sim.study.tasks.task import kernel_task
from t3sim.study.techniques import kernels_of, run_result
from t3sim.workload.model_file import load_transformer
from t3sim.workload.routing import Routing, drawn, given
from t3sim.workload.transformer import Transformer
from t3sim.workload.workloads import gemm_workload

MODEL, MACHINE, TP, TOKENS = "llama-3.3-70b", "h100-sxm", 8, 8192  #: of a scenario that does not say
_MOST_TOKENS = 1 << 20
_MOST_ZIPF = 4.0
_DTYPES = ("bf16", "fp16", "fp8", "fp4")
#: Collectives of mechanisms that run GEMM and collective one after the other, in the words of measured rows.
_LIBRARIES = {"in-turn": "NCCL", "symmetric": "symmetric", "one-shot": "custom, one-shot",
              "two-shot": "custom, two-shot", "copy-engines": "copy engines"}
_GEMMS = "GEMMs alone"
_SPLIT = {"gemm-ar": False, "gemm-rs": True}  #: operator: is the sequence parallel?
_ON_RTL = ("t3", "t3-mca+")  #: techniques of the cycle level that are ranked here, too


@dataclass(frozen=True)
class Ranking:
    """Mechanisms, the fastest first, and how wrong their times may be."""

    model: Transformer
    machine: Machine
    tp: int
    tokens: int
    width: str  #: of the GEMMs' operands
    gemms: dict[str, OverlapPlan]  #: that are timed, each with its collective
    ranking: list[Ranked]
    expected_error: dict[str, Any] | None  #: over measured rows of the machine, if there are any
    #: Errors of the rows near these GEMMs, and near the collectives of each mechanism; None: no row is near.
    checked: dict[str, dict[str, Any] | None]
    #: Of what was not checked, the factor within which nine of ten rows of its kind are, on this machine or the nearest
    #: ones that have some; None: there are too few.
    ranges: dict[str, dict[str, Any] | None]
    hardware: Machine | None  #: Track & Trigger's, of the cycle level
    rtl_ns: dict[str, dict[str, float]]  #: of sub-layers and ways of Track & Trigger that are kept: time on the RTL

    def range_ns(self, run: Ranked) -> tuple[float, float] | None:
        """Return the time of a mechanism over the ranges of its parts that were not checked; None if all were.

        Nobody has built Track & Trigger, so no row has its kind.
        """
        gemms_ns = sum(plan.gemm_ns for plan in self.gemms.values()) if run.mechanism in _LIBRARIES else 0.0
        ranges = [self.ranges.get(part) for part in (_GEMMS, run.mechanism)]
        factors = [1.0 if one is None else one["factor"] for one in ranges]
        if run.mechanism in TRIGGERED or max(factors) == 1:
            return None
        times_ns = gemms_ns, run.ns - gemms_ns
        return (sum(ns / factor for ns, factor in zip(times_ns, factors)),
                sum(ns * factor for ns, factor in zip(times_ns, factors)))

    def __repr__(self) -> str:
        times = ", ".join(f"{run.mechanism} {run.ns / 1e3:,.1f} µs" for run in self.ranking)
        return f"<Ranking {self.model.name} on {self.tp} GPUs of {self.machine.name}, {self.tokens:,} tokens: {times}>"

    def to_json(self) -> dict[str, Any]:
        return {"model": self.model.name, "parameters": self.model.weights, "layers": self.model.layers,
                "machine": self.machine.name, "tp": self.tp, "tokens": self.tokens, "width": self.width,
                "gemms": {name: {"operator": plan.operator, "shape": list(plan.shape)}
                          for name, plan in self.gemms.items()},
                "ranking": [{**run.to_json(), "range_ns": (span := self.range_ns(run)) and list(span)}
                            for run in self.ranking],
                "expected_error": self.expected_error, "checked": self.checked, "ranges": self.ranges,
                "hardware": self.hardware and self.hardware.name, "rtl_ns": self.rtl_ns}


@cache
def _published_ns() -> dict[tuple[str, ...], tuple[float, float]]:
    """Return times and all-gathers of `t3 reproduce --only levels` by machine, GPUs, shape and technique."""
    with (Path(__file__).parent / "track_trigger_rtl.csv").open(encoding="utf-8") as file:
        _, *rows = csv.reader(file)
    return {tuple(key): (1e3 * float(total), 1e3 * float(gather)) for *key, total, gather in rows}


def rtl_ns(plan: OverlapPlan) -> dict[str, float]:
    """Return a GEMM's kept times on the RTL by technique: of the user's own runs, else of the levels' report."""
    if plan.before or plan.hardware is None or plan.width != "bf16" or plan.rows not in (None, plan.shape[0]):
        return {}
    times_ns, shape = {}, "x".join(map(str, plan.shape))
    for technique in _ON_RTL:
        times = _kept_ns(plan.hardware, shape, plan.gpus, technique)
        if times is None:
            times = next((some for (machine, *key), some in _published_ns().items()
                          if key == [f"{plan.gpus}", *map(str, plan.shape), technique]
                          and plan.hardware.model_copy(update={"name": machine}) == load_machine(machine)), None)
        if times is not None:
            total_ns, gather_ns = times
            times_ns[technique] = total_ns - (0.0 if plan.kind == "all_reduce" else gather_ns)
    return times_ns


def _kept_ns(hardware: Machine, shape: str, gpus: int, technique: str) -> tuple[float, float] | None:
    """Return time and all-gather of a run in the user's cache. The cycle level has one time for both 16-bit formats."""
    kept = KeptResults()
    for dtype in ("bf16", "fp16"):
        plan = Plan(hardware, with_its_kernel(hardware, replace(gemm_workload(shape, gpus), dtype=dtype)))
        results = {kernel: kept.load(kernel_task(kernel, hardware, plan.workload))
                   for kernel in kernels_of(technique, plan)}
        if None not in results.values():
            run = run_result(plan, [technique], results).techniques[technique]
            return run.total_ns, run.loss_ns["all_gather"]
    return None


def _requests(machine: Machine, plans: dict[str, OverlapPlan], mechanisms: Iterable[str]) -> dict[str, list[Request]]:
    """Return what a measured row would ask: the GEMMs, and what each mechanism does with them."""
    libraries = _LIBRARIES | ({} if machine.in_switch is None else {"symmetric": "multimem"})
    gemms = {name: GemmRequest(*plan.shape, plan.width) for name, plan in plans.items()}
    requests: dict[str, list[Request]] = {_GEMMS: [*gemms.values()]}
    for mechanism in mechanisms:
        if mechanism in TRIGGERED:  # nobody has built it
            continue
        for name, plan in plans.items():
            m, n, _ = plan.shape
            request = Norm(plan.gpus, plan.rows or m, n, "fused") if mechanism == "fused-norm" else Collective(
                plan.kind, plan.gpus, 1, plan.size, libraries[mechanism]) if mechanism in libraries else OverlapRequest(
                    plan.operator, plan.gpus, gemms[name], mechanism)
            requests.setdefault(mechanism, []).append(request)
    return requests


def _certainty(machine: Machine, requests: dict[str, list[Request]]) -> tuple[dict[str, dict[str, Any] | None], ...]:
    """Return the errors of rows near each of some requests, and ranges of those that have none."""
    checked = {what: error_near(machine, some) for what, some in requests.items()}
    return checked, {what: range_of_rows(machine, requests[what]) for what, error in checked.items() if error is None}


class LayerToRank:
    """A layer of a model on GPUs that are sold; made ready, which raises BadInput, before it is computed.

    `sequence_parallel`: reduce-scatters after and all-gathers before its GEMMs, as `layer.operator = gemm-rs` says;
    `gemm-ar` and a scenario that says neither have all-reduces.
    """

    what = "a ranking of mechanisms"  #: for people

    def __init__(self, scenario: Scenario, sequence_parallel: bool = False) -> None:
        check_keys(scenario, "library")
        layer = scenario.layer
        if "operator" in layer.model_fields_set and layer.operator not in _SPLIT:
            raise BadInput(f"{setting('layer.operator', layer.operator)} is not ranked: allowed are "
                           f"{', '.join(_SPLIT)}")
        self.sequence_parallel = sequence_parallel or (
            "operator" in layer.model_fields_set and _SPLIT[layer.operator])
        name = MODEL if layer.model is None else layer.model
        self.model = model_of(name) or load_transformer(name)
        machine = scenario.machine if "machine" in scenario.model_fields_set else MACHINE
        if isinstance(machine, Machine):
            raise BadInput("machine = ...: a ranking takes a name, a file, or the differences from one")
        self.machine = load_machine(machine, COMMERCIAL)
        self.hardware = cycle_machine_of(machine)
        self.tp = TP if layer.tp is None else layer.tp
        self.tokens = TOKENS if layer.tokens is None else layer.tokens
        reason = "" if self.tp < 1 else self.model.not_shared_by(self.tp)
        if reason or not 2 <= self.tp <= self.machine.gpus:
            raise BadInput(f"layer.tp = {self.tp} is not possible: 2 to {self.machine.gpus} GPUs of "
                           f"{self.machine.name} that share the heads{f'; it {reason}' if reason else ''}")
        least = self.tp if self.sequence_parallel else 1
        if not least <= self.tokens <= _MOST_TOKENS:
            raise BadInput(f"layer.tokens = {self.tokens} is not possible: {least} to {_MOST_TOKENS}")
        if layer.dtype not in (None, *_DTYPES):
            raise BadInput(f"{setting('layer.dtype', layer.dtype)} is unknown: allowed are {', '.join(_DTYPES)}")
        self.width, self.is_default_width = width_of(layer.dtype or "bf16"), layer.dtype is None

    def run(self) -> Ranking:
        plans = layer_plans(self.machine, self.model, self.tokens, self.tp, self.sequence_parallel, self.width,
                            self.hardware)
        ranking = rank(plans)
        requests = _requests(self.machine, plans, [run.mechanism for run in ranking])
        return Ranking(self.model, self.machine, self.tp, self.tokens, self.width, plans, ranking,
                       expected_error(measured_name(self.machine)), *_certainty(self.machine, requests), self.hardware,
                       {name: times for name, plan in plans.items() if (times := rtl_ns(plan))})


@dataclass(frozen=True)
class ExpertsRanking:
    """Ways to bring tokens to experts and back, the fastest first."""

    model: Transformer
    machine: Machine
    routing: Routing
    width: str
    ranking: list[ExpertsRun]
    #: Errors of the rows near the exchanges of each mechanism; None: no row is near.
    checked: dict[str, dict[str, Any] | None]
    ranges: dict[str, dict[str, Any] | None]  #: as of `Ranking`

    @property
    def gemms(self) -> dict[str, tuple[int, int, int, int]]:
        """Return rows, columns and depth of both GEMMs of the GPU with the most tokens; its experts' weights differ."""
        model, most = self.model, max(map(sum, self.routing.groups))
        return {"fc1": (most, model.feed_forward * (2 if model.gated else 1), model.hidden, 1),
                "fc2": (most, model.hidden, model.feed_forward, 1)}

    def to_json(self) -> dict[str, Any]:
        return {"model": self.model.name, "parameters": self.model.weights, "layers": self.model.layers,
                "machine": self.machine.name, "gpus": self.routing.gpus,
                "tokens": self.routing.tokens, "width": self.width, "imbalance": self.routing.imbalance,
                "experts_with_tokens": self.routing.used, "ranking": [run.to_json() for run in self.ranking],
                "checked": self.checked, "ranges": self.ranges}


class ExpertsToRank(LayerToRank):
    """Experts of a model's layer, of which each GPU has an equal part and an equal part of the tokens.

    `zipf`: exponent of the experts' popularity in routings that are drawn; `routing`: a file with one instead, which
    raises BadInput if it cannot be. A routing that is given has its tokens.
    """

    def __init__(self, scenario: Scenario, zipf: float = 0.0, seed: int = 0, routing: str | None = None) -> None:
        super().__init__(scenario)
        if self.sequence_parallel:
            raise BadInput(f"{setting('layer.operator', 'gemm-rs')} does not go with experts that GPUs share")
        model = self.model
        if model.experts < 2 or model.experts % self.tp:
            raise BadInput(f"layer.tp = {self.tp} GPUs cannot share the experts of {model.name}, which has "
                           f"{model.experts if model.experts > 1 else 'none'}: a divisor of their number is needed")
        if not 0 <= zipf <= _MOST_ZIPF:
            raise BadInput(f"zipf = {zipf} is not possible: 0 to {_MOST_ZIPF}")
        if routing is None:
            self.routing = drawn(self.tp, model.experts, model.experts_per_token, self.tokens, zipf, seed)
            return
        if zipf or seed or scenario.layer.tokens is not None:
            raise BadInput(f"routing = {routing} says how many tokens go to which expert: zipf, seed and layer.tokens "
                           "do not go with it")
        with reading(f"routing = {routing}", "a routing"):
            self.routing = given(read_json(Path(routing)), self.tp, model.experts, model.experts_per_token)

    def run(self) -> ExpertsRanking:
        model, routing = self.model, self.routing
        requests = {name: [ExpertsExchange(
            "dispatch", library, routing.gpus, 1, max(1, routing.tokens // routing.gpus), model.hidden,
            model.experts_per_token, model.experts, self.width)]
            for name, library in (("low-latency", "low latency"), ("two-batches", "normal"))}
        return ExpertsRanking(model, self.machine, routing, self.width,
                              rank_experts(self.machine, model, routing, self.width),
                              *_certainty(self.machine, requests))
