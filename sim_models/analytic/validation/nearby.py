"""Errors of measured rows near a question: how far an answer was checked, and how wrong it may be."""

import re
from collections.abc import Iterable
from functools import cache, singledispatch
from math import ceil, exp, log
from statistics import fmean
from typing import Any

from t3sim.analytic.end_to_end.inference import prompt
from t3sim.analytic.end_to_end.layer import FLASH
from t3sim.analytic.end_to_end.mapping import Mapping
from t3sim.analytic.end_to_end.training import TrainingJob
from t3sim.analytic.gemm import width_of
from t3sim.analytic.libraries.collectives import library_collective
from t3sim.analytic.libraries.prompts import model_of
from t3sim.analytic.validation.answers import mechanism_of
from t3sim.analytic.validation.comparison import Compared, compare
from t3sim.analytic.validation.machines import MACHINES, loaded, machine_of
from t3sim.analytic.validation.readers import band, own_rows
from t3sim.analytic.validation.requests import (
    Collective,
    ExpertsExchange,
    GemmRequest,
    Measured,
    Norm,
    OverlapRequest,
    Prompt,
    Request,
    Training,
)
from t3sim.machine import Machine

#: Sizes within this factor are near.
_FACTOR = 2.0
_FEWEST = 10  #: rows from which a range follows
#: Parts of an all-reduce with its norm that are collectives: their kind and library.
_NORM_COLLECTIVES = {"nccl": ("all_reduce", "NCCL, cuMem off, calls queued"), "multimem": ("all_reduce", "multimem"),
                     "reduce-scatter": ("reduce_scatter", "multimem"), "all-gather": ("all_gather", "multimem")}


def error_near(machine: str, requests: Iterable[Request]) -> dict[str, Any] | None:
    """Return the error of a machine's rows near any of the requests, each answered without its source; None if none is.

    Near: of the same kind, library and number of GPUs, and of a size within a factor of two.
    """
    requests = list(requests)
    rows = [row for row in _rows(machine) if any(_near(one, _as_collective(row.row.ask), machine) for one in requests)]
    if not rows:
        return None
    unseen = [abs(row.error if row.error_without_source is None else row.error_without_source) for row in rows]
    return {"rows": len(rows), "mean_abs_error": fmean(unseen), "worst": max(unseen),
            "kept": sum(row.error_without_source is None for row in rows)}


def spread(machine: str, requests: Iterable[Request]) -> dict[str, Any] | None:
    """Return the factor within which nine of ten rows of the requests' kind are on a machine, of any library and size.

    None if it has fewer than ten rows of that kind.
    """
    kinds = {_kind(one) for one in requests}
    errors = sorted(abs(log(row.without_source_ns / row.row.ns)) for row in _rows(machine)
                    if row.without_source_ns is not None and _kind(row.row.ask) in kinds)
    if len(errors) < _FEWEST:
        return None
    return {"rows": len(errors), "factor": exp(errors[ceil(0.9 * len(errors)) - 1])}


def _kind(request: Request) -> str:
    """Return what an error is the error of: a fused operator with or without a norm, small or large collectives."""
    collective = _as_collective(request)
    if isinstance(collective, Collective) and collective.kind != "send_recv":
        return band(collective.size_bytes)
    if isinstance(request, OverlapRequest | Norm):
        return "fused" if request.part in ("fused", "simple fusion") else f"part: {request.part}"
    return "send and receive" if isinstance(request, Collective) else type(request).__name__


@cache
def _rows(machine: str) -> tuple[Compared, ...]:
    return compare(own_rows(), machine).rows if machine in MACHINES else ()


def _as_collective(request: Request) -> Request:
    """Return the collective that a part of an all-reduce with its norm is; anything else as it is."""
    if isinstance(request, Norm) and request.part in _NORM_COLLECTIVES:
        kind, library = _NORM_COLLECTIVES[request.part]
        return Collective(kind, request.gpus, 1, 2.0 * request.tokens * request.hidden, library)
    return request


def _within(one: float, other: float) -> bool:
    return 1 / _FACTOR <= one / other <= _FACTOR


@singledispatch
def _near(ask: Request, row: Request, machine: str) -> bool:
    raise TypeError(f"no rows are near a {type(ask).__name__}")


@_near.register
def _(ask: Collective, row: Request, machine: str) -> bool:
    return (isinstance(row, Collective) and (ask.kind, ask.gpus, ask.nodes) == (row.kind, row.gpus, row.nodes)
            and _within(ask.size_bytes, row.size_bytes) and _algorithm(ask, machine) == _algorithm(row, machine))


@cache
def _algorithm(ask: Collective, machine: str) -> str:
    algorithm = library_collective(loaded(machine), ask.kind, ask.gpus, ask.size_bytes, ask.nodes,
                                   ask.library, ask.algorithm).algorithm.split(",")[0]
    own_kernels = re.search("multimem|multicast", f"{ask.library} {ask.algorithm}".lower())
    return "ring or tree" if algorithm in ("ring", "tree") else "multicast" if own_kernels else algorithm


@_near.register
def _(ask: GemmRequest, row: Request, machine: str) -> bool:
    return (isinstance(row, GemmRequest) and width_of(ask.dtype) == width_of(row.dtype) and _within(ask.m, row.m)
            and _within(ask.m * ask.n * ask.k, row.m * row.n * row.k))


@_near.register
def _(ask: OverlapRequest, row: Request, machine: str) -> bool:
    return (isinstance(row, OverlapRequest) and row.part == "fused" and ask.operator == row.operator
            and ask.gpus == row.gpus and ask.way == mechanism_of(row.way) and _near(ask.gemm, row.gemm, machine))


@_near.register
def _(ask: Norm, row: Request, machine: str) -> bool:
    return (isinstance(row, Norm) and (ask.part, ask.gpus) == (row.part, row.gpus)
            and _within(ask.tokens * ask.hidden, row.tokens * row.hidden))


@_near.register
def _(ask: ExpertsExchange, row: Request, machine: str) -> bool:
    def few_tokens(library: str) -> bool:
        return "low latency" in library.lower()

    return (isinstance(row, ExpertsExchange) and (ask.gpus, ask.nodes) == (row.gpus, row.nodes)
            and few_tokens(ask.library) == few_tokens(row.library) and _within(
                ask.tokens * ask.hidden * ask.top_k, row.tokens * row.hidden * row.top_k))


@_near.register
def _(ask: Training, row: Request, machine: str) -> bool:
    """Say whether as much is recomputed, and parameters, GPUs and tokens of an iteration are within a factor of two."""
    return (isinstance(row, Training) and ask.mapping.recompute == row.mapping.recompute
            and ask.job.width == row.job.width and _within(ask.job.model.weights, row.job.model.weights)
            and _within(ask.mapping.gpus, row.mapping.gpus)
            and _within(ask.job.global_batch * ask.job.sequence, row.job.global_batch * row.job.sequence))


def prompt_error_near(cluster: Machine, job: TrainingJob, mapping: Mapping) -> dict[str, Any] | None:
    """Return the error of a cluster's measured prompts near this one; None if there is none.

    Near: on as many GPUs, and parameters and tokens within a factor of two.
    """
    errors = []
    for row in own_rows():
        if not (isinstance(row, Measured) and isinstance(ask := row.ask, Prompt) and ask.way == "baseline"
                and machine_of(row.gpu) == cluster.name and ask.gpus == mapping.gpus):
            continue
        model = model_of(ask.model)
        if model and _within(model.weights, job.model.weights) and _within(
                ask.tokens, job.global_batch * job.sequence):
            measured_job = TrainingJob(model, ask.tokens, 1, FLASH)
            errors.append(abs(float(prompt(cluster, measured_job, Mapping(ask.gpus)).iteration_ns) / row.ns - 1))
    return {"rows": len(errors), "mean_abs_error": fmean(errors), "worst": max(errors),
            "kept": len(errors)} if errors else None
