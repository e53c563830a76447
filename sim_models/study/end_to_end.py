"""One question of `t3 end-to-end`, answered: a mapping's time, memory and energy with their ranges, as data."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from t3sim.analytic.end_to_end.inference import decode, prompt
from t3sim.analytic.end_to_end.mapping import RECOMPUTE, Mapping, MappingError
from t3sim.analytic.end_to_end.training import Result, TrainingJob, train
from t3sim.analytic.end_to_end.uncertainty import spread
from t3sim.analytic.validation.nearby import error_near, prompt_error_near, range_of_prompts, range_of_rows
from t3sim.analytic.validation.requests import Collective, ExpertsExchange, GemmRequest, Training
from t3sim.machine import Machine, load_machine
from t3sim.machine.files import NoSuchMachine, read
from t3sim.machine.levels import CLUSTER, ITERATIONS
from t3sim.workload.transformer import Transformer

#: What is timed.
PHASES: dict[str, Callable[..., Result]] = {"training": train, "prompt": prompt, "decode": decode}


def load_cluster(name_or_path: str) -> Machine:
    """Load a machine with tiers, or of the cycle level, for the closed forms, any other for the models of libraries.

    Raises `MachineError`.
    """
    try:
        content = read(name_or_path)
    except NoSuchMachine:
        content = {}
    libraries = "sustained" in content and not {"intra", "inter"} & {*content}
    return load_machine(name_or_path, ITERATIONS if libraries or not content else CLUSTER)


def cluster_json(cluster: Machine) -> dict[str, Any]:
    """Return the sections that an estimate reads."""
    return cluster.described(ITERATIONS if cluster.intra is None else CLUSTER)


@dataclass(frozen=True)
class Checked:
    """How wrong an estimate may be by measured rows."""

    near: dict[str, Any] | None  #: the error of measured trainings or prompts near it; None if there is none
    #: Then the ranges of all rows of its phase, and of those of its parts that have rows, by the breakdown's names.
    ranges: dict[str, dict[str, Any]]
    range_ns: tuple[float, float] | None  #: the wider one by its phase and by its parts


def tokens_at_once(job: TrainingJob, mapping: Mapping, phase: str) -> int:
    """Return the tokens that a GPU's GEMMs have as rows."""
    sequences = mapping.micro if phase == "training" else -(-job.global_batch // mapping.dp)
    return int(sequences * (1 if phase == "decode" else job.sequence))


def checked(cluster: Machine, job: TrainingJob, mapping: Mapping, phase: str,
            breakdown_ns: dict[str, Any]) -> Checked:
    """Look for measured trainings or prompts near this one, or else for the range of all; no decoding was measured."""
    training, near = [Training(job, mapping)], None
    if phase != "decode":
        near = error_near(cluster, training) if phase == "training" else prompt_error_near(cluster, job, mapping)
    if near is not None:
        return Checked(near, {}, None)
    model, tokens = job.model, tokens_at_once(job, mapping, phase)
    gemm = GemmRequest(tokens, model.hidden, model.hidden, job.width)
    parts = {"gemm": gemm, "head": gemm,
             "tp": Collective("all_reduce", int(mapping.tp), 1, 2.0 * tokens * model.hidden),
             "ep": ExpertsExchange("dispatch", "", int(mapping.ep), 1, tokens, model.hidden, model.experts_per_token,
                                   model.experts, job.width)}
    whole = {"training": range_of_rows(cluster, training), "prompt": range_of_prompts(cluster), "decode": None}[phase]
    times_ns = {name: float(ns) for name, ns in breakdown_ns.items() if float(ns)}
    ranges = {name: one for name, part in parts.items() if name in times_ns and (one := range_of_rows(cluster, [part]))}
    spans = [{name: one["factor"] for name, one in ranges.items()}] if ranges else []
    spans += [] if whole is None else [dict.fromkeys(times_ns, whole["factor"])]
    if not spans:
        return Checked(None, {}, None)
    return Checked(None, ({} if whole is None else {phase: whole}) | ranges, (
        min(sum(ns / span.get(name, 1.0) for name, ns in times_ns.items()) for span in spans),
        max(sum(ns * span.get(name, 1.0) for name, ns in times_ns.items()) for span in spans)))


@dataclass(frozen=True)
class ClusterEstimate:
    """Time of one iteration, prompt or decoding step on a cluster."""

    cluster: Machine
    job: TrainingJob
    mapping: Mapping
    phase: str
    technique: str
    result: Result
    range_ns: tuple[float, float]  #: 5th and 95th percentile over the inputs' uncertainty
    seed: int
    layer_speedups: dict[str, float] = field(default_factory=dict)  #: of the technique, per sub-layer, simulated

    @property
    def iteration_ns(self) -> float:
        return float(self.result.iteration_ns)

    @cached_property
    def checked(self) -> Checked:
        return checked(self.cluster, self.job, self.mapping, self.phase, self.result.breakdown_ns)

    def training_days(self, tokens: float) -> float:
        """Return how long training on `tokens` takes."""
        return tokens / (self.job.global_batch * self.job.sequence) * self.iteration_ns / 86400e9

    def to_json(self) -> dict[str, Any]:
        """Return times in ns, sizes in bytes, energy in joules."""
        result, job = self.result, self.job
        return {
            "model": model_json(job.model), "machine": cluster_json(self.cluster), "phase": self.phase,
            "technique": self.technique, "gpus": int(self.mapping.gpus), "sequence": job.sequence,
            "global_batch": job.global_batch, "mapping": str(self.mapping),
            "recompute": RECOMPUTE[self.mapping.recompute], "kernels": job.kernels.title, "dtype": job.width,
            "seed": self.seed,
            "iteration_ns": self.iteration_ns, "iteration_range_ns": list(self.range_ns),
            "tflops_per_gpu": float(result.tflops_per_gpu), "memory_bytes": float(result.memory_bytes),
            "energy_joules": float(result.energy_joules),
            "breakdown_ns": {name: float(ns) for name, ns in result.breakdown_ns.items()},
            "layer_speedups": self.layer_speedups, "checked": self.checked.near, "ranges": self.checked.ranges,
            "range_ns": self.checked.range_ns,
        }


def model_json(model: Transformer) -> dict[str, Any]:
    """Return a model's hyperparameters, and how many parameters it has."""
    return asdict(model) | {"parameters": model.weights}


def estimate(cluster: Machine, job: TrainingJob, mapping: Mapping, phase: str = "training",
             technique: str = "sequential", seed: int = 0, fit: bool = True,
             progress: Callable[[str, float], None] = lambda name, fraction: None) -> ClusterEstimate:
    """Return the estimate of one mapping. With `fit`, one that needs more memory than a GPU has is refused.

    Raises `MappingError`, and what the cycle level raises where a technique's layer times are simulated.
    """
    time_phase = PHASES[phase]
    baseline = time_phase(cluster, job, mapping)
    limit = cluster.accelerator.memory_gb
    if fit and baseline.memory_bytes > limit * 1e9:
        raise MappingError(f"{mapping} needs {float(baseline.memory_bytes) / 1e9:,.1f} GB per GPU, {cluster.name} has "
                           f"{limit:g} GB: more tp, pp or zero, or recompute = full, or ignore_memory = true")
    overlap, speedups = None, {}
    if technique != "sequential":
        from t3sim.study.layer_overlap import measured_overlap

        overlap, speedups = measured_overlap(
            cluster, job, mapping, technique, seed, progress,
            ("op", "fc2") if phase != "training" else ("op", "fc1", "fc2", "ip"))
    result = time_phase(cluster, job, mapping, overlap)
    ranges = spread(cluster, seed, lambda sample: time_phase(sample, job, mapping, overlap).iteration_ns)
    return ClusterEstimate(cluster, job, mapping, phase, technique, result, ranges, seed, speedups)
