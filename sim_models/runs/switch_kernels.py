"""Collectives by kernels on compute units around a switch that adds and copies; one representative GPU is simulated.

Data go through it once: an all-reduce sends every line up once and gets every sum once (Klenk et al., ISCA 2020, which
the T3 paper cites for reduction in switches: the pushed all-reduce), an all-gather sends a chunk once and gets those of
all others. All GPUs send alike, so the switch holds hardly any sum for long.
"""

from typing import NamedTuple

import numpy as np

from t3sim.base.line import LINE_BYTES, lines_of
from t3sim.gpu.agents.compute_units import ComputeUnits
from t3sim.gpu.fabric import bits, memory
from t3sim.gpu.fabric.state import Network, SwitchState
from t3sim.gpu.fabric.switch import make_switch
from t3sim.gpu.setup import CopyTarget
from t3sim.gpu.state import Sim
from t3sim.machine import Machine
from t3sim.runs import build
from t3sim.runs.program_kernels import ALL_REDUCE_IN_SWITCH
from t3sim.workload.operators.copy import Pass
from t3sim.workload.operators.kernel_table import Route


class Switched(NamedTuple):
    """A kernel, and what it runs on."""

    kernel: ComputeUnits
    network: Network
    switch: SwitchState
    downstream: int  #: to which it sends: the GPU, or the group of all others


def all_reduce(machine: Machine, size_bytes: int, data: int) -> Switched:
    """Make the all-reduce of an array of `size_bytes` at address `data`. Raises BadInput without a [switch]."""
    lines = lines_of(size_bytes)
    array = Pass((data,), data, Route.PEER, updates=True, arrivals=lines)
    kernel = build.copy_units(machine, build.copy_kernel(machine, [[array]], size_bytes), memory.EXCHANGE)
    shape = build.switch_shape(machine)
    return Switched(kernel, build.network_at_switch(machine, 1, 0), make_switch(
        1, 1, np.array([data]), size_bytes, shape, bits.STORE), 0)


def all_gather(machine: Machine, size_bytes: int, gpus: int, data: int) -> Switched:
    """Make the all-gather of an array of `size_bytes`, whole, at address `data`. Raises BadInput without a [switch]."""
    chunk_bytes = -(-size_bytes // gpus)
    pitch = lines_of(chunk_bytes) * LINE_BYTES
    own_chunk = Pass((data,), data + pitch, Route.PEER, arrivals=(gpus - 1) * lines_of(chunk_bytes))
    kernel = build.copy_units(machine, build.copy_kernel(machine, [[own_chunk]], chunk_bytes), memory.OTHER)
    others = tuple(CopyTarget(0, other * pitch, 0) for other in range(gpus - 1))
    return Switched(kernel, build.network_at_switch(machine, gpus, 1), make_switch(
        gpus, 0, np.array([data]), 0, build.switch_shape(machine), groups=((others,),)), gpus)


def switched_sim(machine: Machine, size_bytes: int, gpus: int, kind: str) -> Sim:
    """Make the state at cycle 0 of one of `SWITCH_KINDS` on `size_bytes`. Raises BadInput without a [switch]."""
    switched = (all_reduce(machine, size_bytes, 0) if kind == ALL_REDUCE_IN_SWITCH else
                all_gather(machine, size_bytes, gpus, 0))
    sim = build.machine_state(machine, switched.kernel, switched.network, [switched.downstream])
    return sim._replace(switch=switched.switch)
