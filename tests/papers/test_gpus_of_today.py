"""The answer for GPUs of today is that of `t3 overlap`, with the norms that mechanisms leave."""

import json

import pytest

from t3sim.analytic.libraries.prompts import norm_ns
from t3sim.cli import main
from t3sim.machine import load_machine
from t3sim.machine.levels import COMMERCIAL


@pytest.mark.long
def test_a_row_is_what_overlap_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", "--only", "today-layers", "--out", "report", "--json", "report.json"]) == 0
    layer = ["--model", "qwen3-32b", "--tokens", "2048", "--machine", "mi300x"]
    assert main(["overlap", *layer, "--json", "one.json"]) == 0
    ranked = {one["mechanism"]: one["ns"] for one in json.loads((tmp_path / "one.json").read_text())["ranking"]}
    best = min(ns for name, ns in ranked.items() if not name.startswith("t3"))
    ours = min(("t3", "t3-mca+", "t3-direct"), key=ranked.__getitem__)
    norms = 2 * norm_ns(load_machine("mi300x", COMMERCIAL), 2048, 5120)
    table, = tmp_path.glob("report/tables/today-layers-*mi300x*.csv")
    row, = (line.rsplit('",', 1)[1].split(",") for line in table.read_text().splitlines()
            if line.startswith('"qwen3-32b, chunk'))
    assert [float(row[number].replace(",", "")) for number in (0, 1, 4)] == pytest.approx(
        [(ns + norms) / 1e3 for ns in (ranked["in-turn"], best, ranked[ours])], abs=0.051)
    assert row[5] == ours
    assert json.loads((tmp_path / "report.json").read_text())["cases"]


@pytest.mark.long
def test_experts_of_the_answer_are_those_of_overlap(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", "--only", "today-experts", "--out", "report"]) == 0
    asked = ["--model", "deepseek-v3", "--dtype", "fp8", "--tokens", "1024", "--zipf", "0.8"]
    assert main(["overlap", "--expert-parallel", *asked, "--json", "one.json"]) == 0
    answer = json.loads((tmp_path / "one.json").read_text())
    times_us = {run["mechanism"]: run["ns"] / 1e3 for run in answer["ranking"]}
    table, = tmp_path.glob("report/tables/today-experts-dispatch-gemms*.csv")
    row, = (line.rsplit('",', 1)[1].split(",") for line in table.read_text().splitlines()
            if line.startswith('"deepseek-v3, decoding, 0.8"'))
    times = [times_us[name] for name in ("in-turn", "low-latency", "two-batches", "fused-units", "t3")]
    assert [float(run) for run in row[:6]] == pytest.approx([answer["imbalance"], *times], abs=0.06)
    best = min(set(times_us) - {"t3"}, key=times_us.__getitem__)
    assert row[6:] == [best, f"{100 * (times_us[best] / times_us['t3'] - 1):+.1f} %"]
    measured, = tmp_path.glob("report/tables/today-experts-dispatch-and-combine*.csv")
    assert len(measured.read_text().splitlines()) == 1 + 40
