"""Collectives among processes: kernels and whatever else simpy steps."""

import simpy

from t3sim.event.flow.collective import FlowNetwork
from t3sim.event.flow.layout import Layout


class SimpyNetwork:
    """A network whose collectives begin and end at times of a simpy environment."""

    def __init__(self, env: simpy.Environment, layout: Layout) -> None:
        self.env, self.network = env, FlowNetwork(layout)
        self._ends: dict[int, simpy.Event] = {}
        self._starts = 0

    def start(self, play: int) -> simpy.Event:
        """Start a collective of the layout and return the event of its end."""
        self._ends[play] = self.env.event()
        self.network.begin(play, self.env.now)
        self._starts += 1
        self.env.process(self._follow(self._starts))
        return self._ends[play]

    def _follow(self, starts: int):
        """Go from one time at which something is due to the next, until another collective starts."""
        while (due := self.network.due) is not None:
            yield self.env.timeout(max(due - self.env.now, 0.0))
            if starts != self._starts:
                return
            while self.network.advance(self.env.now):
                for play in [one for one in self._ends if self.network.has_ended(one)]:
                    self._ends.pop(play).succeed()
