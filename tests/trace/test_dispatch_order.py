"""GPUs that dispatch out of order, each in an order of its own, with and without ids for what only passes through."""

import numpy as np
import pytest

from t3sim.collectives.schedule import Action, Ids, Limits, Schedule, Shuffle
from t3sim.collectives.schedule.schedule import NO_ID
from t3sim.machine import load_machine
from t3sim.runs.plan import Plan
from t3sim.trace.describe import names
from t3sim.trace.explain_tile import explain_tile
from t3sim.trace.output_map import TileId
from t3sim.trace.recorder import Filter
from t3sim.trace.schema import SOURCES, Kind
from t3sim.trace.store import Trace
from t3sim.workload.workloads import gemm_workload
from tests.support.recorded import DEVICES, MACHINE, make

pytestmark = [pytest.mark.builds_rtl, pytest.mark.builds_loops]

SHAPE = "512x256x64"  #: twice as many workgroups as the window holds


def shuffled(ids: Ids) -> dict[str, object]:
    """Options with a GPU that starts late, so that the window holds others back."""
    return {"ids": ids, "limits": Limits.EXACT, "shuffle": Shuffle(5, seed=3), "start_cycles": (0, 8000, 0, 0)}


@pytest.fixture(scope="module", params=Ids)
def recorded(request, tmp_path_factory) -> tuple[Trace, Schedule]:
    options = shuffled(request.param)
    trace = make(tmp_path_factory.mktemp("shuffled"), shape=SHAPE, varied=options)
    return trace, Plan(load_machine(str(MACHINE)), gemm_workload(SHAPE, DEVICES), **options).schedule


def of(trace: Trace, kind: Kind, device: int) -> np.ndarray:
    return trace.events[(trace.events["kind"] == kind) & (trace.events["device"] == device)]


def test_every_workgroup_starts_once_under_its_name_in_the_order_of_dispatch(recorded):
    """Random orders, tiles without an id, and a late GPU."""
    trace, schedule = recorded
    for device in range(DEVICES):
        started, called = of(trace, Kind.DISPATCH, device), names(schedule, device)
        assert (np.sort(called) == np.arange(len(called))).all() and (np.diff(called) < 0).any()
        assert started["wg"].tolist() == called.tolist()
        rows = schedule.rows(device)
        assert [trace.map.output_tile(device, wg) for wg in called] == rows.tile.tolist()


def test_what_a_workgroup_stores_lies_in_the_tile_that_its_name_says(recorded):
    """Every store's address is compared."""
    trace, _ = recorded
    for device in range(DEVICES):
        entered = of(trace, Kind.ENTER, device)
        stored = entered[(entered["region"] > 0) & (entered["source"] == SOURCES.index("local"))]
        assert len(stored) > 500
        for wg, wf in {(int(e["wg"]), int(e["wf"])) for e in stored}:
            mine = stored[(stored["wg"] == wg) & (stored["wf"] == wf)]
            assert trace.map.place(TileId(device, wg, wf)).holds(mine["address"]).all()


def test_who_is_held_back_starts_next(recorded):
    """The workgroup that waits for the window is the next one to start."""
    trace, _ = recorded
    held = 0
    for device in range(DEVICES):
        started = of(trace, Kind.DISPATCH, device)
        for e in of(trace, Kind.BLOCKED, device):
            assert started["wg"][started["cycle"] >= e["cycle"]][0] == e["wg"]
            held += 1
    assert held > DEVICES


def test_the_life_of_a_tile_is_told_across_gpus(recorded):
    """A tile that goes on is followed under the id that it has at the neighbour."""
    trace, schedule = recorded
    rows = schedule.rows(1)
    for action, words in ((Action.SEND_DMA, "It fired"), (Action.EVENT, "It fired"),
                          (Action.SEND_STORES, "bytes left")):
        row = np.flatnonzero(rows.actions & action)[3]
        wg = int(names(schedule, 1)[row])
        answer = explain_tile(trace, wg, 0, 1)
        told = [text for _, text in answer.steps]
        assert any(words in text for text in answer.verdict), answer
        assert "the workgroup starts" in " ".join(told)
        (feeds,) = trace.map.feeds(TileId(1, wg, 0)) or [None]
        if action is Action.EVENT:
            assert feeds is None
        else:
            assert (feeds.device, feeds.wg) == (rows.to_gpu[row, 0], rows.to_id[row, 0])
            assert any(f"as workgroup {rows.to_id[row, 0]} there" in text for text in told)
            assert any(f"arrived for GPU {feeds.device}'s workgroup {feeds.wg}" in text for text in told)


def test_a_filter_takes_a_workgroups_packets_too(recorded, tmp_path):
    trace, schedule = recorded
    rows, called = schedule.rows(2), names(schedule, 2)
    row = int(np.flatnonzero(rows.actions & Action.SEND_STORES)[0])
    assert (rows.id[row] == NO_ID) == (schedule.policy.ids is Ids.TRACKED)
    options = shuffled(schedule.policy.ids)
    only = make(tmp_path / "only", shape=SHAPE, varied=options, wanted=Filter(wgs=frozenset({int(called[row])})))
    sent, all_sent = of(only, Kind.PACKET, 2), of(trace, Kind.PACKET, 2)
    wanted = all_sent[all_sent["wg"] == rows.to_id[row, 0]]
    assert len(wanted) and (sent["address"][sent["wg"] == rows.to_id[row, 0]] == wanted["address"]).all()
    assert of(only, Kind.DISPATCH, 2)["wg"].tolist() == [called[row]]
