"""AMPeD's tables II and III: throughput of Megatron's models, and of GPipe's pipeline."""

import numpy as np

from t3sim.analytic.end_to_end.mapping import FULL, Mapping
from t3sim.analytic.end_to_end.training import TrainingJob, train
from t3sim.analytic.end_to_end.uncertainty import SAMPLES, ranges, samples
from t3sim.machine import Machine, load_machine
from t3sim.machine.levels import ITERATIONS
from t3sim.papers.amped.equations import gpipe_speedup
from t3sim.papers.figure import Figure, Findings, Quantities, Results, Scope, Table
from t3sim.workload.transformer import PRESETS

#: Model, GPUs, global batch, pipeline stages, published TFLOP/s per GPU (arXiv 2104.04473, table 1; tp = 8, one
#: sequence per micro-batch), AMPeD's prediction (table II). AMPeD gives the 310B model 12 replicas, the source has 15.
TABLE2 = (("megatron-145b", 1536, 2304, 8, 148, 147), ("megatron-310b", 1920, 2160, 16, 155, 162),
          ("megatron-530b", 2520, 2520, 35, 163, 148.6), ("megatron-1t", 3072, 3072, 64, 163, 144.3))

#: Stages, published speedup over two of them (GPipe, arXiv 1811.06965, table 3; 32 micro-batches), AMPeD's (table III).
TABLE3 = ((2, 1.0, 1.0), (4, 1.8, 1.84), (8, 3.3, 3.19))

#: GPipe's Transformer (arXiv 1811.06965, section 4): 24 layers here, 32-bit, recomputed in the backward pass.
_GPIPE_LAYERS, _GPIPE_HIDDEN, _GPIPE_TOKENS, _GPIPE_VOCABULARY = 24, 2048, 32 * 1024, 32000
_P100_FLOP_PER_S, _P100_EFFICIENCY = 9.3e12, 0.8  # NVIDIA P100 for PCIe, 32-bit; what cuBLAS reaches, chosen
_PCIE_BYTES_PER_S = 12e9  # PCIe 3.0 x16 as measured by many; all messages go through the host

_HALF_WIDTH = 0.1  #: of the efficiency and the bus bandwidth, relative


def _throughputs(cluster: Machine) -> dict[str, float]:
    """Return TFLOP/s per GPU of table II's models, and its largest error in percent."""
    throughputs = {
        name: float(train(cluster, TrainingJob(PRESETS[name], 2048, batch), _mapping(gpus, pp)).tflops_per_gpu)
        for name, gpus, batch, pp, _, _ in TABLE2}
    return throughputs | {"worst_error_percent": max(abs(100 * (throughputs[row[0]] / row[4] - 1)) for row in TABLE2)}


def _mapping(gpus: int, pp: int) -> Mapping:
    return Mapping(tp=8, pp=pp, dp=gpus // 8 // pp, recompute=FULL)


def evaluate_table2(setup: Scope, results: Results) -> Findings:
    cluster = load_machine("a100-sxm", ITERATIONS)
    throughputs, spread = _throughputs(cluster), ranges(map(_throughputs, samples(cluster, setup.seed)))
    worst, ours = throughputs["worst_error_percent"], Quantities()
    ours.add("worst_error_percent", worst, "%", "table II, largest error", 11.5, "V-C", at_most=6, errors=True)
    cells = [(name, str(_mapping(gpus, pp)), f"{published}", f"{theirs:g}", f"{throughputs[name]:.1f}",
              f"{spread[name][0]:.1f} to {spread[name][1]:.1f}", f"{100 * (throughputs[name] / published - 1):+.1f} %")
             for name, gpus, batch, pp, published, theirs in TABLE2]
    return Findings(
        text=f"With one machine file the throughputs of the four models are within {worst:.1f} % of the published "
             "ones. AMPeD, with one efficiency per model, is within 11.5 %.",
        ours=ours, ranges={"worst_error_percent": spread["worst_error_percent"]},
        tables=[Table("TFLOP/s per GPU", ("model", "mapping", "published", "AMPeD", "ours", "range", "our error"),
                      cells)])


def _gpipe(efficiency: float = 1.0, bandwidth: float = 1.0) -> np.ndarray:
    """Return speedups of table III's pipelines; both factors scale what is assumed."""
    tokens, hidden, layers = _GPIPE_TOKENS, _GPIPE_HIDDEN, _GPIPE_LAYERS
    flop = 96 * tokens * layers * hidden**2 * (1 + 1024 / (6 * hidden) + _GPIPE_VOCABULARY / (16 * hidden * layers))
    stages = np.array([row[0] for row in TABLE3])
    return gpipe_speedup(stages, 32, flop / (_P100_FLOP_PER_S * _P100_EFFICIENCY * efficiency), tokens * hidden * 4,
                         _PCIE_BYTES_PER_S * bandwidth)


def _worst(speedups: np.ndarray) -> float:
    return float(np.max(np.abs(100 * (speedups / [row[1] for row in TABLE3] - 1))))


def evaluate_table3(setup: Scope, results: Results) -> Findings:
    speedups, random = _gpipe(), np.random.default_rng(setup.seed)
    errors, worst = [100 * (value / row[1] - 1) for value, row in zip(speedups, TABLE3)], _worst(speedups)
    ours = Quantities()
    ours.add("worst_error_percent", worst, "%", "table III, largest error", 3.4, "V-C", at_most=4, errors=True)
    speedup_samples = [_gpipe(*1 + random.uniform(-_HALF_WIDTH, _HALF_WIDTH, 2)) for _ in range(SAMPLES)]
    spread = ranges({"worst_error_percent": _worst(sample),
                     **{str(row[0]): value for row, value in zip(TABLE3, sample)}} for sample in speedup_samples)
    return Findings(
        text=f"A model of a pipeline's bubbles and of messages that share the host's bus is within {worst:.1f} % of "
             "GPipe's speedups.",
        ours=ours, ranges={"worst_error_percent": spread["worst_error_percent"]},
        tables=[Table("Speedup over two GPUs", ("GPUs", "published", "AMPeD", "ours", "range", "our error"), [
            (f"{row[0]}", f"{row[1]:g}", f"{row[2]:g}", f"{value:.2f}", "{:.2f} to {:.2f}".format(*spread[str(row[0])]),
             f"{error:+.1f} %")
            for row, value, error in zip(TABLE3, speedups, errors)])])


TABLE_2 = Figure("table2", "Throughput of Megatron's models (table II)", lambda setup: (), evaluate_table2,
                 short="table II", paper="amped")
TABLE_3 = Figure("table3", "GPipe's pipeline (table III)", lambda setup: (), evaluate_table3, short="table III",
                 paper="amped")
