"""`t3 calibrate`: known constants are found again, scarce rows keep the machine's, and what cannot be used is said."""

import csv
import random
import re
from dataclasses import replace

import pytest

from t3sim import cli
from t3sim.analytic.validation.answers import answer_on
from t3sim.analytic.validation.calibration import calibrate, calibrated
from t3sim.analytic.validation.comparison import compare
from t3sim.analytic.validation.fit import with_constants
from t3sim.analytic.validation.machines import loaded
from t3sim.analytic.validation.page import write_page
from t3sim.analytic.validation.readers import own_rows
from t3sim.analytic.validation.requests import Beside, Collective, Crowded, GemmRequest, Measured, Ratio
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


def test_the_host_of_a_log_is_the_one_that_is_fitted():
    """One thread that calls for 8 GPUs says nothing of a framework's process."""
    box, asks = with_constants(H100, {"rings.thread_call_ns": 6_000.0}), [
        replace(ask, algorithm="8 GPUs per thread") for ask in COLLECTIVES]
    result = calibrate(H100, [Measured("mine", "H100", "collective", str(ask), ask, answer_on(ask, box))
                              for ask in asks])
    assert result.values["rings.thread_call_ns"] == pytest.approx(6_000.0, rel=0.02)
    assert "rings.call_ns" in result.undetermined


def test_a_page_has_the_error_of_a_machine_calibrated_to_each_source(tmp_path):
    """Over the rows of all sources that have enough, each held out of its source's fit."""
    gemms = [row for row in rows() if row.quantity == "GEMM"]
    noisy = [replace(row, source="other", ns=row.ns * (1 + 0.2 * (-1) ** place)) for place, row in enumerate(gemms)]
    alone = [calibrate(H100, some).errors[0] for some in (gemms, noisy)]
    both = calibrated([(row, "h100-sxm") for row in (*gemms, *noisy)])["GEMM"]
    assert both.rows == 18 and both.held_out == pytest.approx((alone[0].held_out + alone[1].held_out) / 2)
    assert both.worst == max(one.worst for one in alone) and alone[0].held_out < 0.02 < 0.1 < alone[1].held_out
    assert not calibrated([(row, "h100-sxm") for row in gemms[:8]]), "too few to say"
    write_page(tmp_path, compare(gemms))
    page, (line,) = (tmp_path / "validation.md").read_text(), [
        row for row in csv.DictReader((tmp_path / "validation.csv").open(newline="")) if row["of"] == "GEMM"]
    assert line["calibrated rows"] == "9" and float(line["calibrated mean error"]) < 2
    table = page.split("## Machines calibrated to a source\n")[1].split("\n## ")[0]
    assert re.search(r"^\| GEMM \| 9 \| .* \| mean 6 % \| reached \|$", table, re.MULTILINE)


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
    (["--out", "mine.toml"], "no measurements: give --log FILE or --rows FILE.csv"),
    (["--rows", "mine.csv", "--out", "mine"], "--out 'mine': the name must end in .toml"),
    (["--rows", "mine.csv", "--out", "none/m.toml"], "--out 'none/m.toml': folder"),
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


CONTENTION = {"kernels.cluster": 1, "kernels.dealt_rounds": 0, "sharing.kernel_units": 12,
              "sharing.copier_requests": 2.0}


def rows_of_contention(box, count: int | None = None) -> list[Ratio | Measured]:
    """What a box would measure of kernels beside units that are held or copy, and beside a collective.

    A GEMM's time beside a collective depends little on how many units that holds, so it is measured exactly.
    """
    generator = random.Random(2)
    asks: list = [Crowded(f"gemm {m}x8192x{k} bf16", units, 0.0) for m, k in ((8192, 8192), (1024, 8192), (2048, 3584))
                  for units in (1, 4, 8, 16, 32, 64)]
    asks += [Crowded("add of 134217728 bf16", units, 2000.0) for units in (16, 24, 32, 48, 64)]
    asks += [Beside(f"gemm {m}x8192x8192 bf16", "all_gather", "NCCL kernel", f"{size} MiB", 8, "together")
             for m, size in ((8192, 32), (8192, 64), (12288, 64), (16384, 64), (16384, 96), (16384, 128))]
    read: list[Ratio | Measured] = []
    for ask in asks[:count]:
        if isinstance(ask, Beside):
            read.append(Measured("mine", "H100", "beside a collective", str(ask), ask, answer_on(ask, box)))
        else:
            alone = Crowded(ask.compute, 0, 0.0)
            slowdown = answer_on(ask, box) / answer_on(alone, box) * (1 + generator.uniform(-0.02, 0.02))
            read.append(Ratio("mine", "H100", "beside units", str(ask), "slowdown", ask, alone, 100 * (slowdown - 1)))
    return read


def test_constants_of_contention_are_found_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    box = with_constants(H100, CONTENTION)
    alone = [Measured("mine", "H100", "GEMM", str(ask), ask, answer_on(ask, box)) for ask in GEMMS]
    alone += [Measured("mine", "H100", "collective", str(ask), ask, answer_on(ask, box)) for ask in COLLECTIVES]
    result = calibrate(H100, alone + rows_of_contention(box))
    assert result.values["kernels.cluster"] == 1 and result.values["kernels.dealt_rounds"] == 0
    assert 10 <= result.values["sharing.kernel_units"] <= 16 and isinstance(result.values["sharing.kernel_units"], int)
    assert result.values["sharing.copier_requests"] == pytest.approx(2.0, rel=0.15)
    for quantity in result.errors:
        assert quantity.held_out < max(0.02, quantity.before / 2), quantity
    assert result.contention.endswith("which are taken")
    (tmp_path / "mine.toml").write_text(result.to_toml("mine", ["beside.csv"]))
    mine = load_machine("mine.toml", COMMERCIAL)
    assert (mine.kernels.cluster, mine.kernels.dealt_rounds) == (1, 0), "t3 overlap has them"


def test_bad_or_scarce_rows_of_contention_keep_the_constants():
    own = rows_of_contention(H100)
    kept = calibrate(H100, own)
    assert not {"kernels.cluster", "kernels.dealt_rounds", "sharing.kernel_units"} & {*kept.values}, "they were right"
    ratios = [row for row in own if isinstance(row, Ratio)]
    generator = random.Random(3)
    shuffled = [replace(row, measured=other.measured)
                for row, other in zip(ratios, generator.sample(ratios, len(ratios)))]
    bad = calibrate(H100, shuffled)
    assert bad.contention.endswith("which are not taken") and not {*CONTENTION} & {*bad.values}
    scarce = calibrate(H100, rows_of_contention(with_constants(H100, CONTENTION), 4))
    assert scarce.contention.startswith("fewer than 10 scenarios of contention") and not scarce.values
    assert {*CONTENTION} <= {*scarce.undetermined}


def test_tables_of_kernels_beside_others_are_rows_of_a_fit(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "beside.csv").write_text("gpu,compute,by,units,gb_per_s,alone_us,beside_us,source\n" + "".join(
        f"H100,{row.first.compute},held units,{row.first.units},,100,{100 + row.measured:.2f},mine\n"
        for row in rows_of_contention(with_constants(H100, CONTENTION), 18)))
    assert cli.main(["calibrate", "--rows", "beside.csv", "--out", "mine.toml"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "kernels.dealt_rounds 2 0" in printed and "times the time alone" in printed and "Contention: rows" in printed
    assert "kernels.cluster = 1\n" in (tmp_path / "mine.toml").read_text() or "kernels.cluster 2 1" in printed


@pytest.mark.parametrize("gpu", ["h100-sxm", "h200-sxm"])
def test_a_gpu_s_own_rows_give_its_law_of_held_units(gpu):
    """What its library does was read off an H100's rows; without it the fit finds it in either GPU's."""
    other = with_constants(loaded(gpu), {"kernels.cluster": 1, "kernels.dealt_rounds": 0})
    read = [row for row in own_rows() if row.file == "beside_hopper.csv" and gpu[:4].upper() in row.gpu]
    result = calibrate(other, read[::2])
    assert (result.values["kernels.cluster"], result.values["kernels.dealt_rounds"]) == (2, 2)
    (held,) = (quantity for quantity in result.errors if quantity.quantity == "beside held units")
    assert held.held_out < 0.7 * held.before
