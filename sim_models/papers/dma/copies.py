"""Copies by one engine of an MI355X as others measured them, beside constants that were not taken from them."""

from t3sim.base.csv_rows import csv_rows
from t3sim.event.flow.commands import Command, Queue
from t3sim.event.flow.dma import run_queues
from t3sim.machine import Machine, load_machine
from t3sim.machine.levels import ENGINES
from t3sim.papers.figure import Figure, Findings, Quantities, Results, Scope, Table

_KB = 1 << 10


def interval_ns(node: Machine, size_bytes: float) -> float:
    """Return the time from copy to copy in a queue that a kernel fills with copies of the same buffer."""
    few, many = (run_queues(node, [Queue(0, (Command(0, (1,), in_order=True),) * count)], size_bytes, "gpu").ns
                 for count in (10, 20))
    return (many - few) / 10


def evaluate(setup: Scope, results: Results) -> Findings:
    node, rows, errors = load_machine("mi355x", ENGINES), [], []
    for one in csv_rows("t3sim.event.flow.measured", "sdma_copies"):
        size, measured = int(one["bytes"]), float(one["gb_per_s"])
        ours = size / interval_ns(node, size)
        errors.append(100 * (ours / measured - 1))
        rows.append((f"{size // _KB} KB", f"{measured:.0f}", f"{ours:.1f}", f"{errors[-1]:+.1f} %"))
    round_trip_us = run_queues(node, [Queue(0, (Command(0, (1,)),))], _KB, "gpu").ns / 1e3
    small = Queue(0, (Command(0, (1,)),) * 64)
    scattered_us = run_queues(node, [small], 4 * _KB, "gpu").ns / 1e3
    worst = max(errors, key=abs)
    ours = Quantities()
    ours.add("copy_error_max_percent", abs(worst), "%", "copies on MI355X, largest error", at_most=10)
    ours.add("round_trip_us", round_trip_us, "µs", "copy of 1 KB started by a kernel, MI355X", 6, tolerance=0.6)
    ours.add("scattered_copies_us", scattered_us, "µs", "64 copies of 4 KB, MI355X", 138, tolerance=13.8)
    return Findings(
        text=f"From the constants of an MI300X and the data sheet's link, copies of 64 KB to 8 MB are within "
             f"{abs(worst):.1f} % of those measured on an MI355X; none was taken from there. A copy of 1 KB that "
             f"a kernel starts and waits for takes {round_trip_us:.1f} µs (measured: about 6). What does not fit: 64 "
             f"copies of 4 KB to different places take {scattered_us:.0f} µs here, where independent copies of a queue "
             "overlap, as the paper says of the MI300X; the MI355X was measured at 138 µs, one after the other.",
        ours=ours, targets=ours.targets,
        tables=[Table("GB/s", ("size", "measured", "here", "difference"), rows)])


COPIES = Figure("sdma-copies", "Copies by one engine of an MI355X", lambda setup: (), evaluate, short="copies",
                paper="dma")
