"""Compute units that take one tile after the other."""

import heapq
from collections.abc import Callable, Iterable

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


def run_slices(places: int, task_ns: float, sizes: Iterable[int], finish: Finish) -> float:
    """Give the tasks of slices in their order to the places that are free first; return when the last is finished.

    `sizes`: tasks of each slice. `finish(slice, computed)`: when the place of a slice's last task is rid of the slice;
    the others go on before.
    """
    free, last = [(0.0, places)], 0.0  # places that are free at the same time
    for number, left in enumerate(sizes):
        computed = 0.0
        while left:
            at, count = heapq.heappop(free)
            taken = min(left, count)
            if count > taken:
                heapq.heappush(free, (at, count - taken))
            left, computed = left - taken, at + task_ns
            if left or taken > 1:
                heapq.heappush(free, (computed, taken if left else taken - 1))
        end = finish(number, computed)
        heapq.heappush(free, (end, 1))
        last = max(last, end)
    return last
