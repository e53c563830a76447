"""Fine-grained overlap as in Flux: a GEMM whose epilogue stores at the owners, then a reduction of what came.

The GEMM's kernel is the one without overlap, but for two things: tiles are computed in the order of their owners, from
the next rank on, so that no two GPUs store at the same one at a time, and their own tiles come last; and what belongs
to another rank is stored there, in a place that only this rank writes. A kernel then adds all parts of a rank's chunk.
Source: Flux (arXiv 2406.06858), algorithm 1 without fused reduction, sections 3.1, 4.1 and 4.2. Of its choices the
order of tiles is here (`FluxOptions`); reductions by atomic instructions are not. After an all-gather: gathering.py.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from t3sim.base.errors import BadInput, choices
from t3sim.base.line import lines_of
from t3sim.machine import Machine
from t3sim.machine.topologies import Topology
from t3sim.runs.kernel_results import OverlappedKernels
from t3sim.runs.operators import Addresses, gemm_operator, make_tiling, resident
from t3sim.workload.operators.copy import Pass
from t3sim.workload.operators.kernel_table import KernelTable, Route
from t3sim.workload.workloads import Workload

if TYPE_CHECKING:
    from t3sim.gpu.state import Sim

ORDERS = ("shifted", "same")
MOST_PIECES = 1024
_LEAST_ROWS = 64  #: of a communication tile that tuning tries


@dataclass(frozen=True)
class FluxOptions:
    """Free choices of a fused kernel."""

    order: str = "shifted"  #: of tiles: from the next rank's on, or the same on all GPUs
    pieces: int = 1  #: behind an all-gather: communication tiles that a rank's rows are cut into

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise BadInput(f"flux.order = {self.order!r} is unknown: allowed are {choices(self.order, ORDERS)}")
        if not 1 <= self.pieces <= MOST_PIECES:
            raise BadInput(f"flux.pieces = {self.pieces} is not possible: 1 to {MOST_PIECES}")

    @property
    def mirrored(self) -> bool:
        """Say whether one GPU can stand for all: not where all store at one."""
        return self.order == "shifted"


def tuned(gathers: bool, rows: int) -> tuple[FluxOptions, ...]:
    """Return what tuning tries: both orders of tiles, and communication tiles of a rank's rows.

    `gathers`: after an all-gather, whose tiles are halved as long as they have 64 of a rank's `rows`.
    """
    pieces = [1]
    while gathers and rows // (2 * pieces[-1]) >= _LEAST_ROWS:
        pieces.append(2 * pieces[-1])
    return tuple(FluxOptions("shifted", count) for count in pieces) + (FluxOptions("same"),)


@dataclass(frozen=True)
class Owners:
    """Which ranks own which columns (tokens) of an output, and where each receives."""

    columns: int
    ranks: int
    pitch_bytes: int  #: from column to column
    c_base: int  #: address of the output
    copies: int  #: address of what is received: a chunk for each other rank, by its distance

    def __post_init__(self) -> None:
        if self.columns < self.ranks:
            raise BadInput(f"M = {self.columns} cannot be shared by {self.ranks} GPUs: a row each is needed")

    @property
    def edges(self) -> np.ndarray:
        """First column of each rank, and one past the last, int64[ranks + 1]."""
        return self.columns * np.arange(self.ranks + 1) // self.ranks

    def of(self, address: np.ndarray) -> np.ndarray:
        """Return the owner of each byte of an output."""
        return np.searchsorted(self.edges, (address - self.c_base) // self.pitch_bytes, "right") - 1

    def chunk_bytes(self, rank: int) -> int:
        """Return the size of what a rank owns."""
        return int(self.edges[rank + 1] - self.edges[rank]) * self.pitch_bytes

    def received_at(self, distance: int | np.ndarray) -> int | np.ndarray:
        """Return the address at which a rank receives from the one that is `distance` before it."""
        return self.copies + (distance - 1) * -(-self.columns // self.ranks) * self.pitch_bytes

    def reduction(self, rank: int) -> Pass:
        """Add all parts of a rank's chunk."""
        own_rows = self.c_base + int(self.edges[rank]) * self.pitch_bytes
        return Pass((own_rows, *(int(self.received_at(distance)) for distance in range(1, self.ranks))), own_rows)


def peers_of(rank: int, ranks: int) -> list[int]:
    """List the ranks at which one stores, by their distance."""
    return [(rank + distance) % ranks for distance in range(1, ranks)]


def storing_kernel(work: KernelTable, owners: Owners, rank: int, options: FluxOptions) -> KernelTable:
    """Let a kernel of a rank, a group per tile of its output, store every column at its owner.

    It is over when all lines have come that its peers send, or, if one GPU stands for all, as many as it sends.
    """
    stores, pieces = _at_owners(work.stores, owners, rank)
    start = np.append(0, np.cumsum(pieces))
    steps = work.steps.copy()
    end = start[steps["first_store"] + steps["stores"]]
    steps["first_store"] = start[steps["first_store"]]
    steps["stores"] = end - steps["first_store"]
    groups = work.groups
    if options.order == "shifted":
        first = np.searchsorted(work.group_of_stores, np.arange(len(groups)))
        owner = owners.of(work.stores["base"][first])
        groups = groups[np.argsort((owner - rank - 1) % owners.ranks, kind="stable")]
    away = stores["route"] == Route.PEER
    received = (lines_stored(stores[away]) if options.mirrored else
                (owners.ranks - 1) * lines_stored(stores[~away]))
    return replace(work, groups=groups, steps=steps, stores=stores, arrivals=np.array([received]))


def lines_stored(stores: np.ndarray) -> int:
    """Count the lines of store blocks."""
    return int((stores["rows"] * lines_of(stores["bytes"])).sum())


def _at_owners(stores: np.ndarray, owners: Owners, rank: int) -> tuple[np.ndarray, np.ndarray]:
    """Cut store blocks where a column has another owner than the one before: (blocks, number of each one's pieces)."""
    offset = stores["base"] - owners.c_base
    first = offset // owners.pitch_bytes
    end = first + stores["rows"]
    edges = owners.edges
    lowest, highest = (np.searchsorted(edges, column, "right") - 1 for column in (first, end - 1))
    pieces = highest - lowest + 1
    of_block = np.repeat(np.arange(len(stores)), pieces)
    owner = lowest[of_block] + np.arange(len(of_block)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    start = np.maximum(first[of_block], edges[owner])
    cut = stores[of_block]
    cut["rows"] = np.minimum(end[of_block], edges[owner + 1]) - start
    within = offset[of_block] % owners.pitch_bytes
    distance = (owner - rank) % owners.ranks
    away = distance > 0
    cut["base"] = np.where(away, owners.received_at(distance) + (start - edges[owner]) * owners.pitch_bytes,
                           owners.c_base + start * owners.pitch_bytes) + within
    cut["route"] = np.where(away, Route.PEER, cut["route"])
    cut["peer"] = np.where(away, distance - 1, 0)
    return cut, pieces


def flux_sim(machine: Machine, workload: Workload, options: FluxOptions, topology: Topology) -> "Sim":
    """Make the state at cycle 0 of a GEMM whose epilogue stores at the owners, and of the reduction after it.

    It is that of a representative GPU, or of all of them. Raises BadInput.
    """
    from t3sim.gpu.agents.compute_units import make_units
    from t3sim.gpu.agents.side_by_side import SideBySide
    from t3sim.gpu.fabric import memory
    from t3sim.runs import build
    from t3sim.runs.overlapped import links_of

    tiling = make_tiling(machine, workload)
    at, gemm = Addresses.of(workload, tiling), gemm_operator(machine, workload, tiling)
    owners = Owners(tiling.n, workload.tp, tiling.pitch_bytes, at.c, at.copies)
    ranks = [0] if options.mirrored else range(workload.tp)
    reductions = [build.copy_kernel(machine, [[owners.reduction(rank)]], owners.chunk_bytes(rank)) for rank in ranks]
    pair = SideBySide(
        make_units(build.unit_rates(machine, resident(machine, gemm.resources)),
                   [storing_kernel(gemm.work(0), owners, rank, options) for rank in ranks], memory.COMPUTE,
                   peer_stream=memory.EXCHANGE),
        make_units(build.unit_rates(machine, machine.collective.workgroups_per_cu),
                   [reduction.work(0) for reduction in reductions], memory.EXCHANGE, released=True),
        after=np.ones(1, np.int64), launch_cycles=round(machine.collective.kernel_launch_ns * machine.memory_clock_ghz))
    return build.machine_state(machine, pair, links_of(machine, topology, options.mirrored),
                               [peers_of(rank, workload.tp) for rank in ranks])


def run_flux(machine: Machine, workload: Workload, options: FluxOptions, topology: Topology,
             progress: Callable[[float], None] = lambda fraction: None) -> OverlappedKernels:
    """Simulate it to its end; of several GPUs the last one counts. Raises BadInput and SimulationError."""
    from t3sim.runs.overlapped import gemm_part, run_overlapped

    start = flux_sim(machine, workload, options, topology)
    sim, now = run_overlapped("GEMM that stores at the owners", start, progress)
    ends, launch = sim.kernel.second.state.phase_over[:, 0], sim.kernel.launch_cycles
    last = int(np.argmax(ends))
    arrived = int(sim.kernel.first.state.phase_over[last, 0])
    return OverlappedKernels(
        **gemm_part(sim, sim.kernel.first.state, last),
        cycles=int(ends[last]), collective_start=int(sim.control.rs_start[last]),
        launch_cycles=launch, simulated_cycles=now, reduction_cycles=int(ends[last]) - arrived - launch)
