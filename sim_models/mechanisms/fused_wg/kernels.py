"""Persistent workgroups that send what they compute: a collective inside the kernel that makes its data.

The operator's kernel, but for four things: its workgroups draw their tasks themselves, those for other GPUs first; what
belongs to another GPU is stored there, without a copy here; after its stores a workgroup sets its bit in the mask of
its slice, an atomic in the last-level cache; and code that sends takes registers, so that fewer workgroups are
resident. It is over when everything has come that others send.

Where the collective adds, tasks that add follow those that compute: each waits until its slice of the output has come
from all others and is computed here, loads all parts of its tile through the cache, adds them up and stores the
sum; for an all-reduce it stores it at all others, too (two-phase direct). In a step each lane loads 16 bytes of each
part. Source: Optimizing Distributed ML Communication with Fused Computation-Collective Operations, section III.
Known simplifications: additions take no time; a workgroup signals each of its tiles, where the paper's sets one flag
when all of its tiles for a peer are stored.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from t3sim.base.custom import is_custom
from t3sim.base.errors import BadInput
from t3sim.base.line import lines_of
from t3sim.machine import Machine
from t3sim.machine.topologies import Topology
from t3sim.mechanisms import losses
from t3sim.mechanisms.flux.storing import FluxOptions, Owners, peers_of, storing_kernel
from t3sim.mechanisms.parts import gemm_alone, overlapped, unlike_gpus, watched, watched_beside
from t3sim.mechanisms.result import TechniqueResult
from t3sim.mechanisms.technique import Technique
from t3sim.runs.exchange import Exchange
from t3sim.runs.kernel_results import KernelResult, OverlappedKernels, Progress
from t3sim.runs.kernels import ALL_GATHER, Kernel, Work, made_by, phases_of
from t3sim.runs.operators import Addresses, make_operator, make_tiling, resident, workgroups_at_once
from t3sim.runs.phases import named
from t3sim.runs.plan import Plan
from t3sim.runs.signals import tiles_of
from t3sim.workload.operators.kernel_table import GROUP, LOAD, STEP, WAIT, KernelTable, Route, joined, rows_of
from t3sim.workload.operators.tiling import Tiling
from t3sim.workload.workloads import GemvWorkload, Workload

if TYPE_CHECKING:
    from t3sim.gpu.state import Sim

#: That calls of a library for communication add to a lane's: eight more than 64 leave seven of eight wavefronts.
SENDING_REGISTERS = 8
_LOAD_BYTES = 512  #: of a wavefront's load of 16 bytes for each of 32 lanes


@dataclass(frozen=True)
class FusedOptions(FluxOptions):
    """Options of a fused kernel for what has arrived."""

    adds: bool = False  #: parts are added up at their owner
    broadcasts: bool = False  #: and sums stored at all others
    slice_tiles: int = 1  #: of an owner, that are signalled together


def sending_kernel(work: KernelTable, owners: Owners, rank: int, mask_cycles: float,
                   options: FusedOptions = FusedOptions()) -> KernelTable:
    """Build the kernel of a rank; `work`: without communication, a group per tile of the output.

    `mask_cycles`: of the atomic after a workgroup's stores.
    """
    table = storing_kernel(work, owners, rank, options)
    if options.adds:
        table = _with_additions(table, owners, rank, options)
    registers = table.registers + SENDING_REGISTERS if table.wavefronts else table.registers
    return replace(table, persistent=True, by_turn=False, end_cycles=mask_cycles, registers=registers)


def _with_additions(table: KernelTable, owners: Owners, rank: int, options: FusedOptions) -> KernelTable:
    """Let tasks that add follow those that compute, and signals tell them when."""
    place = np.argsort(table.groups["first_step"])  # of each tile's group: stores lie in the order of tiles
    step = np.repeat(np.arange(len(table.steps)), table.steps["stores"])
    tile = np.searchsorted(table.groups["first_step"][place], step, "right") - 1
    away = table.stores["route"] == Route.PEER
    owner = np.where(away, (rank + 1 + table.stores["peer"]) % owners.ranks, rank)
    piece = np.zeros(len(tile), np.int64)
    for one in range(owners.ranks):  # an owner's tiles are numbered as they lie, alike on all ranks
        piece[owner == one] = np.unique(tile[owner == one], return_inverse=True)[1]
    signal = 1 + piece // options.slice_tiles
    stores = table.stores.copy()
    stores["id"] = np.where(away, signal, 0)
    raises = np.zeros(len(table.groups), np.int64)
    raises[place[tile[~away]]] = signal[~away]
    lines = stores["rows"] * lines_of(stores["bytes"])
    come, times = (away, 1) if options.mirrored else (~away, owners.ranks - 1)
    signals = np.bincount(raises, minlength=1 + signal.max()) + times * np.bincount(
        signal[come], lines[come], 1 + signal.max()).astype(np.int64)
    own, pieces = stores[~away], piece[~away]
    groups, steps, loads, blocks, row_lists = joined([replace(table, stores=stores), *(
        _addition(own[pieces == one], owners, rank, options.broadcasts) for one in np.unique(pieces))])
    waits = np.zeros(len(groups), WAIT)
    for name in WAIT.names:
        waits[name][len(raises):] = 1 + np.unique(pieces) // options.slice_tiles
    arrivals = table.arrivals
    if options.broadcasts:
        sums = lines[~away].sum()
        arrivals = arrivals + (sums * (owners.ranks - 1) if options.mirrored else lines[away].sum())
    adding = len(groups) - len(raises)
    return replace(table, groups=groups, steps=steps, loads=loads, stores=blocks, row_lists=row_lists, waits=waits,
                   raises=np.append(raises, np.zeros(adding, np.int64)), signals=signals[1:], adding=adding,
                   arrivals=arrivals)


def _addition(own_stores: np.ndarray, owners: Owners, rank: int, broadcasts: bool) -> KernelTable:
    """Build the task that adds the parts of a tile; `own_stores`: how the rank stores its own part."""
    parts = own_stores["base"] - owners.c_base - int(owners.edges[rank]) * owners.pitch_bytes
    bases = [own_stores["base"], *(owners.received_at(distance) + parts for distance in range(1, owners.ranks))]
    each = max(1, _LOAD_BYTES // int(own_stores["bytes"].max()))  # rows of a wavefront's in a step
    whole = int(own_stores["rows"].min()) // each
    steps, loads, stores = [], [], []
    for repeats, first, rows in ((whole, 0, np.full(len(own_stores), each)),
                                 (1, whole * each, own_stores["rows"] - whole * each)):
        if not repeats or not rows.any():
            continue
        of_step = own_stores[rows > 0].copy()
        of_step["base"] += first * of_step["pitch"]
        of_step["rows"], of_step["step_stride"] = rows[rows > 0], each * of_step["pitch"]
        shift = first * of_step["pitch"]
        copies = [of_step]
        for peer in range(owners.ranks - 1 if broadcasts else 0):
            copies.append(of_step.copy())
            copies[-1]["route"], copies[-1]["peer"] = Route.PEER, peer
        steps.append((repeats, 0.0, sum(map(len, loads)), len(bases) * len(of_step), sum(map(len, stores)),
                      sum(map(len, copies))))
        loads += [rows_of(LOAD, len(of_step), base=base[rows > 0] + shift,
                          **{name: of_step[name] for name in ("pitch", "rows", "bytes", "step_stride")})
                  for base in bases]
        stores += copies
    return KernelTable(np.array([(1, 0, len(steps), 0, 0, 0)], GROUP), np.array(steps, STEP), np.concatenate(loads),
                       np.concatenate(stores))


def sending_sim(machine: Machine, workload: Workload, topology: Topology,
                options: FusedOptions = FusedOptions()) -> "Sim":
    """Make the state at cycle 0 of a persistent kernel that makes an output and stores it at its owners.

    `workload`: what a GPU makes. It is that of a representative GPU, or of all of them. Raises BadInput.
    """
    from t3sim.gpu.agents.compute_units import make_units
    from t3sim.gpu.fabric import memory
    from t3sim.runs import build
    from t3sim.runs.overlapped import links_of

    tiling = make_tiling(machine, workload)
    at = Addresses.of(workload, tiling)
    work, owners = make_operator(machine, workload, tiling, at.c).work(0), owners_of(workload, tiling, at)
    ranks = [0] if options.mirrored else range(workload.tp)
    tables = [sending_kernel(work, owners, rank, machine.llc.hit_latency_ns * machine.memory_clock_ghz, options)
              for rank in ranks]
    units = make_units(build.unit_rates(machine, resident(machine, tables[0].resources)), tables, memory.COMPUTE,
                       peer_stream=memory.EXCHANGE)
    return build.machine_state(machine, units, links_of(machine, topology, options.mirrored),
                               [peers_of(rank, workload.tp) for rank in ranks], len(tables[0].signals))


def owners_of(workload: Workload, tiling: Tiling, at: Addresses) -> Owners:
    """Return who owns which tokens of an output; of a vector, which tiles. Raises BadInput."""
    if not isinstance(workload, GemvWorkload):
        return Owners(tiling.n, workload.tp, tiling.pitch_bytes, at.c, at.copies)
    if tiling.tiles < workload.tp:
        raise BadInput(f"M = {workload.m} of a GEMV cannot be shared by {workload.tp} GPUs: {tiling.tile_m} rows each "
                       "are needed")
    return Owners(tiling.tiles, workload.tp, tiling.tile_m * tiling.element_bytes, at.c, at.copies)


def run_sending(machine: Machine, workload: Workload, topology: Topology, options: FusedOptions = FusedOptions(),
                progress: Callable[[float], None] = lambda fraction: None) -> OverlappedKernels:
    """Simulate such a kernel to its end; `workload`: what a GPU makes. Raises BadInput and SimulationError.

    Of several GPUs the last one counts.
    """
    from t3sim.runs.overlapped import gemm_part, run_overlapped

    sim, now = run_overlapped("kernel that sends", sending_sim(machine, workload, topology, options), progress)
    units = sim.kernel
    ends = units.state.phase_over[:, -1]
    last = int(np.argmax(ends))
    return OverlappedKernels(
        **gemm_part(sim, units.state, last), cycles=int(ends[last]),
        collective_start=int(sim.control.rs_start[last]), launch_cycles=0, simulated_cycles=now)


@dataclass(frozen=True)
class SendingKernel(Kernel):
    """A persistent kernel that makes what a GPU makes of the output and sends it, as in fused operators."""

    exchange: Exchange  #: an all-to-all, a reduce-scatter or an all-reduce, whose topology it stores over

    needs_rtl, uses_depth, result_type = False, True, OverlappedKernels

    @property
    def name(self) -> str:
        return f"fused-wg-{self.exchange.name}"

    def work(self, workload: Workload) -> Work:
        return Work(made_by(workload, self.exchange))

    def run(self, plan: Plan, progress: Progress, window_cycles: int = 0, threads: int = 1) -> OverlappedKernels:
        exchange, gemm = self.exchange, made_by(plan.workload, self.exchange)
        options = FusedOptions(
            adds=not exchange.of_parts, broadcasts=exchange.collective == "ar",
            slice_tiles=tiles_of(exchange.signal, workgroups_at_once(plan.machine, gemm)))
        result = run_sending(plan.machine, gemm, exchange.links(gemm.tp), options, progress)
        return replace(result, dram=named(result.dram, phases_of(exchange)))


def _refuses(plan: Plan) -> str | None:
    exchange = plan.exchange
    if is_custom(exchange.producer):
        return f"technique fused-wg has its own kernels: layer.operator = {exchange.operator} does not go with it"
    if exchange.before or exchange.collective not in ("rs", "ar", "a2a"):
        return ("technique fused-wg adds what GPUs make, or sends each its part: layer.operator = "
                f"{exchange.operator} does neither")
    if exchange.topology not in ("switch", "full"):
        return ("technique fused-wg stores at every GPU, in a ring over the others' links too: it needs "
                "exchange.topology = switch, or full with exchange.algorithm = direct")
    return unlike_gpus("fused-wg", plan)


def _kernels(plan: Plan) -> tuple[Kernel, ...]:
    exchange = plan.exchange
    return gemm_alone(plan), SendingKernel(exchange), *((ALL_GATHER,) if exchange.collective == "rs" else ())


def _combine(name: str, parts: Sequence[KernelResult], plan: Plan) -> TechniqueResult:
    exchange, clock_ghz, (alone, ran, *gather) = plan.exchange, plan.machine.memory_clock_ghz, parts
    loss = losses.attribute_sending(watched(alone, clock_ghz), watched_beside(ran), end=ran.cycles, units=ran.places)
    if gather:
        return overlapped(name, ran, loss, *gather, clock_ghz)
    phase = "all-reduce" if exchange.collective == "ar" else exchange.hides[0]
    return TechniqueResult(
        name=name, total_ns=ran.cycles / clock_ghz,
        phases_ns={"gemm": ran.gemm_cycles / clock_ghz, phase: (ran.cycles - ran.collective_start) / clock_ghz},
        moved=ran.dram, mc_cycles=ran.simulated_cycles, rtl_in_loop=False, host_seconds=ran.host_seconds,
        loss_ns={cause: cycles / clock_ghz for cause, cycles in loss.items()})


FUSED_WG = Technique(
    "fused-wg", "one persistent kernel that stores tiles at their owners and adds arriving ones; then the all-gather",
    "fused computation-collective operators, section III", _kernels, _combine, _refuses)
