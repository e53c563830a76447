"""What `make coverage` collects and reports, on the smallest block; all of it: `make coverage`."""

import json
from collections import Counter
from dataclasses import replace

import pytest

from t3sim.rtl.blocks import BLOCKS
from t3sim.testbenches.coverage import points, python
from t3sim.testbenches.coverage import reached as command
from t3sim.testbenches.coverage.cross import Collector, Cross, merge
from t3sim.testbenches.coverage.points import INSIDE, crosses
from t3sim.testbenches.geometries import GEOMETRIES

pytestmark = pytest.mark.builds_rtl

CROSSES = crosses(GEOMETRIES["small"])
ARBITER = next(cross for cross in CROSSES if cross.block == "arbiter")


def test_points_belong_to_blocks_and_have_names_of_their_own():
    assert {cross.block for cross in CROSSES} <= BLOCKS.keys()
    assert len({(cross.block, cross.name) for cross in CROSSES}) == len(CROSSES)
    assert sum(len(cross.points()) for cross in CROSSES) > 500


@pytest.mark.parametrize("cross", [cross for cross in CROSSES if cross.impossible], ids=lambda cross: cross.name)
def test_what_is_impossible_is_told_why_and_excludes_something(cross):
    for pattern, why in cross.impossible.items():
        assert why and len(pattern) == len(cross.axes)
        assert len(replace(cross, impossible={pattern: why}).points()) < len(replace(cross, impossible={}).points())


@pytest.mark.parametrize("geometry", ["small", "wide"])
@pytest.mark.parametrize("block", INSIDE)
def test_signals_inside_are_there(block, geometry):
    _, ports = command._with_inside(block, GEOMETRIES[geometry])
    assert INSIDE[block].keys() <= ports.outputs.keys()


def test_a_point_that_cannot_be_is_an_error():
    cross = Cross("arbiter", "x", {"a": ("0", "1")}, lambda _: lambda: [("1",)], {("1",): "never"})
    counts = Counter()
    with pytest.raises(AssertionError, match="should be impossible"):
        Collector(None, cross, counts).sample()
    Collector(None, replace(cross, impossible={}), counts).sample()
    assert counts == {("1",): 1}


def test_runs_are_merged(tmp_path):
    for number in range(2):
        (tmp_path / f"{number}.json").write_text(json.dumps([
            {"block": "arbiter", "cross": "x", "points": [["0", 2], ["1", number]]}]))
    assert merge(tmp_path) == {("arbiter", "x"): {("0",): 4, ("1",): 1}}


@pytest.mark.slow
def test_a_point_that_is_not_reached_fails_the_run_and_is_listed(monkeypatch, capsys, tmp_path):
    monkeypatch.delenv("T3_COVERAGE", raising=False)
    monkeypatch.setattr(command, "_RUNS", tmp_path / "runs")
    monkeypatch.setattr(command, "crosses", lambda geometry: [ARBITER])
    arguments = ["arbiter", "--length", "1", "--json", str(tmp_path / "coverage.json")]
    assert command.main(arguments) == 0
    assert "48 of 48 points reached" in capsys.readouterr().out
    more = replace(ARBITER, axes=ARBITER.axes | {"output": ("free", "full", "on fire")})
    monkeypatch.setattr(command, "crosses", lambda geometry: [more])
    assert command.main(arguments) == 1
    told = capsys.readouterr().out
    assert "48 of 72 points reached" in told
    assert "policy: mca, compute: none, communication: none, output: on fire" in told
    assert len(json.loads((tmp_path / "coverage.json").read_text())["crosses"][0]["points"]) == 72


def test_points_are_those_of_the_geometry(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(command, "_RUNS", tmp_path / "runs")
    report = tmp_path / "coverage.json"
    command.main(["trigger_merge", "--geometry", "several", "--length", "1", "--json", str(report)])
    assert " of 16 points reached" in capsys.readouterr().out
    told = json.loads(report.read_text())
    assert told["geometry"] == "several"
    reached = {point[0] for point in told["crosses"][0]["points"] if point[-1]}
    assert reached == {"0", "1", "2", "3"}, "every bank of four"


def test_an_unknown_block_is_refused(capsys):
    with pytest.raises(SystemExit):
        command.main(["trackr"])
    assert "there is no point of 'trackr'" in capsys.readouterr().err


@pytest.mark.parametrize(("value", "name"), [
    (0x0000, "+zero"), (0x8000, "-zero"), (0x03ff, "+subnormal"), (0x8001, "-subnormal"), (0x0400, "+normal"),
    (0xfbff, "-normal"), (0x7c00, "+infinity"), (0xfc00, "-infinity"), (0x7c01, "nan"), (0xffff, "nan")])
def test_classes_of_numbers(value, name):
    assert points.classify(value, points.AluDtype.FP16) == name


def test_python_is_summed_by_folder(tmp_path, capsys):
    def told(lines, reached):
        return {"summary": {"num_statements": lines, "covered_lines": reached, "num_branches": 4,
                            "covered_branches": 3, "excluded_lines": 5}}

    (tmp_path / "report.json").write_text(json.dumps({"files": {
        "rtl/a.py": told(10, 5), "rtl/b.py": told(10, 10), "sim_models/c.py": told(20, 20)}}))
    assert python.main([str(tmp_path / "report.json")]) == 0
    shown = capsys.readouterr().out
    assert "75.0%" in shown and "87.5%" in shown
