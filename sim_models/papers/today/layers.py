"""Layers of today's models on GPUs of today: in turn, by the best of today's mechanisms, and by Track & Trigger."""

from dataclasses import dataclass
from functools import cached_property
from textwrap import fill

from t3sim.analytic.libraries.mechanisms import GATES, TRIGGERED
from t3sim.analytic.libraries.prompts import norm_ns
from t3sim.analytic.libraries.ranking import Ranked, layer_plans, rank
from t3sim.analytic.validation.comparison import expected_error
from t3sim.base import plots
from t3sim.machine import load_machine
from t3sim.machine.levels import COMMERCIAL
from t3sim.papers.figure import Figure, Findings, Quantities, Results, Scope, Table
from t3sim.papers.paper import geomean, percent
from t3sim.workload.transformer import TODAY, Transformer

_MACHINES, _TP = ("h100-sxm", "mi300x"), 8
_IN_TURN = "in-turn"
_NORMS = 2  #: of a layer, after its reductions


@dataclass(frozen=True)
class _Phase:
    title: str
    tokens: int
    sequence_parallel: bool = False


_PHASES = (_Phase("prompt, sequence parallel", 8192, True), _Phase("prompt", 8192), _Phase("chunk of a prompt", 2048),
           _Phase("decoding, 512", 512), _Phase("decoding, 64", 64), _Phase("decoding, 1", 1))


@dataclass(frozen=True)
class _LayersCase:
    """A model's GEMMs with a collective, and its norms, on eight GPUs of a machine."""

    machine: str
    model: Transformer
    phase: _Phase

    @cached_property
    def mechanisms(self) -> dict[str, Ranked]:
        """The mechanisms, the fastest first."""
        return {mechanism.mechanism: mechanism for mechanism in rank(layer_plans(
            load_machine(self.machine, COMMERCIAL), self.model, self.phase.tokens, _TP, self.phase.sequence_parallel,
            hardware=load_machine(self.machine)))}

    @property
    def best_today(self) -> str:
        """The fastest that can be had."""
        return next(name for name in self.mechanisms if name not in TRIGGERED)

    @property
    def best_tracked(self) -> str:
        """Track & Trigger by the faster way."""
        return next(name for name in self.mechanisms if name in TRIGGERED)

    def ns(self, mechanism: str) -> float:
        """Time with both norms, of which a mechanism that has them in its own kernel is less already."""
        machine = load_machine(self.machine, COMMERCIAL)
        tokens = self.phase.tokens / (_TP if self.phase.sequence_parallel else 1)
        return self.mechanisms[mechanism].ns + _NORMS * norm_ns(machine, tokens, self.model.hidden)

    def gain(self, over: str) -> float:
        """Return the speedup of Track & Trigger."""
        return self.ns(over) / self.ns(self.best_tracked)


def _evaluate(setup: Scope, results: Results) -> Findings:
    groups = {(machine, phase): [_LayersCase(machine, model, phase) for model in TODAY.values()]
              for machine in _MACHINES for phase in _PHASES}
    over_best = {group: percent(geomean([case.gain(case.best_today) for case in cases]))
                 for group, cases in groups.items()}
    over_turn = {group: percent(geomean([case.gain(_IN_TURN) for case in cases])) for group, cases in groups.items()}
    ours = Quantities("beyond the papers")
    for baseline, gains in (("in turn", over_turn), ("the best of today", over_best)):
        for (machine, phase), gain in gains.items():
            ours.add(f"{machine}, {phase.title}: T3 over {baseline}, geomean", gain, "%")
    for machine in _MACHINES:
        if row_errors := expected_error(machine):
            ours.add(f"{machine}: error of measured rows without their source, mean",
                     100 * row_errors["mean_abs_error"], "%", errors=True)

    def gain_text(machine: str, title: str) -> str:
        return next(f"{gain:+.0f} %" for (name, phase), gain in over_best.items() if (name, phase.title) == (
            machine, title))

    return Findings(
        text="Over the best mechanism of today Track & Trigger gains "
             + " and ".join(f"{gain_text(machine, 'prompt, sequence parallel')} on {machine}" for machine in _MACHINES)
             + " if reduce-scatters and all-gathers surround the GEMMs of a prompt, and it holds no compute units. "
               "With all-reduces it gains "
             + " and ".join(gain_text(machine, "prompt") for machine in _MACHINES)
             + ", because its all-gather follows the GEMM, while a switch that adds needs none. With one token it "
               "gains "
             + " and ".join(gain_text(machine, "decoding, 1") for machine in _MACHINES)
             + ", because launches take most of the time, and a kernel that includes the norm needs the fewest. These "
               "are models of libraries, not cycles; the GEMMs of experts count as one GEMM of all their tokens.",
        cases=[{"figure": "today-layers", "machine": case.machine, "model": case.model.name, "phase": case.phase.title,
                "tokens": case.phase.tokens, "tp": _TP,
                "norms_ns": case.ns(case.best_tracked) - case.mechanisms[case.best_tracked].ns,
                "ranking": [mechanism.to_json() for mechanism in case.mechanisms.values()]}
               for cases in groups.values() for case in cases],
        ours=ours,
        tables=[Table(f"A layer on {_TP} GPUs of {machine}", (
            "layer", "in turn (µs)", "best of today (µs)", "mechanism", "its compute units", "T3 (µs)", "variant",
            "T3's gain", "T3 bound by"), [
            (f"{case.model.name}, {case.phase.title}", f"{case.ns(_IN_TURN) / 1e3:,.1f}",
             f"{case.ns(case.best_today) / 1e3:,.1f}", case.best_today, str(case.mechanisms[case.best_today].units),
             f"{case.ns(case.best_tracked) / 1e3:,.1f}", case.best_tracked,
             f"{percent(case.gain(case.best_today)):+.1f} %", case.mechanisms[case.best_tracked].bound)
            for phases in zip(*(groups[machine, phase] for phase in _PHASES)) for case in phases])
                for machine in _MACHINES],
        plots={"today-layers": lambda: _draw(groups)})


def _draw(groups: dict[tuple[str, _Phase], list[_LayersCase]]):
    figure, axes = plots.figure(3.4)
    series = {"today": [geomean([case.gain(_IN_TURN) / case.gain(case.best_today) for case in cases])
                        for cases in groups.values()],
              "ours": [geomean([case.gain(_IN_TURN) for case in cases]) for cases in groups.values()]}
    plots.grouped_bars(axes, [fill(phase.title, 9) for _, phase in groups], series,
                       {"today": plots.LIGHT, "ours": plots.BLUE},
                       {"today": "best of today", "ours": f"Track & Trigger, {GATES:,} gates a GPU"}, baseline=1.0)
    plots.name_groups(axes, (machine for machine, _ in groups), 0.24)
    axes.set_ylabel("speedup over kernels in turn,\ngeomean of the models")
    plots.legend_above(axes, 2)
    return figure


LAYERS = Figure("today-layers", "GEMMs with their collectives, layers and GPUs of today", lambda setup: [], _evaluate,
                short="layers", paper="today")
