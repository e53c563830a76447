"""`t3 compare`: two campaigns are equal to the last bit, or what moved is listed."""

import copy
import json

import pytest

from t3sim import cli
from t3sim.papers.compare import ABSENT, ChangedValue, compare_results, count_values

RESULTS = {"summary": {"figure16": {"geomean": 1.284, "name": "T3"}}, "incomplete": {},
           "cases": [{"total_ns": 2518848.0, "dram": {"gemm_read": 10}}, {"total_ns": 1.0, "dram": {"gemm_read": 0}}],
           "versions": {"numba": "0.60"}, "commit": "abc"}


def write(folder, results):
    folder.mkdir()
    (folder / "results.json").write_text(json.dumps(results))
    return str(folder)


def test_equal_campaigns_of_different_versions(tmp_path, capsys):
    before, after = write(tmp_path / "a", RESULTS), write(tmp_path / "b", {**RESULTS, "versions": {}, "commit": "def"})
    assert cli.main(["compare", before, after]) == 0
    assert capsys.readouterr().out == f"equal: all {count_values(RESULTS)} values\n" == "equal: all 6 values\n"


def test_a_last_bit_is_a_difference(tmp_path, capsys):
    changed = copy.deepcopy(RESULTS)
    changed["cases"][0]["total_ns"] = 2518848.0000000005
    assert changed["cases"][0]["total_ns"] != 2518848.0
    before, after = write(tmp_path / "a", RESULTS), write(tmp_path / "b", changed)
    assert cli.main(["compare", before, after]) == 1
    printed = capsys.readouterr()
    assert "cases.0.total_ns: 2518848.0 -> 2518848.0000000005" in printed.out
    assert "1 of 6 values differ" in printed.err


@pytest.mark.parametrize(("change", "moved"), [
    (lambda r: r["cases"].pop(), ChangedValue("cases.1", RESULTS["cases"][1], ABSENT)),
    (lambda r: r["summary"].update(figure15=1), ChangedValue("summary.figure15", ABSENT, 1)),
    (lambda r: r["cases"][1]["dram"].update(gemm_read=False), ChangedValue("cases.1.dram.gemm_read", 0, False)),
    (lambda r: r["summary"]["figure16"].update(geomean=1.2), ChangedValue("summary.figure16.geomean", 1.284, 1.2)),
])
def test_what_moved_is_named(change, moved):
    changed = copy.deepcopy(RESULTS)
    change(changed)
    assert compare_results(RESULTS, changed) == [moved]


def test_relative_change():
    assert ChangedValue("x", 4, 5).relative == 0.25 and ChangedValue("x", 0, 5).relative is None
    assert ChangedValue("x", "a", "b").relative is None and ChangedValue("x", ABSENT, 1.0).relative is None


@pytest.mark.parametrize(("content", "words"), [(None, "has no results.json"), ("{", "is not a campaign's results"),
                                                ("[]", "is not a campaign's results")])
def test_bad_folders_are_one_line(content, words, tmp_path, error_of):
    good = write(tmp_path / "good", RESULTS)
    (tmp_path / "bad").mkdir()
    if content is not None:
        (tmp_path / "bad" / "results.json").write_text(content)
    assert words in error_of("compare", good, tmp_path / "bad")
