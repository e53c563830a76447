"""What the models answer to what a measured row asks."""

from functools import cache, singledispatch

from ..end_to_end.mapping import FULL, Mapping
from ..end_to_end.training import Job, train
from ..end_to_end.transformer import Transformer
from ..libraries.algorithms import NoSuchWay, library_collective
from ..libraries.gemm import gemm_ns, width_of
from ..machine.commercial import Commercial
from ..machine.levels import load_cluster, load_commercial
from .requests import Access, Collective, Gemm, NotExpressible, Request, Training


@cache
def answer(request: Request, machine: str) -> float:
    """Return the time that a machine takes, ns. Raises `NotExpressible`."""
    try:
        return _answer(request, load_commercial(machine))
    except NoSuchWay as error:
        raise NotExpressible(str(error)) from None


@singledispatch
def _answer(request: Request, machine: Commercial) -> float:
    raise NotExpressible(f"no model answers rows of this kind: {type(request).__name__.lower()}")


@_answer.register
def _(request: Collective, machine: Commercial) -> float:
    return library_collective(machine, request.kind, request.gpus, request.size_bytes, request.nodes,
                              request.library, request.algorithm).ns


@_answer.register
def _(request: Gemm, machine: Commercial) -> float:
    width = width_of(request.dtype)
    if width is None:
        raise NotExpressible(f"GEMMs with operands {request.dtype[:40]!r} have no rate")
    try:
        ns = gemm_ns(machine, request.m, request.n, request.k, width)
    except KeyError:
        raise NotExpressible(f"{machine.name} has no rate of {width}") from None
    return ns + request.waited * machine.kernels.call_ns


@_answer.register
def _(request: Access, machine: Commercial) -> float:
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
        raise NotExpressible("loads from all others at once wait for latencies of which the rows say nothing")
    others = machine.gpus - 1
    rate = wires.gb_per_s * wires.all_efficiency * (others if wires.kind == "full" else 1)
    return 2 * wires.latency_ns + machine.kernels.launch_ns + size / rate


@_answer.register
def _(request: Training, machine: Commercial) -> float:
    if machine.name != "a100-sxm":
        raise NotExpressible("trainings have a model of an A100's host alone")
    cluster, (tp, pp, dp) = load_cluster("a100-40gb"), request.mapping
    model = Transformer("measured", request.hidden, request.layers, request.heads, 4 * request.hidden, 51200)
    found = train(cluster, Job(model, request.sequence, request.global_batch),
                  Mapping(tp, pp, dp, request.micro_batch, recompute=FULL))
    return float(found.iteration_ns)
