"""Answers of the models to the requests of measured rows."""

import re
from functools import cache, singledispatch
from math import prod

from t3sim.analytic.end_to_end.training import train
from t3sim.analytic.gemm import library_gemm_ns, width_of
from t3sim.analytic.libraries import contention
from t3sim.analytic.libraries.collectives import (
    copies_ns,
    exchange_ns,
    library_collective,
    switched_nodes,
    token_bytes,
)
from t3sim.analytic.libraries.contention import beside, collective_job, gemm_job
from t3sim.analytic.libraries.mechanisms import OPERATORS, OverlapPlan, play, possible
from t3sim.analytic.libraries.prompts import model_of, part_ns, prompt_ns
from t3sim.analytic.validation.machines import loaded
from t3sim.analytic.validation.requests import (
    Beside,
    Collective,
    Crowded,
    ExpertsExchange,
    GemmRequest,
    Measured,
    MemoryAccess,
    Norm,
    NotExpressible,
    OverlapRequest,
    Prompt,
    Request,
    Slowdown,
    Steady,
    Training,
)
from t3sim.base.errors import BadInput
from t3sim.machine import Machine
from t3sim.workload.routing import reach


@cache
def answer(request: Request, machine: str) -> float:
    """Return the time that a machine takes, ns. Raises `NotExpressible`."""
    return answer_on(request, loaded(machine))


def answer_on(request: Request, machine: Machine) -> float:
    """Return the time that a machine takes, ns. Raises `NotExpressible`."""
    try:
        return float(_answer(request, machine))  # of arrays, too, so that signs are plain truths
    except BadInput as error:  # what the machine, or its libraries, do not have
        raise NotExpressible(str(error)) from None


def check_rate(row: Measured, machine: Machine) -> None:
    """Raise `NotExpressible` for a GEMM that was faster than the machine's peak."""
    gemm = row.ask.gemm if isinstance(row.ask, OverlapRequest) else row.ask
    if isinstance(gemm, GemmRequest) and getattr(row.ask, "part", "gemm") != "collective":
        width = width_of(gemm.dtype)
        peak = getattr(machine.peak, width) if width and machine.peak else None
        if peak and 2e-3 * gemm.m * gemm.n * gemm.k / row.ns > peak:
            raise NotExpressible(f"the row's rate is above the peak of {machine.name}, {peak:,.0f} TFLOP/s in {width}")


@singledispatch
def _answer(request: Request, machine: Machine) -> float:
    raise NotExpressible(f"rows of this kind have no model: {type(request).__name__.lower()}")


@_answer.register
def _(request: Collective, machine: Machine) -> float:
    return library_collective(machine, request.kind, request.gpus, request.size_bytes, request.nodes,
                              request.library, request.algorithm).ns


@_answer.register
def _(request: GemmRequest, machine: Machine) -> float:
    width = width_of(request.dtype)
    if width is None:
        raise NotExpressible(f"GEMMs with operands {request.dtype[:40]!r} have no rate")
    ns = library_gemm_ns(machine, request.m, request.n, request.k, width)
    return ns + request.waited * machine.kernels.call_ns


@_answer.register
def _(request: MemoryAccess, machine: Machine) -> float:
    wires, size = machine.wires, request.size_bytes
    if "SDMA" in request.operation:
        return wires.copy_ns + size / (wires.gb_per_s * wires.copy_efficiency)
    if request.operation not in ("load", "store"):
        raise NotExpressible("atomics over links have no model")
    if request.where == "own memory":
        share = {"load": machine.kernels.own_load_efficiency, "store": machine.kernels.own_store_efficiency}
        if share[request.operation] is None:
            raise NotExpressible(f"{machine.name} has no rate of plain {request.operation}s over own memory")
        return size / (machine.memory.bandwidth_gb_per_s * share[request.operation])
    if request.where == "one link":
        return size / (wires.gb_per_s * wires.store_efficiency)
    if request.operation == "load":
        raise NotExpressible("loads from all other GPUs at once depend on latencies that the rows do not give")
    others = machine.gpus - 1
    rate = wires.gb_per_s * wires.all_efficiency * (others if wires.kind == "full" else 1)
    return 2 * wires.latency_ns + machine.kernels.launch_ns + size / rate


@_answer.register
def _(request: Training, machine: Machine) -> float:
    if machine.accelerator is None:
        raise NotExpressible(f"{machine.name} has no [accelerator], which whole iterations need")
    return float(train(machine, request.job, request.mapping).iteration_ns)


#: Mechanisms by the words of sources, looked for in this order.
_WAYS = ((r"epoch before|overlap.*next", "epoch"), (r"multimem all-gather|multimem.*then", "symmetric"),
         (r"multimem|nvls|in.switch", "in-switch-fused"), (r"comm-aware|flux|triton.dist", "flux"),
         (r"decomposed|async.?tp|user.?buffer|\bub\b|ring.*pieces", "decomposed"),
         (r"sdma.*serial|serial.*sdma", "copy-engines"), (r"polls|intra", "sdma-chain"),
         (r"split lsa|symmetric", "symmetric"), (r"lsa|stores in one kernel", "fused-units"), (r"fused", "flux"),
         (r"sdma|copy engine|zero.cta", "copy-engines"), (r"nccl|rccl|serial|torch|in turn|one after", "in-turn"))


def mechanism_of(words: str) -> str | None:
    """Return the mechanism that a source's words name; None if they name none."""
    return next((name for pattern, name in _WAYS if re.search(pattern, words.lower())), None)


@_answer.register
def _(request: OverlapRequest, machine: Machine) -> float:
    if request.operator.startswith("gemm beside"):
        return _operator_beside(request, machine)
    if request.operator not in OPERATORS:
        raise NotExpressible(f"operator {request.operator[:40]!r} has no model: its GEMM is not one of a library")
    gemm, width = request.gemm, width_of(request.gemm.dtype)
    if width is None:
        raise NotExpressible(f"GEMMs with operands {gemm.dtype[:40]!r} have no rate")
    plan = OverlapPlan(machine, request.operator, request.gpus, (gemm.m, gemm.n, gemm.k), width)
    if not 2 <= request.gpus <= machine.gpus:
        raise NotExpressible(f"{machine.name} has up to {machine.gpus} GPUs in a node")
    if request.part == "gemm":
        return library_gemm_ns(machine, *plan.shape, width)
    if request.part == "collective":
        return library_collective(machine, plan.kind, plan.gpus, plan.size).ns
    way = mechanism_of(request.way)
    if request.part == "baseline" and way not in (None, "symmetric", "copy-engines"):
        way = "in-turn"
    if way == "epoch":
        return beside(machine, plan.shape, width, plan.collective("engines")).ns
    if way not in possible(plan):
        raise NotExpressible(f"no mechanism of {machine.name} is called {request.way[:40]!r}")
    return play(plan, way).ns


def _operator_beside(request: OverlapRequest, machine: Machine) -> float:
    """Answer a GEMM beside a collective of 128 MB per GPU, whose row gives the ratio to one after the other."""
    collective = {"rs": "reduce_scatter", "ag": "all_gather"}.get(request.operator.rpartition(" ")[2])
    if collective is None:
        raise NotExpressible(f"operator {request.operator[:40]!r} has no model")
    shape, size = (request.gemm.m, request.gemm.n, request.gemm.k), 128.0 * (1 << 20) * request.gpus
    mover = "engines" if "sdma" in request.way.lower() else "units"
    job = collective_job(machine, collective, request.gpus, size, mover)
    if request.part == "baseline":
        return gemm_job(machine, *shape).ns + collective_job(machine, collective, request.gpus, size).ns
    return beside(machine, shape, "bf16", job).ns


@_answer.register
def _(request: Norm, machine: Machine) -> float:
    if machine.in_switch is None:
        raise NotExpressible(f"the switch of {machine.name} cannot add")
    return part_ns(machine, request.gpus, request.tokens, request.hidden, request.part)


@_answer.register
def _(request: Prompt, machine: Machine) -> float:
    model = model_of(request.model)
    if model is None:
        raise NotExpressible(f"the shape of model {request.model[:40]!r} is not known")
    if not 2 <= request.gpus <= machine.gpus or model.not_shared_by(request.gpus):
        raise NotExpressible(f"{request.gpus} GPUs cannot share {model.name} on {machine.name}")
    return prompt_ns(machine, model, request.tokens, request.gpus, request.way)


_EXTENTS = re.compile(r"(gemm|attention|add of|rms_norm) ([1-9]\d{0,8}(?:x[1-9]\d{0,8})*) (\w+)$")
_PASSES = {("add of", 1): 3, ("rms_norm", 2): 2}  #: over the tensor, by kernel and how many extents it has


def _kernel(machine: Machine, compute: str, held_units: int) -> contention.TimedJob:
    """Return a kernel that a row names, beside another one that holds units."""
    match = _EXTENTS.match(compute)
    width = width_of(match[3]) if match else None
    if match and width:
        extents = tuple(map(int, match[2].split("x")))
        kernel_kind = match[1], len(extents)
        if kernel_kind == ("gemm", 3):
            return gemm_job(machine, *extents, width, held_units)
        if kernel_kind == ("attention", 4) and width == "bf16":
            return contention.attention_job(machine, *extents, held_units)
        if kernel_kind in _PASSES and width == "bf16":
            return contention.stream_job(machine, 2.0 * _PASSES[kernel_kind] * prod(extents))
    raise NotExpressible(f"kernels called {compute[:40]!r} have no model")


@_answer.register
def _(request: Crowded, machine: Machine) -> float:
    if request.units >= machine.gpu.compute_units:
        raise NotExpressible(f"{machine.name} has {machine.gpu.compute_units} compute units")
    job = _kernel(machine, request.compute, request.units)
    return job.ns / contention.memory_paces(machine, job.memory_bytes / job.ns, request.gb_per_s, request.units)[0]


@_answer.register
def _(request: Slowdown, machine: Machine) -> float:
    return answer_on(request.beside, machine) / answer_on(request.alone, machine)


@_answer.register
def _(request: Steady, machine: Machine) -> float:
    return _kernel(machine, request.compute, 0).ns / (1 - machine.sharing.power_share)


_BYTES = re.compile(r"(\d{1,9}(?:\.\d{1,9})?) *(K|M|G)i?B", re.IGNORECASE)


@_answer.register
def _(request: Beside, machine: Machine) -> float:
    shape, amount = re.search(r"gemm (\d+)x(\d+)x(\d+)(?: (\w+))?", request.compute), _BYTES.search(request.amount)
    if shape is None or amount is None:
        raise NotExpressible("the row names neither a kernel nor a number of bytes")
    width = width_of(shape[4] or "")
    if width is None or not 2 <= request.gpus <= machine.gpus:
        raise NotExpressible(f"{machine.name} has no such GEMM, or not as many GPUs")
    m, n, k = (int(shape[place]) for place in (1, 2, 3))
    size = float(amount[1]) * (1 << {"K": 10, "M": 20, "G": 30}[amount[2].upper()]) * request.gpus
    mover = "engines" if re.search(r"copy engine|sdma|zero", request.by.lower()) else "units"
    if request.way == "alone":
        return gemm_job(machine, m, n, k, width).ns
    if request.way == "in turn":
        return gemm_job(machine, m, n, k, width).ns + collective_job(machine, request.collective, request.gpus, size).ns
    if request.way == "collective":
        return copies_ns(machine, request.collective, request.gpus, size)
    job = collective_job(machine, request.collective, request.gpus, size, mover)
    return beside(machine, (m, n, k), width, job).ns


@_answer.register
def _(request: ExpertsExchange, machine: Machine) -> float:
    """Answer a dispatch, a combine, or one after the other.

    Kernels for few tokens send a token to each of its experts (DeepEP's `internode_ll.cu`). Others send it once to each
    node and there once to each GPU, where its experts share it, and where their outputs are added before they return.
    """
    gpus, tokens, top_k = request.gpus, request.tokens, request.top_k
    nodes = switched_nodes(machine, gpus, request.nodes)
    passes = re.findall("dispatch|combine", request.operation.lower())
    if not passes:
        raise NotExpressible(f"operation {request.operation[:40]!r} has no model: dispatch and combine have")
    if not re.search(r"deepep|hybridep|low.latency|\bll\b|normal", request.library.lower()):
        raise NotExpressible(f"library {request.library[:40]!r} has no model of dispatch and combine: DeepEP and "
                             "HybridEP have, and any that is called low latency or normal")
    if re.search(r"low.latency|\bll\b", request.library.lower()):
        copies = tokens * top_k / nodes, tokens * top_k
    else:
        copies = tuple(tokens * groups * reach(1 / groups, top_k, request.experts) for groups in (gpus, nodes))
    dispatched = "fp8" if "fp8" in request.dtype.lower() else request.dtype
    combined = dispatched if len(passes) == 1 else "bf16"  # no library here combines 8 bits after a dispatch of them
    return sum(exchange_ns(machine, gpus, nodes, token_bytes(
        request.hidden, dispatched if one == "dispatch" else combined), *copies) for one in passes)
