"""Experts that eight GPUs share, over how uneven tokens are routed; DeepEP's measured exchanges beside ours."""

from dataclasses import dataclass
from functools import cached_property
from statistics import fmean

from t3sim.analytic.libraries.experts import EXPERTS_MECHANISMS, ExpertsRun, rank_experts
from t3sim.analytic.validation.comparison import Compared, compare
from t3sim.analytic.validation.readers import own_rows
from t3sim.analytic.validation.requests import ExpertsExchange, Measured
from t3sim.base import plots
from t3sim.machine import Machine, load_machine
from t3sim.machine.levels import COMMERCIAL
from t3sim.papers.figure import Figure, Findings, Quantities, Results, Scope, Table
from t3sim.papers.paper import percent
from t3sim.workload.routing import Routing, drawn
from t3sim.workload.transformer import TODAY, Transformer

_MACHINE, _GPUS = "h100-sxm", 8
_MODELS, _WIDTH = ("deepseek-v3", "qwen3-235b-a22b", "mixtral-8x22b"), "fp8"
_PHASES = {"decoding": 1024, "a prompt": 32768}  #: tokens of all GPUs
_ZIPF, _SUMMARY_ZIPF = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2), (0.0, 0.6, 1.2)
_OURS = "t3"


@dataclass(frozen=True)
class _ExpertsCase:
    """A model's experts, a phase, and how popular experts differ."""

    machine: Machine
    model: Transformer
    phase: str
    zipf: float
    seed: int

    @cached_property
    def routing(self) -> Routing:
        return drawn(_GPUS, self.model.experts, self.model.experts_per_token, _PHASES[self.phase], self.zipf, self.seed)

    @cached_property
    def runs(self) -> dict[str, ExpertsRun]:
        return {run.mechanism: run for run in rank_experts(self.machine, self.model, self.routing, _WIDTH)}

    @property
    def best_today(self) -> str:
        """The fastest that can be had."""
        return next(name for name in self.runs if name != _OURS)

    @property
    def gain(self) -> float:
        return self.runs[self.best_today].ns / self.runs[_OURS].ns


def _evaluate(setup: Scope, results: Results) -> Findings:
    machine = load_machine(_MACHINE, COMMERCIAL)
    cases = {(name, phase): [_ExpertsCase(machine, TODAY[name].kinds[-1][0], phase, zipf, setup.seed) for zipf in _ZIPF]
             for name in _MODELS for phase in _PHASES}
    ours = Quantities("beyond the papers")
    for (name, phase), zipf_cases in cases.items():
        for case in zipf_cases:
            if case.zipf in _SUMMARY_ZIPF:
                ours.add(f"{name}, {phase}, Zipf {case.zipf:g}: T3 over the best of today", percent(case.gain), "%")
        ours.add(f"{name}, {phase}: T3's time at Zipf {_ZIPF[-1]:g} over even",
                 zipf_cases[-1].runs[_OURS].ns / zipf_cases[0].runs[_OURS].ns, "x")
    exchanges = _exchange_rows()
    ours.add("Measured dispatch and combine: error, mean", 100 * fmean(abs(row.error) for row in exchanges), "%",
             errors=True)
    decoding, prompt = (cases[_MODELS[0], phase] for phase in _PHASES)
    return Findings(
        text=f"For {_MODELS[0]}'s experts on {_GPUS} GPUs of {_MACHINE}, and tokens that are spread evenly, Track & "
             f"Trigger gains {percent(decoding[0].gain):+.0f} % over the best mechanism of today when "
             f"{_PHASES['decoding']:,} tokens decode, and {percent(prompt[0].gain):+.0f} % for a prompt of "
             f"{_PHASES['a prompt']:,}. With popular experts (Zipf {_ZIPF[-1]:g}) it gains "
             f"{percent(decoding[-1].gain):+.0f} and {percent(prompt[-1].gain):+.0f} %. It hides exchanges, but not "
             f"imbalance: the prompt then takes {prompt[-1].runs[_OURS].ns / prompt[0].runs[_OURS].ns:.1f} times as "
             "long, because every GPU waits for the one with the most tokens.",
        cases=[{"figure": "today-experts", "machine": _MACHINE, "gpus": _GPUS, "model": case.model.name,
                "phase": case.phase, "tokens": case.routing.tokens, "zipf": case.zipf,
                "imbalance": case.routing.imbalance, "width": _WIDTH,
                "ranking": [run.to_json() for run in case.runs.values()]}
               for zipf_cases in cases.values() for case in zipf_cases],
        ours=ours,
        tables=[Table(f"Dispatch, GEMMs and combine in {_WIDTH} on {_GPUS} GPUs of {_MACHINE} (µs)", (
            "layer, Zipf exponent", "most tokens over the mean", *EXPERTS_MECHANISMS, "best of today", "T3's gain"), [
            (f"{case.model.name}, {case.phase}, {case.zipf:g}", f"{case.routing.imbalance:.2f}",
             *(f"{case.runs[name].ns / 1e3:,.1f}" for name in EXPERTS_MECHANISMS), case.best_today,
             f"{percent(case.gain):+.1f} %") for zipf_cases in cases.values() for case in zipf_cases]),
            Table("Dispatch and combine, measured and modelled (µs)",
                  ("exchange", "measured", "ours", "error"),
                  [(row.row.scenario, f"{row.row.ns / 1e3:,.0f}", f"{row.ours_ns / 1e3:,.0f}",
                    f"{100 * row.error:+.0f} %") for row in exchanges])],
        plots={"today-experts": lambda: _draw(cases)})


def _exchange_rows() -> list[Compared]:
    rows = [row for row in own_rows() if isinstance(row, Measured) and isinstance(row.ask, ExpertsExchange)]
    return [*compare(rows).rows]


def _draw(cases: dict[tuple[str, str], list[_ExpertsCase]]):
    figure, axes = plots.figure(2.8)
    colours = dict(zip(_MODELS, (plots.BLUE, plots.ORANGE, plots.GREEN)))
    for (name, phase), zipf_cases in cases.items():
        axes.plot([case.routing.imbalance for case in zipf_cases], [case.gain for case in zipf_cases], marker="o",
                  markersize=3, color=colours[name], linestyle="-" if phase == "decoding" else "--",
                  label=f"{name}, {phase}")
    axes.axhline(1.0, color=plots.BLACK, linewidth=0.8)
    axes.set_xlabel("imbalance: tokens of the GPU with the most, relative to the mean")
    axes.set_ylabel("speedup of T3 over\nthe best of today")
    plots.legend_above(axes, 3, handlelength=3)
    return figure


EXPERTS = Figure("today-experts", "Experts distributed over GPUs, by imbalance", lambda setup: [], _evaluate,
                 short="experts", paper="today")
