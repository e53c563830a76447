"""Fine-grained overlap as in Flux after an all-gather: tiles wait for signals of the tokens that they need.

Copy engines push a GPU's rows of the activations to the others, communication tile by communication tile, after one
another, and set a signal with each; a workgroup of the GEMM reads the flags of the tokens that its tile needs before
its first load. Tiles come in the order in which their tokens do, its own first (`order = "shifted"`: the next rank's
follow), or in the same on all GPUs. Each copy is launched when all of the one before is in the link's buffer.
Source: Flux (arXiv 2406.06858), algorithms 2 and 3, sections 3.2 and 4.3. Of its choices pulling is not here, as what
reads another GPU's memory is not on the cycle level.
Known simplification: rows are copied with the bytes between them, fewer than 256 a row.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from t3sim.base.errors import BadInput
from t3sim.base.line import LINE_BYTES
from t3sim.gpu.setup import BLOCK_BYTES
from t3sim.machine import Machine
from t3sim.machine.topologies import Topology
from t3sim.mechanisms.flux.storing import FluxOptions, Owners, peers_of
from t3sim.runs.kernel_results import OverlappedKernels
from t3sim.runs.operators import gemm_operator, make_tiling, resident
from t3sim.workload.operators.gemm import Gemm
from t3sim.workload.operators.kernel_table import GROUP, LOAD, STEP, STORE, STRIDED, WAIT, KernelTable, Route
from t3sim.workload.workloads import Workload

if TYPE_CHECKING:
    from t3sim.gpu.state import Sim


@dataclass(frozen=True)
class Arrivals:
    """Which signals of a rank stand for which rows of the activations."""

    rows: Owners  #: of the activations, a column a token
    rank: int
    options: FluxOptions

    def __post_init__(self) -> None:
        if self.options.pieces > self.rows.columns // self.rows.ranks:
            raise BadInput(f"flux.pieces = {self.options.pieces} of {self.rows.columns // self.rows.ranks} rows is "
                           "not possible: a row each is needed")

    def sources(self) -> list[int]:
        """List the other ranks in the order in which their rows come."""
        ranks = self.rows.ranks
        if self.options.order == "same":
            return [rank for rank in range(ranks) if rank != self.rank]
        return [(self.rank + distance) % ranks for distance in range(1, ranks)]

    def signal(self, source: int, piece: int) -> int:
        return 1 + self.sources().index(source) * self.options.pieces + piece

    def cuts(self, source: int) -> np.ndarray:
        """First row of each communication tile of a rank, and one past the last, int64[pieces + 1]."""
        first, end = (int(edge) for edge in self.rows.edges[source:source + 2])
        return first + (end - first) * np.arange(self.options.pieces + 1) // self.options.pieces

    def needed(self, first: int, end: int) -> tuple[int, int]:
        """Return the first and the last signal of rows [first, end): (1, 0) if they are the rank's own."""
        signals = [self.signal(source, piece) for source in self.sources() for piece in range(self.options.pieces)
                   if max(first, self.cuts(source)[piece]) < min(end, self.cuts(source)[piece + 1])]
        return (min(signals), max(signals)) if signals else (1, 0)

    def lines(self) -> np.ndarray:
        """Count the lines of each signal, int64[signal]."""
        return np.concatenate([np.diff(self.cuts(source)) for source in self.sources()]
                              ) * self.rows.pitch_bytes // LINE_BYTES


def waiting_gemm(gemm: Gemm, arrivals: Arrivals) -> KernelTable:
    """Build the GEMM of a rank whose workgroups wait for the signals of their tokens."""
    work, tiling = gemm.work(0), gemm.tiling
    of_column = {int(first): arrivals.needed(int(first), int(first + columns))
                 for first, columns in zip(tiling.first_column, tiling.columns)}
    waits = np.array([of_column[int(first)] for first in tiling.first_column], WAIT)
    order = (np.argsort(waits["last"], kind="stable") if arrivals.options.order == "shifted" else
             np.arange(len(waits)))
    waits["first"][waits["last"] == 0] = 0
    return replace(work, groups=work.groups[order], waits=waits[order], signals=arrivals.lines())


def pushed_rows(everywhere: Sequence[Arrivals], rank: int) -> KernelTable:
    """Build the copies of a rank's rows to all others, a phase each; `everywhere`: what comes at each rank.

    If that is of one that stands for all, it sends what it gets.
    """
    one_for_all = len(everywhere) == 1
    rows, options = everywhere[0].rows, everywhere[0].options
    groups, steps, loads, stores, phase = [], [], [], [], 0
    for turn, other in enumerate(everywhere[0].sources() if one_for_all else _targets(everywhere, rank)):
        at, whose = (everywhere[0], other) if one_for_all else (everywhere[other], rank)
        peer = rows.ranks - turn - 2 if one_for_all else (other - rank) % rows.ranks - 1
        cuts = at.cuts(whose)
        for piece in range(options.pieces):
            target = rows.c_base + int(cuts[piece]) * rows.pitch_bytes
            source = target + int(rows.edges[rank] - rows.edges[whose]) * rows.pitch_bytes
            size = int(cuts[piece + 1] - cuts[piece]) * rows.pitch_bytes
            whole, rest = divmod(size, BLOCK_BYTES)
            for count, begin, block in ((whole, 0, BLOCK_BYTES), (1, whole * BLOCK_BYTES, rest)):
                if not count or not block:
                    continue
                groups.append((count, len(steps), 1, phase, 0, 0))
                steps.append((1, 0.0, len(loads), 1, len(stores), 1))
                loads.append((source + begin, LINE_BYTES, block // LINE_BYTES, LINE_BYTES, 0, BLOCK_BYTES, STRIDED))
                stores.append((target + begin, LINE_BYTES, block // LINE_BYTES, LINE_BYTES, 0, BLOCK_BYTES,
                               at.signal(whose, piece), 0, 0, Route.PEER, 0, peer, 0))
            phase += 1
    return KernelTable(
        *(np.array(rows, kind) for rows, kind in ((groups, GROUP), (steps, STEP), (loads, LOAD), (stores, STORE))),
        arrivals=np.zeros(phase, np.int64), cached_loads=False, persistent=True)


def _targets(everywhere: Sequence[Arrivals], rank: int) -> list[int]:
    """List the ranks to which one pushes: each turn that where it is the one that comes, or all in the same order."""
    ranks = len(everywhere)
    if everywhere[0].options.order == "same":
        return everywhere[rank].sources()
    return [(rank - distance) % ranks for distance in range(1, ranks)]


def gathering_sim(machine: Machine, workload: Workload, options: FluxOptions, topology: Topology) -> "Sim":
    """Make the state at cycle 0 of a GEMM whose workgroups wait for their tokens, and of engines that push these.

    It is that of a representative GPU, or of all of them. Raises BadInput.
    """
    from t3sim.gpu.agents.compute_units import make_units
    from t3sim.gpu.agents.side_by_side import SideBySide
    from t3sim.gpu.fabric import memory
    from t3sim.runs import build
    from t3sim.runs.overlapped import links_of

    tiling = make_tiling(machine, workload)
    gemm = gemm_operator(machine, workload, tiling)
    rows = Owners(workload.m, workload.tp, gemm.b.pitch, gemm.b.base, 0)
    ranks = [0] if options.mirrored else range(workload.tp)
    arrivals = [Arrivals(rows, rank, options) for rank in ranks]
    launch = round(machine.collective.kernel_launch_ns * machine.memory_clock_ghz)
    engines = make_units(build.engine_rates(machine), [pushed_rows(arrivals, rank) for rank in ranks], memory.OTHER,
                         released=True)
    units = make_units(build.unit_rates(machine, resident(machine, gemm.resources)),
                       [waiting_gemm(gemm, one) for one in arrivals], memory.COMPUTE)
    pair = SideBySide(
        units, engines, after=np.zeros(engines.work.arrivals.shape[1], np.int64), launch_cycles=launch)
    return build.machine_state(machine, pair, links_of(machine, topology, options.mirrored),
                               [peers_of(rank, workload.tp) for rank in ranks], units.work.signals.shape[1] - 1)


def run_gathering(machine: Machine, workload: Workload, options: FluxOptions, topology: Topology,
                  progress: Callable[[float], None] = lambda fraction: None) -> OverlappedKernels:
    """Simulate it to its end; of several GPUs the last one counts. Raises BadInput and SimulationError."""
    from t3sim.runs.overlapped import gemm_part, run_overlapped

    sim, now = run_overlapped("GEMM that waits for its tokens", gathering_sim(machine, workload, options, topology),
                           progress)
    gemm = sim.kernel.first.state
    last = int(np.argmax(gemm.finish_time))
    return OverlappedKernels(
        **gemm_part(sim, gemm, last), cycles=int(gemm.finish_time[last]),
        collective_start=int(sim.control.rs_start[last]), launch_cycles=0, simulated_cycles=now,
        collective_end=int(sim.kernel.second.state.phase_over[last, -1]))
