"""One training pass of a recommendation model (DLRM) on a network of GPUs, on the event level.

Embedding tables are spread over GPUs, MLPs are replicated on each. Kernels run one after the other on each GPU,
collectives beside them on the links that they share.

Baseline: pooling, then its all-to-all beside the bottom MLP; backward the all-to-all of the gradients beside the bottom
MLP, then the rows' gradients; at the end the optimizer. Fused: each slice leaves as soon as it is pooled, and is turned
into the rows' gradients as soon as it arrives; the persistent kernel holds its GPU until the last slice is there.
"""

import time
from dataclasses import dataclass, field
from functools import cache
from math import gcd

import simpy

from t3sim.analytic.closed_forms import chunk_bytes
from t3sim.analytic.costs import network_costs
from t3sim.analytic.gemm import accelerator_gemm_ns, accelerator_move_ns
from t3sim.collectives.algorithms import algorithms
from t3sim.event.flow.collective import FlowNetwork
from t3sim.event.flow.layout import Also, Layout, Play, nothing_else
from t3sim.machine import Machine
from t3sim.machine.closed_form import Accelerator
from t3sim.machine.topologies import named_topology

_INDEX_BYTES = 8  #: PyTorch's int64


@dataclass(frozen=True)
class Dlrm:
    """A model with equal tables and equal MLP layers, as averages describe it."""

    embedding_dim: int
    pooling: int  #: rows of a table that one sample adds up
    mlp_layers: int
    mlp_width: int
    bottom_layers: int  #: of `mlp_layers`: those that need no embeddings
    tables_per_gpu: int
    local_batch: int  #: samples per GPU
    element_bytes: int = 4  #: fp32

    @property
    def mlp_bytes(self) -> int:
        """Weights and biases of one MLP layer."""
        return self.element_bytes * self.mlp_width * (self.mlp_width + 1)

    def pooled_bytes(self, gpus: int) -> int:
        """Return the bytes that one GPU pools for all GPUs: a vector per table and sample of the global batch."""
        return self.element_bytes * self.embedding_dim * self.tables_per_gpu * self.local_batch * gpus


#: The fused operators' scale-out study (table II: dimension, pooling, layers, width), which took them from model I of
#: Mudigere et al. (ISCA 2022, arXiv 2104.05158, table 3): hundreds of tables, 2,048 samples per GPU. The bottom MLP has
#: 4 of 7 layers in the DLRM that comes with ASTRA-sim (inputs/workload/ASTRA-sim-1.0/DLRM_HybridParallel.txt).
PAPER = Dlrm(embedding_dim=92, pooling=70, mlp_layers=43, mlp_width=682, bottom_layers=round(43 * 4 / 7),
             tables_per_gpu=2, local_batch=2048)


@dataclass(frozen=True)
class Operators:
    """Times of one pass on one GPU, ns."""

    pooling: float
    gradient_rows: float  #: a copy of the pooled vector's gradient for each row that was pooled
    update: float  #: of the rows, by these copies
    direct_update: float  #: instead of both: a kernel that applies gradients to the rows at once
    bottom_forward: float
    bottom_backward: float
    interaction_forward: float
    interaction_backward: float
    top_forward: float
    top_backward: float
    optimizer: float  #: of the MLPs


def operators(model: Dlrm, gpu: Accelerator, line_bytes: int, gpus: int) -> Operators:
    """Return the operators' times. What reads or writes rows is bound by memory, which moves whole lines of a row.

    Kernels are those of the public DLRM (facebookresearch/dlrm): `EmbeddingBag(sparse=True)`, whose backward pass
    writes a gradient row per index, and SGD, which adds these to the table.
    """
    bags, batch, width = model.tables_per_gpu * model.local_batch * gpus, model.local_batch, model.mlp_width
    row_bytes = model.embedding_dim * model.element_bytes
    # A row begins at any multiple of the alignment that its length leaves: lines that it touches, on average.
    touched_bytes = row_bytes + line_bytes - gcd(row_bytes, line_bytes)
    layer_forward = (_gemm_ns(gpu, model, batch, width, width)
                     + accelerator_move_ns(gpu, 2 * model.element_bytes * batch * width))  # bias and ReLU
    layer_backward = (2 * _gemm_ns(gpu, model, batch, width, width)
                      + accelerator_move_ns(gpu, 3 * model.element_bytes * batch * width))
    vectors = model.tables_per_gpu * gpus + 1
    interaction = _gemm_ns(gpu, model, vectors, vectors, model.embedding_dim, batch)
    top_layers = model.mlp_layers - model.bottom_layers
    return Operators(
        pooling=accelerator_move_ns(gpu, bags * (model.pooling * (touched_bytes + _INDEX_BYTES) + row_bytes)),
        gradient_rows=accelerator_move_ns(gpu, bags * (model.pooling * (row_bytes + _INDEX_BYTES) + row_bytes)),
        update=accelerator_move_ns(gpu, bags * model.pooling * (row_bytes + 2 * touched_bytes + _INDEX_BYTES)),
        direct_update=accelerator_move_ns(gpu, bags * (model.pooling * (2 * touched_bytes + _INDEX_BYTES) + row_bytes)),
        bottom_forward=model.bottom_layers * layer_forward, bottom_backward=model.bottom_layers * layer_backward,
        interaction_forward=interaction,
        interaction_backward=_gemm_ns(gpu, model, vectors, model.embedding_dim, vectors, batch),
        top_forward=top_layers * layer_forward, top_backward=top_layers * layer_backward,
        optimizer=accelerator_move_ns(gpu, 3 * model.mlp_layers * model.mlp_bytes))


def _gemm_ns(gpu: Accelerator, model: Dlrm, m: int, n: int, k: int, count: int = 1) -> float:
    return float(accelerator_gemm_ns(gpu, m, n, k, count, model.element_bytes))


# Collectives among processes: kernels and whatever else simpy steps.

class SimpyNetwork:
    """A network whose collectives begin and end at times of a simpy environment."""

    def __init__(self, env: simpy.Environment, layout: Layout) -> None:
        self.env, self.network = env, FlowNetwork(layout)
        self._ends: dict[int, simpy.Event] = {}
        self._starts = 0

    def start(self, play: int) -> simpy.Event:
        """Start a collective of the layout and return the event of its end."""
        self._ends[play] = self.env.event()
        self.network.begin(play, self.env.now)
        self._starts += 1
        self.env.process(self._follow(self._starts))
        return self._ends[play]

    def _follow(self, starts: int):
        """Go from one time at which something is due to the next, until another collective starts."""
        while (due := self.network.due) is not None:
            yield self.env.timeout(max(due - self.env.now, 0.0))
            if starts != self._starts:
                return
            while self.network.advance(self.env.now):
                for play in [play for play in self._ends if self.network.has_ended(play)]:
                    self._ends.pop(play).succeed()


# The pass.

@dataclass(frozen=True)
class PassOptions:
    """Choices of how a pass is run."""

    fused: bool
    exchange: str = "direct"  #: algorithm of the all-to-all: each pair's part straight to its GPU, as RCCL and the
    #: fused kernel's puts do
    reduction: str = "all-rings"  #: of the all-reduce of the gradients: as in ASTRA-sim, whose chunks go either way
    #: around the rings of one dimension after the other
    bottom_beside: bool = False  #: fused: the bottom MLP runs beside the persistent kernel
    applied: bool = False  #: gradients are applied to the rows by the backward kernel, without copies for the optimizer


@dataclass(frozen=True)
class PassTimes:
    """The times at which everything happened, ns."""

    ns: float
    spans: tuple[tuple[str, float, float], ...]  #: kernels and collectives: name, start, end
    host_seconds: float = field(default=0.0, compare=False)

    def duration_ns(self, name: str) -> float:
        """Return how long something took."""
        return sum(end - start for span, start, end in self.spans if span == name)


def training_pass(model: Dlrm, machine: Machine, graph: PassOptions) -> PassTimes:
    """Run one pass: forward, backward, update. All GPUs do the same, so one process stands for their kernels."""
    topology, costs = named_topology(machine.topology), network_costs(machine)
    times = operators(model, machine.accelerator, machine.memory.line_bytes, topology.nodes)
    backward_ns = times.direct_update if graph.applied else times.gradient_rows
    # What a fused kernel makes or takes: slices for others go first, so at the rate of the whole kernel. Its occupancy
    # is that of the plain one: the 12.5 % that it loses cost the paper's no time (section IV-C).
    pooled_bytes = model.pooled_bytes(topology.nodes)
    rates = {"pooling": pooled_bytes / times.pooling, "gradients": pooled_bytes / backward_ns}
    mlps = {"bottom": model.bottom_layers, "top": model.mlp_layers - model.bottom_layers}

    def exchange(uses: Also) -> Play:
        return _play("a2a", machine.topology, graph.exchange, pooled_bytes, uses if graph.fused else nothing_else)

    plays = {"all-to-all forward": exchange(lambda source, destination: {("pooling", source): 1.0}),
             "all-to-all backward": exchange(lambda source, destination: {("gradients", destination): 1.0}),
             **{f"all-reduce of the {name} MLP": _play("ar", machine.topology, graph.reduction,
                                                       layers * model.mlp_bytes) for name, layers in mlps.items()}}
    env = simpy.Environment()
    network = SimpyNetwork(env, Layout(list(plays.values()), topology, costs, rates))
    spans: list[tuple[str, float, float]] = []

    def kernel(name: str, ns: float):
        start = env.now
        yield env.timeout(ns)
        spans.append((name, start, env.now))

    def collective(name: str):
        start = env.now
        yield env.timeout(costs.launch_ns)
        yield network.start(list(plays).index(name))
        spans.append((name, start, env.now))

    def forward():
        if graph.fused:
            all_to_all = env.process(collective("all-to-all forward"))
            pooling = env.process(kernel("pooling", times.pooling))
            if graph.bottom_beside:
                yield pooling
                yield from kernel("bottom MLP forward", times.bottom_forward)
                yield all_to_all
            else:
                yield pooling & all_to_all
                yield from kernel("bottom MLP forward", times.bottom_forward)
        else:
            yield from kernel("pooling", times.pooling)
            all_to_all = env.process(collective("all-to-all forward"))
            yield from kernel("bottom MLP forward", times.bottom_forward)
            yield all_to_all
        yield from kernel("interaction forward", times.interaction_forward)
        yield from kernel("top MLP forward", times.top_forward)

    def backward():
        yield from kernel("top MLP backward", times.top_backward)
        top = env.process(collective("all-reduce of the top MLP"))
        yield from kernel("interaction backward", times.interaction_backward)
        all_to_all = None if graph.fused else env.process(collective("all-to-all backward"))
        yield from kernel("bottom MLP backward", times.bottom_backward)
        bottom = env.process(collective("all-reduce of the bottom MLP"))
        if graph.fused:
            all_to_all = env.process(collective("all-to-all backward"))
            yield env.process(kernel("row gradients", backward_ns)) & all_to_all
        else:
            yield all_to_all
            yield from kernel("row gradients", backward_ns)
        yield top & bottom
        yield from kernel("optimizer, MLPs", times.optimizer)
        if not graph.applied:
            yield from kernel("optimizer, rows", times.update)

    def whole():
        yield from forward()
        yield from backward()

    start_seconds = time.perf_counter()
    env.run(env.process(whole()))
    return PassTimes(float(env.now), tuple(spans), time.perf_counter() - start_seconds)


def _play(kind: str, topology: str, algorithm: str, size: float, also: Also = nothing_else) -> Play:
    program = _program(kind, topology, algorithm)
    part = chunk_bytes(kind, program, size)
    return Play(program, lambda chunk: part, also=also)


@cache
def _program(kind: str, topology: str, algorithm: str):
    return algorithms(kind, named_topology(topology))[algorithm].program()
