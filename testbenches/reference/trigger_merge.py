"""Reference for `t3sim.rtl.track.trigger_merge`, transaction-level: which merged order is legal.

Legal: each input's items in their order, every item exactly once, one output per accepted input.
"""

from collections import deque


class MergeModel:
    """Scoreboard of streams that are merged; items are any comparable values."""

    def __init__(self, inputs: int):
        self._waiting = [deque() for _ in range(inputs)]

    @property
    def waiting(self) -> int:
        return sum(map(len, self._waiting))

    def accepted(self, number: int, item) -> None:
        self._waiting[number].append(item)

    def delivered(self, item) -> int:
        """Return the input whose oldest item this is; an error if there is none."""
        for number, queue in enumerate(self._waiting):
            if queue and queue[0] == item:
                queue.popleft()
                return number
        raise AssertionError(f"{item} is not the oldest item of any input")
