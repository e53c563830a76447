"""Compute units that take one tile after the other."""

import heapq
from collections import deque
from collections.abc import Callable, Iterable
from functools import cache
from math import inf

Finish = Callable[[int, float], float]


def run_tiles(free: list[float], tile_ns: float, ready: Iterable[float],
              finish: Finish = lambda tile, computed: computed) -> float:
    """Give tiles in their order to the unit that is free first, and return when the last one is finished.

    `free`: when each unit is free, in ns; afterwards when it is free again. `ready`: when each tile's input is there: a
    unit that has taken a tile waits for it. `finish(tile, computed)`: when a unit that has computed a tile is rid of
    its output.
    """
    heapq.heapify(free)
    last = 0.0
    for tile, there in enumerate(ready):
        end = finish(tile, max(free[0], there) + tile_ns)
        heapq.heapreplace(free, end)
        last = max(last, end)
    return last


def run_slices(places: int, task_ns: Callable[[int], float], sizes: Iterable[int], finish: Finish) -> float:
    """Give the tasks of slices in their order to the places that are free; return when the last is finished.

    `task_ns(running)`: a task's time while this many run; all go on at this pace, and at another one when fewer run.
    `sizes`: tasks of each slice. `finish(slice, computed)`: when the place of a slice's last task is rid of the slice;
    the others go on before.
    """
    now = done = last = 0.0  # done: tasks that one would have finished that ran from the beginning
    idle, running, pace = places, 0, cache(task_ns)
    slices = enumerate(sizes)
    number, left = next(slices, (0, 0))
    started: deque[tuple[float, int, int, bool]] = deque()  # done at their end, slice, tasks, are its last
    sending: list[float] = []
    of_running, task = 0, 0.0
    while True:
        while idle and left:
            taken = idle if idle < left else left
            started.append((done + 1, number, taken, taken == left))
            idle, running, left = idle - taken, running + taken, left - taken
            if not left:
                number, left = next(slices, (0, 0))
        if not started and not left:
            return last
        if running != of_running:
            of_running, task = running, pace(running)
        end = now + (started[0][0] - done) * task if started else inf
        if sending and sending[0] < end:
            free = heapq.heappop(sending)
            done += (free - now) / task if running else 0.0
            now, idle = free, idle + 1
            continue
        now, (done, of_slice, count, are_last) = end, started.popleft()
        running, idle = running - count, idle + count
        if are_last:
            rid = finish(of_slice, now)
            if rid > last:
                last = rid
            if rid > now:
                heapq.heappush(sending, rid)
                idle -= 1
