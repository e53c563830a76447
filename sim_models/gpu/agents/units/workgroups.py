"""Start of a kernel's workgroups, what each waits for before its first load, and its end."""

import numpy as np

from t3sim.base.compiled.jit import compiled, inlined
from t3sim.gpu.agents.units.state import BLOCKED, IDLE, LAUNCH, POLL, UnitsKernel, enter, is_over, wake
from t3sim.gpu.engine.hardware import Hardware, inputs_complete, may_start, nothing_to_start
from t3sim.gpu.state import Sim


@compiled
def dispatch(kernel: UnitsKernel, sim: Sim, hardware: Hardware | None, device: int, now: int) -> None:
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
def start_next(kernel: UnitsKernel, hardware: Hardware | None, device: int, slot: int, now: int) -> bool:
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
def has_work(kernel: UnitsKernel, device: int, now: int) -> bool:
    """Return whether the present phase has begun and has a workgroup that has not been started."""
    g = kernel.state
    return (not is_over(kernel, device) and g.next_wg[device] < kernel.work.phase_end[device, g.phase[device]]
            and now >= g.opens[device])


@inlined
def free_place(kernel: UnitsKernel, device: int) -> int:
    """Find a place without a workgroup, by turn of the unit whose turn it is; -1 if there is none."""
    g, units = kernel.state, kernel.rates.units
    begin, end = 0, g.working[device]
    if kernel.work.by_turn:
        begin = g.next_wg[device] % end
        end = begin + 1
    for first in range(0, g.state.shape[1], units):
        for slot in range(first + begin, first + end):
            if g.state[device, slot] <= BLOCKED:
                return slot
    return -1


@inlined
def start(kernel: UnitsKernel, device: int, slot: int, group: int, member: int,
          now: int) -> tuple[int | np.int64, int | np.int64]:
    """Give a place a group's workgroup of this number; the group and number of the next one."""
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
def end(kernel: UnitsKernel, sim: Sim, device: int, slot: int, now: int) -> None:
    """Free the place of a workgroup that has ended."""
    g, work = kernel.state, kernel.work
    if len(work.raises):
        sim.control.signals[device, work.raises[g.group[device, slot]]] += 1
    enter(g, device, slot, IDLE, now)
    g.adding[device, slot] = 0
    g.wg[device, slot] = -1
    g.idle[device] += 1
    g.finished[device] += 1
    g.finish_time[device] = now


@inlined
def polls(kernel: UnitsKernel, sim: Sim, device: int, slot: int, now: int) -> bool:
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
def all_set(kernel: UnitsKernel, sim: Sim, device: int, wait: np.record) -> bool:
    """Return whether all signals are set that are waited for."""
    for signal in range(wait.first, wait.last + 1):
        if sim.control.signals[device, signal] < kernel.work.signals[device, signal]:
            return False
    return True
