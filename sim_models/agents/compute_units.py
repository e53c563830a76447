"""A GPU's compute units: one compiled model that runs every kernel table (`operators.kernel_table`).

A workgroup has a place on a unit; the places of a unit share its port, through which all loads and stores go, and its
matrix units. A step's loads are sent while earlier steps compute, as far ahead as the kernel's buffers reach; a late
load stalls the workgroup, which is how contention slows a kernel. After a step with stores it stores them, row by row.

Workgroups of a kernel are started by a dispatcher, one per cycle, from one queue or from two: groups that ask the
dispatch window, and beside them groups that wait for their inputs (`KernelTable.needs`). Or they draw their work
themselves (persistent). Then a place is free again when the stores of its workgroup are acknowledged, and takes the
next one when its unit's port is next free.

A workgroup may wait for signals (`KernelTable.waits`): after its launch it reads their flags again and again, each time
for as long as a hit in the cache takes. A signal is set when all lines of it have come and all workgroups have ended
that count for it. Flags themselves take no bytes, and reading them no bandwidth.

Known simplifications: loads and stores leave at the port's rate; matrix units serve steps in the order in which their
data are there; a workgroup that stores sends no loads.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..compiled.jit import compiled, inlined
from ..compiled.records import aligned_copy, record_fields
from ..engine.hardware import inputs_complete, may_start, nothing_to_start, show_producer
from ..fabric import bits, llc_slices, queues
from ..fabric import llc as cache
from ..fabric import network as links
from ..fabric.memory_map import channel_of
from ..hbm.bits import lowest_bit
from ..line import LINE_BYTES, LINE_SHIFT, lines_of
from ..operators.kernel_table import ASKS_WINDOW, KernelTable, Route, joined

#: What the workgroup in a place is doing; time is accounted for under these.
IDLE, BLOCKED, LAUNCH, POLL, LOAD, COMPUTE, STORE_MEMORY, STORE_LINK, ADDING = range(9)
STATES = ("idle", "blocked", "launch", "poll", "load", "compute", "store_memory", "store_link")
#: Under which time is accounted for: the last is of whatever a workgroup does that adds what came, but polling.
ACCOUNTS = (*STATES, "adding")
NONE, SENDING, SENT = range(3)  #: loads of the next step
ENDING = -1  #: step whose rows are stored: none, the workgroup waits for its stores' acknowledgement
NEVER = np.int64(1) << np.int64(60)
_lines_of = inlined(lines_of)
REPLAY_CYCLES = 4  #: a load or store that found a full queue tries again after this long
TO_CACHE, TO_MEMORY, MAPPED, TO_PEER, TO_BOTH = map(int, (Route.CACHE, Route.MEMORY, Route.MAPPED, Route.PEER,
                                                          Route.BOTH))


class Rates(NamedTuple):
    """Rates and latencies of the compute units; times in memory cycles."""

    units: int
    places: int  # workgroups resident on a unit
    port_byte_cycles: float  # one byte through a unit's port
    hit_cycles: float  # from the cache to a unit and back
    llc_bytes_per_cycle: float
    link_retry_cycles: int  # a store that found the link's buffer full tries again after this long


class Condition(NamedTuple):
    """How the compute units of one GPU are, where they are not the machine's."""

    working_units: int  # the others never get a workgroup
    clock_share: float  # of the machine's clock, for the units, their ports and the cache


class Work(NamedTuple):
    """The kernel tables of all simulated devices, and what is common to them."""

    groups: np.ndarray  # records, see operators.kernel_table
    steps: np.ndarray
    loads: np.ndarray
    stores: np.ndarray
    row_lists: np.ndarray
    first_group: np.ndarray  # int64 [device]
    workgroups: np.ndarray  # int64 [device]
    phase_end: np.ndarray  # int64 [device, phase]: workgroups of it and of those before
    arrivals: np.ndarray  # int64 [device, phase]: lines that must have come before it is over
    two_queues: bool  # groups that ask the window, and beside them those that wait for their inputs
    needs: np.ndarray  # int64 [row of groups]: see KernelTable; empty with one queue
    beside: np.ndarray  # int64 [device, 2]: rows of groups in the second queue, first and one past the last
    waits: np.ndarray  # records [row of groups]: see KernelTable; empty without signals
    raises: np.ndarray  # int64 [row of groups]: the same
    signals: np.ndarray  # int64 [device, 1 + signal]: counts at which each is set
    adds_from: np.ndarray  # int64 [device]: first row of groups that add what came
    ahead: int
    cached_loads: bool
    persistent: bool
    writes_cache: bool  # the cache is written back after the kernel
    launch_cycles: float
    end_cycles: float
    phase_launch_cycles: int  # from a phase's end to the next one's start
    released: bool  # each phase begins when another agent releases it
    stream: int  # under which its accesses are counted, of memory.GEMM ...
    peer_stream: int  # the same, of what it stores at peers, and loads to add what came


class UnitState(NamedTuple):
    """The state of places and units.

    Arrays are [device, place of a unit] (place * units + unit), then [device, unit], then [device].
    """

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
    wake: np.ndarray  # [device, unit]: memory cycle of its next service
    quiet: np.ndarray  # int64 [device, unit]: before it, who has the port only goes on sending loads
    computing: np.ndarray  # int64 [device, unit]: while it is quiet, when a place's computation ends or begins
    port_free: np.ndarray  # float
    matrix_free: np.ndarray  # float
    holder: np.ndarray  # place that uses the port first
    accounted: np.ndarray  # int64 [device, account]: cycles of all places
    next_wake: np.ndarray  # int64 [device]: earliest of the units' wake times
    next_wg: np.ndarray
    next_group: np.ndarray
    next_member: np.ndarray
    next_beside: np.ndarray  # the same of the second queue
    member_beside: np.ndarray
    phase: np.ndarray
    opens: np.ndarray  # first cycle in which workgroups of the present phase may start
    phase_over: np.ndarray  # int64 [device, phase]: cycle in which it was over
    finished: np.ndarray  # workgroups done
    finish_time: np.ndarray
    idle: np.ndarray  # places without a workgroup
    first_unit: np.ndarray  # round-robin over units
    budget: np.ndarray  # float: bytes that the cache may still move this cycle
    flushed: np.ndarray  # cache sets written back after the kernel
    working: np.ndarray  # int64 [device]: units that work, the first ones
    slowdown: np.ndarray  # float [device]: by which everything that goes by the GPU's clock takes longer


_REAL = {"ready_time", "compute_end"}
_WIDE = {"since", "wg"}


class ComputeUnits(NamedTuple):
    """The units with a kernel on them, as an agent (engine/agents.py)."""

    state: UnitState
    work: Work
    rates: Rates

    @property
    def shape(self) -> tuple[int, int]:
        """Devices, and places of each whose loads may wait at its cache."""
        devices, places = self.state.state.shape
        return devices, places

    def cycle(self, sim, hardware, device, now):
        if self.work.persistent:
            nothing_to_start(hardware, device)
        else:
            dispatch(self, sim, hardware, device, now)
        units_cycle(self, sim, device, now)
        serve_slices(self, sim, device, now)
        over = is_over(self, device)
        show_producer(hardware, device, not over and not self.work.persistent)
        if over and self.work.writes_cache:  # what comes next reads what the cache still holds
            self.state.flushed[device] = cache.flush(sim, device, self.state.flushed[device], self.work.stream)

    def returned(self, sim, device, tag, now):
        number = queues.number_of(tag)
        if self.work.cached_loads:
            fill(self, sim, device, number, now)
        else:
            data_back(self, device, number, now)

    def done(self, sim, device):
        return (is_over(self, device) and sim.control.event_count[device] >= sim.expected_events[device]
                and (not self.work.writes_cache or self.state.flushed[device] == sim.llc.tag.shape[1]))

    def progress(self, device):
        total = self.state.next_wg[device] + self.state.phase[device]
        for slot in range(self.state.state.shape[1]):
            total += self.state.computed[device, slot] + self.state.loaded[device, slot]
        return total


def make_units(rates: Rates, tables: Sequence[KernelTable], stream: int, released: bool = False,
               peer_stream: int | None = None) -> ComputeUnits:
    """Make every device's compute units as they are at the start of a kernel.

    `tables`: one per device, alike but for their rows; `stream`: under which its accesses are counted, of
    `memory.GEMM`, `REDUCE_SCATTER`, `ALL_GATHER`; `released`: each phase begins when another agent releases it;
    `peer_stream`: under which what it stores at peers is counted, if not under `stream`.
    """
    groups, steps, loads, stores, row_lists = map(aligned_copy, joined(tables))
    first, lengths = tables[0], [len(table.groups) for table in tables]
    needs, rows = np.concatenate([table.needs for table in tables]), np.cumsum([0, *lengths])
    windowed = [int((table.needs == ASKS_WINDOW).sum()) if len(needs) else length
                for table, length in zip(tables, lengths)]
    ends = [[int(table.groups["workgroups"][table.groups["phase"] <= phase].sum())
             for phase in range(len(first.arrivals))] for table in tables]
    work = Work(
        groups=groups, steps=steps, loads=loads, stores=stores, row_lists=row_lists,
        first_group=rows[:-1], workgroups=np.array([table.workgroups for table in tables]),
        phase_end=np.array(ends), arrivals=np.stack([table.arrivals for table in tables]),
        two_queues=len(needs) > 0, needs=needs, beside=np.stack([rows[:-1] + windowed, rows[1:]], axis=1),
        waits=aligned_copy(np.concatenate([table.waits for table in tables])),
        raises=np.concatenate([table.raises for table in tables]),
        signals=np.stack([np.append(0, table.signals) for table in tables]),
        adds_from=rows[1:] - np.array([table.adding for table in tables]),
        ahead=first.ahead,
        cached_loads=first.cached_loads, persistent=first.persistent,
        writes_cache=bool((stores["route"] == Route.CACHE).any()), launch_cycles=float(first.launch_cycles),
        end_cycles=float(first.end_cycles), phase_launch_cycles=round(first.phase_launch_cycles), released=released,
        stream=stream, peer_stream=stream if peer_stream is None else peer_stream)
    return ComputeUnits(make_state(rates, work), work, rates)


def make_state(rates: Rates, work: Work) -> UnitState:
    devices, phases = work.phase_end.shape
    own = UnitState._fields[:UnitState._fields.index("wake")]
    places = record_fields((devices, rates.units * rates.places), [
        (name, np.float64 if name in _REAL else np.int64 if name in _WIDE else np.int32) for name in own])
    tables = dict(zip(own, places))
    for name in ("wg", "refused", "compute_end"):
        tables[name][:] = -1
    units = devices, rates.units

    def each(dtype: type = np.int64) -> np.ndarray:
        return np.zeros(devices, dtype)
    # A persistent kernel's units look for work when it starts; the others are woken by the dispatcher.
    wake = 0 if work.persistent else NEVER
    return UnitState(
        **tables, wake=np.full(units, wake), quiet=np.zeros(units, np.int64), computing=np.zeros(units, np.int64),
        port_free=np.zeros(units), matrix_free=np.zeros(units),
        holder=np.zeros(units, np.int64), accounted=np.zeros((devices, len(ACCOUNTS)), np.int64),
        next_wake=np.full(devices, wake), next_wg=each(), next_group=work.first_group.copy(), next_member=each(),
        next_beside=work.beside[:, 0].copy(), member_beside=each(),
        phase=each(), opens=np.full(devices, NEVER if work.released else 0),
        phase_over=np.zeros((devices, phases), np.int64), finished=each(), finish_time=each(),
        idle=np.full(devices, rates.units * rates.places), first_unit=each(), budget=each(np.float64), flushed=each(),
        working=np.full(devices, rates.units), slowdown=np.ones(devices))


def set_condition(kernel: ComputeUnits, device: int, condition: Condition) -> None:
    """Give a GPU's units their condition, before its kernel starts."""
    g, working = kernel.state, condition.working_units
    g.working[device], g.slowdown[device] = working, 1.0 / condition.clock_share
    g.idle[device] = working * kernel.rates.places
    g.wake[device, working:] = NEVER


@inlined
def is_over(kernel, device):
    return kernel.state.phase[device] == kernel.state.phase_over.shape[1]


@inlined
def enter(g, device, slot, state, now):
    """Account for the time in the old state and change to the new one."""
    state_before = g.state[device, slot]
    account = ADDING if g.adding[device, slot] and state_before != POLL else state_before
    g.accounted[device, account] += now - g.since[device, slot]
    g.since[device, slot] = now
    g.state[device, slot] = state


def settle(state: UnitState, device: int, now: int) -> None:
    """Account for the time up to now, for reading the totals."""
    account = np.where(state.adding[device] & (state.state[device] != POLL), ADDING, state.state[device])
    np.add.at(state.accounted[device], account, now - state.since[device])
    state.since[device] = now


@inlined
def first_store(kernel, group, member):
    """Return the address of the first byte that a workgroup stores, 0 if it stores none."""
    work = kernel.work
    first = work.groups[group].first_step
    for step in range(first, first + work.groups[group].steps):
        if work.steps[step].stores:
            block = work.stores[work.steps[step].first_store]
            return block.base + member * block.workgroup_stride
    return np.int64(0)


# Who starts which workgroup

@compiled
def dispatch(kernel, sim, hardware, device, now):
    """Give the next workgroup to a free place, if the hardware's window lets it start."""
    g = kernel.state
    slot = -1
    if g.idle[device] > 0 and now >= sim.control.start[device] and has_work(kernel, device, now):
        slot = free_place(kernel, device)
    if slot < 0:
        nothing_to_start(hardware, device)
    elif start_next(kernel, hardware, device, slot, now):
        wake(kernel, device, slot)
    else:
        sim.control.blocked_cycles[device] += 1
        for other in range(g.state.shape[1]):
            if g.state[device, other] == IDLE and other % kernel.rates.units < g.working[device]:
                enter(g, device, other, BLOCKED, now)


@compiled
def start_next(kernel, hardware, device, slot, now):
    """Give a place the next workgroup that may start, of the window's queue first; False: none may."""
    g, work = kernel.state, kernel.work
    group = g.next_group[device]
    if (not work.two_queues or group < work.beside[device, 0]) and may_start(hardware, device):
        g.next_group[device], g.next_member[device] = start(kernel, device, slot, group, g.next_member[device], now)
        return True
    if work.two_queues:
        nothing_to_start(hardware, device)
        group = g.next_beside[device]
        if group < work.beside[device, 1] and inputs_complete(hardware, device, work.needs[group]):
            g.next_beside[device], g.member_beside[device] = start(
                kernel, device, slot, group, g.member_beside[device], now)
            return True
    return False


@inlined
def has_work(kernel, device, now):
    """Return whether the present phase has begun and has a workgroup that has not been started."""
    g = kernel.state
    return (not is_over(kernel, device) and g.next_wg[device] < kernel.work.phase_end[device, g.phase[device]]
            and now >= g.opens[device])


@inlined
def free_place(kernel, device):
    """Find a place without a workgroup; -1 if there is none."""
    g, units = kernel.state, kernel.rates.units
    for first in range(0, g.state.shape[1], units):
        for slot in range(first, first + g.working[device]):
            if g.state[device, slot] <= BLOCKED:
                return slot
    return -1


@inlined
def start(kernel, device, slot, group, member, now):
    """Give a place a group's workgroup of this number; the group and number of the one behind it."""
    g, work = kernel.state, kernel.work
    enter(g, device, slot, LAUNCH, now)
    g.wg[device, slot] = g.next_wg[device]
    g.group[device, slot] = group
    g.adding[device, slot] = group >= work.adds_from[device]
    g.member[device, slot] = member
    g.ready_time[device, slot] = now + work.launch_cycles * g.slowdown[device]
    g.next_wg[device] += 1
    g.idle[device] -= 1
    if member + 1 == work.groups[group].workgroups:
        return group + 1, np.int64(0)
    return np.int64(group), member + 1


@inlined
def wake(kernel, device, slot):
    """Make sure that a unit is served when one of its places is ready."""
    g, unit = kernel.state, slot % kernel.rates.units
    due = np.int64(np.ceil(g.ready_time[device, slot]))
    g.wake[device, unit] = min(g.wake[device, unit], due)
    g.quiet[device, unit] = 0
    g.next_wake[device] = min(g.next_wake[device], due)


@inlined
def end(kernel, sim, device, slot, now):
    """Take the workgroup from a place."""
    g, work = kernel.state, kernel.work
    if len(work.raises):
        sim.control.signals[device, work.raises[g.group[device, slot]]] += 1
    enter(g, device, slot, IDLE, now)
    g.adding[device, slot] = 0
    g.wg[device, slot] = -1
    g.idle[device] += 1
    g.finished[device] += 1
    g.finish_time[device] = now


# What a read brings back

@compiled
def fill(kernel, sim, device, register, now):
    """Take one DRAM read of a miss; wake the workgroups when the line is complete."""
    llc = sim.llc
    if not cache.fill(llc, device, register):
        return
    for word in range(llc.waiters.shape[2]):
        waiting = np.int64(llc.waiters[device, register, word])
        while waiting:
            slot = word * 64 + lowest_bit(waiting)
            waiting &= waiting - 1
            data_back(kernel, device, slot, now)
    cache.release_miss(llc, device, register)


@inlined
def data_back(kernel, device, slot, now):
    """Count one of the lines that a workgroup waits for."""
    g = kernel.state
    g.outstanding[device, slot] -= 1
    if g.outstanding[device, slot] == 0 and g.loading[device, slot] == SENT:
        g.ready_time[device, slot] = max(g.ready_time[device, slot],
                                          now + kernel.rates.hit_cycles * g.slowdown[device])
        wake(kernel, device, slot)


@inlined
def serve_slices(kernel, sim, device, now):
    """Let each slice of the cache look up the loads that wait there, in order, as far as it can now."""
    queue = sim.slices
    if queue.slices == 0 or queue.waiting[device] == 0:
        return
    for i in range(queue.slices):
        row = device * queue.slices + (now + i) % queue.slices  # a channel's queue has room for another one first
        while queue.count[row] > 0 and queue.free[row] <= now:
            slot = queue.slot[row, queue.head[row]]
            stream = kernel.work.peer_stream if kernel.state.adding[device, slot] else kernel.work.stream
            found, _ = cache.load(sim, device, queue.line[row, queue.head[row]], slot, stream)
            if found == cache.BLOCKED:
                break
            llc_slices.pop(queue, device, row, now)
            if found == cache.HIT:
                data_back(kernel, device, slot, now)
            elif found == cache.KNOWN:  # one wait for the line is enough
                kernel.state.outstanding[device, slot] -= 1


# One cycle

@inlined
def units_cycle(kernel, sim, device, now):
    """Serve every compute unit that is due, and go on to the next phase."""
    g, work, rates = kernel.state, kernel.work, kernel.rates
    if is_over(kernel, device) or (work.persistent and now < sim.control.start[device]):
        return
    bytes_per_cycle = rates.llc_bytes_per_cycle / g.slowdown[device]
    g.budget[device] = min(g.budget[device] + bytes_per_cycle, bytes_per_cycle)
    due = g.next_wake[device] <= now
    first = g.first_unit[device]
    if due or not work.persistent:  # a dispatcher's units take turns whether one is due or not
        g.first_unit[device] = first + 1 if first + 1 < rates.units else 0
    if due:
        earliest = NEVER
        for i in range(rates.units):
            unit = first + i
            if unit >= rates.units:
                unit -= rates.units
            if g.wake[device, unit] <= now:
                serve(kernel, sim, device, unit, now)
            earliest = min(earliest, g.wake[device, unit])
        g.next_wake[device] = earliest
    phase = g.phase[device]
    if (g.finished[device] == work.phase_end[device, phase]
            and sim.network.arrived[device] >= work.arrivals[device, phase]):
        g.phase_over[device, phase] = now
        g.phase[device] = phase + 1
        open_phase(kernel, device, NEVER if work.released else now + 1 + work.phase_launch_cycles)


@inlined
def open_phase(kernel, device, at):
    """Let the present phase begin in a cycle."""
    g = kernel.state
    g.opens[device] = at
    if kernel.work.persistent:
        g.next_wake[device] = at
        for unit in range(g.working[device]):
            g.wake[device, unit] = at


@compiled
def serve(kernel, sim, device, unit, now):
    """Let the workgroups of a unit go on, the one first that has the port."""
    g, rates, persistent = kernel.state, kernel.rates, kernel.work.persistent
    first, port, due, computing, quiet = g.holder[device, unit], NEVER, NEVER, NEVER, NEVER
    if now < g.quiet[device, unit]:  # what follows would come to the same
        port = send_loads(kernel, sim, device, first * rates.units + unit, unit, now)
        if port < NEVER:
            g.wake[device, unit] = min(port, g.computing[device, unit])
            return
    for i in range(rates.places):
        place = first + i
        if place >= rates.places:
            place -= rates.places
        slot = place * rates.units + unit
        if port == NEVER and persistent:
            if (g.state[device, slot] >= STORE_MEMORY and g.store_step[device, slot] == ENDING
                    and g.ready_time[device, slot] <= now):
                end(kernel, sim, device, slot, now)
            if g.state[device, slot] == IDLE and has_work(kernel, device, now):
                g.next_group[device], g.next_member[device] = start(
                    kernel, device, slot, g.next_group[device], g.next_member[device], now)
        if g.state[device, slot] <= BLOCKED or waits_for_data(g, device, slot):
            continue
        go_on(kernel, sim, device, slot, unit, now)
        if port == NEVER:
            port = use_port(kernel, sim, device, slot, unit, now)
            if port < NEVER:
                g.holder[device, unit] = place
        if g.compute_end[device, slot] >= 0:
            computing = min(computing, np.int64(np.ceil(g.compute_end[device, slot])))
        at, computes = next_event(kernel, device, slot, now)
        due = min(due, at)
        if computes:
            computing = min(computing, at)
        if g.state[device, slot] < STORE_MEMORY and not sends_loads(g, device, slot):
            quiet = min(quiet, at)
    # While one workgroup has the port, the others only compute.
    g.wake[device, unit] = min(due, computing) if port == NEVER else min(port, computing)
    sends = port < NEVER and sends_loads(g, device, g.holder[device, unit] * rates.units + unit)
    g.quiet[device, unit] = min(quiet, computing) if sends else 0
    g.computing[device, unit] = computing


@inlined
def sends_loads(g, device, slot):
    """Return whether a workgroup's loads are being sent."""
    return g.loading[device, slot] == SENDING and LOAD <= g.state[device, slot] < STORE_MEMORY


@inlined
def waits_for_data(g, device, slot):
    """Return whether a workgroup has nothing to do until data come."""
    return (g.state[device, slot] == LOAD and g.loading[device, slot] == SENT and g.outstanding[device, slot] > 0
            and g.compute_end[device, slot] < 0)


@inlined
def next_event(kernel, device, slot, now):
    """Return when a workgroup that neither computes nor uses the port goes on, and whether it then computes."""
    g, work = kernel.state, kernel.work
    state = g.state[device, slot]
    if state == IDLE:
        return NEVER, False
    if state == LAUNCH or state == POLL or state >= STORE_MEMORY:
        return max(now + 1, np.int64(np.ceil(g.ready_time[device, slot]))), False
    if g.loading[device, slot] == SENT:
        if g.outstanding[device, slot] > 0:
            return NEVER, False
        return (max(now + 1, np.int64(np.ceil(g.ready_time[device, slot]))),
                work.steps[g.load_step[device, slot]].compute_cycles > 0)
    waits = g.compute_end[device, slot] < 0 and g.computed[device, slot] < g.loaded[device, slot]
    if waits or g.loading[device, slot] == SENDING or may_load(kernel, device, slot):
        return now + 1, waits
    return NEVER, False


@inlined
def may_load(kernel, device, slot):
    """Return whether there is a step to load and a buffer for it."""
    g, group = kernel.state, kernel.work.groups[kernel.state.group[device, slot]]
    return (g.load_step[device, slot] < group.first_step + group.steps
            and g.loaded[device, slot] - g.computed[device, slot] < kernel.work.ahead)


@inlined
def go_on(kernel, sim, device, slot, unit, now):
    """Make all of a workgroup's progress that needs no port: launch, computation, and which step is loaded."""
    g, work = kernel.state, kernel.work
    if g.state[device, slot] == LAUNCH or g.state[device, slot] == POLL:
        if g.ready_time[device, slot] > now or polls(kernel, sim, device, slot, now):
            return
        begin(kernel, device, slot, unit, now)
    if g.state[device, slot] >= STORE_MEMORY:
        return
    start_time = float(now)
    if g.compute_end[device, slot] >= 0 and now >= g.compute_end[device, slot]:
        start_time = g.compute_end[device, slot]
        g.port_free[device, unit] = max(g.port_free[device, unit], start_time)
        g.compute_end[device, slot] = -1.0
        if step_computed(kernel, device, slot, now):
            return
    if g.loading[device, slot] == NONE and may_load(kernel, device, slot):
        step = work.steps[g.load_step[device, slot]]
        g.loading[device, slot] = SENDING if step.loads > 0 else SENT
        g.load_block[device, slot] = step.first_load
        g.load_row[device, slot] = 0
        g.ready_time[device, slot] = now
    if (g.loading[device, slot] == SENT and g.outstanding[device, slot] == 0 and now >= g.ready_time[device, slot]):
        g.loading[device, slot] = NONE
        g.loaded[device, slot] += 1
        g.load_turn[device, slot] += 1
        if g.load_turn[device, slot] == work.steps[g.load_step[device, slot]].repeats:
            g.load_turn[device, slot] = 0
            g.load_step[device, slot] += 1
    while g.compute_end[device, slot] < 0 and g.computed[device, slot] < g.loaded[device, slot]:
        cycles = work.steps[g.compute_step[device, slot]].compute_cycles * g.slowdown[device]
        if cycles == 0.0:
            if step_computed(kernel, device, slot, now):
                return
            continue
        # If the data were there in time the matrix units go on at once, to a fraction of a cycle.
        g.compute_end[device, slot] = max(start_time, g.matrix_free[device, unit]) + cycles
        g.matrix_free[device, unit] = g.compute_end[device, slot]
        if g.state[device, slot] != COMPUTE:
            enter(g, device, slot, COMPUTE, now)
    if g.compute_end[device, slot] < 0 and g.state[device, slot] != LOAD:
        enter(g, device, slot, LOAD, now)


@inlined
def polls(kernel, sim, device, slot, now):
    """Let a workgroup read the flags that it waits for, if it has not seen them set; return whether it does."""
    g, work = kernel.state, kernel.work
    if len(work.waits) == 0 or work.waits[g.group[device, slot]].last == 0:
        return False
    if g.state[device, slot] == POLL and all_set(kernel, sim, device, work.waits[g.group[device, slot]]):
        return False
    enter(g, device, slot, POLL, now)
    g.ready_time[device, slot] = now + kernel.rates.hit_cycles * g.slowdown[device]
    return True


@inlined
def all_set(kernel, sim, device, wait):
    """Return whether all signals are set that are waited for."""
    for signal in range(wait.first, wait.last + 1):
        if sim.control.signals[device, signal] < kernel.work.signals[device, signal]:
            return False
    return True


@inlined
def begin(kernel, device, slot, unit, now):
    """End a workgroup's launch: its first step can be loaded."""
    g = kernel.state
    step = kernel.work.groups[g.group[device, slot]].first_step
    g.loading[device, slot] = NONE
    g.load_step[device, slot] = step
    g.load_turn[device, slot] = 0
    g.load_line[device, slot] = 0
    g.refused[device, slot] = -1
    g.outstanding[device, slot] = 0
    g.loaded[device, slot] = 0
    g.computed[device, slot] = 0
    g.compute_step[device, slot] = step
    g.compute_turn[device, slot] = 0
    g.compute_end[device, slot] = -1.0
    if not kernel.work.persistent:
        g.port_free[device, unit] = max(g.port_free[device, unit], float(now))
    enter(g, device, slot, LOAD, now)


@inlined
def step_computed(kernel, device, slot, now):
    """Count a step; True: the workgroup stores now."""
    g, group = kernel.state, kernel.work.groups[kernel.state.group[device, slot]]
    row = g.compute_step[device, slot]
    step = kernel.work.steps[row]
    g.store_step[device, slot] = row
    g.store_turn[device, slot] = g.compute_turn[device, slot]
    g.computed[device, slot] += 1
    g.compute_turn[device, slot] += 1
    if g.compute_turn[device, slot] == step.repeats:
        g.compute_turn[device, slot] = 0
        g.compute_step[device, slot] = row + 1
    if step.stores == 0 and g.compute_step[device, slot] < group.first_step + group.steps:
        return False
    g.store_block[device, slot] = step.first_store
    g.store_row[device, slot] = 0
    g.store_line[device, slot] = 0
    enter(g, device, slot, STORE_MEMORY, now)
    return True


# Loads and stores

@inlined
def use_port(kernel, sim, device, slot, unit, now):
    """Send what a workgroup has to send, as far as the port lets it; when it will go on, NEVER: nothing is left."""
    g = kernel.state
    if g.state[device, slot] >= STORE_MEMORY:
        return NEVER if g.store_step[device, slot] == ENDING else send_stores(kernel, sim, device, slot, unit, now)
    if g.loading[device, slot] == SENDING and g.state[device, slot] >= LOAD:
        return send_loads(kernel, sim, device, slot, unit, now)
    return NEVER


@compiled
def send_loads(kernel, sim, device, slot, unit, now):
    """Send a step's loads; the arguments and the result are those of `use_port`."""
    g, work, rates = kernel.state, kernel.work, kernel.rates
    step = work.steps[g.load_step[device, slot]]
    shift = sim.llc.line_shift if work.cached_loads else LINE_SHIFT
    while g.load_block[device, slot] < step.first_load + step.loads:
        if g.port_free[device, unit] > now:
            return max(now + 1, np.int64(np.ceil(g.port_free[device, unit])))
        block = work.loads[g.load_block[device, slot]]
        row = np.int64(g.load_row[device, slot])
        if block.row_list >= 0:
            row = work.row_lists[block.row_list + row]
        address = (block.base + row * block.pitch + g.load_turn[device, slot] * block.step_stride
                   + g.member[device, slot] * block.workgroup_stride)
        line = g.load_line[device, slot]
        in_order = work.cached_loads and sim.slices.slices > 0
        if in_order:
            accepted = llc_slices.push(sim, device, address + (np.int64(line) << shift), slot)
            if accepted:
                g.outstanding[device, slot] += 1
        elif work.cached_loads:
            if g.budget[device] <= 0.0:
                return now + 1
            accepted = read_line(kernel, sim, device, slot, address + (np.int64(line) << shift)) != cache.BLOCKED
        else:
            accepted = read_memory(kernel, sim, device, slot, address, block.bytes, line)
        if not accepted:
            g.port_free[device, unit] = now + REPLAY_CYCLES
            return now + REPLAY_CYCLES
        lines = ((address + block.bytes - 1) >> shift) - (address >> shift) + 1
        if work.cached_loads and not in_order:
            g.budget[device] -= block.bytes / lines
        g.port_free[device, unit] = (max(g.port_free[device, unit], now - 1.0)
                                     + rates.port_byte_cycles * block.bytes / lines * g.slowdown[device])
        g.load_line[device, slot] = line + 1
        if work.cached_loads:
            following = address + (np.int64(line + 1) << shift) if line + 1 < lines else address + block.pitch
            cache.expect(sim.llc, device, following >> shift)
        if line + 1 == lines:
            g.load_line[device, slot] = 0
            g.load_row[device, slot] += 1
            if g.load_row[device, slot] == block.rows:
                g.load_row[device, slot] = 0
                g.load_block[device, slot] += 1
    g.loading[device, slot] = SENT
    g.ready_time[device, slot] = g.port_free[device, unit] + rates.hit_cycles * g.slowdown[device]
    return NEVER


@inlined
def read_line(kernel, sim, device, slot, address):
    """Read one cache line for a workgroup: hit, wait for a line in flight, or miss to DRAM."""
    g, refused = kernel.state, kernel.state.refused[device, slot]
    if refused >= 0 and queues.room(sim.compute, refused) < sim.llc.line_requests:
        return cache.BLOCKED
    stream = kernel.work.peer_stream if g.adding[device, slot] else kernel.work.stream
    found, row = cache.load(sim, device, address >> sim.llc.line_shift, slot, stream)
    g.refused[device, slot] = row
    if found == cache.WAITING:
        g.outstanding[device, slot] += 1
    return found


@inlined
def read_memory(kernel, sim, device, slot, address, size, line):
    """Read the `line`-th request of a run of `size` bytes, past the cache; False: there is no room for it now."""
    start = max(address, ((address >> LINE_SHIFT) + line) << LINE_SHIFT)
    stop = min(address + size, ((start >> LINE_SHIFT) + 1) << LINE_SHIFT)
    row = device * sim.m.channels + channel_of(start, sim.m)
    if queues.room(sim.compute, row) < 1:
        return False
    lo, hi = bits.pack(sim.b, start, stop - start, bits.READ, bits.LOCAL, 0, 0, 0)
    queues.push(sim.compute, row, lo, hi, queues.tag_of(kernel.work.stream, slot))
    kernel.state.outstanding[device, slot] += 1
    return True


@compiled
def send_stores(kernel, sim, device, slot, unit, now):
    """Send a step's stores, its blocks side by side, row by row; the arguments and the result are those of `use_port`.

    One row is what one store instruction of a wavefront writes: contiguous lines, which the crossbar keeps together.
    """
    g, work, rates = kernel.state, kernel.work, kernel.rates
    step = work.steps[g.store_step[device, slot]]
    while next_row(g, work, step, device, slot):
        if g.port_free[device, unit] > now:
            return max(now + 1, np.int64(np.ceil(g.port_free[device, unit])))
        block = work.stores[g.store_block[device, slot]]
        address = (block.base + g.store_row[device, slot] * block.pitch
                   + g.store_turn[device, slot] * block.step_stride + g.member[device, slot] * block.workgroup_stride)
        lines = _lines_of(block.bytes)
        if not store_row(kernel, sim, device, slot, block, address, lines, now):
            retry = REPLAY_CYCLES if block.route != TO_PEER else rates.link_retry_cycles
            if work.persistent:  # its store stays in the port
                g.port_free[device, unit] = now + retry
            return now + retry
        g.store_block[device, slot] += 1
        g.port_free[device, unit] = (max(g.port_free[device, unit], now - 1.0)
                                     + rates.port_byte_cycles * LINE_BYTES * lines * g.slowdown[device])
    group = work.groups[g.group[device, slot]]
    if g.compute_step[device, slot] < group.first_step + group.steps:
        enter(g, device, slot, LOAD, now)
    elif work.end_cycles == 0.0 and not work.persistent:
        end(kernel, sim, device, slot, now)
    else:
        g.store_step[device, slot] = ENDING
        g.ready_time[device, slot] = now + work.end_cycles * g.slowdown[device]
    return NEVER


@inlined
def next_row(g, work, step, device, slot):
    """Go to the next row that is to be stored; False: there is none."""
    behind = step.first_store + step.stores
    tried = 0
    while tried <= step.stores:
        if g.store_block[device, slot] >= behind:
            g.store_block[device, slot] = step.first_store
            g.store_row[device, slot] += 1
        if step.stores and g.store_row[device, slot] < work.stores[g.store_block[device, slot]].rows:
            return True
        g.store_block[device, slot] += 1
        tried += 1
    return False


@inlined
def store_row(kernel, sim, device, slot, block, address, lines, now):
    """Store a row in the cache, in memory or over the link; False: there is no room for (all of) it now.

    The cache takes line by line, the others all or nothing.
    """
    if block.route == TO_CACHE:
        return store_cached(kernel, sim, device, slot, address, lines)
    if block.route == TO_MEMORY or block.route == TO_BOTH:
        for line in range(lines):  # room everywhere first: a row may cross into another channel
            if queues.room(sim.compute, device * sim.m.channels + channel_of(address + line * LINE_BYTES, sim.m)) \
                    < lines:
                return False
    port = sim.control.region_ports[device, block.region, 0]
    if block.route == MAPPED or block.route == TO_BOTH:
        if sim.stores_out.count[port] + lines > sim.store_limit:
            if kernel.state.state[device, slot] != STORE_LINK:
                enter(kernel.state, device, slot, STORE_LINK, now)
            return False
    elif block.route == TO_PEER and not links.can_send(
            sim.network, sim.network.next_port[device, sim.control.downstream[device, block.peer]], now):
        if kernel.state.state[device, slot] != STORE_LINK:
            enter(kernel.state, device, slot, STORE_LINK, now)
        return False
    op = bits.UPDATE if block.updates else bits.STORE
    source = bits.LOCAL if block.route != TO_PEER else bits.REMOTE
    tag = queues.tag_of(kernel.work.stream, np.int64(block.part))
    for line in range(lines):
        at = address + line * LINE_BYTES
        size = min(LINE_BYTES, block.bytes - line * LINE_BYTES)
        lo, hi = bits.pack(sim.b, at, size, op, source, block.region, block.wavefront, block.id)
        if block.route == TO_MEMORY:
            queues.push(sim.compute, device * sim.m.channels + channel_of(at, sim.m), lo, hi, tag)
        elif block.route == TO_BOTH:
            kept_lo, kept_hi = bits.pack(sim.b, at, size, op, source, 0, 0, 0)
            queues.push(sim.compute, device * sim.m.channels + channel_of(at, sim.m), kept_lo, kept_hi, tag)
            queues.push_at(sim.stores_out, port, now, lo, hi, tag)
        elif block.route == MAPPED:
            queues.push_at(sim.stores_out, port, now, lo, hi, tag)
        else:
            peer = sim.control.downstream[device, block.peer]
            if sim.control.rs_start[device] < 0:
                sim.control.rs_start[device] = now
            links.send(sim.network, sim.network.next_port[device, peer], now, size, 0, lo,
                       links.bound_for(hi, peer, sim.b), queues.tag_of(kernel.work.peer_stream, 0))
            sim.network.injected[device] += 1
    return True


@inlined
def store_cached(kernel, sim, device, slot, address, lines):
    """Store a row's lines in the cache; False: not all of them can go now."""
    g, line_requests = kernel.state, sim.llc.line_requests
    while g.store_line[device, slot] < lines:
        at = address + g.store_line[device, slot] * LINE_BYTES
        if g.budget[device] <= 0.0 or not cache.store(sim, device, at >> sim.llc.line_shift, kernel.work.stream):
            return False
        g.store_line[device, slot] += line_requests
        g.budget[device] -= sim.llc.line_bytes
    g.store_line[device, slot] = 0
    return True
