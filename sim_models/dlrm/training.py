"""One training pass of a DLRM on a network of GPUs, on the event level.

Kernels run one after the other on each GPU, collectives beside them on the links that they share.

Baseline: pooling, then its all-to-all beside the bottom MLP; backward the all-to-all of the gradients beside the bottom
MLP, then the rows' gradients; at the end the optimizer. Fused: each slice leaves as soon as it is pooled, and is turned
into the rows' gradients as soon as it arrives; the persistent kernel holds its GPU until the last slice is there.
"""

import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import cache

import simpy

from t3sim.collectives.algorithms import algorithms
from t3sim.dlrm.model import Dlrm, operators
from t3sim.flow.closed_forms import chunk_bytes
from t3sim.flow.collective import Network
from t3sim.flow.network_costs import network_costs
from t3sim.machine import Machine
from t3sim.topologies import named_topology


@dataclass(frozen=True)
class Graph:
    """Choices of how a pass is run."""

    fused: bool
    exchange: str = "direct"  #: algorithm of the all-to-all: each pair's part straight to its GPU, as RCCL and the
    #: fused kernel's puts do
    reduction: str = "all-rings"  #: of the all-reduce of the gradients: as in ASTRA-sim, whose chunks go either way
    #: around the rings of one dimension after the other
    bottom_beside: bool = False  #: fused: the bottom MLP runs beside the persistent kernel
    applied: bool = False  #: gradients are applied to the rows by the backward kernel, without copies for the optimizer


@dataclass(frozen=True)
class Pass:
    """The times at which everything happened, ns."""

    ns: float
    spans: tuple[tuple[str, float, float], ...]  #: kernels and collectives: name, start, end
    host_seconds: float = field(default=0.0, compare=False)

    def duration_ns(self, name: str) -> float:
        """Return how long something took."""
        return sum(end - start for what, start, end in self.spans if what == name)


def training_pass(model: Dlrm, machine: Machine, graph: Graph) -> Pass:
    """Run one pass: forward, backward, update. All GPUs do the same, so one process stands for their kernels."""
    topology, costs = named_topology(machine.topology), network_costs(machine)
    times = operators(model, machine.accelerator, machine.memory.line_bytes, topology.nodes)
    backward_ns = times.applied if graph.applied else times.gradient_rows
    # What a fused kernel makes or takes: slices for others go first, so at the rate of the whole kernel. Its occupancy
    # is that of the plain one: the 12.5 % that it loses cost the paper's no time (section IV-C).
    made = model.pooled_bytes(topology.nodes)
    rates = {"pooling": made / times.pooling, "gradients": made / backward_ns}
    env = simpy.Environment()
    network = Network(env, topology, costs, {(name, node): rate for name, rate in rates.items()
                                             for node in range(topology.nodes)})
    spans: list[tuple[str, float, float]] = []

    def kernel(name: str, ns: float):
        start = env.now
        yield env.timeout(ns)
        spans.append((name, start, env.now))

    def collective(name: str, kind: str, algorithm: str, size: float,
                   also: Callable[[int, int], Mapping[Hashable, float]] = lambda source, destination: {}):
        program, start = _program(kind, machine.topology, algorithm), env.now
        yield env.timeout(costs.launch_ns)
        yield network.start(program, lambda chunk, part=chunk_bytes(kind, program, size): part, also=also)
        spans.append((name, start, env.now))

    def exchange(name: str, also=lambda source, destination: {}):
        return collective(name, "a2a", graph.exchange, model.pooled_bytes(topology.nodes), also)

    def reduce(name: str, layers: int):
        return env.process(collective(name, "ar", graph.reduction, layers * model.mlp_bytes))

    def forward():
        if graph.fused:
            slices = env.process(exchange("all-to-all forward", lambda source, destination: {("pooling", source): 1.0}))
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
            sent = env.process(exchange("all-to-all forward"))
            yield from kernel("bottom MLP forward", times.bottom_forward)
            yield sent
        yield from kernel("interaction forward", times.interaction_forward)
        yield from kernel("top MLP forward", times.top_forward)

    def backward():
        yield from kernel("top MLP backward", times.top_backward)
        top = reduce("all-reduce of the top MLP", model.mlp_layers - model.bottom_layers)
        yield from kernel("interaction backward", times.interaction_backward)
        sent = None if graph.fused else env.process(exchange("all-to-all backward"))
        yield from kernel("bottom MLP backward", times.bottom_backward)
        bottom = reduce("all-reduce of the bottom MLP", model.bottom_layers)
        if graph.fused:
            arriving = env.process(exchange("all-to-all backward",
                                            lambda source, destination: {("gradients", destination): 1.0}))
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
    return Pass(float(env.now), tuple(spans), time.perf_counter() - started)


@cache
def _program(kind: str, topology: str, algorithm: str):
    return algorithms(kind, named_topology(topology))[algorithm].program()
