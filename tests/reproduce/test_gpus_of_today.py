"""The answer for GPUs of today is that of `t3 overlap`, with the norms that mechanisms leave."""

import json

import pytest

from t3sim.cli import main
from t3sim.libraries.norms import norm_ns
from t3sim.machine import load_machine
from t3sim.machine.levels import COMMERCIAL


def test_a_row_is_what_overlap_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", "--only", "today-layers", "--out", "report", "--json", "report.json"]) == 0
    layer = ["--model", "qwen3-32b", "--tokens", "2048", "--machine", "mi300x"]
    assert main(["overlap", *layer, "--json", "one.json"]) == 0
    ranked = {one["mechanism"]: one["ns"] for one in json.loads((tmp_path / "one.json").read_text())["ranking"]}
    best = min(ns for name, ns in ranked.items() if name != "t3")
    norms = 2 * norm_ns(load_machine("mi300x", COMMERCIAL), 2048, 5120)
    table, = tmp_path.glob("report/tables/today-layers-*mi300x*.csv")
    row, = (line.rsplit('",', 1)[1].split(",") for line in table.read_text().splitlines()
            if line.startswith('"qwen3-32b, chunk'))
    assert [float(row[number].replace(",", "")) for number in (0, 1, 4)] == pytest.approx(
        [(ns + norms) / 1e3 for ns in (ranked["in-turn"], best, ranked["t3"])], abs=0.051)
    assert json.loads((tmp_path / "report.json").read_text())["cases"]
