"""What a trigger costs is read from a recorded run of the RTL, and is what the event level takes for it."""

import numpy as np
import pytest

from t3sim.machine import load_machine
from t3sim.machine.levels import ENGINES
from t3sim.papers.dma.trigger import TriggerTask, _times
from t3sim.trace.schema import COMPLETE, EVENT, READ, Kind

pytestmark = [pytest.mark.builds_rtl, pytest.mark.builds_loops]


def test_cycles_are_counted_from_the_last_write_of_what_is_copied():
    """Two wavefronts are one copy; the second one's write is the last."""
    rows = [(10, Kind.DECIDE, 0, 1), (30, Kind.DECIDE, 1, 1), (35, Kind.DECIDE, 1, READ), (18, Kind.UPDATE, 0, 0),
            (37, Kind.UPDATE, 1, 0), (41, Kind.ISSUE, 0, 0), (45, Kind.LINE, 0, 0), (46, Kind.LINE, 1, 0),
            (60, Kind.SERVE, 0, READ), (70, Kind.SERVE, 1, READ), (32, Kind.SERVE, 1, 1)]
    events = np.zeros(len(rows), EVENT)
    for event, (cycle, kind, wavefront, op) in zip(events, rows):
        event["cycle"], event["kind"], event["wf"], event["op"] = cycle, kind, wavefront, op
        event["flags"], event["amount"] = COMPLETE if kind == Kind.UPDATE else 0, 64
    other = events[:1].copy()  # a tile that is not sent on
    other["wg"] = 5
    times = _times(np.concatenate([events, other]), 2)
    assert (times.copies, times.copy_bytes) == (1, 128)
    assert (times.update_cycles, times.issue_cycles, times.line_cycles, times.read_cycles) == (
        (7, 7.0), (11, 11.0), (15, 15.0), (30, 30.0))


@pytest.mark.slow
def test_the_event_level_takes_what_the_rtl_takes():
    dram = {"queue_entries": 64, "write_high_watermark": 32, "write_low_watermark": 8}  # what mi300x was read with
    machine = load_machine({"extends": "t3-table1", "dram": dram})
    times = TriggerTask(machine, 128, 128, 1).run(lambda fraction: None)
    tracker = load_machine("mi300x", ENGINES).tracker
    assert times.copies == 64 and times.copy_bytes == 4096
    assert times.issue_cycles[0] < 16
    assert tracker.trigger_ns == pytest.approx(times.issue_cycles[1], abs=1)
    assert tracker.trigger_ns + tracker.copy_ns == pytest.approx(times.read_cycles[1], abs=1)
