"""Rank all mappings of a model onto a cluster, and mark the Pareto front of time, memory and energy."""

import time
from dataclasses import dataclass, fields

import numpy as np

from t3sim.analytic.end_to_end.mapping import Mapping, MappingError, every_mapping
from t3sim.analytic.end_to_end.training import Iteration, TrainingJob, train
from t3sim.machine import Machine


@dataclass(frozen=True)
class MappingRanking:
    """Mappings that fit into memory, fastest first."""

    mappings: Mapping  #: arrays
    results: Iteration  #: arrays, in the same order
    pareto: np.ndarray  #: bool per mapping: no other is at least as good in all three and better in one
    tried: int
    seconds: float  #: of one core, that the equations took for all that were tried


def search(cluster: Machine, job: TrainingJob, gpus: int) -> MappingRanking:
    """Return all mappings that fit, ranked by time. Raises `MappingError` if none does."""
    start_s = time.process_time()
    candidates = every_mapping(job.model, gpus, job.global_batch)
    results = train(cluster, job, candidates)
    seconds = time.process_time() - start_s
    limit = cluster.accelerator.memory_gb * 1e9
    fits = np.flatnonzero(results.memory_bytes <= limit)
    if not fits.size:
        least = int(np.argmin(results.memory_bytes))
        raise MappingError(f"no mapping of {job.model.name} fits into {cluster.accelerator.memory_gb:g} GB on {gpus} "
                           f"GPUs: the smallest, {candidates.at(least)}, needs "
                           f"{results.memory_bytes[least] / 1e9:,.1f} GB")
    order = fits[np.argsort(results.iteration_ns[fits], kind="stable")]
    ranked = _take(results, order)
    mappings = Mapping(*(getattr(candidates, field.name)[order] for field in fields(Mapping)))
    costs = np.stack([ranked.iteration_ns, ranked.memory_bytes, ranked.energy_joules])
    return MappingRanking(mappings, ranked, pareto_front(costs), len(candidates.tp), seconds)


def _take(results: Iteration, order: np.ndarray) -> Iteration:
    values = {field.name: getattr(results, field.name) for field in fields(Iteration)}
    breakdown = {name: ns[order] for name, ns in values.pop("breakdown_ns").items()}
    return Iteration(breakdown_ns=breakdown, **{name: np.broadcast_to(value, results.memory_bytes.shape)[order]
                                                for name, value in values.items()})


def pareto_front(costs: np.ndarray) -> np.ndarray:
    """Mark the columns of `costs` [criterion, candidate] that no other column dominates; of equal ones the first."""
    order = np.lexsort(costs[::-1])
    front = np.zeros(costs.shape[1], bool)
    front_costs = np.empty((costs.shape[0], 0))
    for candidate in order:
        point = costs[:, candidate:candidate + 1]
        if not (front_costs <= point).all(axis=0).any():
            front[candidate] = True
            front_costs = np.hstack([front_costs, point])
    return front
