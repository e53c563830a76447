"""The folder of a trace: all of it or nothing, whatever ends a recording."""

import json
import resource
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow.parquet as pq
import pytest

from t3sim import cli
from t3sim.base.errors import BadInput
from t3sim.trace.recorder import Filter
from t3sim.trace.schema import EVENT, Kind
from t3sim.trace.store import EVENTS, PLAN, RUN, WAVES, Trace, TraceWriter
from tests.support.recorded import DEVICES, MACHINE, SHAPE, make

pytestmark = [pytest.mark.builds_rtl, pytest.mark.builds_loops]

SHORT = Filter(end=300)
RING = ("--gemm", SHAPE, "--devices", DEVICES, "--machine", MACHINE, "--every-gpu")


@pytest.fixture(scope="module")
def short(tmp_path_factory) -> Trace:
    return make(tmp_path_factory.mktemp("short"), wanted=SHORT)


def test_a_full_disk_leaves_what_was_there(short, tmp_path):
    """A limit on the size of files stands for a disk's end."""
    kept = shutil.copytree(short.folder, tmp_path / "kept")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    for folder in (tmp_path / "new", kept):
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
        try:
            with pytest.raises(OSError, match="too large"):
                make(folder)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not (tmp_path / "new").exists()
    assert {path.name for path in kept.iterdir()} == {EVENTS, PLAN, RUN}
    assert (Trace.load(kept).events == short.events).all()


def test_events_may_change_after_the_next_call_even_if_that_writes_none(tmp_path, monkeypatch):
    """As in waves, which write after each cycle, of which many have no events."""
    append = TraceWriter._append

    def slowly(writer: TraceWriter, events: np.ndarray) -> None:
        time.sleep(0.3)
        append(writer, events)

    monkeypatch.setattr(TraceWriter, "_append", slowly)
    events = np.zeros(3, EVENT)
    events["cycle"] = 7
    with TraceWriter(tmp_path, limit=100) as writer:
        writer.write(events)
        writer.write(events[:0])
        events["cycle"] = 9
        writer.commit({})
    assert pq.read_table(tmp_path / EVENTS)["cycle"].to_pylist() == [7, 7, 7]


@pytest.mark.parametrize("most", [0, 50, 30_000])
def test_a_disk_that_is_full_from_the_start_is_left_as_it_was(tmp_path, capsys, most):
    """The one line names the file; no folder remains, nor any above it that was made."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, limits[1]))
    try:
        with pytest.raises(OSError, match="too large") as error:
            make(tmp_path / "a" / "b", wanted=SHORT)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert str(error.value.filename).startswith(str(tmp_path / "a" / "b"))
    assert not list(tmp_path.iterdir())


def test_a_window_past_the_end_is_refused(tmp_path, capsys):
    assert cli.main([str(word) for word in ("trace", *RING, "--from", 50_000_000, "--out", tmp_path / "a")]) == 2
    estimated, told = capsys.readouterr().err.splitlines()
    assert estimated.startswith("t3: estimated: ")
    assert "cycle 50000000 is past the end of the run: done at cycle " in told and not list(tmp_path.iterdir())


def test_a_range_without_end_is_refused_at_once(tmp_path, error_of):
    told = error_of("trace", *RING, "--wg", "0-1000000000000", "--out", tmp_path / "a")
    assert "--wg '0-1000000000000' does not exist: this run has 0 to 31" in told
    assert "this run has 0 to 3" in error_of("trace", *RING, "--channel", "99", "--out", tmp_path / "a")


def test_a_run_that_sticks_is_recorded_and_ends_with_exit_code_1(tmp_path, capsys, json_of):
    assert cli.main([str(word) for word in ("trace", *RING, "--bug", "threshold", "--kind", "trigger", "--out",
                                            tmp_path)]) == 1
    told = capsys.readouterr()
    assert "The run stuck: nothing moved for 200000 cycles\n" in told.out and Trace.load(tmp_path).events.size
    assert "What waits, by GPU" in told.err and "window head" in told.err, "a table, not a paragraph"
    table = told.err.partition("What waits, by GPU\n")[2]
    assert cli.main(["explain", str(tmp_path)]) == 0
    explained = capsys.readouterr().out
    assert explained.partition("What waits, by GPU\n")[2].startswith(table)
    assert explained.count("nothing moved for 200000 cycles\n") == 1 and "GPU 0: 8 of" not in explained
    assert json_of("explain", str(tmp_path))["gpus"] == Trace.load(tmp_path).run["recorded"]["gpus"]


def test_the_index_looks_at_a_whole_run(tmp_path, json_of, error_of):
    found = json_of("trace", *RING, "--index", "--out", tmp_path / "a")
    first = next(place for place in found["places"] if place["what"] == "first trigger")
    assert first["from"] < first["cycle"] < first["until"] <= found["cycles"]
    assert Trace.load(tmp_path / "a").window == (0, found["cycles"])
    told = error_of("trace", *RING, "--index", "--from", "5", "--out", tmp_path / "b")
    assert "--from does not go with --index" in told and not (tmp_path / "b").exists()


def test_a_recording_that_would_take_years_is_refused(tmp_path, error_of):
    told = error_of("trace", "--gemm", "1048576x1048576x1048576", "--devices", "4", "--out", tmp_path / "a")
    assert "years" in told and "--insist" in told and not (tmp_path / "a").exists()


def test_a_damaged_plan_is_told_in_a_line(short, tmp_path, error_of):
    damaged = shutil.copytree(short.folder, tmp_path / "damaged")
    for size in (0, 100, 1000):
        (damaged / PLAN).write_bytes((short.folder / PLAN).read_bytes()[:size])
        assert f"{PLAN} is not the plan of a trace: " in error_of("explain", damaged, "--wg", 1, "--wf", 0)
    (damaged / PLAN).unlink()
    assert f"{PLAN} is missing" in error_of("explain", damaged, "--wg", 1, "--wf", 0)


def test_what_another_version_recorded_is_told_in_a_line(short, tmp_path, error_of):
    other = shutil.copytree(short.folder, tmp_path / "other")
    run = json.loads((other / RUN).read_text())
    (other / RUN).write_text(json.dumps(run | {"version": 2, "versions": {"t3sim": "0.0.9"}}))
    told = error_of("explain", other)
    assert "was recorded by t3sim 0.0.9 as a trace of version 2, and this program reads version" in told
    (other / RUN).write_text(json.dumps(run | {"policies": run["policies"] | {"fifo": ["the oldest first"]}}))
    assert "another set of arbitration policies than this program's (fifo)" in error_of("step", other)


@pytest.mark.parametrize(("part", "key"), [(None, "title"), (None, "geometry"), (None, "recorded"), (None, "policies"),
                                           ("recorded", "outcome"), ("filter", "kinds"), ("geometry", "ways")])
def test_a_description_that_lacks_something_is_told_in_a_line(short, tmp_path, error_of, part, key):
    damaged = shutil.copytree(short.folder, tmp_path / "damaged")
    run = json.loads((damaged / RUN).read_text())
    (run[part] if part else run).pop(key)
    (damaged / RUN).write_text(json.dumps(run))
    for command in ("explain", "step"):
        told = error_of(command, damaged)
        assert f"{RUN} is damaged: " in told and key in told and "record it again" in told


def test_an_interrupted_recording_is_one_until_then(tmp_path):
    def interrupt(fraction):
        raise KeyboardInterrupt
    trace = make(tmp_path, "threshold", progress=interrupt)
    recorded = trace.run["recorded"]
    assert recorded["outcome"] == "interrupted" and recorded["cycles_of_run"] == trace.window[1] == 50_000
    assert (trace.events["kind"] == Kind.TRIGGER).sum() > 100


def _told_to_end(folder, size: int) -> tuple[int, str]:
    """Exit code and last line of a recording that gets SIGTERM when it has written so many bytes."""
    process = subprocess.Popen([sys.executable, "-m", "t3sim.cli", "trace", *map(str, RING), "--gemm",
                                "1024x1024x256", "--out", str(folder)],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    part = folder / f"{EVENTS}.part"
    while process.poll() is None and not (part.exists() and part.stat().st_size >= size):
        time.sleep(0.02)
    process.terminate()
    return process.returncode or process.wait(60), process.stderr.read().splitlines()[-1]


def test_a_recording_that_is_told_to_end_is_one_until_then(tmp_path):
    assert _told_to_end(tmp_path / "a", 100_000) == (128 + signal.SIGTERM, "t3: terminated")
    assert {path.name for path in (tmp_path / "a").iterdir()} == {EVENTS, PLAN, RUN}
    trace = Trace.load(tmp_path / "a")
    assert trace.run["recorded"]["outcome"] == "interrupted" and len(trace.events) == trace.run["recorded"]["events"]


def test_a_recording_that_is_told_to_end_before_it_began_leaves_nothing(tmp_path):
    assert _told_to_end(tmp_path / "a" / "b", 0) == (128 + signal.SIGTERM, "t3: terminated")
    assert not list(tmp_path.iterdir())


def test_a_new_recording_takes_the_place_of_an_old_one(tmp_path):
    make(tmp_path, wanted=Filter(100, 200), with_waves=True)
    assert (tmp_path / WAVES).exists()
    trace = make(tmp_path, wanted=Filter(100, 150))
    assert trace.window == (100, 150) and not (tmp_path / WAVES).exists()


def test_nothing_is_left_of_what_was_refused(tmp_path):
    with pytest.raises(BadInput, match="needs gpus.every = true"):
        make(tmp_path / "a", "neighbour", mirrored=True)
    with pytest.raises(BadInput, match="workgroup 40 does not exist: this run has 0 to 31"):
        make(tmp_path / "b", wanted=Filter(wgs=frozenset({3, 40})))
    with pytest.raises(BadInput, match="a window until cycle 5 is not after its first, 9"):
        make(tmp_path / "c", wanted=Filter(9, 5))
    assert not list(tmp_path.iterdir())


def test_what_is_no_trace_is_told_in_a_line(short, tmp_path, error_of):
    assert "holds no trace" in error_of("explain", tmp_path / "nowhere")
    (tmp_path / "plain").touch()
    assert "is no recording" in error_of("explain", tmp_path / "plain")
    (tmp_path / f"{EVENTS}.part").touch()
    assert "holds a recording that did not finish" in error_of("explain", tmp_path)
    broken = shutil.copytree(short.folder, tmp_path / "broken")
    (broken / EVENTS).write_bytes((broken / EVENTS).read_bytes()[:5000])
    assert f"{EVENTS} is not the events of a trace" in error_of("explain", broken)
    (broken / RUN).write_text("{}")
    assert "is not the description of a trace" in error_of("step", broken)


def test_what_the_trace_does_not_hold_is_told_in_a_line(short, error_of):
    folder = short.folder
    assert "it has 0 to 3" in error_of("explain", folder, "--wg", 1, "--wf", 0, "--gpu", 4)
    assert "which has 0 to 299" in error_of("explain", folder, "--channel", 1, "--cycle", 300)
    assert "channel 99 does not exist" in error_of("step", folder, "--break", "channel 99 starved")
    assert "is not a condition" in error_of("step", folder, "--break", "set full")
    assert "the condition never holds" in error_of("step", folder, "--break", "wg 31 fires")


def test_a_tile_that_was_never_seen(short, capsys):
    """Its workgroup comes after the window."""
    assert cli.main(["explain", "--wg", "30", "--wf", "2", str(short.folder)]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "It has not fired: 0 of 2,048 bytes are counted (no update)." in told
    assert "Its workgroup has not started." in told and "The recording ends at cycle 300, before the run did." in told
