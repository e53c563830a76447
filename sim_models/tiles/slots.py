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
