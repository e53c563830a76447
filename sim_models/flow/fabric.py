"""Resources with a bandwidth, and flows over them: the network, memories and ports of the event level."""

from collections.abc import Hashable, Mapping

import numpy as np
import simpy

from .fair import fair_rates

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
        self._left: dict[int, float] = {}  # bytes of each flow under way
        self._uses: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self._done: dict[int, simpy.Event] = {}
        self._rates: dict[int, float] = {}
        self._next, self._since, self._round = 0, 0.0, 0
        self._changing = False

    def move(self, size_bytes: float, uses: Mapping[Hashable, float]) -> simpy.Event:
        """Start a flow and return the event of its end. `uses`: resource, and bytes of it per byte of the flow."""
        done = self.env.event()
        for name, weight in uses.items():
            self.moved[name] += weight * size_bytes
        if size_bytes <= 0:
            return done.succeed()
        key, self._next = self._next, self._next + 1
        self._left[key], self._done[key] = float(size_bytes), done
        places = np.array([self._index[name] for name in uses], np.int64)
        self._uses[key] = places, np.array(list(uses.values()), float)
        self._change()
        return done

    def _change(self) -> None:
        """Rates are computed anew once for all changes of this moment."""
        if not self._changing:
            self._changing = True
            self.env.process(self._settle())

    def _settle(self):
        yield self.env.timeout(0)
        self._changing = False
        self._account()
        self._round += 1
        keys = list(self._left)
        if not keys:
            return
        flow = np.repeat(np.arange(len(keys)), [len(self._uses[key][0]) for key in keys])
        rates = fair_rates(self._capacity, flow, np.concatenate([self._uses[key][0] for key in keys]),
                           np.concatenate([self._uses[key][1] for key in keys]), len(keys))
        self._rates = dict(zip(keys, rates))
        wait = min(self._left[key] / self._rates[key] for key in keys)
        self.env.process(self._finish(wait, self._round))

    def _finish(self, wait: float, round_: int):
        yield self.env.timeout(wait)
        if round_ != self._round:
            return  # rates have changed since
        self._account()
        # Flows that would end within rounding of now end together.
        for key in [key for key, left in self._left.items() if left <= _ROUNDING + 1e-9 * self._rates[key] * wait]:
            del self._left[key], self._uses[key], self._rates[key]
            self._done.pop(key).succeed()
        self._change()

    def _account(self) -> None:
        elapsed, self._since = self.env.now - self._since, self.env.now
        for key, rate in self._rates.items():
            self._left[key] -= rate * elapsed
