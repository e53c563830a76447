"""`t3 calibrate`: known constants are found again, scarce rows keep the machine's, and what cannot be used is said."""

import csv
import random

import pytest

from t3sim import cli
from t3sim.analytic.validation.answers import answer_on
from t3sim.analytic.validation.calibration import calibrate
from t3sim.analytic.validation.fit import with_constants
from t3sim.analytic.validation.machines import loaded
from t3sim.analytic.validation.requests import Collective, GemmRequest, Measured
from t3sim.base.errors import BadInput
from t3sim.machine import load_machine
from t3sim.machine.levels import COMMERCIAL

H100 = loaded("h100-sxm")
MINE = {"rings.call_ns": 60_000.0, "sustained.bf16": 0.6}
COLLECTIVES = [Collective("all_reduce", 8, 1, 2.0**power, "NCCL", "") for power in range(13, 31)]
GEMMS = [GemmRequest(m, n, 8192) for m in (2048, 4096, 8192) for n in (4096, 8192, 16384)]


def rows(noise: float = 0.0) -> list[Measured]:
    """What a box with MINE's constants would measure."""
    generator, box = random.Random(1), with_constants(H100, MINE)
    return [Measured("mine", "H100", "collective" if isinstance(ask, Collective) else "GEMM", str(ask), ask,
                     answer_on(ask, box) * (1 + generator.uniform(-noise, noise))) for ask in (*COLLECTIVES, *GEMMS)]


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_constants_of_a_box_are_found_again(noise):
    result = calibrate(H100, rows(noise))
    for key, value in MINE.items():
        assert result.values[key] == pytest.approx(value, rel=0.02 + noise), key
    for quantity in result.errors:
        assert quantity.held_out < min(0.02 + noise, quantity.before / 2)
    assert set(result.undetermined).isdisjoint(result.values)


def test_rows_of_one_request_are_held_out_together():
    """Else a row's own repetition would answer for it."""
    once = [row for row in rows(0.3) if row.quantity == "GEMM"][:3]
    (alone,) = calibrate(H100, once).errors
    (repeated,) = calibrate(H100, [row for row in once for _ in range(5)]).errors
    assert repeated.held_out == pytest.approx(alone.held_out, rel=0.2) and repeated.rows == 15


def test_rows_that_depend_on_no_constant_move_none():
    """Small GEMMs are launches: no row says what large ones reach."""
    tiny = GemmRequest(16, 16, 16)
    result = calibrate(H100, [Measured("mine", "H100", "GEMM", "tiny", tiny, 1.02 * answer_on(tiny, H100))])
    assert "sustained.bf16" in result.undetermined and result.errors[0].held_out is None


def write(path, bandwidth: float = 1.0, gpu: str = "H100-SXM") -> None:
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow("gpu,gpus,nodes,collective,library,algorithm,dtype,size_bytes,time_us,busbw_gb_per_s,time_is,"
                       "source".split(","))
        for row in rows():
            if isinstance(row.ask, Collective):
                table.writerow([gpu, 8, 1, "all_reduce", "NCCL", "", "", int(row.ask.size_bytes),
                                f"{row.ns / 1e3 / bandwidth:.3f}", "", "measured", "mine"])


def test_the_command_writes_a_machine_that_other_commands_take(tmp_path, monkeypatch, capsys, json_of):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "mine.csv")
    assert cli.main(["calibrate", "--rows", "mine.csv", "--out", "mine.toml"]) == 0
    printed = capsys.readouterr().out
    assert "rings.call_ns" in printed and "held out" in printed and "t3 overlap --machine mine.toml" in printed
    machine = load_machine("mine.toml", COMMERCIAL)
    assert machine.rings.call_ns == pytest.approx(MINE["rings.call_ns"], rel=0.05)
    assert machine.measured.held_out[0].mean_error < 0.05 and machine.measured.fitted == H100.measured.fitted
    assert cli.main(["overlap", "--machine", "mine.toml", "--model", "llama-3.1-8b", "--tp", "8"]) == 0
    assert "held out of t3 calibrate's fit" in " ".join(capsys.readouterr().out.split())
    answer = json_of("calibrate", "--rows", "mine.csv", "--out", "again.toml")
    assert answer["values"]["rings.call_ns"] == pytest.approx(machine.rings.call_ns, rel=1e-4)


@pytest.mark.parametrize(("options", "message"), [
    (["--out", "mine.toml"], "measurements are needed: --log FILE or --rows FILE.csv"),
    (["--rows", "mine.csv", "--out", "mine"], "--out 'mine': a name that ends with .toml is needed"),
    (["--rows", "mine.csv", "--out", "m.toml", "--machine", "h100"], "--machine 'h100' is unknown: allowed are"),
    (["--rows", "mine.csv", "--out", "m.toml", "--machine", "mi300x"], "machine h100-sxm: --machine is mi300x"),
    (["--rows", "nowhere.csv", "--out", "m.toml"], "--rows 'nowhere.csv' cannot be read"),
    (["--rows", "other.csv", "--out", "m.toml"], "other.csv: no rows below its line of column names")])
def test_what_cannot_be_used_is_a_line_and_nothing_is_written(options, message, tmp_path, monkeypatch, error_of):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "mine.csv")
    (tmp_path / "other.csv").write_text((tmp_path / "mine.csv").read_text().splitlines()[0] + "\n")
    assert message in error_of("calibrate", *options) and not list(tmp_path.glob("m*.toml"))


def test_rows_of_another_machine_are_refused():
    with pytest.raises(BadInput, match="machine h200-sxm"):
        calibrate(H100, [Measured("mine", "NVIDIA H200", "GEMM", "x", GEMMS[0], 1e6)])
