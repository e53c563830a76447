"""Start of a kernel's workgroups, their wait for signals before the first load, and their end."""

import numpy as np

from t3sim.base.compiled.jit import compiled, inlined
from t3sim.gpu.agents.units.state import BLOCKED, IDLE, LAUNCH, POLL, UnitsKernel, enter, is_over, wake
from t3sim.gpu.engine.hardware import Hardware, inputs_complete, may_start, nothing_to_start
from t3sim.gpu.state import Sim


@compiled
def dispatch(kernel: UnitsKernel, sim: Sim, hardware: Hardware | None, gpu: int, now: int) -> None:
    """Give the next workgroup to a free place, if the hardware's window lets it start."""
    g = kernel.state
    slot = -1
    if g.idle[gpu] > 0 and now >= sim.control.start[gpu] and has_work(kernel, gpu, now):
        slot = free_place(kernel, gpu)
    if slot < 0:
        nothing_to_start(hardware, gpu)
    elif start_next(kernel, hardware, gpu, slot, now):
        wake(kernel, gpu, slot)
    else:
        sim.control.blocked_cycles[gpu] += 1
        for other in range(g.state.shape[1]):
            if g.state[gpu, other] == IDLE and other % kernel.rates.units < g.working[gpu]:
                enter(g, gpu, other, BLOCKED, now)


@compiled
def start_next(kernel: UnitsKernel, hardware: Hardware | None, gpu: int, slot: int, now: int) -> bool:
    """Give a place the next workgroup that may start, of the window's queue first; False: none may."""
    g, work = kernel.state, kernel.work
    group = g.next_group[gpu]
    if (not work.two_queues or group < work.beside[gpu, 0]) and may_start(hardware, gpu):
        g.next_group[gpu], g.next_member[gpu] = start(kernel, gpu, slot, group, g.next_member[gpu], now)
        return True
    if work.two_queues:
        nothing_to_start(hardware, gpu)
        group = g.next_beside[gpu]
        if group < work.beside[gpu, 1] and inputs_complete(hardware, gpu, work.needs[group]):
            g.next_beside[gpu], g.member_beside[gpu] = start(
                kernel, gpu, slot, group, g.member_beside[gpu], now)
            return True
    return False


@inlined
def has_work(kernel: UnitsKernel, gpu: int, now: int) -> bool:
    """Return whether the present phase has begun and has a workgroup that has not been started."""
    g = kernel.state
    return (not is_over(kernel, gpu) and g.next_wg[gpu] < kernel.work.phase_end[gpu, g.phase[gpu]]
            and now >= g.opens[gpu])


@inlined
def free_place(kernel: UnitsKernel, gpu: int) -> int:
    """Find a place without a workgroup, by turn of the unit whose turn it is; -1 if there is none."""
    g, units = kernel.state, kernel.rates.units
    begin, end = 0, g.working[gpu]
    if kernel.work.by_turn:
        begin = g.next_wg[gpu] % end
        end = begin + 1
    for first in range(0, g.state.shape[1], units):
        for slot in range(first + begin, first + end):
            if g.state[gpu, slot] <= BLOCKED:
                return slot
    return -1


@inlined
def start(kernel: UnitsKernel, gpu: int, slot: int, group: int, member: int,
          now: int) -> tuple[int | np.int64, int | np.int64]:
    """Give a place a group's workgroup of this number; the group and number of the next one."""
    g, work = kernel.state, kernel.work
    enter(g, gpu, slot, LAUNCH, now)
    g.wg[gpu, slot] = g.next_wg[gpu]
    g.group[gpu, slot] = group
    g.adding[gpu, slot] = group >= work.adds_from[gpu]
    g.member[gpu, slot] = member
    g.ready_time[gpu, slot] = now + work.launch_cycles * g.slowdown[gpu]
    g.next_wg[gpu] += 1
    g.idle[gpu] -= 1
    if member + 1 == work.groups[group].workgroups:
        return group + 1, np.int64(0)
    return np.int64(group), member + 1


@inlined
def end(kernel: UnitsKernel, sim: Sim, gpu: int, slot: int, now: int) -> None:
    """Free the place of a workgroup that has ended."""
    g, work = kernel.state, kernel.work
    if len(work.raises):
        sim.control.signals[gpu, work.raises[g.group[gpu, slot]]] += 1
    enter(g, gpu, slot, IDLE, now)
    g.adding[gpu, slot] = 0
    g.wg[gpu, slot] = -1
    g.idle[gpu] += 1
    g.finished[gpu] += 1
    g.finish_time[gpu] = now


@inlined
def polls(kernel: UnitsKernel, sim: Sim, gpu: int, slot: int, now: int) -> bool:
    """Let a workgroup read the flags that it waits for, if it has not seen them set; return whether it does."""
    g, work = kernel.state, kernel.work
    if len(work.waits) == 0 or work.waits[g.group[gpu, slot]].last == 0:
        return False
    if g.state[gpu, slot] == POLL and all_set(kernel, sim, gpu, work.waits[g.group[gpu, slot]]):
        return False
    enter(g, gpu, slot, POLL, now)
    g.ready_time[gpu, slot] = now + kernel.rates.hit_cycles * g.slowdown[gpu]
    return True


@inlined
def all_set(kernel: UnitsKernel, sim: Sim, gpu: int, wait: np.record) -> bool:
    """Return whether all signals are set that are waited for."""
    for signal in range(wait.first, wait.last + 1):
        if sim.control.signals[gpu, signal] < kernel.work.signals[gpu, signal]:
            return False
    return True
