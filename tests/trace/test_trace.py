"""Recorded runs: every event that must be there is, nothing changes by looking, and the answers name the cause."""

import json
from pathlib import Path

import numpy as np
import pytest

from t3sim import cli
from t3sim.trace.explain_channel import explain_channel
from t3sim.trace.explain_tile import explain_tile
from t3sim.trace.recorder import Filter
from t3sim.trace.replay import CONDITION_HELP, DeviceReplay
from t3sim.trace.run_index import places
from t3sim.trace.schema import (
    ALLOCATED,
    COMPLETE,
    CONDITIONS,
    EVENT,
    MEANINGS,
    NO_STREAM,
    REASONS,
    STREAMS,
    Kind,
    Reason,
    conditions,
    give_reasons,
    policy_of,
    waits_of,
)
from t3sim.trace.store import Trace
from t3sim.trace.tile import miscounts
from tests.support.recorded import DEVICES, MACHINE, SHAPE, make

pytestmark = [pytest.mark.builds_rtl, pytest.mark.builds_loops]

ALONE, COMPUTE_FIRST = "the other side has no request that can go", "compute goes first"
DRAIN, STARVED = "the producer has ended: communication goes first", "communication last went the starvation limit ago"
TURN = "round robin: the other stream went last"
LATE = "communication is behind the GEMM: the streams take turns"


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Trace:
    return make(tmp_path_factory.mktemp("whole"), compare=True)  # compare: a difference raises


def of(trace: Trace, kind: Kind, device: int | None = None) -> np.ndarray:
    e = trace.events
    return e[(e["kind"] == kind) & ((e["device"] == device) if device is not None else True)]


def test_recording_changes_nothing_and_says_what_it_costs(whole):
    """A ring with every event recorded ends in the state of the unrecorded run."""
    recorded = whole.run["recorded"]
    assert recorded["outcome"] == "done" and recorded["dropped"] == 0 and whole.run["errors"] == [None] * DEVICES
    assert recorded["seconds_untraced"] > 0


@pytest.mark.parametrize("device", range(DEVICES))
def test_events_agree_with_the_hardwares_own_counters(whole, device):
    """A ring with every event recorded: as many events as the hardware counted."""
    counted = whole.run["counters"][device]
    assert len(of(whole, Kind.UPDATE, device)) == counted["updates"] == len(of(whole, Kind.REPORT, device))
    assert len(of(whole, Kind.TRIGGER, device)) == counted["triggers"]
    assert len(of(whole, Kind.ISSUE, device)) == counted["commands"] == len(of(whole, Kind.READY, device))
    assert len(of(whole, Kind.WALKED, device)) == counted["commands"]
    assert len(of(whole, Kind.LINE, device)) == counted["lines"]
    assert len(of(whole, Kind.PACKET, device)) == counted["packets"]
    assert of(whole, Kind.READY, device)["a"].max() + 1 >= counted["ready_high_water"]


@pytest.mark.parametrize("device", range(DEVICES))
def test_the_index_agrees_with_the_events(whole, device):
    found = {place.what: place for place in places(whole) if place.device == device and place.lasted_cycles is None}
    for what, kind, at in (("first arrival over the link", Kind.ARRIVE, 0), ("first trigger", Kind.TRIGGER, 0),
                           ("last trigger", Kind.TRIGGER, -1), ("last final tile", Kind.EVENT, -1)):
        assert found[what].cycle == of(whole, kind, device)["cycle"][at], what
    units, started = whole.run["geometry"]["compute_units"], of(whole, Kind.DISPATCH, device)
    assert sum(what.startswith("stage") for what in found) == (len(started) - 1) // units
    assert found["stage 1 begins"].cycle == started["cycle"][units]


def test_the_longest_waits_of_the_index(whole):
    for place in places(whole):
        if place.what == "a DMA command waits for an engine":
            wg, wf = (int(word) for word in place.detail.split()[1::2])
            issued = of(whole, Kind.ISSUE, place.device)
            issued = issued[(issued["wg"] == wg) & (issued["wf"] == wf)]
            assert place.cycle + place.lasted_cycles in issued["cycle"]
    longest = max(place.lasted_cycles for place in places(whole) if place.what == "a DMA command waits for an engine")
    ready, issued = of(whole, Kind.READY), of(whole, Kind.ISSUE)
    names = ["device", "wg", "wf"]
    ready, issued = np.sort(ready, order=names), np.sort(issued, order=names)
    assert (ready[names] == issued[names]).all() and longest == (issued["cycle"] - ready["cycle"]).max()


def test_every_request_is_entered_granted_and_served_once(whole):
    """All three see the same requests on each channel, in this order."""
    channels = whole.run["geometry"]["channels"]
    for device, channel in ((device, channel) for device in range(DEVICES) for channel in range(channels)):
        e = whole.events[(whole.events["device"] == device) & (whole.events["unit"] == channel)]
        granted = e[(e["kind"] == Kind.DECIDE) & (e["stream"] != NO_STREAM)]
        for stream in (0, 1):
            went_in = e[(e["kind"] == Kind.ENTER) & (e["stream"] == stream)]
            went_on = granted[granted["stream"] == stream]
            assert (went_in["address"] == went_on["address"]).all() and (went_in["cycle"] < went_on["cycle"]).all()
        assert sorted(granted["address"]) == sorted(e["address"][e["kind"] == Kind.SERVE])


def test_counts_add_up_to_the_threshold(whole):
    updates = of(whole, Kind.UPDATE, 1)
    for wg, wf in ((8, 0), (20, 1), (31, 3)):
        mine = updates[(updates["wg"] == wg) & (updates["wf"] == wf)]
        assert (np.cumsum(mine["amount"]) == mine["a"]).all() and mine["a"][-1] == mine["b"][-1]
        assert (mine["flags"] & COMPLETE != 0).tolist() == [False] * (len(mine) - 1) + [True]


def test_reasons_fit_what_the_arbiter_saw(whole):
    decisions = of(whole, Kind.DECIDE)
    seen = {REASONS[int(r)] for r in np.unique(decisions["reason"])}
    assert {ALONE, COMPUTE_FIRST, DRAIN, REASONS[Reason.OUTPUT_BUSY], REASONS[Reason.GUARD]} <= seen
    for e in decisions[::97]:
        saw, reason = conditions(int(e["flags"])), REASONS[int(e["reason"])]
        assert (e["stream"] != NO_STREAM) == (saw["grant_compute"] or saw["grant_communication"])
        assert not (reason == STARVED and e["c"] < whole.run["starvation_limit"])
        assert not (reason == REASONS[Reason.OUTPUT_BUSY] and saw["ready"])
        assert not (reason == DRAIN and not saw["drain"])


def test_a_wait_begins_with_a_request_or_after_a_grant():
    waits, goes = (1 << CONDITIONS.index(name) for name in ("communication_waiting", "grant_communication"))
    told = [(3, 0, 0), (5, waits, 0), (7, waits, 2), (9, waits | goes, 4), (10, waits, 0), (12, waits | goes, 2),
            (13, 0, 0), (20, waits, 0)]
    decisions = np.zeros(len(told), EVENT)
    decisions["cycle"], decisions["flags"] = [cycle for cycle, _, _ in told], [flags for _, flags, _ in told]
    assert waits_of(decisions).tolist() == [waited for _, _, waited in told]


@pytest.mark.parametrize("technique, policy", [("t3", "round_robin"), ("t3", "compute_first"), ("t3-mca", "mca"),
                                               ("t3-mca+", "ring_aware")])
def test_reasons_of_every_policy(tmp_path, technique, policy):
    """What each reason says must hold in the words that the arbiter saw, and every stream that waits is told why."""
    trace = make(tmp_path, wanted=Filter(2000, 9000), technique=technique, policy=policy)
    decisions = of(trace, Kind.DECIDE)
    assert {policy_of(int(flags)).name for flags in np.unique(decisions["flags"])} == {policy}
    seen = {REASONS[int(r)] for r in np.unique(decisions["reason"])}
    expected = {"round_robin": TURN, "ring_aware": LATE}.get(policy, COMPUTE_FIRST)
    assert expected in seen and REASONS[Reason.WRONG] not in seen
    for e in decisions[::97]:
        saw, reason = conditions(int(e["flags"])), REASONS[int(e["reason"])]
        assert not (reason == LATE and not saw["ring_late"])
        assert not (reason == COMPUTE_FIRST and saw["ring_late"] and policy == "ring_aware")
        assert not (reason == TURN and policy != "round_robin")
        answer = explain_channel(trace, int(e["unit"]), int(e["cycle"]), int(e["device"]))
        offered = [text.split()[0] for _, text in answer.steps if " offers " in text]
        assert offered == [name for name in STREAMS if saw[f"{name}_there"]]
        told = " ".join(answer.verdict)
        if e["stream"] != NO_STREAM:
            assert told.startswith(f"Granted: {STREAMS[e['stream']]}, ")
        if reason == LATE:
            assert "communication is behind the GEMM since cycle" in answer.steps[-1][1]
        if e["stream"] == 0 and saw["communication_able"]:
            assert policy != "mca" or "compute goes first while communication is not starved" in told
            assert policy != "ring_aware" or saw["ring_late"] or "compute goes first" in told


def test_every_count_follows_from_the_one_before(whole):
    """And of a trace that begins in the middle nothing is held against the Tracker; what is altered is found."""
    updates = of(whole, Kind.UPDATE, 0).copy()
    assert len(updates) > 1000 and not miscounts(updates) and not miscounts(updates[len(updates) // 3:])
    inner = np.flatnonzero((updates["flags"] & (ALLOCATED | COMPLETE) == 0) & (updates["c"] >= 0))[7]
    updates["a"][inner] += 1
    assert [int(e["cycle"]) for e, _ in miscounts(updates)][0] == updates["cycle"][inner]


def test_a_grant_against_the_policy_is_noticed(whole):
    """A decision of the RTL's is replaced by the opposite one."""
    events = of(whole, Kind.DECIDE).copy()
    both = (1 << CONDITIONS.index("compute_able")) | (1 << CONDITIONS.index("communication_able"))
    swap = (1 << CONDITIONS.index("grant_compute")) | (1 << CONDITIONS.index("grant_communication"))
    chosen = events[(events["flags"] & both == both) & (events["stream"] != NO_STREAM)]
    kept, chosen["reason"] = chosen["reason"].copy(), Reason.DECIDED
    give_reasons(chosen)
    assert len(chosen) > 100 and (chosen["reason"] == kept).all()
    chosen["flags"] ^= swap
    chosen["reason"] = Reason.DECIDED
    give_reasons(chosen)
    assert set(chosen["reason"].tolist()) == {Reason.WRONG}


def test_a_packet_takes_the_links_latency(whole):
    sent, arrived = of(whole, Kind.PACKET, 1), of(whole, Kind.ARRIVE, 0)
    assert (sent["address"] == arrived["address"]).all(), "the link keeps the order"
    assert (arrived["cycle"] - sent["cycle"] >= whole.run["link_latency_cycles"]).all()


def test_filters(tmp_path, whole):
    wanted = Filter(3000, 6000, frozenset({Kind.UPDATE, Kind.DECIDE}), frozenset({2}), frozenset({9, 17}))
    few = make(tmp_path, wanted=wanted)
    e, every = few.events, whole.events
    expected = every[(every["cycle"] >= 3000) & (every["cycle"] < 6000) & np.isin(every["wg"], [9, 17])
                     & ((every["kind"] == Kind.UPDATE) | ((every["kind"] == Kind.DECIDE) & (every["unit"] == 2)))]
    assert len(expected) > 20
    assert (e[(e["kind"] != Kind.WAITING) & (e["cycle"] >= 3000)] == expected).all()


def test_what_was_open_before_the_window_is_known(tmp_path, whole):
    """Tiles with all their updates, commands, and what each compute unit does."""
    part = make(tmp_path, wanted=Filter(6000, 9000))
    for device in range(DEVICES):
        ours, all_of_it = DeviceReplay(part, device), DeviceReplay(whole, device)
        for cycle in (6000, 7500, 8999):
            assert (ours.open_tiles(cycle) == all_of_it.open_tiles(cycle)).all()
            assert len(ours.open_tiles(cycle)) > 10
            assert ours.commands(cycle)[0] == all_of_it.commands(cycle)[0]
            busy = [units[units["b"] != 0][["unit", "b"]] for units in (ours.units(cycle), all_of_it.units(cycle))]
            assert sorted(busy[0].tolist()) == sorted(busy[1].tolist())
        assert ours.next_event(6000, False) is None or ours.next_event(6000, False) >= 6000
    tile = DeviceReplay(part, 1).open_tiles(6000)[0]
    told = explain_tile(part, int(tile["wg"]), int(tile["wf"]), 1)
    first = next(cycle for cycle, text in told.steps if "allocated" in text)
    assert first < 6000 and any("starts at cycle 6,000" in str(line) for line in told.caveats)


def test_the_limit_bounds_a_trace_and_says_from_when(tmp_path, whole):
    few = make(tmp_path, wanted=Filter(limit=1000))
    assert len(few.events) == 1000 and few.run["recorded"]["dropped"] > 0
    assert (few.events == whole.events[:1000]).all()
    assert few.window[1] == whole.events["cycle"][1000]
    assert any("limit" in str(line) for line in explain_tile(few, 20, 1, 1).caveats)


def test_the_life_of_a_tile(whole):
    answer = explain_tile(whole, 20, 1, 1)
    told = [text for _, text in answer.steps]
    cycles = [cycle for cycle, _ in answer.steps]
    assert cycles == sorted(cycles)
    order = ["starts on compute unit", "allocated in way", "complete: it fires", "trigger leaves", "its command waits",
             "takes the command", "onto the link to GPU 0", "arrived for GPU 0's workgroup 28, wavefront 1",
             "counted there"]
    places = [next(i for i, text in enumerate(told) if part in text) for part in order]
    assert places == sorted(places)
    assert "brought the count to the threshold of 2,048 bytes" in answer.verdict[0]


def test_a_decision_is_explained(whole):
    grants = of(whole, Kind.DECIDE, 2)
    for reason, words in ((DRAIN, "producer has ended"), (COMPUTE_FIRST, "compute goes first")):
        e = [e for e in grants if REASONS[int(e["reason"])] == reason][3]
        answer = explain_channel(whole, int(e["unit"]), int(e["cycle"]), 2)
        assert answer.verdict[0].startswith("Granted") and words in answer.verdict[0]
        assert f"{int(e['address']):#x}" in answer.verdict[0]
    refused = grants[(grants["reason"] == Reason.GUARD)][0]
    answer = explain_channel(whole, int(refused["unit"]), int(refused["cycle"]), 2)
    assert "waits for a write of its bucket" in answer.verdict[0]


def test_every_kind_is_described_and_most_occur(whole):
    assert set(MEANINGS) == set(Kind)
    document = (Path(__file__).parents[2] / "docs" / "debugging.md").read_text()
    for kind, meaning in MEANINGS.items():
        assert f"| `{kind.name.lower()}` | {meaning.text} | {'RTL' if meaning.rtl else 'models'} |" in document
    assert all(f"- `{condition}`" in document for condition in CONDITION_HELP)
    rare = {Kind.BLOCKED, Kind.FULL, Kind.WAITING, Kind.MERGE}
    assert {Kind(int(k)) for k in np.unique(whole.events["kind"])} >= set(Kind) - rare


def run_cli(capsys, *arguments) -> tuple[int, str]:
    code = cli.main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out + captured.err


def test_commands(tmp_path, capsys, whole):
    options = ["--gemm", SHAPE, "--devices", DEVICES, "--machine", MACHINE]
    code, out = run_cli(capsys, "trace", *options, "--until", 500, "--out", tmp_path / "a", "--json", "-")
    assert code == 0 and json.loads(out[:out.rindex("}") + 1])["outcome"] == "window"
    code, out = run_cli(capsys, "explain", "--wg", 20, "--wf", 1, "--gpu", 1, whole.folder)
    assert code == 0 and "complete: it fires" in out
    code, out = run_cli(capsys, "explain", whole.folder)
    assert code == 0 and "96 tiles fired, 0 open" in out


@pytest.mark.parametrize("arguments, words", [
    (["explain", "{}", "--wg", "3"], "needs both --wg and --wf"),
    (["explain", "{}", "--wg", "32", "--wf", "0"], "this run has 0 to 31"),
    (["explain", "{}", "--wg", "3", "--wf", "4"], "a workgroup has 0 to 3"),
    (["explain", "{}", "--channel", "1", "--cycle", "99999999"], "not in the recording"),
    (["explain", "/nowhere", "--wg", "3", "--wf", "0"], "holds no trace"),
    (["trace", "--gemm", SHAPE, "--devices", "4", "--out", "x", "--kind", "updates"], "--kind 'updates' is unknown"),
    (["trace", "--gemm", SHAPE, "--devices", "4", "--out", "x", "--channel", "9-3"], "not a number or a range"),
    (["trace", "--gemm", SHAPE, "--devices", "4", "--out", "x", "--technique", "sequential"], "is unknown"),
])
def test_bad_input_is_one_line(capsys, whole, arguments, words):
    code, out = run_cli(capsys, *(argument.format(whole.folder) for argument in arguments))
    assert code == 2 and words in " ".join(out.split()) and len(out.strip().splitlines()) == 1
