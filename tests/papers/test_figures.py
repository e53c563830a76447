"""Figures from hand-made kernels, whose numbers are known, and the files that are written."""

import csv
import html
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from types import SimpleNamespace

import pytest

from t3sim.machine import load_machine
from t3sim.mechanisms.track_trigger import FusedGemm, GatherAfter
from t3sim.papers import pipeline, report
from t3sim.papers.campaign import Chapter
from t3sim.papers.csv_tables import file_name
from t3sim.papers.figure import FIRST_ANSWERS, PAPERS, paper_setup
from t3sim.papers.paper import CENTRAL_CLAIM, TARGETS, Target, compare, geomean
from t3sim.papers.registry import FIGURES
from t3sim.papers.report import minus
from t3sim.study.tasks.runner import Monitor, Outcome, TaskFailure
from tests.support.fake_kernels import fake_kernel, fake_results

SETUP = paper_setup(load_machine())


def evaluate(name: str, results=None):
    figure = FIGURES[name]
    findings = figure.evaluate(SETUP, results or fake_results(figure.tasks(SETUP)))
    return findings, compare({**TARGETS.get(name, {}), **findings.targets}, findings.ours)


def test_figure16_is_the_arithmetic_of_its_kernels():
    findings, summary = evaluate("figure16")
    assert len(findings.cases) == 16
    # the rate law of the fakes has the paper's ideals
    assert summary["ideal_overlap_geomean_percent"]["ours"] == pytest.approx(35.7, abs=0.1)
    assert summary["ideal_overlap_geomean_percent"]["difference"] == pytest.approx(0.7, abs=0.1)
    assert summary["ideal_overlap_geomean_percent"]["met"]
    layer = next(case for case in findings.cases
                 if (case["model"], case["sublayer"], case["tp"]) == ("t-nlg", "fc1", 16))
    g, r, a = (layer["techniques"]["sequential"][key] for key in ("gemm_ns", "rs_ns", "ag_ns"))
    assert layer["speedup"]["ideal-overlap"] == pytest.approx((g + r + a) / (max(g, r) + a))
    assert layer["speedup"]["t3"] == pytest.approx((g + r + a) / (max(1.1 * g, a) + a), rel=1e-4)
    assert summary["rs_nmc_faster_tp8_percent"]["ours"] == pytest.approx(47 / 7, abs=0.01)
    assert summary["t3_geomean_percent"]["met"] is False and summary["t3_geomean_percent"]["missed_by"] > 5


def test_figure18_counts_chunks():
    findings, summary = evaluate("figure18")
    assert summary["rs_read_ratio_tp8"]["ours"] == pytest.approx(15 / 6, rel=1e-6)
    assert summary["rs_read_ratio_tp16"]["ours"] == pytest.approx(31 / 14, rel=1e-6)
    assert summary["write_ratio_tp8"]["ours"] == pytest.approx(16 / 14, rel=1e-6)
    assert summary["gemm_read_ratio_geomean"]["ours"] == pytest.approx(2)
    eight = next(case for case in findings.cases if case["tp"] == 8)
    assert eight["dram_change"] == pytest.approx((4 + 5 * 8 - 6) / (8 + 6 * 8 - 3) - 1, rel=1e-6)


def test_figure15_shares():
    findings, _ = evaluate("figure15")
    shares = [1 - case["techniques"]["sequential"]["gemm_ns"] / case["techniques"]["sequential"]["total_ns"]
              for case in findings.cases]
    assert findings.ours["communication_share_max_percent"] == pytest.approx(100 * max(shares))


@pytest.mark.long
def test_an_all_reduce_is_compared_with_the_gather_after_it():
    findings, _ = evaluate("all-reduce")
    assert len(findings.cases) == 28
    total_ns = next(case for case in findings.cases if case["title"] == "T-NLG FC-2, TP=8")["total_ns"]
    assert total_ns["all-reduce"] < total_ns["t3-mca"] < total_ns["sequential"]
    assert total_ns["bound"] < total_ns["t3-mca"]
    assert findings.ours["over_t3_mca_min_percent"] >= 0 and 90 < findings.ours["share_of_bound_percent"] < 105
    assert total_ns["t3-mca both ways"] < total_ns["sequential both ways"] < total_ns["sequential"]
    assert 90 < findings.ours["both_ways_share_of_bound_percent"] < 105


def test_policies_are_compared_with_round_robin_and_with_the_best():
    figure, slow = FIGURES["policies"], "T-NLG FC-2, TP=8"
    results = fake_results(figure.tasks(SETUP))
    findings, summary = evaluate("policies", results)
    assert len(findings.cases) == 28
    total_ns = next(case for case in findings.cases if case["title"] == slow)["total_ns"]
    # As the fakes slow their GEMM.
    assert total_ns["t3-mca+"] == total_ns["ring_aware"] < total_ns["t3-mca"] < total_ns["t3"]
    gains = [case["total_ns"]["t3-mca"] / case["total_ns"]["t3"] for case in findings.cases]
    assert summary["t3_mca_slower_geomean_percent"]["ours"] == pytest.approx(100 * (geomean(gains) - 1))
    assert summary["t3_mca_slower_max_percent"]["met"] and summary["t3_mca_near_best_percent"]["ours"] == 100
    # one layer on which MCA takes longer
    layer = next(layer for layer in SETUP.small if layer.title == slow)
    task = SETUP.task(FusedGemm("mca"), layer)
    results[task] = replace(results[task], cycles=2 * results[task].cycles)
    findings, summary = evaluate("policies", results)
    total_ns = next(case for case in findings.cases if case["title"] == slow)["total_ns"]
    loss = 100 * (total_ns["t3-mca"] / total_ns["t3"] - 1)
    assert loss > 10 and summary["t3_mca_slower_max_percent"]["ours"] == pytest.approx(loss)
    assert not summary["t3_mca_slower_max_percent"]["met"]
    for share in ("unharmed", "near_best"):
        assert summary[f"t3_mca_{share}_percent"]["ours"] == pytest.approx(100 * 27 / 28)
        assert summary[f"ring_aware_{share}_percent"]["ours"] == 100
    layers, verdicts = findings.tables
    assert dict(zip(verdicts.columns, verdicts.rows[1]))["at most 0.5 % slower"] == "27 of 28"
    fastest = {row[0]: row[-1] for row in layers.rows}
    assert fastest[slow] == "ring-aware" and fastest["T-NLG OP, TP=16"] == "alike"  # the ring is longer than the GEMM


def test_staging_is_not_taken_for_a_policy():
    """A layer on which staging costs: T3-MCA+ is behind, its policy is not, and the best is that of the policies."""
    figure, staged = FIGURES["policies"], "T-NLG FC-2, TP=8"
    results = fake_results(figure.tasks(SETUP))
    layer = next(layer for layer in SETUP.small if layer.title == staged)
    for factor, behind, near in ((2, 100, 27), (0.5, 0, 28)):
        task = SETUP.task(FusedGemm("ring_aware", staged=True), layer)
        variant = results | {task: replace(results[task], cycles=round(factor * results[task].cycles))}
        findings, summary = evaluate("policies", variant)
        assert summary["t3_mca_plus_near_best_percent"]["ours"] == pytest.approx(100 * near / 28)
        assert summary["ring_aware_near_best_percent"]["ours"] == 100
        rows = {row[0]: dict(zip(findings.tables[0].columns, row)) for row in findings.tables[0].rows}
        assert rows[staged]["T3-MCA+ stages"] == "yes" and rows[staged]["fastest policy"] == "ring-aware"
        assert (summary["t3_mca_plus_slower_max_percent"]["ours"] > 10) == bool(behind)


def test_policies_need_only_ring_aware_arbitration_besides_figure16_and_tp32():
    shared = {task.key for name in ("figure16", "tp32") for task in FIGURES[name].tasks(SETUP)}
    own = {task for task in FIGURES["policies"].tasks(SETUP) if task.key not in shared}
    assert {task.kernel for task in own} <= {FusedGemm("ring_aware"), GatherAfter("ring_aware")}


def test_a_switch_that_adds_is_compared_with_t3_without_it():
    findings, _ = evaluate("in-switch")
    assert len(findings.cases) == 28
    one = next(case for case in findings.cases if case["title"] == "T-NLG FC-2, TP=8")["total_ns"]
    assert one["t3-mca in the switch"] < one["t3-mca"] < one["sequential"] and one["in-switch"] < one["sequential"]
    assert one["bound"] <= one["t3-mca in the switch"]
    assert findings.ours["both_over_t3_mca_max_percent"] > 20 and 90 < findings.ours["share_of_bound_percent"] <= 100


def test_a_gemm_behind_its_all_gather_is_compared_with_a_closed_form():
    findings, _ = evaluate("all-gather-gemm")
    assert len(findings.cases) == 14
    layer = next(case for case in findings.cases if case["title"] == "T-NLG FC-1 after its all-gather, TP=8")
    (m, n, k), techniques = (layer[extent] for extent in "MNK"), layer["techniques"]
    assert (m, n, k) == (8192, 4256 * 4 // 8, 4256)
    gemm, gather = (techniques["sequential"][key] for key in ("gemm_ns", "ag_ns"))
    assert techniques["sequential"]["total_ns"] == gemm + gather
    assert gather == pytest.approx(7 * (m * k * 2 / 8 / 75 + 500), abs=1)
    assert techniques["t3"]["total_ns"] == pytest.approx(1.1 * gemm, abs=1)
    assert layer["closed_form_ns"] == gemm > gather
    short = next(case for case in findings.cases if case["title"] == "T-NLG IP after its all-gather, TP=16")
    gemm, gather = (short["techniques"]["sequential"][key] for key in ("gemm_ns", "ag_ns"))
    stages = 7 * 32 / 80  # of 80 workgroups; 7 tiles for 798 columns, 32 for 8,192 tokens
    assert gemm < gather < short["closed_form_ns"] == pytest.approx(gather + gemm / -(-stages // 1), abs=1)


@pytest.mark.parametrize(("target", "ours", "missed"), [
    (Target("", "%", 10, "", tolerance=3), 12.9, 0), (Target("", "%", 10, "", tolerance=3), 6, 1),
    (Target("", "%", None, "", at_most=7), 8.5, 1.5), (Target("", "%", None, "", at_least=0), -2, 2),
    (Target("", "%", 10, ""), 99, None)])
def test_targets(target, ours, missed):
    assert target.missed_by(ours) == (None if missed is None else pytest.approx(missed))


@pytest.mark.parametrize(("least", "missed"), [(0.92, 0.08), (1.0, 0), (1.20, 0), (1.45, 0.05)])
def test_the_least_gain_of_flux_is_held_to_the_papers_least(least, missed):
    """On nodes with PCIe it is 1.20 in the paper, within 0.2; the most is 3.25."""
    tasks = [*FIGURES["flux"].tasks(SETUP)]
    gain = dict.fromkeys(tasks, 3.25) | {next(task for task in tasks if task.node == "a100-pcie"): least}
    results = {task: SimpleNamespace(
        gemm_ns=1.0, collective_ns=1.0, total_ns={"sequential": 2.0, "decomposed": gain[task], "flux": 1.0},
        efficiency={"decomposed": 0.5, "flux": 1.0}, choice={"flux": ""}) for task in tasks}
    _, summary = evaluate("flux", results)
    one = summary["a100_pcie_gain_min"]
    assert (one["ours"], one["met"]) == (least, not missed) and (one["missed_by"] or 0) == pytest.approx(missed)
    assert summary["a100_pcie_gain_max"]["met"] is True


def test_no_distance_from_the_paper_is_met_from_one_side():
    for bound in ({"at_most": 7}, {"at_least": 3}):
        with pytest.raises(ValueError, match="one bound and the paper's 5 %, any distance beyond the bound"):
            Target("", "%", 5, "", **bound)
        assert Target("", "%", 5, "", **bound, errors=True).missed_by(5) == 0
    gap = TARGETS["figure16"]["t3_mca_below_ideal_points"]  # 5 in the paper
    assert gap.missed_by(1) == 2 and gap.missed_by(5) == 0


def test_the_central_claim_is_judged_on_both_sides():
    claim = TARGETS["figure16"][CENTRAL_CLAIM]
    assert [claim.missed_by(ours) for ours in (0.1, 8, 10, 13, 15)] == pytest.approx([7.9, 0, 0, 0, 2])
    _, summary = evaluate("figure16")
    assert summary[CENTRAL_CLAIM]["met"] is not None


@pytest.mark.long
def test_every_target_is_of_a_figure_and_met_or_missed_by_one_of_its_quantities():
    for name, targets in TARGETS.items():
        findings, _ = evaluate(name)
        assert set(targets) <= set(findings.ours), name


@pytest.mark.slow
@pytest.mark.parametrize("name", FIGURES)
def test_figures_are_pure_and_need_no_more_than_their_tasks(name):
    tasks = list(FIGURES[name].tasks(SETUP))
    results = fake_results(tasks)
    findings, repeated = (FIGURES[name].evaluate(SETUP, dict(results)) for _ in range(2))
    assert (findings.cases, findings.ours, findings.tables, findings.text) == (
        repeated.cases, repeated.ours, repeated.tables, repeated.text)
    json.dumps([findings.cases, findings.ours], allow_nan=False)
    for table in findings.tables:
        assert table.rows and all(len(row) == len(table.columns) for row in table.rows), table.title
    if not tasks:  # a closed form
        return
    lost = {task.key for task in tasks[:1]}
    with pytest.raises(KeyError):
        FIGURES[name].evaluate(SETUP, {task: kernel for task, kernel in results.items() if task.key not in lost})


# the files

class Page(HTMLParser):
    """What a reader would see: ids, headings, drawings, and what would be loaded from elsewhere."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids, self.links, self.foreign, self.drawings = [], [], [], 0
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.ids += [given["id"]] if "id" in given else []
        self.drawings += tag == "svg"
        for name in ("src", "href", "xlink:href"):
            if given.get(name, "").startswith("data:image/png;base64,"):
                continue
            if given.get(name, "#").startswith("#"):
                self.links += [given[name][1:]] if name in given else []
            else:
                self.foreign.append(given[name])


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """All figures of the paper's cases, from the fakes."""
    out = tmp_path_factory.mktemp("reproduce")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "run_tasks", lambda tasks, *_: Outcome(results=fake_results(tasks), seconds=3.0))
        done = pipeline.reproduce(list(FIGURES.values()), SETUP, out, 2, Monitor())
    return out, done


@pytest.mark.slow
def test_report_shows_every_figure_and_loads_nothing(written):
    out, campaign = written
    text = (out / "report.html").read_text()
    page = Page(text)
    assert set(FIGURES) <= set(page.ids)
    assert len(page.ids) == len(set(page.ids)) and set(page.links) <= set(page.ids)
    assert all((out / link).is_file() for link in page.foreign) and not re.search(r"@import|url\((?!#)", text)
    assert page.drawings == sum(len(chapter.plots) for chapter in campaign.chapters) > 0
    for chapter in campaign.chapters:
        assert chapter.figure.title in html.unescape(text)
        for name in chapter.plots:
            assert (out / "plots" / f"{name}.svg").read_text().startswith("<?xml")
            assert (out / "plots" / f"{name}.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_every_table_is_a_csv_file_beside_the_page(written):
    out, campaign = written
    page = (out / "report.html").read_text()
    tables = [(chapter.figure.name, table) for chapter in campaign.chapters for table in chapter.findings.tables]
    linked = re.findall(r'href="(tables/[^"]+\.csv)"', page)
    assert len(linked) == len(set(linked)) == len(tables) + 1  # and the summary
    assert {path.name for path in (out / "tables").iterdir()} == {name.removeprefix("tables/") for name in linked}
    for figure, table in tables:
        with (out / "tables" / file_name(figure, table.title)).open(newline="") as file:
            head, *rows = csv.reader(file)
        assert tuple(head) == table.columns
        assert [[cell.replace(",", "") for cell in row] for row in rows] == [
            [cell.replace(",", "") for cell in row] for row in table.rows]
        assert not any(re.fullmatch(r"[\d,.]*\d,\d{3}[.\d]*", cell) for row in rows for cell in row)
    with (out / "tables" / "summary.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    entries = [entry for chapter in campaign.chapters for entry in chapter.summary.values() if entry["section"]]
    assert [float(row["ours"]) for row in rows] == [entry["ours"] for entry in entries]


@pytest.mark.slow
def test_report_fits_a_telephone_and_the_night(written):
    page = (written[0] / "report.html").read_text()
    dark = page.split("@media screen and (prefers-color-scheme: dark)")[1].split("</style>")[0]
    used = set(re.findall(r"var\((--\w+)\)", page))
    assert used and used == set(re.findall(r"(--\w+):", dark))  # every colour has its counterpart
    body = page.split("</style>", 1)[1]  # plots have styles, too
    assert not re.search(r"style=\"[^\"]*color", re.sub(r"<svg.*?</svg>", "", body, flags=re.DOTALL))
    rows = re.findall(r"<tr><td>.*?</tr>", body.split('class="summary"')[1].split("</table>")[0], re.DOTALL)
    assert rows and all(re.findall(r'data-label="(\w+)"', row) == ["ours", "paper", "difference", "target"]
                        for row in rows)  # where the columns' heads have no room


@pytest.mark.slow
def test_the_first_screen_says_whether_the_central_claim_holds(written):
    page, results = (written[0] / "report.html").read_text(), json.loads((written[0] / "results.json").read_text())
    claim = results["summary"]["figure16"][CENTRAL_CLAIM]
    first = page.split("<body>")[1].split("<nav>")[0]
    assert f"<strong>{claim['ours']:.1f} %</strong> over T3 here, 8 to 13 % in" in first
    assert ("met</span>" if claim["met"] else f"missed by {claim['missed_by']:.1f} points</span>") in first


@pytest.mark.slow
def test_the_first_screen_has_an_answer_and_a_plot_of_each_paper(written):
    """Each plot is there once: an answer's is not repeated in its chapter."""
    page = (written[0] / "report.html").read_text()
    first = page.split("<body>")[1].split("<nav>")[0]
    assert list(FIRST_ANSWERS) == list(PAPERS) and first.count("<svg") == len(PAPERS)
    for paper, (question, name) in FIRST_ANSWERS.items():
        chapter = next(one for one in written[1].chapters if one.figure.name == name)
        assert chapter.figure.paper == paper and chapter.plots
        answer = html.unescape(first.split(f'id="answer-{name}"')[1].split("</section>")[0])
        assert question in answer and minus(chapter.findings.text) in answer and answer.count("<svg") == 1


def test_a_paper_without_its_first_figure_has_no_answer():
    assert not report._answers([Chapter(FIGURES["figure4"])]) and not report._answers([Chapter(FIGURES["figure16"])])


def test_targets_are_shown_to_the_digits_that_mean_something():
    for quantities in TARGETS.values():
        for target in quantities.values():
            for number in re.findall(r"[\d.]+", target.condition):
                assert len(number.replace(".", "").lstrip("0")) <= 2, target.condition


@pytest.mark.slow
def test_results_json_keeps_its_keys(written):
    content = json.loads((written[0] / "results.json").read_text())
    assert {"cases", "summary", "machine", "versions", "commit", "seed"} <= content.keys()
    layers = [case for case in content["cases"] if case["figure"] == "figure16"]
    assert len(layers) == 16
    for case in layers:
        assert {"figure", "model", "sublayer", "tp", "speedup", "dram_change", "gemm_read_ratio"} <= case.keys()
        assert {"t3", "t3-mca", "ideal-overlap", "ideal-rs-nmc"} <= case["speedup"].keys()
    for quantities in content["summary"].values():
        for entry in quantities.values():
            assert {"ours", "paper", "difference"} <= entry.keys()
            assert entry["difference"] == (None if entry["paper"] is None else entry["ours"] - entry["paper"])
    assert "host_seconds" not in json.dumps(content)


@pytest.mark.long
def test_what_failed_is_said_and_the_rest_is_shown(tmp_path, monkeypatch):
    lost = next(task for task in FIGURES["figure16"].tasks(SETUP) if task.kernel == FusedGemm("mca"))
    figures = [FIGURES["figure14"], FIGURES["figure16"]]
    results = fake_results(task for figure in figures for task in figure.tasks(SETUP))
    del results[lost]
    outcome = Outcome(results=results, failures={lost.key: TaskFailure(lost.label, "nothing <moved>", "Traceback")})
    monkeypatch.setattr(pipeline, "run_tasks", lambda *_: outcome)
    campaign = pipeline.reproduce(figures, SETUP, tmp_path, 1, Monitor())
    problems = {chapter.figure.name: chapter.problem for chapter in campaign.chapters}
    assert "nothing <moved>" in problems["figure16"] and lost.label in problems["figure16"]
    assert "nothing &lt;moved&gt;" in (tmp_path / "report.html").read_text()
    assert "Traceback" in (tmp_path / "failures.log").read_text()
    assert "figure16" not in campaign.results["summary"] and "figure16" in campaign.results["incomplete"]


@pytest.mark.long
def test_host_times_are_kept_apart(tmp_path, monkeypatch):
    contents = []
    for jobs, slower in ((1, 0.0), (2, 5.0)):
        results = {task: replace(fake_kernel(task), host_seconds=slower)
                   for task in FIGURES["figure16"].tasks(SETUP)}
        monkeypatch.setattr(pipeline, "run_tasks",
                            lambda *_, results=results, slower=slower: Outcome(results=results, seconds=slower))
        pipeline.reproduce([FIGURES["figure16"]], SETUP, tmp_path / str(jobs), jobs, Monitor())
        contents.append((tmp_path / str(jobs) / "results.json").read_bytes())
    assert contents[0] == contents[1]
