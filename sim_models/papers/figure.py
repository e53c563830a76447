"""Figure of a paper: the tasks that it needs, and a function from their results to numbers, tables and plots."""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

from t3sim.base.cache import digest
from t3sim.machine import Machine
from t3sim.papers.paper import Target
from t3sim.runs.exchange import REDUCED, Exchange
from t3sim.runs.kernels import Kernel
from t3sim.runs.plan import Plan
from t3sim.study.results import RunResult
from t3sim.study.tasks.sources import source_digest
from t3sim.study.tasks.task import KernelTask, Task, kernel_task
from t3sim.study.techniques import kernels_of, run_result
from t3sim.workload.workloads import SUBLAYERS, Workload, transformer_workload

Results = Mapping[Task, Any]

#: The papers whose evaluations are reproduced.
PAPERS = {"t3": "T3: Transparent Tracking & Triggering for Fine-grained Overlap of Compute & Collectives (ASPLOS 2024)",
          "fused": "Optimizing Distributed ML Communication with Fused Computation-Collective Operations",
          "flux": "FLUX: Fast Software-based Communication Overlap On GPUs Through Kernel Fusion",
          "dma": "DMA Collectives for Efficient ML Communication Offloads",
          "amped": "AMPeD: An Analytical Model for Performance in Distributed Training of Transformers (ISPASS 2023)",
          "today": "Track & Trigger on GPUs of today",
          "beyond": "Beyond the papers"}
#: What they are called in a heading or a list.
PAPER_NAMES = {"t3": "T3", "fused": "Fused operators", "flux": "Flux", "dma": "DMA collectives", "amped": "AMPeD",
               "today": "GPUs of today", "beyond": "Beyond the papers"}
#: What a paper's report answers first, and the figure whose words and plot do.
FIRST_ANSWERS = {"t3": ("How much faster is a sub-layer whose GEMM triggers its own reduce-scatter?", "figure16"),
                 "fused": ("How much time do kernels save that send their own results?", "fused-operators"),
                 "flux": ("How much communication do kernels hide that send, or wait, tile by tile?", "flux"),
                 "dma": ("Are DMA engines faster than kernels that copy?", "dma-all-gather"),
                 "amped": ("How far is the closed form from measured training?", "megatron"),
                 "today": ("What would Track & Trigger give an H100 or an MI300X, by layer and phase?", "today-layers"),
                 "beyond": ("What does Track & Trigger gain if the all-gather is overlapped as well?", "all-reduce")}

TECHNIQUE_TITLES = {"sequential": "sequential", "t3": "T3", "t3-mca": "T3-MCA", "t3-mca+": "T3-MCA+",
                    "ideal-overlap": "ideal overlap", "ideal-rs-nmc": "ideal, RS with NMC"}
TECHNIQUES = tuple(TECHNIQUE_TITLES)  #: in the order of the paper's figure 16


class ModelTask(ABC):
    """Task of a figure's own: its key is of what it asks for and of the sources that its result comes from.

    A subclass is a frozen dataclass with `description`, `label`, `seconds`, `result_type` and `run`.
    """

    kind: ClassVar[str]  #: first word of its key
    source: ClassVar[str]  #: module that gives the result
    needs_rtl: ClassVar[bool] = False
    requires: ClassVar[tuple[Task, ...]] = ()

    @property
    @abstractmethod
    def description(self) -> dict[str, Any]:
        """Everything that was asked for, as JSON."""

    @cached_property
    def key(self) -> str:
        text = json.dumps(self.description, sort_keys=True)
        return f"{self.kind}-{digest(text, source_digest(self.source, rtl=self.needs_rtl))}"


@dataclass(frozen=True)
class Scope:
    """Range that the evaluation runs over."""

    machine: Machine
    small: tuple[Workload, ...]  #: figures 6, 15, 16, 18, 20 and the thresholds
    large: tuple[Workload, ...]  #: section 6.4 and figure 20
    timed_layer: Workload  #: figure 17
    varied_layer: Workload  #: the layer of the sensitivity plots
    arrays: tuple[Workload, ...]  #: whose outputs are figure 14's arrays
    seed: int = 0

    @property
    def layers(self) -> tuple[Workload, ...]:
        """All sub-layers of the paper."""
        return (*self.small, *self.large)

    def task(self, kernel: Kernel, workload: Workload, machine: Machine | None = None, **options: Any) -> KernelTask:
        """Make the task of a kernel on this machine or on a variant of it."""
        return kernel_task(kernel, machine or self.machine, workload, self.seed, **options)


def paper_setup(machine: Machine, seed: int = 0) -> Scope:
    """Set up the cases of table 2."""
    def layers(models: tuple[str, ...], degrees: tuple[int, ...]) -> tuple[Workload, ...]:
        return tuple(transformer_workload(model, sublayer, tp)
                     for model in models for tp in degrees for sublayer in SUBLAYERS)

    return Scope(
        machine, small=layers(("mega-gpt-2", "t-nlg"), (8, 16)), large=layers(("gpt-3", "palm", "mt-nlg"), (32,)),
        timed_layer=replace(transformer_workload("t-nlg", "fc2", 8), m=4096),  # "SLB = 4K"
        varied_layer=transformer_workload("t-nlg", "fc2", 16),
        arrays=tuple(Workload("custom", "gemm", 4, size * 500, 1000, 1) for size in (6, 12, 24, 48, 96, 192)),  # MB
        seed=seed)


class Quantities(dict[str, float]):
    """Numbers of a figure's summary by name, each with what it is held to."""

    def __init__(self, section: str = "beyond") -> None:
        super().__init__()
        self.targets: dict[str, Target] = {}
        self._section = section  #: section of those that no paper has

    def add(self, name: str, value: float, unit: str, title: str = "", paper: float | None = None, section: str = "",
            tolerance: float | None = None, **condition: Any) -> None:
        """Add a number; its title is its name if none is given, the rest is as for `Target`."""
        self[name] = value
        self.targets[name] = Target(title or name, unit, paper, section or self._section, tolerance, **condition)


@dataclass(frozen=True)
class Table:
    """Text cells; the first column is a label."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    folded: bool = False  #: shown when asked for


@dataclass
class Findings:
    """Outcome of a figure."""

    text: str  #: two sentences
    cases: list[dict[str, Any]] = field(default_factory=list)  #: of `results.json`
    ours: dict[str, float] = field(default_factory=dict)  #: quantities of its summary
    ranges: dict[str, tuple[float, float]] = field(default_factory=dict)  #: of those, over uncertain inputs
    tables: list[Table] = field(default_factory=list)
    plots: dict[str, Callable[[], Any]] = field(default_factory=dict)  #: name: draws a matplotlib figure

    @property
    def targets(self) -> dict[str, Target]:
        """Targets of its quantities, but for those of the T3 paper's text."""
        return self.ours.targets if isinstance(self.ours, Quantities) else {}


@dataclass(frozen=True)
class Figure:
    """A figure of a paper: `tasks` names what must be run, `evaluate` is a pure function of its results."""

    name: str  #: for `--only`
    title: str
    tasks: Callable[[Scope], Iterable[Task]]
    evaluate: Callable[[Scope, Results], Findings]

    short: str = ""  #: for a list of links, if not the name
    paper: str = "t3"  #: whose evaluation it is part of, a key of `PAPERS`
    per_machine: bool = False  #: its numbers are a machine's of the cycle level: a second one's stand beside them

    @property
    def link(self) -> str:
        return self.short or re.sub(r"(?<=[a-z])(?=\d)", " ", self.name)


def layer_tasks(setup: Scope, workload: Workload, techniques: Iterable[str] = TECHNIQUES,
                machine: Machine | None = None, exchange: Exchange = REDUCED,
                policy: str | None = None) -> list[KernelTask]:
    """Return the kernels of one layer under these techniques.

    `exchange`: what the GEMM is fused with, for which the machine gets the hardware; `policy`: the arbiters' in
    technique t3, if not its own.
    """
    plan = Plan(exchange.hardware(machine or setup.machine, workload), workload, setup.seed, exchange, policy)
    return [setup.task(kernel, workload, plan.machine) for name in techniques for kernel in kernels_of(name, plan)]


def layer_result(setup: Scope, results: Results, workload: Workload, techniques: Iterable[str] = TECHNIQUES,
                 machine: Machine | None = None, exchange: Exchange = REDUCED, policy: str | None = None) -> RunResult:
    """Put the layer under these techniques together from the kernels' results; the rest is as for `layer_tasks`."""
    plan = Plan(exchange.hardware(machine or setup.machine, workload), workload, setup.seed, exchange, policy)
    kernel_results = {kernel: results[setup.task(kernel, workload, plan.machine)]
                      for name in techniques for kernel in kernels_of(name, plan)}
    return run_result(plan, list(techniques), kernel_results)


def case(figure: str, run: RunResult, **more: Any) -> dict[str, Any]:
    """Make one entry of `cases`: everything about a layer but what depends on the host."""
    workload, base, mca = run.workload, run.baseline, run.techniques["t3-mca"]
    techniques = {}
    for name, result in run.techniques.items():
        techniques[name] = replace(result, host_seconds=0.0).to_json()
        del techniques[name]["host_seconds"]
    writes = [result.dram["gemm_write"] + result.dram["rs_write"] for result in (base, mca)]
    return {
        "figure": figure, "model": workload.model, "sublayer": workload.sublayer, "tp": workload.tp,
        "M": workload.m, "N": workload.n, "K": workload.k, "title": workload.title,
        "speedup": run.speedup, "overlap_efficiency": run.overlap_efficiency,
        "dram_change": sum(mca.dram.values()) / sum(base.dram.values()) - 1,
        "gemm_read_ratio": base.dram["gemm_read"] / max(1, mca.dram["gemm_read"]),
        "rs_read_ratio": base.dram["rs_read"] / max(1, mca.dram["rs_read"]),
        "write_ratio": writes[0] / max(1, writes[1]),
        "chosen_threshold": mca.hardware.chosen_threshold,
        "techniques": techniques, **more}


# Machines that differ from a given one in a few parameters.

def variant(machine: Machine, changes: dict[str, Any]) -> Machine:
    """Return `machine` with, for example, {"gpu.compute_units": 160}; its name says so. Raises ValueError."""
    content = machine.model_dump()
    for key, value in changes.items():
        section, name = key.split(".")
        if content[section][name] != value:
            content[section][name] = value
            content["name"] = f"{content['name']}, {name}={value}"[:80]
    return Machine.model_validate(content)
