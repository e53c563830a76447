"""`t3 reproduce` as its users meet it, and one whole small campaign."""

from pathlib import Path

import pytest

from t3sim import cli
from t3sim.machine import load_machine
from t3sim.papers import pipeline
from t3sim.papers.figure import Scope
from t3sim.papers.registry import FIGURES
from t3sim.study.tasks.runner import Monitor, Outcome, TaskFailure
from t3sim.workload.workloads import Workload
from tests.support.fake_kernels import fake_results


@pytest.mark.parametrize(("arguments", "words"), [
    (("--only", "figure99"), ["--only 'figure99'", "figure6", "more"]),
    (("--only", ""), ["--only ''"]),
    (("--jobs", "0"), ["--jobs 0", "1 to 1024"]),
    (("--jobs", "two"), ["two", "not a whole number"]),
    (("--machine", "nowhere.toml"), ["nowhere.toml"]),
    (("--json", "/nowhere/x.json"), ["/nowhere"]),
])
def test_bad_input_is_one_line(arguments, words, tmp_path, error_of):
    line = error_of("reproduce", "--out", tmp_path / "out", *arguments)
    assert all(word in line for word in words)
    assert not (tmp_path / "out").exists()


def test_out_must_be_a_folder(tmp_path, error_of):
    (tmp_path / "file").write_text("")
    assert "is not a folder" in error_of("reproduce", "--out", str(tmp_path / "file"))
    assert "--out" in error_of("reproduce")


@pytest.mark.long
def test_prints_numbers_and_where_the_report_is(tmp_path, capsys, json_of, monkeypatch):
    monkeypatch.setattr(pipeline, "run_tasks", lambda tasks, *_: Outcome(results=fake_results(tasks)))
    assert cli.main(["reproduce", "--only", "figure18, figure016", "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "T3-MCA, geomean speedup" in printed and "30.00" in printed and str(tmp_path / "report.html") in printed
    assert json_of("reproduce", "--only", "figure16", "--out", str(tmp_path))["summary"].keys() == {"figure16"}


def test_failures_end_with_one_line_and_code_1(tmp_path, capsys, monkeypatch):
    failed = {"key": TaskFailure("gemm 1x1x1 on 2 GPUs", "it did not move", "")}
    monkeypatch.setattr(pipeline, "run_tasks", lambda *_: Outcome(failures=failed))
    assert cli.main(["reproduce", "--only", "figure16", "--out", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert "1 simulations failed" in error and "gemm 1x1x1 on 2 GPUs: it did not move" in error


def test_an_interrupt_tells_how_to_go_on(tmp_path, capsys, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt
    monkeypatch.setattr(pipeline, "run_tasks", interrupted)
    assert cli.main(["reproduce", "--only", "figure16", "--out", str(tmp_path)]) == cli.INTERRUPTED
    assert f"--out {tmp_path} resumes" in capsys.readouterr().err


@pytest.mark.builds_rtl  # in processes of its own
@pytest.mark.slow  # tests/study/test_runner.py has any number of jobs on tasks that take no time
def test_a_small_campaign_is_the_same_for_any_number_of_jobs(tmp_path):
    """Real kernels, RTL included, on a small machine."""
    machine = load_machine(Path(__file__).parents[1] / "data" / "machines" / "ring_small.toml")
    forward, backward = Workload("custom", "gemm", 2, 128, 256, 64), Workload("custom", "ip", 4, 128, 256, 32)
    setup = Scope(machine, small=(forward, backward), large=(), timed_layer=forward, varied_layer=forward,
                  arrays=(backward,))
    figures = [FIGURES[name] for name in ("figure14", "figure16", "figure17", "figure18")]
    done = [pipeline.reproduce(figures, setup, tmp_path / str(jobs), jobs, Monitor()) for jobs in (1, 2)]
    for one in done:
        assert not one.outcome.failures and not one.outcome.stored_keys
    files = [(tmp_path / str(jobs) / "results.json").read_bytes() for jobs in (1, 2)]
    assert files[0] == files[1]
    again = pipeline.reproduce(figures, setup, tmp_path / "1", 2, Monitor())
    assert len(again.outcome.stored_keys) == len(again.outcome.results)
    assert (tmp_path / "1" / "results.json").read_bytes() == files[0]
