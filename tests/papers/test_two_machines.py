"""A second machine beside the first and the paper: tables, summary, first screen, and what is refused."""

import csv
import json
import re

import pytest

from t3sim import cli
from t3sim.machine import load_machine
from t3sim.papers import pipeline
from t3sim.papers.campaign import side_by_side
from t3sim.papers.figure import Table, paper_setup
from t3sim.papers.paper import CENTRAL_CLAIM
from t3sim.papers.registry import FIGURES
from t3sim.study.tasks.runner import Monitor, Outcome, TaskFailure
from tests.support.fake_kernels import fake_results

FIRST, SECOND = (paper_setup(load_machine(name)) for name in ("t3-table1", "t3-accelsim"))
NAMES = ("figure15", "figure16", "tp32", "figure20", "policies")


def reproduced(out, monkeypatch, lose=lambda task: False, names=NAMES):
    def outcome(tasks, *_):
        lost = [task for task in tasks if lose(task)]
        return Outcome(results=fake_results(task for task in tasks if task not in lost),
                       failures={task.key: TaskFailure(task.label, "it did not move", "") for task in lost})
    monkeypatch.setattr(pipeline, "run_tasks", outcome)
    return pipeline.reproduce([FIGURES[name] for name in names], FIRST, out, 1, Monitor(), SECOND)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    out = tmp_path_factory.mktemp("two")
    with pytest.MonkeyPatch.context() as patch:
        return out, reproduced(out, patch)


def test_a_column_of_the_second_machine_follows_each_that_differs():
    table = Table("t", ("layer", "shape", "T3"), [("a", "8x8", "1.1"), ("b", "8x9", "1.2")])
    other = Table("t", ("layer", "shape", "T3"), [("b", "8x9", "1.4"), ("a", "8x8", "1.1")])
    both = side_by_side(table, other, "second")
    assert both.columns == ("layer", "shape", "T3", "T3, second")
    assert both.rows == [("a", "8x8", "1.1", "1.1"), ("b", "8x9", "1.2", "1.4")]
    assert side_by_side(table, table, "second") == table
    short = side_by_side(table, Table("t", table.columns, other.rows[:1]), "second")
    assert short.columns == ("layer", "shape", "shape, second", "T3", "T3, second")
    assert short.rows[0] == ("a", "8x8", "–", "1.1", "–")


@pytest.mark.long
def test_the_second_machines_numbers_are_its_own(written):
    """Those of a campaign on it alone."""
    _, campaign = written
    for chapter in campaign.chapters:
        alone = chapter.figure.evaluate(SECOND, fake_results(chapter.figure.tasks(SECOND)))
        assert chapter.second.findings.ours == alone.ours != chapter.findings.ours
        assert chapter.second.machine == "t3-accelsim"


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_every_table_has_both_machines(written, name):
    out, campaign = written
    chapter = next(one for one in campaign.chapters if one.figure.name == name)
    for table in chapter.tables:
        assert any(column.endswith(", t3-accelsim") for column in table.columns)
        assert all(len(row) == len(table.columns) for row in table.rows)
        files = [path for path in (out / "tables").glob(f"{name}-*.csv")
                 if tuple(next(csv.reader(path.open(newline="")))) == table.columns]
        assert len(files) == 1


def test_summary_and_results_have_both(written):
    out, campaign = written
    content = json.loads((out / "results.json").read_text())
    assert content["machine"]["name"] == "t3-table1" and content["beside"]["machine"]["name"] == "t3-accelsim"
    assert content["beside"]["summary"].keys() == content["summary"].keys() == set(NAMES)
    assert len(content["beside"]["cases"]) == len(content["cases"])
    with (out / "tables" / "summary.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            entry, other = (next(one for one in part["summary"][row["figure"]].values()
                                 if one["title"] == row["quantity"]) for part in (content, content["beside"]))
            assert (float(row["ours"]), float(row["second_ours"])) == (entry["ours"], other["ours"])
            assert row["second_met"] == ("" if other["met"] is None else str(other["met"]))
            assert (row["machine"], row["second_machine"]) == ("t3-table1", "t3-accelsim")


def test_the_first_screen_has_both_verdicts(written):
    out, campaign = written
    page = (out / "report.html").read_text()
    first = page.split("<body>")[1].split("<nav>")[0]
    claim = json.loads((out / "results.json").read_text())["beside"]["summary"]["figure16"][CENTRAL_CLAIM]
    assert f"On t3-accelsim it gains <strong>{claim['ours']:.1f} %</strong>" in first
    judged = [entry for chapter in campaign.chapters for entry in chapter.second.summary.values()
              if entry["met"] is not None]
    assert f"<strong>{sum(entry['met'] for entry in judged)} of {len(judged)}</strong>" in first
    assert "t3-accelsim, differences" in page and re.search(r"<span>workgroup_order</span><span>tokens</span>", page)
    assert page.count("On t3-accelsim: ") == len(NAMES)


@pytest.mark.long
def test_what_failed_on_the_second_machine_costs_the_first_nothing(tmp_path, monkeypatch):
    mine = {task.key for task in FIGURES["figure16"].tasks(FIRST)}
    done = reproduced(tmp_path, monkeypatch, lambda task: task.key not in mine, ("figure16",))
    (chapter,) = done.chapters
    assert chapter.findings and not chapter.problem and "it did not move" in chapter.second.problem
    assert chapter.tables == chapter.findings.tables
    page = (tmp_path / "report.html").read_text()
    assert "On t3-accelsim: not evaluated" in page and "On t3-accelsim it gains" not in page
    assert json.loads((tmp_path / "results.json").read_text())["beside"]["incomplete"].keys() == {"figure16"}


def run(out, monkeypatch, *arguments):
    asked = []

    def outcome(tasks, *_):
        asked.append({task.machine_name for task in tasks})
        return Outcome(results=fake_results(tasks))
    monkeypatch.setattr(pipeline, "run_tasks", outcome)
    code = cli.main(["reproduce", "--only", "tp32", "--out", str(out), *arguments])
    return code, asked


@pytest.mark.long
@pytest.mark.parametrize(("arguments", "machines"), [
    ((), {"t3-table1", "t3-accelsim"}), (("--beside", "none"), {"t3-table1"}),
    (("--machine", "t3-accelsim"), {"t3-accelsim"}),
    (("--machine", "t3-accelsim", "--beside", "hbm2-reference"), {"t3-accelsim", "hbm2-reference"})])
def test_which_machines_are_run(arguments, machines, tmp_path, monkeypatch, capsys):
    code, asked = run(tmp_path, monkeypatch, *arguments)
    assert code == 0 and asked == [machines]
    head = capsys.readouterr().out
    assert ("t3-accelsim" in head) == (machines == {"t3-table1", "t3-accelsim"})


@pytest.mark.parametrize(("second", "words"), [
    ("t3-table1", "--beside t3-table1: give a machine other than --machine t3-table1"), ("nowhere", "nowhere"),
    ("", "machine"),
    ("a100-nvlink", "a100-nvlink")])
def test_a_second_machine_that_cannot_be_is_refused(second, words, tmp_path, monkeypatch, capsys):
    code, asked = run(tmp_path / "out", monkeypatch, "--beside", second)
    error = capsys.readouterr().err
    assert code == 2 and not asked and words in error and error.count("\n") == 1
    assert not (tmp_path / "out").exists()
