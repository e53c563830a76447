"""Ways in which GPUs learn that data have come, each as an all-reduce of few bytes that nothing hides.

A flag lies in the data, beside each word or in each line; kernels poll flags and counters that others set, or counters
to which a switch adds; the host waits for copies; Track & Trigger counts the bytes that memory takes. Kernels have
their launches, not what a host needs between two calls, which is nothing in a graph.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from t3sim.analytic.libraries.algorithms import copies_ns
from t3sim.analytic.libraries.direct import ways
from t3sim.analytic.libraries.in_switch import in_switch_ns
from t3sim.analytic.libraries.triggered import triggered_ns
from t3sim.analytic.rings import protocol_ring_ns, protocol_tree_ns, protocols
from t3sim.machine import Machine

_KIND = "all_reduce"
_MOST = 1 << 40  #: bytes; no knee lies beyond


@dataclass(frozen=True)
class Trigger:
    """Time that Track & Trigger takes from the grant of the last write of a tile."""

    counted_ns: float  #: until the Tracker has counted it
    read_ns: float  #: until the first line that is sent on has been read


class Signal(NamedTuple):
    """A way to learn that data have come."""

    carried: str  #: what says so
    ns: Callable[[Machine, int, float, Trigger], float]


def _by_protocol(name: str, machine: Machine, gpus: int, size: float, trigger: Trigger) -> float:
    one = protocols(machine)[name]
    return machine.rings.launch_ns + min(protocol_ring_ns(machine, one, _KIND, gpus, size),
                                         protocol_tree_ns(machine, one, gpus, size))


def _by_kernel(way: str, machine: Machine, gpus: int, size: float, trigger: Trigger) -> float:
    return ways(machine, _KIND, gpus, size)[way]


def _by_engines(machine: Machine, gpus: int, size: float, trigger: Trigger) -> float:
    return copies_ns(machine, _KIND, gpus, size)


def _in_switch(flags: bool, machine: Machine, gpus: int, size: float, trigger: Trigger) -> float:
    if flags:
        return in_switch_ns(machine, _KIND, gpus, size, flags=True)
    return min(in_switch_ns(machine, _KIND, gpus, size, shots=shots) for shots in (1, 2))


def _by_tracker(way: str, machine: Machine, gpus: int, size: float, trigger: Trigger) -> float:
    return triggered_ns(machine, _KIND, gpus, size, way, trigger.read_ns) + trigger.counted_ns


_SIGNALS = {
    "LL": Signal("a flag beside each word", partial(_by_protocol, "LL")),
    "LL128": Signal("a flag in each 128 bytes", partial(_by_protocol, "LL128")),
    "Simple": Signal("a counter of chunks, polled", partial(_by_protocol, "Simple")),
    "one-shot": Signal("a flag of each GPU, polled", partial(_by_kernel, "one-shot")),
    "two-shot": Signal("the same, and a barrier", partial(_by_kernel, "two-shot")),
    "two-shot, packets": Signal("a flag beside each word", partial(_by_kernel, "two-shot, packets")),
    "copy-engines": Signal("signals to the host", _by_engines),
    "in-switch": Signal("counters to which the switch adds", partial(_in_switch, False)),
    "in-switch, flags": Signal("a flag in the data, after one counter", partial(_in_switch, True)),
    "tracker, ring": Signal("bytes that memory took", partial(_by_tracker, "ring")),
    "tracker, direct": Signal("bytes that memory took", partial(_by_tracker, "direct")),
}


def signals(machine: Machine) -> dict[str, Signal]:
    """Return the ways that a machine has, by name."""
    without = {"in-switch", "in-switch, flags"} if machine.in_switch is None else set()
    without |= set() if machine.direct.packets else {"two-shot, packets"}
    return {name: one for name, one in _SIGNALS.items() if name not in without}


def knee_bytes(of: Callable[[float], float], floor_ns: float) -> float:
    """Return the largest number of bytes that take at most twice as long as few do."""
    low, high = 0.0, float(_MOST)
    while high - low > 1:
        middle = (low + high) / 2
        low, high = (middle, high) if of(middle) <= 2 * floor_ns else (low, middle)
    return low
