"""Any collective alone, as kernels on the whole GPU: one GPU for all where they are alike, else every GPU."""

from collections.abc import Callable

from ..collectives import Program
from ..engine.state import Sim
from ..fabric import memory
from ..machine import Machine
from ..mechanisms.program_kernels import KINDS, LevelPlan, Places
from ..topologies import Topology
from . import build
from .isolated_collectives import Collective, run_kernel


def program_sim(machine: Machine, size_bytes: int, kind: str, program: Program, topology: Topology) -> Sim:
    """Make the state at cycle 0 of a collective on an array of `size_bytes`; `kind`: of `program_kernels.KINDS`."""
    chunk_bytes = -(-size_bytes // program.chunks)
    places = Places(chunk_bytes, 0, 0)
    places = places._replace(copies=-(-places.chunk(program.chunks) // (1 << 20)) << 20)
    alone = program.invariant_under_shift() and topology.invariant_under_shift()
    plans = [LevelPlan(program, rank, places, KINDS[kind], alone) for rank in ([0] if alone else range(program.ranks))]
    kernel = build.copy_units(machine, build.copy_kernel(machine, [plan.passes() for plan in plans], chunk_bytes),
                              memory.ALL_GATHER if kind == "all-gather" else memory.REDUCE_SCATTER)
    network = build.mirrored_network(machine, topology, 0) if alone else build.network_of(machine, topology, {})
    return build.machine_state(machine, kernel, network, [plan.peers for plan in plans])


def run_program(machine: Machine, size_bytes: int, kind: str, program: Program, topology: Topology,
                progress: Callable[[float], None] = lambda fraction: None) -> Collective:
    """Simulate it to its end; arguments as for `program_sim`. Raises Failure."""
    return run_kernel(machine, program_sim(machine, size_bytes, kind, program, topology), kind, progress)
