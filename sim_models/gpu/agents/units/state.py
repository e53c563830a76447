"""State of the compute units: places with workgroups, and the kernel tables that the workgroups execute."""

from typing import Any, NamedTuple, Protocol

import numpy as np

from t3sim.base.compiled.jit import inlined
from t3sim.base.compiled.records import Record, aligned_zeros
from t3sim.base.line import lines_of
from t3sim.gpu.setup import ACCOUNTS
from t3sim.workload.operators.kernel_table import Route

#: `STATES` and `ACCOUNTS` by number.
IDLE, BLOCKED, LAUNCH, POLL, LOAD, COMPUTE, STORE_MEMORY, STORE_LINK, ADDING = range(9)
NONE, SENDING, SENT = range(3)  #: loads of the next step
ENDING = -1  #: step whose rows are stored: none, the workgroup waits for its stores' acknowledgement
NEVER = np.int64(1) << np.int64(60)
lines_of_bytes = inlined(lines_of)
REPLAY_CYCLES = 4  #: a load or store that found a full queue tries again after this long
TO_CACHE, TO_MEMORY, MAPPED, TO_PEER, TO_BOTH = map(int, (Route.CACHE, Route.MEMORY, Route.MAPPED, Route.PEER,
                                                          Route.BOTH))


class UnitRates(NamedTuple):
    """Rates and latencies of the compute units; times in memory cycles."""

    units: int
    places: int  # workgroups resident on a unit
    port_byte_cycles: float  # one byte through a unit's port
    hit_cycles: float  # from the cache to a unit and back
    llc_bytes_per_cycle: float
    link_retry_cycles: int  # a store that found the link's buffer full tries again after this long


Records = Any  #: an array of records, whose fields compiled code reads as attributes


class UnitWork(NamedTuple):
    """The kernel tables of all simulated GPUs, and the settings that they share."""

    groups: Records  # see operators.kernel_table
    steps: Records
    loads: Records
    stores: Records
    row_lists: np.ndarray
    first_group: np.ndarray  # int64 [gpu]
    workgroups: np.ndarray  # int64 [gpu]
    phase_end: np.ndarray  # int64 [gpu, phase]: workgroups of it and of those before
    arrivals: np.ndarray  # int64 [gpu, phase]: lines that must have arrived before it is over
    two_queues: bool  # one of groups that ask the window, another of groups that wait for their inputs
    needs: np.ndarray  # int64 [row of groups]: see KernelTable; empty with one queue
    beside: np.ndarray  # int64 [gpu, 2]: rows of groups in the second queue, first and one past the last
    waits: Records  # [row of groups]: see KernelTable; empty without signals
    raises: np.ndarray  # int64 [row of groups]: the same
    signals: np.ndarray  # int64 [gpu, 1 + signal]: counts at which each is set
    adds_from: np.ndarray  # int64 [gpu]: first row of groups that add arrived parts
    ahead: int
    cached_loads: bool
    persistent: bool
    by_turn: bool
    writes_cache: bool  # the cache is written back after the kernel
    launch_cycles: float
    end_cycles: float
    phase_launch_cycles: int  # from a phase's end to the next one's start
    released: bool  # each phase begins when another agent releases it
    stream: int  # traffic class of its accesses, of memory.COMPUTE ...
    peer_stream: int  # traffic class of stores at peers, and of loads of arrived parts


_PLACE = Record(
    ("since", np.int64), ("wg", np.int64), ("ready_time", np.float64), ("compute_end", np.float64),
    *((name, np.int32) for name in (
        "state", "loading", "outstanding", "loaded", "computed", "group", "member", "adding", "load_step", "load_turn",
        "load_block", "load_row", "load_line", "refused", "compute_step", "compute_turn", "store_step", "store_turn",
        "store_block", "store_row", "store_line")))
_UNIT = Record(("quiet", np.int64), ("computing", np.int64), ("port_free", np.float64), ("matrix_free", np.float64),
               ("holder", np.int64))


class UnitState(NamedTuple):
    """The state of places and units.

    Arrays are [gpu, place of a unit] (place * units + unit), then [gpu, unit], then [gpu].
    """

    RECORDS = _PLACE, _UNIT

    state: np.ndarray
    since: np.ndarray
    wg: np.ndarray
    group: np.ndarray  # row of the tables
    member: np.ndarray  # which of the group's workgroups
    adding: np.ndarray  # it adds what came
    loading: np.ndarray  # NONE, SENDING, SENT
    load_step: np.ndarray  # row of the step whose loads are under way, or come next
    load_turn: np.ndarray  # of its repeats
    load_block: np.ndarray
    load_row: np.ndarray
    load_line: np.ndarray  # lines of the row already sent
    refused: np.ndarray  # row of the memory channel that had no room for the last load, -1 none
    outstanding: np.ndarray  # lines not yet back
    ready_time: np.ndarray  # float: launched, loaded, or ended
    loaded: np.ndarray  # steps loaded
    computed: np.ndarray  # steps computed
    compute_step: np.ndarray
    compute_turn: np.ndarray
    compute_end: np.ndarray  # float, negative: not computing
    store_step: np.ndarray  # ENDING: all is stored
    store_turn: np.ndarray
    store_block: np.ndarray
    store_row: np.ndarray
    store_line: np.ndarray
    wake: np.ndarray  # [gpu, unit]: memory cycle of its next service
    quiet: np.ndarray  # int64 [gpu, unit]: before it, who has the port only goes on sending loads
    computing: np.ndarray  # int64 [gpu, unit]: while it is quiet, when a place's computation ends or begins
    port_free: np.ndarray  # float
    matrix_free: np.ndarray  # float
    holder: np.ndarray  # place that uses the port first
    accounted: np.ndarray  # int64 [gpu, account]: cycles of all places
    next_wake: np.ndarray  # int64 [gpu]: earliest of the units' wake times
    next_wg: np.ndarray
    next_group: np.ndarray
    next_member: np.ndarray
    next_beside: np.ndarray  # the same of the second queue
    member_beside: np.ndarray
    phase: np.ndarray
    opens: np.ndarray  # first cycle in which workgroups of the present phase may start
    phase_over: np.ndarray  # int64 [gpu, phase]: cycle in which it was over
    finished: np.ndarray  # workgroups done
    finish_time: np.ndarray
    idle: np.ndarray  # places without a workgroup
    first_unit: np.ndarray  # round-robin over units
    budget: np.ndarray  # float: bytes that the cache may still move this cycle
    flushed: np.ndarray  # cache sets written back after the kernel
    working: np.ndarray  # int64 [gpu]: units that work, the first ones
    slowdown: np.ndarray  # float [gpu]: by which everything that goes by the GPU's clock takes longer


def make_state(rates: UnitRates, work: UnitWork) -> UnitState:
    gpus, phases = work.phase_end.shape
    tables = _PLACE.arrays((gpus, rates.units * rates.places))
    units = _UNIT.arrays((gpus, max(2, rates.units)))  # nobody uses a second one of one: see `Record.arrays`
    for name in ("wg", "refused", "compute_end"):
        tables[name][:] = -1

    def each(dtype: type = np.int64) -> np.ndarray:
        return np.zeros(gpus, dtype)
    # A persistent kernel's units look for work when it starts; the others are woken by the dispatcher.
    wake = 0 if work.persistent else NEVER
    wakes = aligned_zeros((gpus, rates.units), np.dtype(np.int64))
    wakes[:] = wake
    return UnitState(
        **tables, **units, wake=wakes,
        accounted=np.zeros((gpus, len(ACCOUNTS)), np.int64),
        next_wake=np.full(gpus, wake), next_wg=each(), next_group=work.first_group.copy(), next_member=each(),
        next_beside=work.beside[:, 0].copy(), member_beside=each(),
        phase=each(), opens=np.full(gpus, NEVER if work.released else 0),
        phase_over=np.zeros((gpus, phases), np.int64), finished=each(), finish_time=each(),
        idle=np.full(gpus, rates.units * rates.places), first_unit=each(), budget=each(np.float64), flushed=each(),
        working=np.full(gpus, rates.units), slowdown=np.ones(gpus))


class UnitsKernel(Protocol):
    """The units with a kernel on them, as its functions read it: `ComputeUnits`."""

    @property
    def state(self) -> UnitState: ...
    @property
    def work(self) -> UnitWork: ...
    @property
    def rates(self) -> UnitRates: ...


@inlined
def is_over(kernel: UnitsKernel, gpu: int) -> bool:
    return kernel.state.phase[gpu] == kernel.state.phase_over.shape[1]


@inlined
def enter(units: UnitState, gpu: int, slot: int, state: int, now: int) -> None:
    """Account for the time in the old state and change to the new one."""
    state_before = units.state[gpu, slot]
    account = ADDING if units.adding[gpu, slot] and state_before != POLL else state_before
    units.accounted[gpu, account] += now - units.since[gpu, slot]
    units.since[gpu, slot] = now
    units.state[gpu, slot] = state


def settle(state: UnitState, gpu: int, now: int) -> None:
    """Account for the time up to now, for reading the totals."""
    account = np.where(state.adding[gpu] & (state.state[gpu] != POLL), ADDING, state.state[gpu])
    np.add.at(state.accounted[gpu], account, now - state.since[gpu])
    state.since[gpu] = now


@inlined
def wake(kernel: UnitsKernel, gpu: int, slot: int) -> None:
    """Make sure that a unit is served when one of its places is ready."""
    g, unit = kernel.state, slot % kernel.rates.units
    due = np.int64(np.ceil(g.ready_time[gpu, slot]))
    g.wake[gpu, unit] = min(g.wake[gpu, unit], due)
    g.quiet[gpu, unit] = 0
    g.next_wake[gpu] = min(g.next_wake[gpu], due)
