"""Mechanisms ranked over the sub-layers of a Transformer's layer that have a collective."""

from dataclasses import asdict, dataclass
from math import ceil
from typing import Any

from t3sim.analytic.end_to_end.layer import gemm_shapes
from t3sim.analytic.libraries.mechanisms import MECHANISMS, OverlapPlan, play, possible
from t3sim.machine import Machine
from t3sim.workload.transformer import INPUTS, Transformer


@dataclass(frozen=True)
class Ranked:
    """A mechanism over all sub-layers."""

    mechanism: str
    ns: float
    bound: str  #: of the sub-layer that takes longest
    units: int
    memory_bytes: float
    sublayers_ns: dict[str, float]
    #: Of Track & Trigger, for each sub-layer: what it takes beyond the GEMM, by cause.
    losses_ns: dict[str, dict[str, float]]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def layer_plans(machine: Machine, model: Transformer, tokens: int, gpus: int, sequence_parallel: bool,
                width: str = "bf16", hardware: Machine | None = None) -> dict[str, OverlapPlan]:
    """Return the GEMMs of a layer that have a collective, which takes each token once; qkv, for one, has none.

    Of a model whose first layers have no experts, a later layer. Experts' GEMMs count as one of all their tokens. What
    makes latents is not split: each GPU makes those of its own tokens, and they are gathered. `hardware`: Track &
    Trigger's, a machine of the cycle level.
    """
    model = model.kinds[-1][0]
    gemms = gemm_shapes(model, tokens, gpus)
    networks = model.experts_per_token + ceil(model.shared_width / model.feed_forward)
    shapes = {name: (tokens * (networks if name in ("fc1", "fc2") else 1), n, k)
              for name, (_, n, k, _) in gemms.items()}
    reduced_operator = "gemm+rs" if sequence_parallel else "gemm+ar"
    gathered_gemms = [name for name in (*INPUTS, "fc1") if name in gemms] if sequence_parallel else []
    return {name: OverlapPlan(machine, reduced_operator if name in ("op", "fc2") else "ag+gemm", gpus, shapes[name],
                              width, tokens, hardware)
            for name in ("op", "fc2", *gathered_gemms)}


def rank(plans: dict[str, OverlapPlan]) -> list[Ranked]:
    """Return the mechanisms over a layer's plans, the fastest first; a sub-layer that one does not have runs in turn.

    Raises BadInput.
    """
    results = []
    for mechanism in MECHANISMS:
        covered = [name for name, plan in plans.items() if mechanism in possible(plan)]
        if not covered:
            continue
        runs = {name: play(plan, mechanism if name in covered else "in-turn") for name, plan in plans.items()}
        longest = max(covered, key=lambda name: runs[name].ns)
        results.append(Ranked(mechanism, sum(run.ns for run in runs.values()), runs[longest].bound,
                              max(runs[name].units for name in covered), sum(run.memory_bytes for run in runs.values()),
                              {name: run.ns for name, run in runs.items()},
                              {name: run.losses_ns for name, run in runs.items() if run.losses_ns}))
    return sorted(results, key=lambda one: one.ns)
