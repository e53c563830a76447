"""Compute units that take one tile after the other."""

import heapq
from collections import deque
from collections.abc import Callable, Iterable
from functools import cache
from math import inf

Finish = Callable[[int, float], float]


def run_tiles(free: list[float], tile_ns: float, ready: Iterable[float],
              finish: Finish = lambda tile, computed: computed) -> float:
    """Give tiles in order to the first free unit, and return the time at which the last one is finished.

    `free`: time at which each unit is free, in ns; the function updates it. `ready`: time of each tile's input, for
    which the tile's unit waits. `finish(tile, computed)`: time at which a unit that has computed a tile is free of its
    output.
    """
    heapq.heapify(free)
    last_ns = 0.0
    for tile, ready_ns in enumerate(ready):
        end_ns = finish(tile, max(free[0], ready_ns) + tile_ns)
        heapq.heapreplace(free, end_ns)
        last_ns = max(last_ns, end_ns)
    return last_ns


def run_slices(places: int, task_ns: Callable[[int], float], sizes: Iterable[int], finish: Finish) -> float:
    """Give the tasks of slices in their order to the places that are free; return when the last is finished.

    `task_ns(running)`: a task's time while this many run; all go on at this pace, and at another one when fewer run.
    `sizes`: tasks of each slice. `finish(slice, computed)`: when the place of a slice's last task is rid of the slice;
    the others go on before.
    """
    now_ns = progress = last_ns = 0.0  # done: tasks that one would have finished that ran from the beginning
    idle_slots, running_tasks, task_ns_of = places, 0, cache(task_ns)
    slices = enumerate(sizes)
    number, tasks_left = next(slices, (0, 0))
    started: deque[tuple[float, int, int, bool]] = deque()  # done at their end, slice, tasks, are its last
    sending: list[float] = []
    of_running, task = 0, 0.0
    while True:
        while idle_slots and tasks_left:
            starting = idle_slots if idle_slots < tasks_left else tasks_left
            started.append((progress + 1, number, starting, starting == tasks_left))
            idle_slots, running_tasks = idle_slots - starting, running_tasks + starting
            tasks_left -= starting
            if not tasks_left:
                number, tasks_left = next(slices, (0, 0))
        if not started and not tasks_left:
            return last_ns
        if running_tasks != of_running:
            of_running, task = running_tasks, task_ns_of(running_tasks)
        end = now_ns + (started[0][0] - progress) * task if started else inf
        if sending and sending[0] < end:
            free = heapq.heappop(sending)
            progress += (free - now_ns) / task if running_tasks else 0.0
            now_ns, idle_slots = free, idle_slots + 1
            continue
        now_ns, (progress, of_slice, count, are_last) = end, started.popleft()
        running_tasks, idle_slots = running_tasks - count, idle_slots + count
        if are_last:
            released_ns = finish(of_slice, now_ns)
            if released_ns > last_ns:
                last_ns = released_ns
            if released_ns > now_ns:
                heapq.heappush(sending, released_ns)
                idle_slots -= 1
