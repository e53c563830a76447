"""Errors of measured rows near a question: how far an answer was checked, and how wrong it may be."""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache, singledispatch
from math import ceil, exp, inf, log
from typing import Any

from t3sim.analytic.end_to_end.inference import prompt
from t3sim.analytic.end_to_end.layer import FLASH
from t3sim.analytic.end_to_end.mapping import Mapping
from t3sim.analytic.end_to_end.training import TrainingJob
from t3sim.analytic.gemm import width_of
from t3sim.analytic.libraries.collectives import library_collective
from t3sim.analytic.libraries.prompts import model_of
from t3sim.analytic.validation.answers import mechanism_of
from t3sim.analytic.validation.comparison import Compared, compare, own_comparison, summary_of
from t3sim.analytic.validation.fit import answer_without_source, rows_by_machine
from t3sim.analytic.validation.machines import MACHINES, loaded
from t3sim.analytic.validation.readers import band
from t3sim.analytic.validation.requests import (
    Collective,
    ExpertsExchange,
    GemmRequest,
    Norm,
    OverlapRequest,
    Prompt,
    Request,
    Training,
)
from t3sim.base.cache import digest, kept
from t3sim.machine import Machine
from t3sim.machine.files import PRESETS

#: Sizes within this factor are near.
_FACTOR = 2.0
_FEWEST = 10  #: rows from which a range follows
#: Parts of an all-reduce with its norm that are collectives: their kind and library.
_NORM_COLLECTIVES = {"nccl": ("all_reduce", "NCCL, cuMem off, calls queued"), "multimem": ("all_reduce", "multimem"),
                     "reduce-scatter": ("reduce_scatter", "multimem"), "all-gather": ("all_gather", "multimem")}


def error_near(machine: Machine, requests: Iterable[Request]) -> dict[str, Any] | None:
    """Return the error of a machine's rows near any of the requests, each answered without its source; None if none is.

    Near: of the same kind, library and number of GPUs, and of a size within a factor of two.
    """
    requests, name = list(requests), measured_name(machine)
    return _summary([row for row in own_comparison(name) if any(_near(one, _as_collective(row.row.ask), name)
                                                       for one in requests)])


def measured_name(machine: Machine) -> str:
    """Return the name of which rows are; of a machine with other constants than a measured one none are."""
    return next(iter(machine.lineage), "")


def has_own_constants(machine: Machine) -> bool:
    """Say whether a user's file or settings give a machine other constants than any that comes with the package."""
    return bool(machine.lineage) and machine.lineage[0] not in PRESETS


def _summary(rows: Sequence[Compared]) -> dict[str, Any] | None:
    if not rows:
        return None
    unseen = [row.error if row.error_without_source is None else row.error_without_source for row in rows]
    return summary_of(unseen) | {"kept": sum(row.error_without_source is None for row in rows)}


def range_of_rows(machine: Machine, requests: Iterable[Request]) -> dict[str, Any] | None:
    """Return the factor within which nine of ten rows of the requests' kind are, of any library and size.

    Each row is answered without its source. They are the machine's own rows if it has ten of that kind, else also
    those of the nearest machines; None if all machines together have fewer than ten, and for a machine that does not
    come with the package: how wrong answers with its constants are is not known.
    """
    kinds = {_kind(one) for one in requests}
    return _range(machine, lambda name: [error for kind in kinds for error in _errors(name, kind)])


def _range(machine: Machine, errors: Callable[[str], Sequence[float]]) -> dict[str, Any] | None:
    """Return the range of the nearest machines' `errors`, as logarithms; None if there is none.

    Two machines are as far apart as the number of files between them that extend one another. Each has its own factor,
    and the largest counts, for a machine that was not measured may be like any of them.
    """
    if machine.sustained is None or has_own_constants(machine):
        return None
    apart = {name: _files_between(machine.lineage, loaded(name).lineage) for name in MACHINES}
    near: dict[str, Sequence[float]] = {}
    for distance in sorted({*apart.values()}):
        near |= {name: some for name in MACHINES if apart[name] == distance and (some := errors(name))}
        if (rows := sum(map(len, near.values()))) >= _FEWEST:
            return {"rows": rows, "factor": exp(max(map(_nine_of_ten, near.values()))), "machines": [*near]}
    return None


def _files_between(one: Sequence[str], other: Sequence[str]) -> float:
    return min((steps + other.index(file) for steps, file in enumerate(one) if file in other), default=inf)


def _nine_of_ten(errors: Sequence[float]) -> float:
    return sorted(map(abs, errors))[ceil(0.9 * len(errors)) - 1]


@cache
def _errors(machine: str, kind: str) -> tuple[float, ...]:
    """Return the errors of a machine's rows of a kind, each answered without its source, as logarithms."""
    def make() -> tuple[float, ...]:
        return _logarithms(compare([row for row in rows_by_machine().get(machine, ()) if _kind(row.ask) == kind],
                                   machine).rows)

    return tuple(kept(f"errors-{machine}-{digest(kind)}", make))


def _logarithms(rows: Iterable[Compared]) -> tuple[float, ...]:
    return tuple(log(row.without_source_ns / row.row.ns) for row in rows if row.without_source_ns is not None)


#: Kinds of answers that a machine may have no rows of, as `t3 validate` calls them.
_KINDS = {GemmRequest: "GEMM", ExpertsExchange: "dispatch and combine", Training: "training", Prompt: "prompt"}
_MEASURED_KINDS = ("collective from 1 MB", "collective below 1 MB", "fused operator", *_KINDS.values())


def ranges_without_rows(machine: Machine) -> dict[str, dict[str, Any] | None]:
    """Return the ranges of those kinds of answers of which a machine has no row; None: there is no range."""
    return {kind: _range(machine, lambda name, kind=kind: _errors(name, kind)) for kind in _MEASURED_KINDS
            if not _errors(measured_name(machine), kind)}


def _kind(request: Request) -> str:
    """Return what an error is the error of: a fused operator with or without a norm, small or large collectives."""
    collective = _as_collective(request)
    if isinstance(collective, Collective) and collective.kind != "send_recv":
        return band(collective.size_bytes)
    if isinstance(request, OverlapRequest | Norm):
        return "fused operator" if request.part in ("fused", "simple fusion") else f"part: {request.part}"
    return "send and receive" if isinstance(request, Collective) else _KINDS.get(type(request), type(request).__name__)


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


def prompt_error_near(machine: Machine, job: TrainingJob, mapping: Mapping) -> dict[str, Any] | None:
    """Return the error of a machine's measured prompts near this one; None if there is none.

    Near: on as many GPUs, and parameters and tokens within a factor of two.
    """
    return _summary([row for row in _prompts(measured_name(machine)) if row.row.ask.gpus == mapping.gpus
                     and _within(model_of(row.row.ask.model).weights, job.model.weights)
                     and _within(row.row.ask.tokens, job.global_batch * job.sequence)])


def range_of_prompts(machine: Machine) -> dict[str, Any] | None:
    """Return the factor within which nine of ten measured prompts are, as of `range_of_rows`."""
    return _range(machine, lambda name: _logarithms(_prompts(name)))


@cache
def _prompts(machine: str) -> tuple[Compared, ...]:
    """Return a machine's measured prompts beside whole iterations, not beside their layers alone."""
    rows = [row for row in rows_by_machine().get(machine, ()) if isinstance(row.ask, Prompt)
            and row.ask.way == "baseline" and model_of(row.ask.model)]
    answers = kept(f"prompts-{machine}", lambda: [
        (_prompt_ns(row.ask, loaded(machine)), False, answer_without_source(row.ask, machine, row.source, _prompt_ns))
        for row in rows])
    return tuple(Compared(row, machine, *answer) for row, answer in zip(rows, answers))


def _prompt_ns(ask: Prompt, machine: Machine) -> float:
    job = TrainingJob(model_of(ask.model), ask.tokens, 1, FLASH)
    return float(prompt(machine, job, Mapping(ask.gpus)).iteration_ns)
