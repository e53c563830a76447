"""A GPU's compute units: one compiled model that runs every kernel table (`operators.kernel_table`).

A workgroup has a place on a unit; the places of a unit share its port, through which all loads and stores go, and its
matrix units. A step's loads are sent while earlier steps compute, as far ahead as the kernel's buffers reach; a late
load stalls the workgroup, which is how contention slows a kernel. After a step with stores it stores them, row by row.

Workgroups of a kernel are started by a dispatcher, one per cycle, from one queue or from two: groups that ask the
dispatch window, and beside them groups that wait for their inputs (`KernelTable.needs`). Each starts on the first
free place, or (by turn) on the next unit as soon as that has a free place. Workgroups of a persistent kernel draw their
work themselves. Then a place is free again when the stores of its workgroup are acknowledged, and takes the next one
when its unit's port is free.

A workgroup may wait for signals (`KernelTable.waits`): after its launch it reads their flags again and again, each read
takes as long as a hit in the cache. A signal is set when all its lines have arrived and all workgroups that count for
it have ended. Flags take no bytes, and reading them takes no bandwidth.

Known simplifications: loads and stores leave at the port's rate; matrix units serve steps in the order in which their
data arrive; a workgroup that stores sends no loads.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from t3sim.base.compiled.by_reference import PLACES, at_most, lowest, lowest_bit
from t3sim.base.compiled.jit import compiled, inlined
from t3sim.base.compiled.records import aligned_copy
from t3sim.gpu.agents.units.loads import (
    data_back,
    fill,
    may_load,
    send_loads,
    sends_loads,
    serve_slices,
    waits_for_data,
)
from t3sim.gpu.agents.units.state import (
    BLOCKED,
    COMPUTE,
    ENDING,
    IDLE,
    LAUNCH,
    LOAD,
    NEVER,
    NONE,
    POLL,
    SENDING,
    SENT,
    STORE_MEMORY,
    UnitRates,
    UnitState,
    UnitWork,
    enter,
    is_over,
    make_state,
)
from t3sim.gpu.agents.units.stores import send_stores
from t3sim.gpu.agents.units.workgroups import dispatch, end, has_work, polls, start
from t3sim.gpu.engine.hardware import Hardware, nothing_to_start, show_producer
from t3sim.gpu.fabric import llc as cache
from t3sim.gpu.fabric import queues
from t3sim.gpu.setup import Condition
from t3sim.gpu.state import Sim
from t3sim.workload.operators.kernel_table import ASKS_WINDOW, KernelTable, Route, joined


class ComputeUnits(NamedTuple):
    """The units with a kernel on them, as an agent (gpu/engine/agents.py)."""

    state: UnitState
    work: UnitWork
    rates: UnitRates

    @property
    def shape(self) -> tuple[int, int]:
        """GPUs, and places of each whose loads may wait at its cache."""
        gpus, places = self.state.state.shape
        return gpus, places

    def cycle(self, sim: Sim, hardware: Hardware | None, gpu: int, now: int) -> None:
        if self.work.persistent:
            nothing_to_start(hardware, gpu)
        else:
            dispatch(self, sim, hardware, gpu, now)
        units_cycle(self, sim, gpu, now)
        serve_slices(self, sim, gpu, now)
        over = is_over(self, gpu)
        show_producer(hardware, gpu, not over and not self.work.persistent)
        if over and self.work.writes_cache:  # what comes next reads what the cache still holds
            self.state.flushed[gpu] = cache.flush(sim.llc, sim.mem, gpu, self.state.flushed[gpu], self.work.stream)

    def returned(self, sim: Sim, gpu: int, tag: int, now: int) -> None:
        number = queues.number_of(tag)
        if self.work.cached_loads:
            fill(self, sim, gpu, number, now)
        else:
            data_back(self, gpu, number, now)

    def done(self, sim: Sim, gpu: int) -> bool:
        return (is_over(self, gpu) and sim.control.event_count[gpu] >= sim.expected_events[gpu]
                and (not self.work.writes_cache or self.state.flushed[gpu] == sim.llc.tag.shape[1]))

    def progress(self, gpu: int) -> int:
        total = self.state.next_wg[gpu] + self.state.phase[gpu]
        for slot in range(self.state.state.shape[1]):
            total += self.state.computed[gpu, slot] + self.state.loaded[gpu, slot]
        return total


def make_units(rates: UnitRates, tables: Sequence[KernelTable], stream: int, released: bool = False,
               peer_stream: int | None = None) -> ComputeUnits:
    """Make every GPU's compute units as they are at the start of a kernel.

    `tables`: one per GPU, alike but for their rows; `stream`: traffic class of its accesses, of
    `memory.COMPUTE`, `EXCHANGE`, `OTHER`; `released`: each phase begins when another agent releases it;
    `peer_stream`: traffic class of stores at peers, if not `stream`.
    """
    groups, steps, loads, stores, row_lists = map(aligned_copy, joined(tables))
    first, lengths = tables[0], [len(table.groups) for table in tables]
    needs, rows = np.concatenate([table.needs for table in tables]), np.cumsum([0, *lengths])
    windowed = [int((table.needs == ASKS_WINDOW).sum()) if len(needs) else length
                for table, length in zip(tables, lengths)]
    ends = [[int(table.groups["workgroups"][table.groups["phase"] <= phase].sum())
             for phase in range(len(first.arrivals))] for table in tables]
    work = UnitWork(
        groups=groups, steps=steps, loads=loads, stores=stores, row_lists=row_lists,
        first_group=rows[:-1], workgroups=np.array([table.workgroups for table in tables]),
        phase_end=np.array(ends), arrivals=np.stack([table.arrivals for table in tables]),
        two_queues=len(needs) > 0, needs=needs, beside=np.stack([rows[:-1] + windowed, rows[1:]], axis=1),
        waits=aligned_copy(np.concatenate([table.waits for table in tables])),
        raises=np.concatenate([table.raises for table in tables]),
        signals=np.stack([np.append(0, table.signals) for table in tables]),
        adds_from=rows[1:] - np.array([table.adding for table in tables]),
        ahead=first.ahead,
        cached_loads=first.cached_loads, persistent=first.persistent, by_turn=first.by_turn,
        writes_cache=bool((stores["route"] == Route.CACHE).any()), launch_cycles=float(first.launch_cycles),
        end_cycles=float(first.end_cycles), phase_launch_cycles=round(first.phase_launch_cycles), released=released,
        stream=stream, peer_stream=stream if peer_stream is None else peer_stream)
    return ComputeUnits(make_state(rates, work), work, rates)


def set_condition(kernel: ComputeUnits, gpu: int, condition: Condition) -> None:
    """Give a GPU's units their condition, before its kernel starts."""
    g, working = kernel.state, condition.working_units
    g.working[gpu], g.slowdown[gpu] = working, 1.0 / condition.clock_share
    g.idle[gpu] = working * kernel.rates.places
    g.wake[gpu, working:] = NEVER


@inlined
def units_cycle(kernel: ComputeUnits, sim: Sim, gpu: int, now: int) -> None:
    """Serve every compute unit that is due, and start the next phase when this one is over."""
    g, work, rates = kernel.state, kernel.work, kernel.rates
    if is_over(kernel, gpu) or (work.persistent and now < sim.control.start[gpu]):
        return
    bytes_per_cycle = rates.llc_bytes_per_cycle / g.slowdown[gpu]
    g.budget[gpu] = min(g.budget[gpu] + bytes_per_cycle, bytes_per_cycle)
    due = g.next_wake[gpu] <= now
    first = g.first_unit[gpu]
    if due or not work.persistent:  # a dispatcher's units take turns whether one is due or not
        g.first_unit[gpu] = first + 1 if first + 1 < rates.units else 0
    if due:
        for half in range(2):  # from the unit whose turn it is on, then those before it
            begin, end_before = (0, first) if half else (first, rates.units)
            for some in range(begin, end_before, PLACES):
                woken = at_most(g.wake, (gpu, some), now, end_before - some)  # serving one wakes no other
                while woken:
                    serve(kernel, sim, gpu, some + lowest_bit(woken), now)
                    woken &= woken - 1
        earliest = NEVER
        for some in range(0, rates.units, PLACES):
            earliest = lowest(g.wake, (gpu, some), rates.units - some, earliest)
        g.next_wake[gpu] = earliest
    phase = g.phase[gpu]
    if (g.finished[gpu] == work.phase_end[gpu, phase]
            and sim.network.arrived[gpu] >= work.arrivals[gpu, phase]):
        g.phase_over[gpu, phase] = now
        g.phase[gpu] = phase + 1
        open_phase(kernel, gpu, NEVER if work.released else now + 1 + work.phase_launch_cycles)


@inlined
def open_phase(kernel: ComputeUnits, gpu: int, at: int) -> None:
    """Let the present phase begin in a cycle."""
    g = kernel.state
    g.opens[gpu] = at
    if kernel.work.persistent:
        g.next_wake[gpu] = at
        for unit in range(g.working[gpu]):
            g.wake[gpu, unit] = at


@compiled
def serve(kernel: ComputeUnits, sim: Sim, gpu: int, unit: int, now: int) -> None:
    """Advance the workgroups of a unit, first the one that has the port."""
    g, rates, persistent = kernel.state, kernel.rates, kernel.work.persistent
    first, port, due, computing, quiet = g.holder[gpu, unit], NEVER, NEVER, NEVER, NEVER
    if now < g.quiet[gpu, unit]:  # what follows would come to the same
        port = send_loads(kernel, sim, gpu, first * rates.units + unit, unit, now)
        if port < NEVER:
            g.wake[gpu, unit] = min(port, g.computing[gpu, unit])
            return
    for i in range(rates.places):
        place = first + i
        if place >= rates.places:
            place -= rates.places
        slot = place * rates.units + unit
        if port == NEVER and persistent:
            if (g.state[gpu, slot] >= STORE_MEMORY and g.store_step[gpu, slot] == ENDING
                    and g.ready_time[gpu, slot] <= now):
                end(kernel, sim, gpu, slot, now)
            if g.state[gpu, slot] == IDLE and has_work(kernel, gpu, now):
                g.next_group[gpu], g.next_member[gpu] = start(
                    kernel, gpu, slot, g.next_group[gpu], g.next_member[gpu], now)
        if g.state[gpu, slot] <= BLOCKED or waits_for_data(g, gpu, slot):
            continue
        go_on(kernel, sim, gpu, slot, unit, now)
        if port == NEVER:
            port = use_port(kernel, sim, gpu, slot, unit, now)
            if port < NEVER:
                g.holder[gpu, unit] = place
        if g.compute_end[gpu, slot] >= 0:
            computing = min(computing, np.int64(np.ceil(g.compute_end[gpu, slot])))
        at, computes = next_event(kernel, gpu, slot, now)
        due = min(due, at)
        if computes:
            computing = min(computing, at)
        if g.state[gpu, slot] < STORE_MEMORY and not sends_loads(g, gpu, slot):
            quiet = min(quiet, at)
    # While one workgroup has the port, the others only compute.
    g.wake[gpu, unit] = min(due, computing) if port == NEVER else min(port, computing)
    sends = port < NEVER and sends_loads(g, gpu, g.holder[gpu, unit] * rates.units + unit)
    g.quiet[gpu, unit] = min(quiet, computing) if sends else 0
    g.computing[gpu, unit] = computing


@inlined
def next_event(kernel: ComputeUnits, gpu: int, slot: int, now: int) -> tuple[int | np.int64, bool]:
    """Return when a workgroup that neither computes nor uses the port goes on, and whether it then computes."""
    g, work = kernel.state, kernel.work
    state = g.state[gpu, slot]
    if state == IDLE:
        return NEVER, False
    if state == LAUNCH or state == POLL or state >= STORE_MEMORY:
        return max(now + 1, np.int64(np.ceil(g.ready_time[gpu, slot]))), False
    if g.loading[gpu, slot] == SENT:
        if g.outstanding[gpu, slot] > 0:
            return NEVER, False
        return (max(now + 1, np.int64(np.ceil(g.ready_time[gpu, slot]))),
                work.steps[g.load_step[gpu, slot]].compute_cycles > 0)
    waits = g.compute_end[gpu, slot] < 0 and g.computed[gpu, slot] < g.loaded[gpu, slot]
    if waits or g.loading[gpu, slot] == SENDING or may_load(kernel, gpu, slot):
        return now + 1, waits
    return NEVER, False


@inlined
def go_on(kernel: ComputeUnits, sim: Sim, gpu: int, slot: int, unit: int, now: int) -> None:
    """Advance a workgroup as far as it needs no port: launch, computation, choice of the step to load."""
    g, work = kernel.state, kernel.work
    if g.state[gpu, slot] == LAUNCH or g.state[gpu, slot] == POLL:
        if g.ready_time[gpu, slot] > now or polls(kernel, sim, gpu, slot, now):
            return
        begin(kernel, gpu, slot, unit, now)
    if g.state[gpu, slot] >= STORE_MEMORY:
        return
    start_time = float(now)
    if g.compute_end[gpu, slot] >= 0 and now >= g.compute_end[gpu, slot]:
        start_time = g.compute_end[gpu, slot]
        g.port_free[gpu, unit] = max(g.port_free[gpu, unit], start_time)
        g.compute_end[gpu, slot] = -1.0
        if step_computed(kernel, gpu, slot, now):
            return
    if g.loading[gpu, slot] == NONE and may_load(kernel, gpu, slot):
        step = work.steps[g.load_step[gpu, slot]]
        g.loading[gpu, slot] = SENDING if step.loads > 0 else SENT
        g.load_block[gpu, slot] = step.first_load
        g.load_row[gpu, slot] = 0
        g.ready_time[gpu, slot] = now
    if (g.loading[gpu, slot] == SENT and g.outstanding[gpu, slot] == 0 and now >= g.ready_time[gpu, slot]):
        g.loading[gpu, slot] = NONE
        g.loaded[gpu, slot] += 1
        g.load_turn[gpu, slot] += 1
        if g.load_turn[gpu, slot] == work.steps[g.load_step[gpu, slot]].repeats:
            g.load_turn[gpu, slot] = 0
            g.load_step[gpu, slot] += 1
    while g.compute_end[gpu, slot] < 0 and g.computed[gpu, slot] < g.loaded[gpu, slot]:
        cycles = work.steps[g.compute_step[gpu, slot]].compute_cycles * g.slowdown[gpu]
        if cycles == 0.0:
            if step_computed(kernel, gpu, slot, now):
                return
            continue
        # If the data were there in time the matrix units go on at once, to a fraction of a cycle.
        g.compute_end[gpu, slot] = max(start_time, g.matrix_free[gpu, unit]) + cycles
        g.matrix_free[gpu, unit] = g.compute_end[gpu, slot]
        if g.state[gpu, slot] != COMPUTE:
            enter(g, gpu, slot, COMPUTE, now)
    if g.compute_end[gpu, slot] < 0 and g.state[gpu, slot] != LOAD:
        enter(g, gpu, slot, LOAD, now)


@inlined
def begin(kernel: ComputeUnits, gpu: int, slot: int, unit: int, now: int) -> None:
    """End a workgroup's launch: its first step can be loaded."""
    g = kernel.state
    step = kernel.work.groups[g.group[gpu, slot]].first_step
    g.loading[gpu, slot] = NONE
    g.load_step[gpu, slot] = step
    g.load_turn[gpu, slot] = 0
    g.load_line[gpu, slot] = 0
    g.refused[gpu, slot] = -1
    g.outstanding[gpu, slot] = 0
    g.loaded[gpu, slot] = 0
    g.computed[gpu, slot] = 0
    g.compute_step[gpu, slot] = step
    g.compute_turn[gpu, slot] = 0
    g.compute_end[gpu, slot] = -1.0
    if not kernel.work.persistent:
        g.port_free[gpu, unit] = max(g.port_free[gpu, unit], float(now))
    enter(g, gpu, slot, LOAD, now)


@inlined
def step_computed(kernel: ComputeUnits, gpu: int, slot: int, now: int) -> bool:
    """Count a step; True: the workgroup stores now."""
    g, group = kernel.state, kernel.work.groups[kernel.state.group[gpu, slot]]
    row = g.compute_step[gpu, slot]
    step = kernel.work.steps[row]
    g.store_step[gpu, slot] = row
    g.store_turn[gpu, slot] = g.compute_turn[gpu, slot]
    g.computed[gpu, slot] += 1
    g.compute_turn[gpu, slot] += 1
    if g.compute_turn[gpu, slot] == step.repeats:
        g.compute_turn[gpu, slot] = 0
        g.compute_step[gpu, slot] = row + 1
    if step.stores == 0 and g.compute_step[gpu, slot] < group.first_step + group.steps:
        return False
    g.store_block[gpu, slot] = step.first_store
    g.store_row[gpu, slot] = 0
    g.store_line[gpu, slot] = 0
    enter(g, gpu, slot, STORE_MEMORY, now)
    return True


@inlined
def use_port(kernel: ComputeUnits, sim: Sim, gpu: int, slot: int, unit: int, now: int) -> int | np.int64:
    """Send a workgroup's loads or stores while the port allows. Return the next cycle to do so; NEVER: all are sent."""
    g = kernel.state
    if g.state[gpu, slot] >= STORE_MEMORY:
        return NEVER if g.store_step[gpu, slot] == ENDING else send_stores(kernel, sim, gpu, slot, unit, now)
    if g.loading[gpu, slot] == SENDING and g.state[gpu, slot] >= LOAD:
        return send_loads(kernel, sim, gpu, slot, unit, now)
    return NEVER
