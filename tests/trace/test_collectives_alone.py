"""A collective alone is recorded as `t3 run` runs it, and explained: every collective over all links.

All rows share the RTL of the other small recorded runs.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from t3sim import cli
from t3sim.base.errors import BadInput
from t3sim.collectives.algorithms import COLLECTIVES
from t3sim.machine import load_machine
from t3sim.runs.collective_alone import ProgrammedCollective
from t3sim.study.scenario.collective import CollectiveRequest
from t3sim.study.scenario.files import scenario_of
from t3sim.study.scenario.recorded import recorded
from t3sim.trace.explain_channel import explain_channel
from t3sim.trace.explain_passes import explain_piece
from t3sim.trace.explain_run import explain_run
from t3sim.trace.passes import HERE, Piece
from t3sim.trace.record import record
from t3sim.trace.recorder import Filter
from t3sim.trace.replay import DeviceReplay
from t3sim.trace.run_index import places
from t3sim.trace.schema import READ, Kind
from t3sim.trace.store import Trace
from t3sim.trace.timeline import write_timeline
from t3sim.trace.words import describe
from tests.support.exchanges import LINKS, alone
from tests.support.recorded import MACHINE
from tests.support.tiers import on_one
from tests.support.trace_processor import TraceProcessor

pytestmark = [pytest.mark.builds_rtl, pytest.mark.builds_loops]

RING_WORDS = ("upstream", "downstream", "neighbour", "ring position", "Tracker", "tile")
SIZE = 12_288  #: bytes of each GPU's array: whole lines for four GPUs and for six


def asked_for(collective: str, topology: str, algorithm: str | None = None, size: int = SIZE,
              **more) -> CollectiveRequest:
    asked = {"layer.collective": collective, "layer.devices": LINKS[topology], "layer.bytes": size,
             "exchange.topology": topology, "machine": str(MACHINE)}
    return CollectiveRequest(scenario_of({}, asked | ({"exchange.algorithm": algorithm} if algorithm else {}) | more))


def traced(one: CollectiveRequest, folder: Path, wanted: Filter = Filter(), **how) -> Trace:
    record(one.recorded(), folder, wanted, **how)
    return Trace.load(folder)


def of(trace: Trace, kind: Kind, device: int) -> np.ndarray:
    return trace.events[(trace.events["kind"] == kind) & (trace.events["device"] == device)]


def check_words(texts: list[str]) -> None:
    assert texts and not [text for text in texts for word in RING_WORDS if word in text]


@pytest.mark.parametrize(("collective", "topology", "algorithm"), on_one(
    alone(), *(one for one in alone()[::4] if one[2] != "in-switch")))
def test_it_is_run_traced_and_a_piece_of_each_step_explained(collective, topology, algorithm, tmp_path):
    """Of every GPU, one of which starts later than the others."""
    one = asked_for(collective, topology, algorithm, **{"gpus.every": True, "gpus.skew": "late:1:300"})
    trace, ran = traced(one, tmp_path), one.planned.simulate()
    assert trace.run["recorded"]["cycles_of_run"] == ran.cycles
    passes = trace.passes
    for device in range(trace.devices):
        assert len(of(trace, Kind.DISPATCH, device)) == passes.workgroups(device)
        came = of(trace, Kind.ARRIVE, device)["c"]  # a sum has parts, for which it counts
        assert np.maximum(came, 1).sum() == max(passes.lines(device, step) for step in range(passes.steps(device)))
        assert (came.max() > 1) == (algorithm == "in-switch" and collective != "ag")
        read = of(trace, Kind.SERVE, device)
        assert int(read["amount"][read["op"] == READ].sum()) == ran.gpus[device].read_bytes
        assert int(read["amount"][read["op"] != READ].sum()) == ran.gpus[device].written_bytes
        own = of(trace, Kind.PACKET, device)
        assert int(own["amount"].sum()) >= ran.gpus[device].sent_bytes
        for step in range(passes.steps(device)):
            check_piece(trace, passes.piece(device, passes.of_step(device, step)[-1]))
    told = [text for _, text in explain_run(trace).steps] + [describe(e) for e in trace.events[::97]]
    check_words(told)
    assert sum("waited last for" in text for text in told) >= trace.devices


def step_of(run: dict) -> dict:
    return run["collective"]["gpus"][1]["steps"][0]


def check_piece(trace: Trace, piece: Piece) -> None:
    """All that it reads, sends and stores is found, and from whom it came."""
    answer = explain_piece(trace, piece.number, piece.device)
    told, verdict = [text for _, text in answer.steps], " ".join(answer.verdict)
    check_words([answer.subject, *told, *answer.verdict, *map(str, answer.caveats)])
    sent = [move for move in piece.passes if move.to != HERE]
    sources = {source.address for move in piece.passes for source in move.sources}
    lines = -(-piece.bytes // 64)
    (read,) = [text for text in told if "read from DRAM" in text]
    assert int(read.split()[0]) % (lines * len(sources)) == 0, "each source for each pass that it does not share"
    for move in sent:
        assert f"GPU {move.to}" in answer.subject or str(move.to) in answer.subject
        where = "the switch, which copies them" if move.copied else f"GPU {move.to}"
        times = sum(f"({piece.bytes:,} bytes) onto the link to {where}" in text for text in told)
        assert times == 1 if move.copied else times
        assert any(f"{piece.bytes:,} bytes are in DRAM at GPU {move.to}" in text for text in told)
    assert f"All that it stores is in DRAM: {piece.bytes * len(piece.passes):,} bytes." in verdict
    origins = {source.origin for move in piece.passes for source in move.sources} - {HERE}
    for origin in origins:
        assert f"GPU {origin}, workgroup " in verdict
    for span, move in trace.passes.stores(piece):
        for group in trace.passes.readers(span, piece.step):
            reader = trace.passes.piece(span.device, group[0])
            assert reader.step > piece.step and f"orkgroup{'s' if len(group) > 1 else ''} {group[0]}" in verdict
            mine = [read for read, _ in trace.passes.reads(reader) if read.first < span.end and span.first < read.end]
            assert mine and span.device == (piece.device if move.to == HERE else move.to)
    if piece.step:
        assert f"Step {piece.step} waited " in verdict
        assert any(f"step {piece.step} is over on this GPU" in text for text in told)


def test_a_ring_is_told_step_by_step(tmp_path):
    """GPU r sends to r - 1: its own chunk first, then those that came from r + 1."""
    trace = traced(asked_for("ag", "ring", size=4096, **{"gpus.every": True}), tmp_path)
    told = [explain_piece(trace, trace.passes.of_step(1, step)[0], 1) for step in range(3)]
    for answer, work in zip(told, ("sends chunk 1 to GPU 0", "sends chunk 2, which came from GPU 2, to GPU 0",
                                   "sends chunk 3, which came from GPU 2, to GPU 0")):
        assert answer.subject.endswith(f"bytes 0 to 511 of each chunk: {work}")
    assert "What it reads came from GPU 2, workgroup 0 there." in told[1].verdict
    assert "Workgroup 2 reads it on GPU 0." in told[0].verdict and not [
        line for line in told[2].verdict if "read" in line and "GPU 0" in line]
    last = of(trace, Kind.ARRIVE, 1)["cycle"][15]
    assert any(line.startswith(f"Step 1 waited last for GPU 2: the last of 16 lines came at cycle {last:,}, from "
                               "workgroup 1 there;") for line in told[1].verdict)
    assert trace.passes.over(1, 0) == last + 1


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_recording_changes_nothing(collective, tmp_path):
    """With one GPU that stands for all, and with every one of which some are late; `compare`: a difference raises."""
    for number, more in enumerate(({}, {"gpus.every": True, "gpus.skew": "late:2:900,link:1-0:20"})):
        one = asked_for(collective, "full", size=4096, **more)
        trace = traced(one, tmp_path / str(number), compare=True)
        assert trace.run["recorded"]["outcome"] == "done" and trace.run["mirrored"] == (not more)
        assert trace.run["recorded"]["cycles_of_run"] == one.planned.simulate().cycles


@pytest.fixture(scope="module")
def mirrored(tmp_path_factory) -> Trace:
    return traced(asked_for("ar", "switch", "direct"), tmp_path_factory.mktemp("mirrored"))


def test_one_gpu_that_stands_for_all_is_explained(mirrored):
    last = mirrored.passes.of_step(0, 1)[0]
    answer = explain_piece(mirrored, last)
    assert "step 2 of 2" in answer.subject and "keeps and sends it to GPUs 1, 2 and 3" in answer.subject
    assert "adds to chunk 0 what came from GPUs 1, 2 and 3" in answer.subject
    assert any("here, where it stands for another's" in text for _, text in answer.steps)
    assert any("gpus.every = true" in str(text) for text in answer.caveats)


def test_what_is_missing_in_a_window_that_ends_early_is_named(tmp_path):
    one = asked_for("ag", "full", size=4096, **{"gpus.every": True, "gpus.skew": "late:3:4000"})
    trace = traced(one, tmp_path, Filter(end=3000))
    told = " ".join(text for _, text in explain_run(trace).steps)
    assert "16 of 16 lines of chunk 3 from GPU 3 are missing" in told
    answer = explain_piece(trace, 0, 3)
    start = trace.passes.over(3, -1)
    assert start > 3000
    assert f"It has not started: the collective begins on this GPU at cycle {start:,}." in answer.verdict
    assert f"  step 1, from cycle {start:,} on" in [text for _, text in explain_run(trace).steps]
    ring = asked_for("ag", "ring", size=4096, **{"gpus.every": True, "gpus.skew": "late:3:4000"})
    trace = traced(ring, tmp_path / "ring", Filter(end=3000))
    waits = next(device for device in range(4) if trace.passes.over(device, 0) is None and device != 3)
    answer = explain_piece(trace, trace.passes.of_step(waits, 1)[0], waits)
    verdict = " ".join(answer.verdict)
    assert "It has not started: its step has not begun on this GPU." in verdict
    assert "0 of 16 lines that step 1 waits for have come." in verdict
    assert "from GPU 3 are missing: there workgroup 0 of step 1 has sent nothing." in verdict


def test_parts_of_a_sum_that_the_switch_lacks_are_missing(tmp_path):
    """Device 3 starts late: of each sum one part is missing, and of its own chunk all copies."""
    late = {"gpus.every": True, "gpus.skew": "late:3:4000"}
    trace = traced(asked_for("rs", "switch", "in-switch", 4096, **late), tmp_path, Filter(end=3000))
    told = " ".join(text for _, text in explain_run(trace).steps)
    assert ("48 of 48 lines of chunk 0 from GPUs 1, 2 and 3 are missing; GPU 3: there workgroup 0 of step 1 has "
            "sent nothing.") in told and "16 of 48 lines of chunk 3" not in told
    trace = traced(asked_for("ag", "switch", "in-switch", 4096, **late), tmp_path / "ag", Filter(end=3000))
    told = " ".join(text for _, text in explain_run(trace).steps)
    assert "16 of 16 lines of chunk 3 from GPU 3 are missing: there workgroup 0 of step 1 has sent nothing." in told
    whole = traced(asked_for("ar", "switch", "in-switch", 4096), tmp_path / "ar")
    processor = TraceProcessor(write_timeline(whole))
    (ends,) = processor.query("select count(*) as n from flow join slice on slice.id = flow.slice_in join track on "
                              "track.id = slice.track_id where track.name = 'arrivals'")
    pieces = [whole.passes.piece(device, wg) for device in range(4) for wg in range(whole.passes.workgroups(device))]
    assert ends.n == sum(len(piece.passes) for piece in pieces)


def test_a_choice_of_workgroups_has_their_requests(mirrored, tmp_path):
    wg = mirrored.passes.of_step(0, 1)[1]
    trace = traced(asked_for("ar", "switch", "direct"), tmp_path, Filter(wgs=frozenset([wg])))
    whole, part = (explain_piece(one, wg) for one in (mirrored, trace))
    assert len(trace.events) < len(mirrored.events) / 8
    wanted = [step for step in whole.steps if "step 1 is over" not in step[1]]
    assert [step for step in part.steps if "step 1 is over" not in step[1]] == wanted


def test_it_can_be_stepped_indexed_and_drawn(mirrored):
    replay = DeviceReplay(mirrored)
    found = replay.find("kind packet", 0)
    assert found == of(mirrored, Kind.PACKET, 0)["cycle"][0]
    assert replay.find("wg 3", 0) is not None and len(replay.open_tiles(found)) == 0
    whats = {place.what: place.cycle for place in places(mirrored)}
    assert whats["step 2 begins"] == mirrored.passes.over(0, 0) and "first workgroup" in whats
    assert "stage 1 begins" not in whats
    processor = TraceProcessor(write_timeline(mirrored))
    ends = processor.query("select track.name as name, count(*) as n from flow join slice on slice.id = "
                           "flow.slice_in join track on track.id = slice.track_id group by track.name")
    sends = sum(move.to != HERE for step in (0, 1) for move in mirrored.passes.piece(
        0, mirrored.passes.of_step(0, step)[0]).passes for _ in mirrored.passes.of_step(0, step))
    assert {end.name: end.n for end in ends} == {"arrivals": sends}
    answer = explain_channel(mirrored, 0, int(of(mirrored, Kind.DECIDE, 0)["cycle"][9]))
    assert answer.verdict and "policy round_robin" in " ".join(text for _, text in answer.steps)


def test_waves(tmp_path):
    trace = traced(asked_for("ag", "ring"), tmp_path, Filter(100, 300), with_waves=True)
    assert trace.run["recorded"]["outcome"] == "window" and (tmp_path / "waves.vcd").stat().st_size > 10_000


def test_the_commands(tmp_path, capsys, error_of):
    options = ["--collective", "rs", "--bytes", "4000", "--devices", "4", "--machine", str(MACHINE)]
    out = str(tmp_path / "trace")
    assert cli.main(["run", *options, "--json", str(tmp_path / "run.json")]) == 0
    assert "is run as" not in capsys.readouterr().err
    assert cli.main(["trace", *options, "--compare", "--out", out, "--json", str(tmp_path / "trace.json")]) == 0
    ran, seen = (json.loads((tmp_path / name).read_text()) for name in ("run.json", "trace.json"))
    assert ran["cycles"] == seen["cycles"] and seen["outcome"] == "done"
    capsys.readouterr()
    assert cli.main(["explain", "--wg", "2", out]) == 0
    assert "step 2 of 4, bytes 0 to 511 of each chunk: adds to chunk 2" in capsys.readouterr().out
    for asked, told in ((["explain", "--wg", "2", "--wf", "0", out], "--wg W names a piece, and --wf does not apply"),
                        (["explain", "--wf", "0", out], "--wg W names a piece, and --wf does not apply"),
                        (["explain", "--wg", "99999", out], "workgroup 99999 does not exist: this GPU has 0 to "),
                        (["explain", "--wg", "0", "--gpu", "1", out], "GPU 1 is not in this trace"),
                        (["trace", *options, "--bug", "threshold", "--out", out],
                         "--collective rs runs without Track & Trigger, which has bug threshold"),
                        (["trace", *options, "--technique", "t3", "--out", out], "does not go with --collective rs"),
                        (["trace", "--operator", "gemv", "--gemm", "64x1x64", "--out", out],
                         "a trace records the cycle level")):
        assert told in error_of(*asked)


def test_a_size_that_is_rounded_up_is_said(tmp_path, capsys):
    options = ["--collective", "rs", "--bytes", "5", "--devices", "4", "--machine", str(MACHINE)]
    for command in (["run"], ["trace", "--out", str(tmp_path / "trace")]):
        assert cli.main([*command, *options, "--json", "-"]) == 0
        told = capsys.readouterr()
        assert "t3: --bytes 5 is run as 32: chunks have whole words of 8 bytes\n" in told.err
    asked = asked_for("a2a", "ring", size=100)
    assert (asked.bytes, asked.planned.chunk_bytes) == (128, 32)
    limit = "ring-small: [arbiter] starvation_limit_cycles = 64 has no effect under round_robin"  # the machine's own
    assert tuple(map(str, asked.notes)) == (
        "layer.bytes = 100 is run as 128: chunks have whole words of 8 bytes", limit)
    assert tuple(map(str, asked_for("a2a", "ring", size=128).notes)) == (limit,)


@pytest.mark.slow  # one more loop to compile
def test_values_are_compared_in_a_recorded_run_too(tmp_path):
    trace = traced(asked_for("ar", "torus:2x2", size=4096, **{"layer.values": True}), tmp_path)
    assert trace.run["recorded"]["outcome"] == "done" and trace.devices == 4


@pytest.mark.slow
def test_a_run_that_fails_its_check_is_recorded(tmp_path, monkeypatch):
    one = asked_for("ag", "ring", size=4096, **{"layer.values": True})
    programmed = ProgrammedCollective.__init__

    def broken(self, *arguments):
        programmed(self, *arguments)
        self.numbers.data.stored[1, 7] = 1

    monkeypatch.setattr(ProgrammedCollective, "__init__", broken)
    trace = traced(one, tmp_path)
    assert trace.run["recorded"]["outcome"] == "failed" and "was stored" in trace.run["recorded"]["problem"]


def test_a_run_that_stands_still_is_recorded(tmp_path, monkeypatch):
    programmed = ProgrammedCollective.__init__

    def waits_for_more(self, *arguments):
        programmed(self, *arguments)
        self.sim.kernel.work.arrivals[:, 0] += 1

    monkeypatch.setattr(ProgrammedCollective, "__init__", waits_for_more)
    trace = traced(asked_for("ag", "ring", size=4096), tmp_path, Filter(kinds=frozenset([Kind.ARRIVE, Kind.STAGE])))
    recorded = trace.run["recorded"]
    assert recorded["outcome"] == "stuck" and "nothing moved for 200000 cycles" in recorded["problem"]
    (gpu,) = recorded["gpus"]
    assert (gpu["steps over"], gpu["lines that have come"], gpu["of this step"]) == ("0 of 3", "16", "17")
    told = [text.strip() for _, text in explain_run(trace).steps]
    assert "16 of 17 lines that step 1 waits for have come." in told


@pytest.mark.parametrize(("change", "told"), [
    (lambda run: run["geometry"].pop("units"), "geometry.units is missing"),
    (lambda run: run["collective"]["gpus"].pop(), "collective.gpus has 3 entries for 4 GPUs"),
    (lambda run: step_of(run)["shares"][0].update(first=5), "workgroup 5 comes after -1"),
    (lambda run: step_of(run)["shares"][-1].update(size=1 << 20), "goes past its chunk"),
    (lambda run: step_of(run)["passes"][0].update(to=7), "a pass names a GPU beyond 3"),
    (lambda run: step_of(run).update(over=-4), "collective.gpus.1.steps.0.over")])
def test_a_damaged_description_is_refused(change, told, tmp_path):
    trace = traced(asked_for("ag", "ring", size=4096, **{"gpus.every": True}), tmp_path)
    content = trace.run
    change(content)
    (tmp_path / "trace.json").write_text(json.dumps(content))
    with pytest.raises(BadInput, match=told):
        Trace.load(tmp_path)


def test_what_is_recorded_of_a_scenario_is_what_it_runs():
    scenario = scenario_of({}, {"layer.collective": "ar", "layer.devices": 4, "layer.bytes": 4096,
                                "machine": str(MACHINE)})
    assert recorded(scenario).planned == CollectiveRequest(scenario).planned
    assert recorded(scenario).machine.geometry() == load_machine(str(MACHINE)).geometry()
