"""`t3 hbm-replay --all` and by name."""

import json

import pytest

from t3sim import cli

pytestmark = pytest.mark.builds_loops


def test_all_of_a_configuration(tmp_path, capsys):
    target = tmp_path / "validation.json"
    assert cli.main(["hbm-replay", "--all", "--config", "ccdwl4", "--json", str(target)]) == 0
    printed = capsys.readouterr().out
    assert "…" not in printed and max(map(len, printed.splitlines())) <= 120
    for word in ("Bound by timing", "Loads below", "Bound by scheduling", "Micro cases", "gemm_2to1_paced", "Verdict"):
        assert word in printed
    payload = json.loads(target.read_text())
    assert {row["config"] for row in payload["rows"]} == {"ccdwl4"} and len(payload["micro"]) == 9
    assert all(one["met"] for one in payload["verdicts"] if "speed" not in one["target"])
    assert {row["difference"] for row in payload["rows"] if row["workload"] != "conflict_wr"} == {0.0}


def test_all_of_hbm3(tmp_path, capsys):
    target = tmp_path / "validation.json"
    assert cli.main(["hbm-replay", "--all", "--machine", "hbm3-reference", "--config", "refpb", "--json",
                     str(target)]) == 0
    printed = capsys.readouterr().out
    assert "…" not in printed and max(map(len, printed.splitlines())) <= 120
    payload = json.loads(target.read_text())
    assert len(payload["rows"]) == 26 and all(row["held_out"] for row in payload["rows"])
    assert {row["difference"] for row in payload["rows"]} == {0.0}
    verdicts = {one["target"]: one["met"] for one in payload["verdicts"]}
    assert verdicts["finishing time, held out"] and verdicts["micro: command cycles are DRAMsim3's"]


def test_a_recorded_workload_by_name(json_of):
    payload = json_of("hbm-replay", "hits_1bg_rd", "--config", "ccdl4_bgil")
    assert (payload["cycles"], payload["activates"]) == (431928, 444)
    assert payload["requests_per_second"] == pytest.approx(100_000 / payload["host_seconds"])


@pytest.mark.parametrize(("arguments", "words"), [
    (["seq_rd", "--all"], "'seq_rd' and --all do not go together"),
    (["seq"], "neither a file nor one of the recorded workloads seq_"),
    (["--all", "--machine", "t3-table1"], "recorded results are for"),
    (["--all", "--config", "ddr5"], "'ddr5' is unknown"),
    (["--all", "--config", "refpb"], "'refpb' is no recorded configuration or workload of hbm2-reference"),
])
def test_bad_input(error_of, arguments, words):
    assert words in error_of("hbm-replay", *arguments)
