"""The range of a result over the stated uncertainty of its inputs: seeded samples, drawn evenly."""

from collections.abc import Callable, Iterable

import numpy as np

from t3sim.machine import Machine

SAMPLES = 200


def samples(cluster: Machine, seed: int, count: int = SAMPLES):
    """Yield clusters whose uncertain inputs are drawn from their ranges; shares stay at most 1."""
    rng, limits = np.random.default_rng(seed), cluster.uncertainty
    half_widths = (limits.matrix_efficiency, limits.memory_efficiency, limits.network_efficiency,
                   limits.host_ns_per_kernel)
    for _ in range(count):
        matrix, memory, network, host = 1 + rng.uniform(-1, 1, 4) * half_widths
        gpu = cluster.accelerator
        yield cluster.model_copy(update={
            "accelerator": gpu.model_copy(update={
                "matrix_efficiency": min(1.0, gpu.matrix_efficiency * matrix),
                "memory_efficiency": min(1.0, gpu.memory_efficiency * memory),
                "host_ns_per_kernel": gpu.host_ns_per_kernel * host}),
            **{level: getattr(cluster, level).model_copy(update={
                "efficiency": min(1.0, getattr(cluster, level).efficiency * network)}) for level in ("intra", "inter")},
        })


def spread(cluster: Machine, seed: int, evaluate: Callable[[Machine], float]) -> tuple[float, float]:
    """Return the 5th and 95th percentile of `evaluate` over the samples."""
    return ranges({"": evaluate(sample)} for sample in samples(cluster, seed))[""]


def ranges(sampled: Iterable[dict[str, float]]) -> dict[str, tuple[float, float]]:
    """Return the 5th and 95th percentile of each quantity over the samples."""
    sampled = list(sampled)
    return {name: tuple(float(np.percentile([float(one[name]) for one in sampled], percentile))
                        for percentile in (5, 95)) for name in sampled[0]}
