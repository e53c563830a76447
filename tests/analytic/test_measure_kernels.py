"""The script that measures kernels on a GPU, as far as a machine without one can say: its tables and its time.

PyTorch and Triton are replaced by names, and times by a model's. What runs on a GPU is not checked here.
"""

import importlib.util
import itertools
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from t3sim.analytic.validation.readers import read_text
from t3sim.analytic.validation.requests import Beside, Crowded, GemmRequest, Ratio, Steady, Unread

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "measure_kernels.py"


@pytest.fixture(params=["NVIDIA H100 80GB HBM3", "AMD Instinct MI300X"])
def script(request, monkeypatch):
    """The script on a GPU whose kernels take 100 us, and 125 us beside others."""
    torch = MagicMock()
    torch.version = SimpleNamespace(hip="7.1" if "AMD" in request.param else None, cuda="13.0")
    torch.__version__ = "2.14.1"
    torch.cuda.get_device_properties.return_value = SimpleNamespace(name=request.param, gcnArchName="gfx942:sramecc+")
    torch.cuda.get_device_capability.return_value = (9, 0)
    torch.cuda.device_count.return_value = 8
    torch.cuda.Event.return_value.elapsed_time.return_value = 0.75
    for name, module in {"torch": torch, "torch.nn": torch.nn, "torch.profiler": torch.profiler, "triton": MagicMock(),
                         "triton.language": MagicMock()}.items():
        monkeypatch.setitem(sys.modules, name, module)
    spec = importlib.util.spec_from_file_location("measure_kernels", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    clock = itertools.count(0.0, 0.1)
    monkeypatch.setattr(module, "time", SimpleNamespace(
        sleep=lambda seconds: None, perf_counter=lambda: next(clock), strftime=time.strftime))
    beside: list[bool] = []

    def during(other, measure, needed_s):
        beside.append(True)
        other.rate = 0.0 if other.by == "held units" else 180.0
        times = measure()
        beside.clear()
        return times

    monkeypatch.setattr(module, "times_us", lambda graph, count, before=None: [125.0 if beside else 100.0] * count)
    for kind in (module.Held, module.Engines):
        monkeypatch.setattr(kind, "during", during)
    monkeypatch.setattr(module, "kernels", lambda work: "kernel_a + kernel_b")
    return module


def table(script, name, folder):
    points_of, row_of = script.TABLES[name]
    points = points_of()
    script.write(folder / f"{name}.csv", points, row_of, float("inf"))
    return len(points), read_text((folder / f"{name}.csv").read_text(), f"{name}.csv")


def test_its_tables_are_read(script, tmp_path, capsys, json_of):
    counts = {}
    for name, ask in {"gemms": GemmRequest, "beside": Crowded, "contention": Beside, "steady": Steady}.items():
        counts[name], rows = table(script, name, tmp_path)
        assert len(rows) >= counts[name] > 0 and not any(isinstance(row, Unread) for row in rows)
        assert {type(row.first if isinstance(row, Ratio) else row.ask) for row in rows} == {ask}
        assert all(row.gpu == script.torch.cuda.get_device_properties(0).name for row in rows)
    assert counts["beside"] == 21 * 16 and counts["gemms"] > 100
    beside = [row for row in read_text((tmp_path / "beside.csv").read_text(), "beside.csv") if isinstance(row, Ratio)]
    assert {row.measured for row in beside} == {25.0} and {row.first.units for row in beside} == {
        0, 1, 2, 4, 8, 16, 24, 32, 48, 64}
    assert {row.first.gb_per_s for row in beside} == {0.0, 180.0, 360.0}, "copies are read and written"
    assert "points, " in capsys.readouterr().err
    machine = "mi300x" if script.IS_AMD else "h100-sxm"
    answer = json_of("calibrate", "--machine", machine, "--out", str(tmp_path / "mine.toml"), "--rows",
                     str(tmp_path / "contention.csv"), "--rows", str(tmp_path / "steady.csv"))
    assert {quantity["quantity"] for quantity in answer["errors"]} == {
        "beside a collective", "slowdown beside a collective", "GEMM over and over"}


def test_points_for_which_there_is_no_time_are_left_out(script, tmp_path, capsys):
    points_of, row_of = script.TABLES["beside"]
    script.write(tmp_path / "beside.csv", points_of(), row_of, 0.0)
    assert len(read_text((tmp_path / "beside.csv").read_text(), "beside.csv")) == 1
    assert "335 of 336 points are left out: no time" in capsys.readouterr().err
    assert max(script.UNTIL_S.values()) <= 300
