"""A tile whose Tracker is sound: what is refused changes nothing of it, what comes after it fired is not its own."""

import numpy as np
import pytest

from t3sim.trace.explain_run import explain_run
from t3sim.trace.explain_tile import explain_tile
from t3sim.trace.replay import DeviceReplay
from t3sim.trace.schema import COMPLETE, EXCEEDS, REFUSED, Kind
from t3sim.trace.store import Trace
from tests.support.recorded import ring

pytestmark = [pytest.mark.builds_rtl, pytest.mark.builds_loops]


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    return ring(tmp_path_factory)


def changed(trace: Trace, *added: np.ndarray) -> Trace:
    """The same recording with more events."""
    found = Trace(trace.folder, trace.run)
    events = np.concatenate([trace.events, *added])
    found.__dict__["events"] = events[np.argsort(events["cycle"], kind="stable")]
    return found


def updates_of_a_tile(trace: Trace) -> np.ndarray:
    """The updates of a tile of GPU 1 that fires after several of them."""
    e = trace.events
    updates = e[(e["device"] == 1) & (e["kind"] == Kind.UPDATE)]
    fired = updates[(updates["flags"] & COMPLETE) != 0]
    for one in fired:
        mine = updates[(updates["wg"] == one["wg"]) & (updates["wf"] == one["wf"])]
        if len(mine) > 3 and mine["cycle"][1] > mine["cycle"][0] + 1:
            return mine
    raise AssertionError("no such tile")


def refusal(update: np.void, cycle: int, flags: int = REFUSED) -> np.ndarray:
    one = np.array([update])
    one["cycle"], one["flags"], one["region"], one["b"], one["c"] = cycle, flags, 0, 0, -1
    return one


@pytest.mark.parametrize("flags", [REFUSED, REFUSED | EXCEEDS])
def test_what_is_refused_changes_nothing_of_its_tile(trace, flags):
    mine = updates_of_a_tile(trace)
    wg, wf = int(mine["wg"][0]), int(mine["wf"][0])
    before = explain_tile(trace, wg, wf, 1).verdict
    again = changed(trace, refusal(mine[0], int(mine["cycle"][0]) + 1, flags))
    answer = explain_tile(again, wg, wf, 1)
    text = " ".join(answer.verdict)
    assert answer.verdict[0] == before[0] and "went past" not in text and "more was sent" not in text
    assert f"1 update of {mine['amount'][0]} bytes named a region that is not tracked: refused" in text
    told = [line for _, line in explain_run(again).steps]
    assert any(f"wg {wg} wf {wf}" in line and "an update was refused, as its region is not tracked" in line
               for line in told)

    replay, at = DeviceReplay(again, 1), int(mine["cycle"][0]) + 1
    held = {(int(e["wg"]), int(e["wf"])): int(e["a"]) for e in replay.open_tiles(at)}
    assert held[wg, wf] == mine["a"][0]


def test_bytes_after_a_tile_fired_are_not_its_own(trace):
    mine = updates_of_a_tile(trace)
    wg, wf, end = int(mine["wg"][0]), int(mine["wf"][0]), int(mine["cycle"][-1])
    before = explain_tile(trace, wg, wf, 1).verdict[0]
    late = np.array([mine[0]])
    late["cycle"], late["a"] = end + 2, late["amount"]
    verdict = explain_tile(changed(trace, late), wg, wf, 1).verdict
    assert verdict[0] == before
    assert any(f"After it fired, from cycle {end + 2:,} on, {late['amount'][0]} bytes more were counted" in line
               for line in verdict)
    assert not any("Missing" in line for line in verdict)
