"""What `t3 run` can fuse is traced and explained: every collective over all links, by every algorithm, in its words.

All rows share one geometry of RTL.
"""


import numpy as np
import pytest

from t3sim.collectives.schedule import Action
from t3sim.machine import load_machine
from t3sim.machine.hardware import SwitchSection
from t3sim.runs.exchange import ALGORITHMS, FUSED_OPERATORS, fused_with
from t3sim.runs.operators import make_tiling, placement_of
from t3sim.runs.plan import Plan
from t3sim.runs.skew import Skew
from t3sim.trace.explain_run import explain_run
from t3sim.trace.explain_tile import explain_tile
from t3sim.trace.output_map import TileId
from t3sim.trace.record import record
from t3sim.trace.recorder import Filter
from t3sim.trace.schema import ALONE, COMPLETE, MERGES, SOURCES, Kind
from t3sim.trace.setup import Setup
from t3sim.trace.store import Trace
from t3sim.trace.tile import Tile
from t3sim.trace.timeline import write_timeline
from t3sim.trace.words import describe
from t3sim.workload.workloads import gemm_workload
from tests.support.exchanges import LINKS, TABLE, Row, runs, table
from tests.support.recorded import MACHINE, SHAPE
from tests.support.trace_processor import TraceProcessor

pytestmark = [pytest.mark.builds_rtl, pytest.mark.builds_loops, pytest.mark.slow]

RING_WORDS = ("upstream", "downstream", "neighbour", "ring position")


def of(trace: Trace, kind: Kind, device: int) -> np.ndarray:
    return trace.events[(trace.events["kind"] == kind) & (trace.events["device"] == device)]


def tiles_by_role(trace: Trace, device: int) -> dict[tuple, Tile]:
    """A tile of each role that the device has."""
    found: dict[tuple, Tile] = {}
    for wg in range(trace.run["tiles"][device]):
        tile = Tile(trace, wg, 0, device)
        if tile.empty:
            assert "no columns: its id keeps a place" in explain_tile(trace, wg, 0, device).verdict[0]
            continue
        found[tile.role, tile.place.made > 0, len(trace.map.routes(tile.id)), tile.place.position] = tile
    return found


def test_the_table_has_every_collective_and_all_links():
    rows = runs()
    assert {row.exchange.operator for row in rows} == set(FUSED_OPERATORS)
    assert {row.exchange.topology for row in rows} == set(LINKS)
    assert {row.exchange.algorithm for row in rows} == set(ALGORITHMS) - {"all-rings"}, "which needs nine GPUs"
    assert len({row.name for row in rows}) == len(rows) > 60


def test_the_table_in_the_pages_is_that_of_these_rows():
    assert TABLE.read_text() == table(), "python -m tests.support.exchanges writes it"


def test_all_rows_share_one_geometry():
    wanted = [row.machine.geometry() for row in runs()]
    assert set(wanted) == {wanted[0]}


@pytest.mark.parametrize("row", runs(), ids=lambda row: row.name)
def test_it_is_traced_and_a_tile_of_each_role_explained(row, tmp_path):
    setup = row.setup()
    result = record(setup, tmp_path)
    trace = Trace.load(tmp_path)
    assert result.outcome == "done" and result.dropped == 0 and trace.run["errors"] == [None] * trace.devices
    for device in range(trace.devices):
        counted = trace.run["counters"][device]
        for kind, name in ((Kind.UPDATE, "updates"), (Kind.TRIGGER, "triggers"), (Kind.ISSUE, "commands"),
                           (Kind.LINE, "lines"), (Kind.PACKET, "packets")):
            assert len(of(trace, kind, device)) == counted[name], kind
    check_workgroups(trace, setup)
    device = min(1, trace.devices - 1)
    roles = tiles_by_role(trace, device)
    assert {tile.role for tile in roles.values()} & {"event", "remote", "dma"}
    for tile in roles.values():
        check_tile(trace, tile)
    told = [text for _, text in explain_run(trace).steps] + [describe(e) for e in trace.events[::997]]
    check_words(trace, told)


def check_workgroups(trace: Trace, setup: Setup) -> None:
    """Every workgroup starts once, under the tile that it makes and as the part of it that it is."""
    parts = setup.machine.gpu.k_parts
    for device in range(trace.devices):
        started = of(trace, Kind.DISPATCH, device)
        assert len(np.unique(started[["wg", "c"]])) == len(started) > 0
        tiles = range(trace.run["tiles"][device])
        made = sum(trace.map.place(TileId(device, wg, 0)).made for wg in tiles)
        others = trace.run["names"] - max(trace.run["tiles"])
        if setup.plan.exchange.of_experts:
            placement = placement_of(setup.machine, setup.plan.workload)
            others = len(placement.workgroups(device))
        if setup.plan.exchange.collective == "dispatch":  # what stays, or has no tokens, nobody sends
            sent = [wg for wg in tiles if trace.map.routes(TileId(device, wg, 0))]
            made = sum(trace.map.place(TileId(device, wg, 0)).columns > 0 for wg in sent)
        assert len(started) == made + others
        for e in started[::7]:
            if e["wg"] < max(trace.run["tiles"]):
                makers = trace.map.place(TileId(device, int(e["wg"]), 0)).made
                assert (e["c"] == ALONE) == (makers == 1) and e["c"] < makers and makers % parts == 0
    if setup.plan.exchange.before:
        assert trace.run["names"] == trace.run["tiles"][0] + make_tiling(setup.machine, setup.plan.workload).tiles


def check_tile(trace: Trace, tile: Tile) -> None:
    """It is said who waited for whom, and as many bytes were counted of each as its role in the schedule says."""
    found = trace.map
    answer = explain_tile(trace, tile.wg, tile.wf, tile.device)
    told, verdict = [text for _, text in answer.steps], " ".join(answer.verdict)
    check_words(trace, [answer.subject, *told, *answer.verdict, *map(str, answer.caveats)])
    senders = [Tile.of_id(trace, one) for one in found.fed_by(tile.id)]
    if tile.role in ("event", "dma"):
        assert verdict.startswith("It fired at cycle") and tile.updates["a"][-1] == tile.expected_bytes
        assert sum(tile.counted().values()) == tile.expected_bytes
        # An update is under the source of the last access that joined it: with several senders, or K in parts, it may
        # count others' bytes as own.
        one_sender = trace.run["around_a_ring"] and trace.run["parts"] == 1
        most = tile.own_bytes if one_sender else tile.expected_bytes
        assert (0 < tile.counted().get("local", 0) <= most) == (tile.own_bytes > 0)
        assert bool(senders) == ("It waited last for" in verdict) == (tile.expected_bytes > tile.own_bytes)
        for source in {SOURCES.index(name) for name in tile.counted()} - {0}:
            assert any((sender.role == "dma") == (SOURCES[source] == "dma") for sender in senders)
        for number in found.from_devices(tile.id):
            assert trace.run["around_a_ring"] or str(number) in answer.subject
    elif tile.role == "remote":
        assert "as they are made" in verdict and "bytes left" in verdict and " of " not in verdict.split("fires.")[1]
    else:
        assert "It stays here" in verdict
    for number, _ in found.routes(tile.id):
        assert trace.run["around_a_ring"] or str(number) in answer.subject
    for fed in found.feeds(tile.id):
        there = f"GPU {trace.run['numbers'][fed.device]}'s workgroup {fed.wg}, wavefront {fed.wf}"
        assert any(f"arrived for {there}" in text for text in told)
        assert tile.id in found.fed_by(fed)


def check_words(trace: Trace, texts: list[str]) -> None:
    if not trace.run["around_a_ring"]:
        assert not [text for text in texts for word in RING_WORDS if word in text]


def late_row() -> Row:
    return Row(fused_with("gemm-rs", "full"), 4, skew="late:3:4000")


@pytest.fixture(scope="module")
def late(tmp_path_factory) -> Trace:
    """Everybody has sent to everybody but GPU 3, which has not started."""
    folder = tmp_path_factory.mktemp("late")
    record(late_row().setup(), folder, Filter(end=4000))
    return Trace.load(folder)


def test_who_has_not_sent_is_named_among_several(late):
    answer = explain_tile(late, 0, 1, 1)
    told = " ".join(answer.verdict)
    assert "Missing from GPUs 0, 2 and 3: 1,024 bytes. On GPU 3 the tile is workgroup" in told
    assert "which has sent 0 bytes under this tile's name" in told
    assert "All that GPUs 0 and 2 send for it has left." in told
    (name,) = [word for word in told.split("t3 explain ")[1:]]
    wg, wf, device = (int(name.split()[at]) for at in (1, 3, 5))
    sender = Tile(late, wg, wf, device)
    assert device == 3 and late.map.feeds(sender.id) == [TileId(1, 0, 1)] and not len(sender.of(Kind.DISPATCH))


@pytest.mark.parametrize("skew, told", [
    ("late:2:5000", ["Late: GPU 2, whose first workgroup started at cycle 5,000, elsewhere by cycle 0.",
                     "The last: GPU 2, whose last workgroup ended at cycle "]),
    ("late:1:3000,late:3:6000", ["Late: GPU 1, whose first workgroup started at cycle 3,000, ",
                                 "Late: GPU 3, whose first workgroup started at cycle 6,000, ",
                                 "The last: GPU 3, "]),
    ("dead:0:3", ["The last: GPU 0, whose last workgroup ended at cycle "]), ("", [])])
def test_an_overview_says_which_gpu_was_late_or_last(skew, told, tmp_path):
    plan = Plan(load_machine(str(MACHINE)), gemm_workload(SHAPE, 4), skew=Skew.of(skew, 4))
    record(Setup(plan, "t3-mca"), tmp_path)
    verdict = [text for text in explain_run(Trace.load(tmp_path)).verdict if text.startswith(("Late", "The last"))]
    assert len(verdict) >= len(told) and all(text.startswith(start) for text, start in zip(verdict, told))
    assert bool(verdict) == bool(skew)


def test_an_overview_names_a_gpu_that_has_not_started(late):
    assert any(text.startswith("Late: GPU 3, whose first workgroup has not started, elsewhere by cycle ")
               for text in explain_run(late).verdict)


def test_for_whom_it_waited_last(tmp_path):
    record(late_row().setup(), tmp_path)
    trace = Trace.load(tmp_path)
    for wf in range(4):
        told = explain_tile(trace, 0, wf, 1).verdict
        assert any(line.startswith("It waited last for GPU 3: its own part was counted at cycle") for line in told)


def test_a_workgroup_that_waited_for_its_inputs(tmp_path):
    row = Row(fused_with("ag-gemm"), 4)
    record(row.setup(), tmp_path)
    trace = Trace.load(tmp_path)
    tiles, updates = trace.run["tiles"][2], of(trace, Kind.UPDATE, 2)
    done = updates[(updates["flags"] & COMPLETE) != 0]
    waited = 0
    for wg in range(tiles, trace.run["names"]):
        started = of(trace, Kind.DISPATCH, 2)
        (cycle,) = started["cycle"][started["wg"] == wg]
        told = explain_tile(trace, wg, 0, 2).verdict[0]
        assert told.startswith(f"It started at cycle {cycle:,}")
        needs = trace.map.consumer(2, wg).waits_for
        if needs:
            latest = done["cycle"][np.isin(done["wg"], needs)].max()
            assert latest < cycle and f"they were complete at cycle {latest:,}" in told
            waited += 1
    assert waited > 8


def test_arrows_lead_to_every_gpu_that_a_tile_goes_to(tmp_path):
    for row in (Row(fused_with("gemm-ar", "full"), 4), Row(fused_with("gemm-ar", "switch", "in-switch"), 4)):
        record(row.setup(), tmp_path / row.name)
        trace = Trace.load(tmp_path / row.name)
        processor = TraceProcessor(write_timeline(trace))
        ends = processor.query("select track.name as name, count(*) as n from flow join slice on slice.id = "
                               "flow.slice_in join track on track.id = slice.track_id group by track.name")
        sent = sum(len(np.unique(of(trace, Kind.TRIGGER, d)[of(trace, Kind.TRIGGER, d)["a"] == 1][["wg", "wf"]]))
                   for d in range(4))
        assert sent > 10 and {end.name: end.n for end in ends}["arrivals"] == 3 * sent


def test_a_window_that_holds_a_part_back_names_it(tmp_path):
    """Split-K: workgroups of a tile are told apart, in the order of dispatch."""
    row = Row(fused_with("gemm-rs"), 4, parts=3)
    record(row.setup(), tmp_path)
    trace = Trace.load(tmp_path)
    schedule = [int(wg) for wg in of(trace, Kind.DISPATCH, 0)["wg"]]
    assert (np.diff(schedule) >= 0).all() and schedule.count(0) == 3
    told = [text for _, text in explain_tile(trace, 8, 0, 0).steps]
    for part in range(3):
        assert any(f"the workgroup of part {part} starts" in text for text in told)
        assert any(f"part {part}'s K loop is done" in text for text in told)
    assert describe(of(trace, Kind.DISPATCH, 0)[0]).startswith("wg 0 part 0 starts on compute unit")


def test_an_action_of_a_schedule_is_the_kind_of_its_region(tmp_path):
    row = Row(fused_with("gemm-ar", "nodes:2x2"), 4)
    setup = row.setup()
    record(setup, tmp_path)
    trace = Trace.load(tmp_path)
    run = setup.programmed()
    try:
        kinds = {Action.SEND_STORES: "remote", Action.SEND_DMA: "dma", Action.EVENT: "event"}
        for device in range(4):
            rows = run.schedule.rows(device)
            for at in range(0, len(rows.tile), 3):
                wanted = next(kind for action, kind in kinds.items() if rows.actions[at] & action)
                if rows.id[at] >= 0:
                    assert Tile(trace, int(rows.id[at]), 0, device).role == wanted
    finally:
        run.close()


def test_what_the_switch_s_table_does_is_traced(tmp_path):
    """Each part that it takes, and each sum that leaves before it is whole; the RTL's counters say as much."""
    row = Row(fused_with("gemm-rs", "switch", "in-switch"), 4, skew="late:1:900")
    switch = SwitchSection(merge_sets=8, merge_ways=2, timeout_ns=5000.0, rtl=True)
    setup = row.setup(row.machine.model_copy(update={"switch": switch}))
    assert record(setup, tmp_path).outcome == "done"
    trace = Trace.load(tmp_path)
    events = trace.events[trace.events["kind"] == Kind.MERGE]
    happened = [int((events["flags"] >> bit & 1).sum()) for bit in range(len(MERGES))]
    begins, joins, completes, refused, evicted, expired = happened
    run = setup.programmed()
    try:
        run.run()
        counted = run.switch.counters
        assert counted == run.switch.counters | dict(zip(("begun", "joined", "completed", "refused", "evicted",
                                                          "expired"), happened))
    finally:
        run.close()
    lines = setup.plan.workload.output_bytes // 64
    assert begins + joins + completes == 3 * lines and evicted > 100 and refused == 0
    assert counted["left"] == completes + evicted + expired
    for device in range(4):
        mine = events[(events["device"] == device) & (events["flags"] < 8)]
        assert sorted(np.unique(mine["unit"]).tolist()) == [other for other in range(4) if other != device]
        for address in np.unique(mine["address"])[::97]:
            assert mine["a"][mine["address"] == address].tolist() == [1, 2, 3]
    told = {describe(e).partition(": ")[2] for e in events[::29]}
    assert any("begins a sum" in one for one in told) and any("a sum leaves" in one for one in told)
