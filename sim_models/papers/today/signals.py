"""Latency floor and knee of what tells GPUs that few bytes have come; the Tracker's from the RTL.

Each way is an all-reduce of few bytes that nothing hides. A flag lies in the data, beside each word or in each line;
kernels poll flags and counters that others set, or counters to which a switch adds; the host waits for copies; Track &
Trigger counts the bytes that memory takes. Kernels have their launches, not what a host needs between two calls, which
is nothing in a graph.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from t3sim.analytic.libraries.collectives import copies_ns, in_switch_ns, triggered_ns, ways
from t3sim.analytic.rings import protocol_ring_ns, protocol_tree_ns, protocols
from t3sim.base import plots
from t3sim.machine import Machine, load_machine
from t3sim.machine.fraction import fraction_of
from t3sim.machine.levels import COMMERCIAL
from t3sim.papers.dma.trigger import TriggerTask
from t3sim.papers.figure import Figure, Findings, Quantities, Results, Scope, Table

_MACHINE, _GPUS = "h100-sxm", 8
_RTL, _FRACTION, _TILE = "h100-t3", 4, (128, 128, 1)
_KB = 1 << 10
_SIZES = tuple(_KB << shift for shift in range(11))  #: 1 KB to 1 MB
_TABLE_SIZES = tuple(_KB << shift for shift in (0, 2, 4, 6, 8, 10))
_OURS = ("tracker, ring", "tracker, direct")


_KIND = "all_reduce"
_MOST = 1 << 40  #: bytes; no knee lies beyond


@dataclass(frozen=True)
class Trigger:
    """Time that Track & Trigger takes from the grant of the last write of a tile."""

    counted_ns: float  #: until the Tracker has counted it
    read_ns: float  #: until the first line that is sent on has been read


#: What says that data have come.
CARRIED = {
    "LL": "a flag next to each word", "LL128": "a flag in each 128 bytes", "Simple": "a counter of chunks, polled",
    "one-shot": "a flag of each GPU, polled", "two-shot": "a flag of each GPU, and a barrier",
    "two-shot, packets": "a flag next to each word", "copy-engines": "signals to the host",
    "in-switch": "counters to which the switch adds", "in-switch, flags": "a flag in the data, after one counter",
    "tracker, ring": "bytes counted at memory", "tracker, direct": "bytes counted at memory"}


def signal_ns(machine: Machine, gpus: int, size: float, trigger: Trigger) -> dict[str, float]:
    """Return the times of the ways that a machine has, by name."""
    times = {name: machine.rings.launch_ns + min(protocol_ring_ns(machine, protocol, _KIND, gpus, size),
                                                 protocol_tree_ns(machine, protocol, gpus, size))
             for name, protocol in protocols(machine).items()}
    times |= ways(machine, _KIND, gpus, size)  # kernels that poll
    times["copy-engines"] = copies_ns(machine, _KIND, gpus, size)
    if machine.in_switch is not None:
        times["in-switch"] = min(in_switch_ns(machine, _KIND, gpus, size, shots=shots) for shots in (1, 2))
        times["in-switch, flags"] = in_switch_ns(machine, _KIND, gpus, size, flags=True)
    for way in ("ring", "direct"):
        times[f"tracker, {way}"] = (triggered_ns(machine, _KIND, gpus, size, way, trigger.read_ns)
                                    + trigger.counted_ns)
    return times


def knee_bytes(time_ns: Callable[[float], float], floor_ns: float) -> float:
    """Return the largest number of bytes that take at most twice as long as few do."""
    low, high = 0.0, float(_MOST)
    while high - low > 1:
        middle = (low + high) / 2
        low, high = (middle, high) if time_ns(middle) <= 2 * floor_ns else (low, middle)
    return low


@cache
def _task() -> TriggerTask:
    return TriggerTask(fraction_of(load_machine(_RTL), _FRACTION), *_TILE)


def _evaluate(setup: Scope, results: Results) -> Findings:
    machine, trigger_times = load_machine(_MACHINE, COMMERCIAL), results[_task()]
    clock = _task().machine.memory_clock_ghz
    trigger = Trigger(trigger_times.update_cycles[1] / clock, trigger_times.read_cycles[1] / clock)
    ways_at = {size: signal_ns(machine, _GPUS, size, trigger) for size in _SIZES}
    times = {name: {size: ns[name] for size, ns in ways_at.items()} for name in ways_at[_KB]}
    floors = {name: by_size[_KB] for name, by_size in times.items()}
    knees = {name: knee_bytes(lambda size, name=name: signal_ns(machine, _GPUS, size, trigger)[name], floor)
             for name, floor in floors.items()}
    today_ways = [name for name in times if name not in _OURS]
    best = {size: min(today_ways, key=lambda name: times[name][size]) for size in _SIZES}
    last_ns = times[_OURS[1]][_SIZES[-1]]
    ours = Quantities("beyond the papers")
    for name in times:
        ours.add(f"{name}: floor", floors[name] / 1e3, "µs")
        ours.add(f"{name}: knee", knees[name] / _KB, "KB")
    for event, (least, median) in (("counted", trigger_times.update_cycles),
                                   ("first line read", trigger_times.read_cycles)):
        ours.add(f"trigger, {event}, least", least, "cycles")
        ours.add(f"trigger, {event}, median", median, "cycles")
    ours.add("trigger, first line read, median", trigger.read_ns, "ns")
    return Findings(
        text=f"Of the ways available today, {best[_KB]} has the lowest floor ({floors[best[_KB]] / 1e3:.1f} µs for 1 "
             f"KB on {_GPUS} GPUs of {_MACHINE}), and {best[_SIZES[-1]]} is the fastest at 1 MB "
             f"({times[best[_SIZES[-1]]][_SIZES[-1]] / 1e3:.1f} µs). A Tracker whose tiles go directly to their owners "
             f"needs {floors[_OURS[1]] / 1e3:.1f} and {last_ns / 1e3:.1f} µs, because no kernel is launched and its "
             f"trigger adds only {trigger.read_ns:.0f} ns to each step. Around a ring the latencies of the links make "
             f"it {floors[_OURS[0]] / 1e3:.1f} µs.",
        cases=[{"figure": "today-signals", "machine": _MACHINE, "gpus": _GPUS, "way": name, "carried": CARRIED[name],
                "floor_ns": floors[name], "knee_bytes": knees[name],
                "ns": {str(size): ns for size, ns in by_size.items()}} for name, by_size in times.items()],
        ours=ours,
        tables=[Table(f"All-reduce on {_GPUS} GPUs of {_MACHINE}, without overlap (µs)",
                      ("way", "signal", *(f"{size // _KB:,} KB" for size in _TABLE_SIZES),
                       "knee (KB)"),
                      [(name, CARRIED[name], *(f"{by_size[size] / 1e3:.1f}" for size in _TABLE_SIZES),
                        f"{knees[name] / _KB:,.0f}")
                       for name, by_size in sorted(times.items(), key=lambda item: floors[item[0]])]),
                Table(f"A trigger on the RTL of 1/{_FRACTION} of {_RTL}, from the grant of a tile's last write",
                      ("event", "cycles, smallest", "cycles, median", "ns, median"),
                      [(event, f"{least}", f"{median:.0f}", f"{median / clock:.0f}") for event, (least, median) in (
                          ("counted by the Tracker", trigger_times.update_cycles),
                          ("given to an engine", trigger_times.issue_cycles),
                          ("first line requested", trigger_times.line_cycles),
                          ("first line read", trigger_times.read_cycles))])],
        plots={"today-signals": lambda: _draw(times, best)})


def _draw(times: dict[str, dict[int, float]], best: dict[int, str]):
    figure, axes = plots.figure(3.0)
    sizes = [size / _KB for size in _SIZES]
    colours = dict(zip(dict.fromkeys(best.values()), (plots.ORANGE, plots.GREEN, plots.RED, plots.PURPLE)))
    colours |= dict.fromkeys(_OURS, plots.BLUE)
    for name, by_size in times.items():
        axes.plot(sizes, [ns / 1e3 for ns in by_size.values()], color=colours.get(name, plots.LIGHT),
                  label=name if name in colours else "_", linestyle="--" if name == _OURS[0] else "-",
                  linewidth=1.6 if name in colours else 1.0)
    axes.plot([], color=plots.LIGHT, linewidth=1.0, label="other ways of today")
    plots.log_axis(axes, "x", sizes)
    plots.log_axis(axes, "y")
    axes.set_xlabel("size of the tensor (KB)")
    axes.set_ylabel("time of an all-reduce (µs)")
    axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=6)
    return figure


SIGNALS = Figure("today-signals", "Cheapest signals that few bytes have arrived", lambda setup: [_task()],
                 _evaluate, short="signals", paper="today")
