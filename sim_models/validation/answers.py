"""What the models answer to what a measured row asks."""

from functools import cache, singledispatch

from ..end_to_end.communication import group_all_reduce_ns
from ..end_to_end.mapping import FULL, Mapping
from ..end_to_end.operators import gemm_ns
from ..end_to_end.training import Job, train
from ..end_to_end.transformer import Transformer
from ..flow.dma import kernel_collective_ns
from ..machine.levels import CLUSTER, ENGINES, TILES, load_cluster, load_engines, load_tiles
from ..tiles.gemm import Shape, best
from ..tiles.library import all_reduce_ns, pass_ns
from .requests import Access, Collective, Gemm, NotExpressible, Request, Training


@cache
def answer(request: Request, machine: str) -> float:
    """Return the time that a machine takes, ns. Raises `NotExpressible`."""
    return _answer(request, machine)


@singledispatch
def _answer(request: Request, machine: str) -> float:
    raise NotExpressible(f"no model of today answers rows of this kind: {type(request).__name__.lower()}")


@_answer.register
def _(request: Collective, machine: str) -> float:
    if request.nodes > 1:
        raise NotExpressible("collectives over several nodes are not among this machine's models")
    if TILES.has(machine):
        node = load_tiles(machine)
        if request.gpus > node.gpus:
            raise NotExpressible(f"machine {machine} has {node.gpus} GPUs in a node")
        if request.kind == "all_reduce":
            return all_reduce_ns(node, request.gpus, request.size_bytes)
        if request.kind in ("all_gather", "reduce_scatter"):
            return pass_ns(node, request.gpus, request.size_bytes)
    elif CLUSTER.has(machine) and request.kind == "all_reduce":
        return float(group_all_reduce_ns(load_cluster(machine), request.size_bytes, request.gpus, 1))
    elif ENGINES.has(machine) and load_engines(machine).gpus == request.gpus:
        return kernel_collective_ns(load_engines(machine), request.size_bytes, 1 + (request.kind == "all_reduce"))
    raise NotExpressible(f"{request.kind} on {request.gpus} GPUs is not among the models of {machine}")


@_answer.register
def _(request: Gemm, machine: str) -> float:
    if request.dtype.split(",")[0] not in ("fp16", "bf16"):
        raise NotExpressible("GEMMs of 8 bits are not among the models")
    if TILES.has(machine):
        node = load_tiles(machine)
        return best(node, Shape(request.m, request.n, request.k)).ns + request.waited * node.host.call_ns
    if CLUSTER.has(machine):
        return float(gemm_ns(load_cluster(machine).accelerator, request.m, request.n, request.k))
    raise NotExpressible(f"machine {machine} has no model of a GEMM")


@_answer.register
def _(request: Access, machine: str) -> float:
    if not ENGINES.has(machine) or request.where == "own memory":
        raise NotExpressible("this access is not among the models of its machine")
    node = load_engines(machine)
    efficiency = node.link.push_efficiency if "SDMA" in request.operation else node.link.store_efficiency
    return request.size_bytes / (node.link.bandwidth_gb_per_s * efficiency)


@_answer.register
def _(request: Training, machine: str) -> float:
    cluster = load_cluster("a100-40gb")
    tp, pp, dp = request.mapping
    model = Transformer("measured", request.hidden, request.layers, request.heads, 4 * request.hidden, 51200)
    found = train(cluster, Job(model, request.sequence, request.global_batch),
                  Mapping(tp, pp, dp, request.micro_batch, recompute=FULL))
    return float(found.iteration_ns)
