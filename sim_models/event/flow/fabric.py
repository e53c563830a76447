"""Resources with a bandwidth, and flows over them: the network, memories and ports of the event level."""

from collections.abc import Callable, Hashable, Mapping

import numpy as np
import simpy

from t3sim.analytic.fair import fair_rates

#: Bytes that are left of a flow for rounding's sake.
_ROUNDING = 1e-6


class Fabric:
    """Bandwidths that flows share fairly.

    Rates change only when a flow starts or ends; all that start or end at one moment are taken together. Bytes that
    went through each resource are in `moved`.
    """

    def __init__(self, env: simpy.Environment, bytes_per_ns: Mapping[Hashable, float]) -> None:
        self.env = env
        self._index = {name: place for place, name in enumerate(bytes_per_ns)}
        self._capacity = np.array(list(bytes_per_ns.values()), float)
        self.moved = dict.fromkeys(bytes_per_ns, 0.0)
        self._done: list[simpy.Event] = []  # of each flow under way
        self._left, self._rates = np.empty(0), np.empty(0)  # bytes, bytes per ns
        # Which flow takes which resource how often: one entry each.
        self._flow, self._resource, self._weight = np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)
        self._new: list[tuple[float, Mapping[Hashable, float], simpy.Event]] = []
        self._since, self._round = 0.0, 0
        self._changing = False
        #: What is told the time and the bytes per ns of each resource, in the order given, whenever they change.
        self.watch: Callable[[float, np.ndarray], None] | None = None

    def move(self, size_bytes: float, uses: Mapping[Hashable, float]) -> simpy.Event:
        """Start a flow and return the event of its end. `uses`: resource, and bytes of it per byte of the flow."""
        done = self.env.event()
        for name, weight in uses.items():
            self.moved[name] += weight * size_bytes
        if size_bytes <= 0:
            return done.succeed()
        self._new.append((float(size_bytes), uses, done))
        self._change()
        return done

    def _change(self) -> None:
        """Compute rates anew, once for all changes of this moment."""
        if not self._changing:
            self._changing = True
            self.env.process(self._settle())

    def _settle(self):
        yield self.env.timeout(0)
        self._changing = False
        self._account()
        self._round += 1
        self._admit()
        if flows := len(self._done):
            self._rates = fair_rates(self._capacity, self._flow, self._resource, self._weight, flows)
        if self.watch is not None:
            self.watch(self.env.now, np.bincount(self._resource, self._weight * self._rates[self._flow],
                                                 len(self._capacity)))
        if not flows:
            return
        self.env.process(self._finish(float(np.min(self._left / self._rates)), self._round))

    def _admit(self) -> None:
        """Let what started at this moment join the flows under way."""
        if not self._new:
            return
        first, sizes = len(self._done), [size for size, _, _ in self._new]
        self._left = np.concatenate([self._left, sizes])
        self._rates = np.concatenate([self._rates, np.zeros(len(sizes))])
        self._flow = np.concatenate([self._flow, np.repeat(np.arange(first, first + len(sizes)),
                                                           [len(uses) for _, uses, _ in self._new])])
        self._resource = np.concatenate([self._resource, np.array(
            [self._index[name] for _, uses, _ in self._new for name in uses], np.int64)])
        self._weight = np.concatenate([self._weight, np.array(
            [weight for _, uses, _ in self._new for weight in uses.values()], float)])
        self._done += [done for _, _, done in self._new]
        self._new = []

    def _finish(self, wait: float, round_: int):
        begun = self.env.now
        yield self.env.timeout(wait)
        if round_ != self._round:
            return  # rates have changed since
        self._account()
        # Flows that would end within rounding of now end together.
        ended = self._left <= _ROUNDING + 1e-9 * self._rates * wait
        if self.env.now == begun:  # so late that the clock does not tell so short a wait
            ended |= self._left <= (1 + 1e-9) * self._rates * wait
        kept = ~ended
        for flow in np.flatnonzero(ended):
            self._done[flow].succeed()
        self._done = [self._done[flow] for flow in np.flatnonzero(kept)]
        number = np.cumsum(kept) - 1  # of a flow that stays, from now on
        stays = kept[self._flow]
        self._flow = number[self._flow[stays]]
        self._resource, self._weight = self._resource[stays], self._weight[stays]
        self._left, self._rates = self._left[kept], self._rates[kept]
        self._change()

    def _account(self) -> None:
        elapsed, self._since = self.env.now - self._since, self.env.now
        with np.errstate(invalid="ignore"):  # a flow over nothing is infinitely fast
            self._left = np.maximum(self._left - self._rates * elapsed, 0.0) if elapsed else self._left
