"""One training pass of a DLRM on a network of GPUs, on the event level.

Kernels run one after the other on each GPU, collectives beside them on the links that they share.

Baseline: pooling, then its all-to-all beside the bottom MLP; backward the all-to-all of the gradients beside the bottom
MLP, then the rows' gradients; at the end the optimizer. Fused: each slice leaves as soon as it is pooled, and is turned
into the rows' gradients as soon as it arrives; the persistent kernel holds its GPU until the last slice is there.
"""

import time
from dataclasses import dataclass, field
from functools import cache

import simpy

from t3sim.analytic.closed_forms import chunk_bytes
from t3sim.analytic.costs import network_costs
from t3sim.collectives.algorithms import algorithms
from t3sim.event.flow.layout import Also, Layout, Play, nothing_else
from t3sim.machine import Machine
from t3sim.machine.topologies import named_topology
from t3sim.papers.dlrm.beside import SimpyNetwork
from t3sim.papers.dlrm.model import Dlrm, operators


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
        return sum(end - start for what, start, end in self.spans if what == name)


def training_pass(model: Dlrm, machine: Machine, graph: PassOptions) -> PassTimes:
    """Run one pass: forward, backward, update. All GPUs do the same, so one process stands for their kernels."""
    topology, costs = named_topology(machine.topology), network_costs(machine)
    times = operators(model, machine.accelerator, machine.memory.line_bytes, topology.nodes)
    backward_ns = times.applied if graph.applied else times.gradient_rows
    # What a fused kernel makes or takes: slices for others go first, so at the rate of the whole kernel. Its occupancy
    # is that of the plain one: the 12.5 % that it loses cost the paper's no time (section IV-C).
    made = model.pooled_bytes(topology.nodes)
    rates = {"pooling": made / times.pooling, "gradients": made / backward_ns}
    pooled, mlps = model.pooled_bytes(topology.nodes), {"bottom": model.bottom_layers,
                                                        "top": model.mlp_layers - model.bottom_layers}

    def exchanged(uses: Also) -> Play:
        return _play("a2a", machine.topology, graph.exchange, pooled, uses if graph.fused else nothing_else)

    plays = {"all-to-all forward": exchanged(lambda source, destination: {("pooling", source): 1.0}),
             "all-to-all backward": exchanged(lambda source, destination: {("gradients", destination): 1.0}),
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
            slices = env.process(collective("all-to-all forward"))
            pooling = env.process(kernel("pooling", times.pooling))
            if graph.bottom_beside:
                yield pooling
                yield from kernel("bottom MLP forward", times.bottom_forward)
                yield slices
            else:
                yield pooling & slices
                yield from kernel("bottom MLP forward", times.bottom_forward)
        else:
            yield from kernel("pooling", times.pooling)
            sent = env.process(collective("all-to-all forward"))
            yield from kernel("bottom MLP forward", times.bottom_forward)
            yield sent
        yield from kernel("interaction forward", times.interaction_forward)
        yield from kernel("top MLP forward", times.top_forward)

    def backward():
        yield from kernel("top MLP backward", times.top_backward)
        top = env.process(collective("all-reduce of the top MLP"))
        yield from kernel("interaction backward", times.interaction_backward)
        sent = None if graph.fused else env.process(collective("all-to-all backward"))
        yield from kernel("bottom MLP backward", times.bottom_backward)
        bottom = env.process(collective("all-reduce of the bottom MLP"))
        if graph.fused:
            arriving = env.process(collective("all-to-all backward"))
            yield env.process(kernel("row gradients", backward_ns)) & arriving
        else:
            yield sent
            yield from kernel("row gradients", backward_ns)
        yield top & bottom
        yield from kernel("optimizer, MLPs", times.optimizer)
        if not graph.applied:
            yield from kernel("optimizer, rows", times.update)

    def whole():
        yield from forward()
        yield from backward()

    started = time.perf_counter()
    env.run(env.process(whole()))
    return PassTimes(float(env.now), tuple(spans), time.perf_counter() - started)


def _play(kind: str, topology: str, algorithm: str, size: float, also: Also = nothing_else) -> Play:
    program = _program(kind, topology, algorithm)
    part = chunk_bytes(kind, program, size)
    return Play(program, lambda chunk: part, also=also)


@cache
def _program(kind: str, topology: str, algorithm: str):
    return algorithms(kind, named_topology(topology))[algorithm].program()
