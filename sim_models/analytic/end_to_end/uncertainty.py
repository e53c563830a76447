"""The range of a result over the stated uncertainty of its inputs: seeded samples, drawn evenly."""

from collections.abc import Callable, Iterable

import numpy as np

from t3sim.analytic.gemm import BYTES
from t3sim.machine import Machine

SAMPLES = 200


def samples(cluster: Machine, seed: int, count: int = SAMPLES):
    """Yield clusters whose uncertain inputs are drawn from their ranges; shares stay at most 1."""
    rng, limits = np.random.default_rng(seed), cluster.uncertainty
    half_widths = (limits.matrix_efficiency, limits.memory_efficiency, limits.network_efficiency,
                   limits.host_ns_per_kernel)
    for _ in range(count):
        matrix, memory, network, host = 1 + rng.uniform(-1, 1, 4) * half_widths
        changes = {"accelerator.host_ns_per_kernel": host}
        if cluster.intra is not None:
            changes |= {"accelerator.matrix_efficiency": matrix, "accelerator.memory_efficiency": memory,
                        "intra.efficiency": network, "inter.efficiency": network}
        else:
            changes |= {f"sustained.{width}": matrix for width in BYTES}
            changes |= {"kernels.memory_efficiency": memory, "wires.gb_per_s": network, "cards.gb_per_s": network}
        yield _scaled(cluster, changes)


def _scaled(cluster: Machine, factors: dict[str, float]) -> Machine:
    """Return the cluster with keys times a factor; what it lacks stays away."""
    sections: dict[str, dict[str, float]] = {}
    for key, factor in factors.items():
        section, name = key.split(".")
        value = getattr(getattr(cluster, section), name, None)
        if value is not None:
            limit = np.inf if name in ("gb_per_s", "host_ns_per_kernel") else 1.0
            sections.setdefault(section, {})[name] = min(limit, value * factor)
    return cluster.model_copy(update={section: getattr(cluster, section).model_copy(update=values)
                                      for section, values in sections.items()})


def spread(cluster: Machine, seed: int, evaluate: Callable[[Machine], float]) -> tuple[float, float]:
    """Return the 5th and 95th percentile of `evaluate` over the samples."""
    return ranges({"": evaluate(sample)} for sample in samples(cluster, seed))[""]


def ranges(sampled: Iterable[dict[str, float]]) -> dict[str, tuple[float, float]]:
    """Return the 5th and 95th percentile of each quantity over the samples."""
    sampled = list(sampled)
    return {name: tuple(float(np.percentile([float(one[name]) for one in sampled], percentile))
                        for percentile in (5, 95)) for name in sampled[0]}
