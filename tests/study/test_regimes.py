"""Where a setting matters: losses against a bound, grouped along settings and results."""

import json

import pytest

from t3sim import cli
from t3sim.study.sweeps.comparisons import BEST, regimes
from t3sim.study.sweeps.study import Regimes, load_study
from tests.support.studies import COLLECTIVES, written

WANTED = Regimes(over="policy", by="time", bound="ideal", along=["link", "order", "share"])
VARIED = ["case", "link", "order", "policy"]


def case(number, link, order, share, ideal=100.0, **times):
    """Rows of a case, one per policy."""
    return [{"case": number, "link": link, "order": order, "share": share, "ideal": ideal, "policy": policy,
             "time": time} for policy, time in times.items()]


def test_losses_are_those_of_the_cases_of_a_group():
    rows = [*case(1, 75.0, "hidden", 0.1, mca=110.0, rr=105.0), *case(2, 75.0, "tokens", 0.2, mca=102.0, rr=109.0),
            *case(3, 150.0, "tokens", 0.3, 200.0, mca=200.0, rr=260.0)]
    by_link, by_order, by_share = ([regime for regime in regimes(WANTED, rows, VARIED) if regime.along == along]
                                   for along in WANTED.along)
    assert [(regime.group, regime.cases) for regime in by_link] == [("75", 2), ("150", 1)]
    assert by_link[0].mean_percent == pytest.approx({"mca": 6, "rr": 7, BEST: 3.5})
    assert by_link[0].worst_percent == pytest.approx({"mca": 10, "rr": 9, BEST: 5})
    assert by_link[1].mean_percent == pytest.approx({"mca": 0, "rr": 30, BEST: 0})
    assert [(regime.group, regime.mean_percent["rr"]) for regime in by_order] == [("hidden", pytest.approx(5)),
                                                                        ("tokens", pytest.approx(19.5))]
    assert [regime.group for regime in by_share] == ["0.1", "0.2", "0.3"]


def test_groups_are_named_by_their_whole_value():
    rows = [row for size in (131072, 2097152) for row in case(size, size, "hidden", 0.1, mca=110.0)]
    assert [one.group for one in regimes(WANTED, rows, VARIED) if one.along == "link"] == ["131072", "2097152"]


def test_a_result_with_many_values_is_cut_into_thirds():
    rows = [row for number in range(10) for row in case(number, 75.0, "hidden", number / 10, mca=100.0 + number)]
    thirds = [one for one in regimes(WANTED, rows, VARIED) if one.along == "share"]
    assert [(one.group, one.cases) for one in thirds] == [("0 to 0.2", 3), ("0.3 to 0.6", 4), ("0.7 to 0.9", 3)]
    assert [one.mean_percent["mca"] for one in thirds] == pytest.approx([1, 4.5, 8])


def test_a_case_that_lacks_a_result_does_not_count():
    whole, part = case(1, 75.0, "hidden", 0.1, mca=110.0, rr=105.0), case(2, 75.0, "hidden", 0.1, mca=300.0, rr=None)
    for rows in ([*whole, *part], [*whole, *part[:1]], [*whole, *case(3, 75.0, "a", 1, None, mca=3.0, rr=4.0)]):
        found = regimes(WANTED, rows, VARIED)
        assert {one.cases for one in found} == {1} and found[0].mean_percent["mca"] == pytest.approx(10)
    assert regimes(WANTED, part, VARIED) == [] == regimes(WANTED, [], VARIED)


DRAWN = COLLECTIVES + """
    [regimes]
    over = "topology"
    by = "runs.0.collective_ns"
    bound = "runs.0.closed_form_ns"
    along = ["sizes", "runs.0.algorithm", "nodes"]
    """


@pytest.mark.long
def test_a_study_draws_and_tells_its_regimes(tmp_path, capsys):
    assert cli.main(["sweep", str(written(tmp_path, DRAWN)), "--out", str(tmp_path / "out"), "--jobs", "1", "--json",
                     str(tmp_path / "a.json")]) == 0
    regime_rows = json.loads((tmp_path / "a.json").read_text())["regimes"]
    assert [regime["group"] for regime in regime_rows[:3]] == ["1M", "2M", "4M"]
    assert all(regime["cases"] == 1 for regime in regime_rows[:3])
    assert regime_rows[-1]["along"] == "nodes" and regime_rows[-1]["cases"] == 3
    assert set(regime_rows[0]["mean_percent"]) == {"ring:4", "full:4", BEST}
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Where topology matters" in page and (tmp_path / "out" / "regimes.png").stat().st_size > 1000


@pytest.mark.parametrize("change, words", [
    (('over = "topology"', 'over = "tp"'), "regimes.over = 'tp' is not a setting of the grid: allowed are topology"),
    (('along = ["sizes", "runs.0.algorithm", "nodes"]', "along = []"), "regimes.along = []"),
    (('    bound = "runs.0.closed_form_ns"\n', ""), "regimes.bound is missing"),
    (('bound = "runs', 'limit = 3\nbound = "runs'), "regimes.limit is unknown"),
])
def test_regimes_that_cannot_be_are_refused_in_a_line(change, words, tmp_path, error_of):
    assert change[0] in DRAWN
    assert words in error_of("sweep", written(tmp_path, DRAWN.replace(*change)), "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.long
def test_a_result_that_there_is_not_is_named(tmp_path, capsys):
    study = DRAWN.replace('"nodes"]', '"gpus"]')
    assert cli.main(["sweep", str(written(tmp_path, study)), "--out", str(tmp_path / "out"), "--jobs", "1"]) == 2
    assert "regimes.along names 'gpus', which no result has" in capsys.readouterr().err


def test_the_packages_study_has_a_bound_for_every_policy():
    study = load_study("regimes")
    assert study.regimes.over == "policy" and len(study.grid["policy"]) == 4
    bound = study.regimes.bound.split(".")[1]
    assert bound in study.options["technique"].split(",")
    assert study.draw.count * 4 == sum(1 for _ in study.points_settings())
    assert study.options["technique"].split(",")[0] == "sequential"  # without it no technique has `bounds`


def test_no_queue_of_the_packages_study_is_full_of_a_batch_of_writes():
    study = load_study("regimes")
    queues = study.draw.settings["machine.dram.queue_entries"]
    assert 2 * study.machine["dram"]["write_high_watermark"] <= min(queues)
