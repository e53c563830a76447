"""Measured training iterations beside the closed form: Megatron-LM at scale, and 720 runs on one node."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from t3sim.analytic.end_to_end.mapping import FULL, SELECTIVE, Mapping
from t3sim.analytic.end_to_end.training import TrainingJob, train
from t3sim.analytic.end_to_end.uncertainty import SAMPLES, ranges, samples
from t3sim.base import plots
from t3sim.base.csv_rows import csv_rows
from t3sim.machine import Machine, load_machine
from t3sim.machine.levels import ITERATIONS
from t3sim.papers.figure import Figure, Findings, Quantities, Results, Scope, Table
from t3sim.workload.transformer import PRESETS, Transformer

#: Row from which the host's time per kernel was taken; its error is left out of the means.
CALIBRATED_ON_ONE_NODE = {"gpus": "4", "global_batch": "64", "micro_batch": "1", "hidden": "1024", "layers": "24",
                          "tp": "1", "dp": "4"}
_SAMPLES_OF_720 = 40  #: each is 720 runs


@dataclass(frozen=True)
class PublishedRun:
    """A published run beside ours, in seconds."""

    model: str
    recomputation: str
    measured: float
    ours: float
    ours_samples: tuple[float, ...]  #: ours over the uncertainty of the inputs, with the same inputs in every run

    @property
    def range(self) -> tuple[float, float]:
        return ranges({"": value} for value in self.ours_samples)[""]

    @property
    def error(self) -> float:
        """Relative, in percent."""
        return 100 * (self.ours / self.measured - 1)


def megatron_runs(seed: int = 0) -> list[PublishedRun]:
    """Return every published run of Megatron-LM beside ours."""
    cluster, runs = load_machine("a100-sxm", ITERATIONS), []
    for row in csv_rows("t3sim.analytic.end_to_end.measured", "megatron"):
        job = TrainingJob(PRESETS[row["model"]], 2048, int(row["global_batch"]))
        for name, sp, recompute in (("full", 0, FULL), ("selective", 1, SELECTIVE)):
            mapping = Mapping(tp=int(row["tp"]), pp=int(row["pp"]), micro=int(row["micro"]),
                              interleave=int(row["interleave"]), sp=sp, recompute=recompute)

            def seconds(sample: Machine, job: TrainingJob = job, mapping: Mapping = mapping) -> float:
                return float(train(sample, job, mapping).iteration_ns) / 1e9

            runs.append(PublishedRun(row["model"], name, float(row[f"{name}_s"]), seconds(cluster),
                                     tuple(map(seconds, samples(cluster, seed)))))
    return runs


def _errors(runs: list[PublishedRun], predict: Callable[[PublishedRun], float]) -> dict[str, float]:
    """Return the errors of the runs, in percent."""
    errors = [abs(100 * (predict(run) / run.measured - 1)) for run in runs]
    return {"mean_error_percent": float(np.mean(errors)), "worst_error_percent": float(np.max(errors))}


def evaluate_megatron(setup: Scope, results: Results) -> Findings:
    runs = megatron_runs(setup.seed)
    rows = [(run.model, run.recomputation, f"{run.measured:.2f}", f"{run.ours:.2f}",
             "{:.2f} to {:.2f}".format(*run.range), f"{run.error:+.1f} %")
            for run in runs]
    errors, ours = _errors(runs, lambda run: run.ours), Quantities()
    ours.add("mean_error_percent", errors["mean_error_percent"], "%", "Megatron 22B to 1T, mean error", 3.65,
             "Calculon", at_most=4, errors=True)
    ours.add("worst_error_percent", errors["worst_error_percent"], "%", "Megatron 22B to 1T, largest error", 8.87,
             "Calculon", at_most=9, errors=True)
    sample_errors = [_errors(runs, lambda run, sample=sample: run.ours_samples[sample]) for sample in range(SAMPLES)]
    return Findings(
        text="With one machine file the models of libraries predict Megatron-LM's published iterations with a mean "
             f"error of {ours['mean_error_percent']:.1f} % and a largest error of {ours['worst_error_percent']:.1f} %. "
             "No constant was taken from these runs.",
        ours=ours, ranges=ranges(sample_errors),
        tables=[Table("Iteration time (s)",
                      ("model", "recomputation", "measured", "ours", "range", "error"), rows)],
        plots={"megatron": lambda: _draw(runs)})


def _draw(runs: list[PublishedRun]):
    figure, axes = plots.figure(3.0)
    places = range(len(runs))
    axes.errorbar(places, [run.ours / run.measured for run in runs], capsize=4, fmt="o", color=plots.BLUE,
                  label="ours, with its range over uncertain inputs", yerr=[
        [abs(run.ours - run.range[end]) / run.measured for run in runs] for end in (0, 1)])
    axes.axhline(1, color=plots.RED, linewidth=1, label="measured")
    axes.set_xticks(places, [f"{run.model.removeprefix('megatron-').upper()}\n{run.recomputation}" for run in runs])
    axes.set_ylim(0.8, 1.2)
    axes.set_xlabel("parameters and recomputation")
    axes.set_ylabel("predicted over measured time")
    axes.legend(loc="upper right", ncols=3)
    return figure


def single_node_errors(cluster: Machine) -> tuple[list[dict[str, str]], np.ndarray]:
    """Return the measured runs on one node, and the relative error of each prediction."""
    table = csv_rows("t3sim.analytic.end_to_end.measured", "single_node")
    columns = {name: np.array([int(float(row[name])) for row in table]) for name in table[0] if name != "iteration_ms"}
    measured_ms = np.array([float(row["iteration_ms"]) for row in table])
    predicted_ms = np.zeros(len(table))
    keys = ("hidden", "layers", "heads", "sequence", "global_batch")
    for shape in sorted(set(zip(*(columns[key].tolist() for key in keys)))):
        hidden, layers, heads, sequence, batch = shape
        same_shape = np.all([columns[key] == value for key, value in zip(keys, shape)], axis=0)
        mapping = Mapping(columns["tp"][same_shape], columns["pp"][same_shape], columns["dp"][same_shape],
                          columns["micro_batch"][same_shape], recompute=np.full(same_shape.sum(), FULL))
        job = TrainingJob(Transformer("measured", hidden, layers, heads, 4 * hidden, 51200), sequence, batch)
        predicted_ms[same_shape] = train(cluster, job, mapping).iteration_ns / 1e6
    return table, predicted_ms / measured_ms - 1


def _summary(table: list[dict[str, str]], errors: np.ndarray) -> dict[str, float]:
    """Return the errors of the rows from which no constant was taken, in percent."""
    percents = 100 * errors[_uncalibrated_rows(table)]
    return {"mean_error_percent": float(np.abs(percents).mean()), "bias_percent": float(percents.mean()),
            "worst_error_percent": float(np.abs(percents).max())}


def _uncalibrated_rows(table: list[dict[str, str]]) -> np.ndarray:
    return np.array([any(row[key] != value for key, value in CALIBRATED_ON_ONE_NODE.items()) for row in table])


def evaluate_single_node(setup: Scope, results: Results) -> Findings:
    cluster = load_machine("a100-40gb", ITERATIONS)
    table, errors = single_node_errors(cluster)
    ours, uncalibrated = Quantities(), _uncalibrated_rows(table)
    ours |= _summary(table, errors)
    mean = ours["mean_error_percent"]
    ours.add("mean_error_percent", mean, "%", "720 runs on 2 to 8 A100, mean absolute error", 8.37, "vTrain",
             at_most=12, errors=True)
    cells = []
    for key, title in (("hidden", "hidden size"), ("tp", "tensor parallelism"), ("pp", "pipeline stages"),
                       ("dp", "replicas"), ("micro_batch", "micro-batch")):
        for value in sorted({int(row[key]) for row in table}):
            percents = 100 * errors[uncalibrated & np.array([int(row[key]) == value for row in table])]
            cells.append((f"{title} {value}", f"{len(percents)}", f"{np.abs(percents).mean():.1f} %",
                          f"{percents.mean():+.1f} %", f"{np.abs(percents).max():.1f} %"))

    def draw():
        figure, axes = plots.figure(3.0)
        axes.hist(100 * errors, bins=60, color=plots.BLUE)
        axes.set_xlabel("error of the predicted iteration time (%)")
        axes.set_ylabel("measured runs")
        return figure

    return Findings(
        text=f"The mean absolute error on {len(table)} measured iterations of small models on 2 to 8 A100 is "
             f"{mean:.1f} %. Most of them are limited by the host, which launches kernels more slowly than the GPU "
             "runs them. Its time per kernel was taken from one of the runs.",
        ours=ours,
        ranges=ranges(_summary(*single_node_errors(sample))
                      for sample in samples(cluster, setup.seed, _SAMPLES_OF_720)),
        tables=[Table("Error by group of runs", ("runs with", "runs", "mean absolute", "mean", "largest"), cells)],
        plots={"single-node": draw})


MEGATRON = Figure("megatron", "Megatron-LM, 22 to 1,008 billion parameters, as measured", lambda setup: (),
                  evaluate_megatron, short="Megatron", paper="amped")
SINGLE_NODE = Figure("single-node", "Training on one node, as measured", lambda setup: (), evaluate_single_node,
                     short="one node", paper="amped")
