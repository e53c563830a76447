"""Studies: every point once, the same bytes whoever ran them, and one line for what cannot be run."""

import json
import re
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from matplotlib import pyplot as plt

from t3sim import cli
from t3sim.base.errors import BadInput
from t3sim.commands.command_points import CommandTask
from t3sim.commands.sweep import points_of
from t3sim.study.scenario.dispatch import request_of
from t3sim.study.scenario.event import EventLevel
from t3sim.study.scenario.request import LayerRequest
from t3sim.study.sweeps import page
from t3sim.study.sweeps.comparisons import WinnerCell, regrets, short_names, winners
from t3sim.study.sweeps.page import write_page
from t3sim.study.sweeps.point import flat
from t3sim.study.sweeps.scenario_point import ScenarioPoint
from t3sim.study.sweeps.study import STUDIES, Compare, Map, load_study, value_of
from tests.support.studies import COLLECTIVES, written

MACHINE = Path(__file__).parents[1] / "data" / "machines" / "ring_small.toml"
STUDIES_OF_PAGES = Path(__file__).parents[2] / "docs" / "studies"
THREE_LINKS = STUDIES_OF_PAGES / "three-links.toml"


def t3(*words) -> int:
    return cli.main(["sweep", *(str(word) for word in words)])


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    assert t3(written(folder, COLLECTIVES), "--out", folder / "out", "--jobs", 1) == 0
    return folder / "out"


@pytest.mark.long
def test_a_row_has_its_settings_and_every_number(whole):
    rows = pq.read_table(whole / "results.parquet").to_pylist()
    assert [(row["topology"], row["sizes"]) for row in rows] == [
        (topology, size) for topology in ("ring:4", "full:4") for size in ("1M", "2M", "4M")]
    assert all(row["runs.0.algorithm"] == "direct" and row["nodes"] == 4 for row in rows if row["topology"] == "full:4")
    direct, ring = rows[3], rows[0]
    assert 0 < direct["runs.0.collective_ns"] < ring["runs.0.collective_ns"]
    assert not any("host" in name for name in direct), "what differs from run to run is no result"
    assert direct["runs.0.collective_ns"] == pytest.approx(direct["runs.0.closed_form_ns"], rel=0.03)


@pytest.mark.long
def test_the_page_shows_plots_and_points(whole):
    page = (whole / "report.html").read_text()
    assert page.count("<svg") == 1 and "6 of 6 points" in page and page.count("<tr>") == 7
    assert (whole / "plot0.svg").exists() and (whole / "plot0.png").exists()


@pytest.mark.parametrize("results, shown", [
    ({"techniques.t3.total_ns": 1.5, "techniques.t3.gemm_ns": 1.0, "speedup.t3": 1.25}, {"techniques.t3.total_ns"}),
    ({"runs.0.collective_ns": 3.5, "runs.0.bytes": 64}, {"runs.0.collective_ns"}),
    ({"accepted": True, "gates": 17}, {"gates"})])
def test_a_study_without_plots_shows_its_times(results, shown, tmp_path):
    study = load_study(str(written(tmp_path, 'title = "t"\ncommand = "dma"\n[grid]\ntp = [2, 4]\n')))
    rows = [{"tp": 2, **results}, {"tp": 4, **results, **({"gates": 18} if "gates" in results else {})}]
    write_page(study, rows, [], 2, tmp_path)
    assert set(re.findall("<th>(.*?)</th>", (tmp_path / "report.html").read_text())) == {"tp", *shown}


def test_a_plot_has_words_units_and_decimal_ticks():
    """No key of a file, and no power of two."""
    study = load_study("link-bandwidth")
    rows = [{**values, **{name: 1e5 + place for _, name in study.columns()}}
            for place, values in enumerate(study.points_settings())]
    picture = page._draw(study.plots[0], rows)
    picture.canvas.draw()
    axes, = picture.axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("link bandwidth (GB/s)", "time (µs)")
    assert [one.get_text() for one in axes.get_xticklabels()] == ["37.5", "75", "150", "300"]
    assert "sublayer fc2" in axes.get_legend_handles_labels()[1]
    plt.close(picture)


@pytest.mark.slow
def test_names_from_a_file_are_shown_and_mean_nothing(tmp_path):
    """Neither to a browser nor to what draws the plots."""
    hostile = "<script>alert(1)</script> $\\\\frac$ a|b"
    study = COLLECTIVES.replace('"Algorithms"', f'"{hostile}"').replace(
        'series = "topology"', f'series = "topology"\ntitle = "{hostile}"\nlabel = "{hostile}"')
    assert t3(written(tmp_path, study), "--out", tmp_path / "out", "--jobs", 1) == 0
    page = (tmp_path / "out" / "report.html").read_text()
    assert "<script" not in page and page.count("&lt;script&gt;") >= 2
    assert "<script" not in (tmp_path / "out" / "plot0.svg").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("parts", [[("--jobs", 2)], [("--shard", "2/2"), ("--shard", "1/2")],
                                   [("--shard", "3/3"), ("--jobs", 1)]])
def test_the_same_bytes_whoever_ran_them(whole, parts, tmp_path):
    for options in parts:
        assert t3(written(tmp_path, COLLECTIVES), "--out", tmp_path / "out", *options) == 0
    for name in ("results.parquet", "report.html", "plot0.png"):
        assert (tmp_path / "out" / name).read_bytes() == (whole / name).read_bytes(), name


@pytest.mark.slow
def test_what_is_done_is_kept_and_only_the_rest_is_run(whole, tmp_path, capsys):
    shutil.copytree(whole, tmp_path / "out")
    lost = sorted((tmp_path / "out" / "cache").iterdir())[2]
    lost.unlink()
    assert t3(written(tmp_path, COLLECTIVES), "--out", tmp_path / "out", "--json", "-") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["points"], told["done"], told["kept"]) == (6, 6, 5) and lost.exists()
    assert (tmp_path / "out" / "results.parquet").read_bytes() == (whole / "results.parquet").read_bytes()


@pytest.mark.slow
def test_a_shard_alone_writes_what_there_is(tmp_path, capsys):
    assert t3(written(tmp_path, COLLECTIVES), "--out", tmp_path / "out", "--shard", "1/4") == 0
    assert "2 of 6 points" in capsys.readouterr().out
    assert pq.read_table(tmp_path / "out" / "results.parquet").num_rows == 2


@pytest.mark.slow
def test_a_point_that_fails_is_named_and_the_others_are_done(tmp_path, capsys):
    study = COLLECTIVES.replace('"4M"', '"4Q"')
    assert t3(written(tmp_path, study), "--out", tmp_path / "out") == 1
    told = capsys.readouterr().err
    assert re.search(r"2 points failed, see \S+failures\.log; topology = \S+, sizes = 4Q: --sizes", told)
    assert pq.read_table(tmp_path / "out" / "results.parquet").num_rows == 4
    assert "sizes = 4Q" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.builds_loops
@pytest.mark.slow
def test_a_fused_kernel_on_machines_that_differ(tmp_path):
    study = f"""
        title = "Links"
        command = "run"
        [options]
        machine = "{MACHINE}"
        gemm = "256x256x64"
        devices = 4
        technique = "sequential,t3"
        [grid]
        "machine.link.bandwidth_gb_per_s" = [15.0, 30.0]
        """
    assert t3(written(tmp_path, study), "--out", tmp_path / "out", "--jobs", 1) == 0
    slow, fast = pq.read_table(tmp_path / "out" / "results.parquet").to_pylist()
    assert cli.main(["run", "--gemm", "256x256x64", "--devices", "4", "--machine", str(MACHINE), "--technique",
                     "sequential,t3", "--json", str(tmp_path / "alone.json")]) == 0
    alone = json.loads((tmp_path / "alone.json").read_text())["techniques"]
    assert fast["techniques.t3.total_ns"] == alone["t3"]["total_ns"] < slow["techniques.t3.total_ns"]
    assert fast["techniques.sequential.gemm_ns"] == slow["techniques.sequential.gemm_ns"]


@pytest.mark.parametrize(("name", "parts"), [("h100-window", 4), ("h100-dma", 4), ("mi300x-window", 8)])
def test_studies_of_part_of_a_gpu_compare_what_they_vary(name, parts):
    study = load_study(str(STUDIES_OF_PAGES / f"{name}.toml"))
    assert study.compare
    points = points_of(study)
    compared = [value_of(point.values, study.compared_settings) for point in points]
    assert study.compare.against in compared
    assert len(set(compared)) * len(study.grid.get("gemm", [""])) == len(points)
    for point in points:
        tracker = request_of(point.scenario).plans[0].machine.tracker
        assert tracker.sets == point.values["machine.tracker.sets"] // parts


@pytest.mark.slow
@pytest.mark.parametrize("name", [*STUDIES, str(THREE_LINKS)])
def test_every_study_of_the_package_can_be_run(name):
    study = load_study(name)
    points = points_of(study)
    assert len({task.key for point in points[:40] for task in point.tasks}) > 4 and (study.plots or study.compare)
    assert len({tuple(point.values.items()) for point in points}) == len(points) > 4
    for point in points[:2]:
        ready = request_of(point.scenario)
        machine = (ready.node if isinstance(ready, EventLevel) else
                   ready.plans[0].machine if isinstance(ready, LayerRequest) else ready.machine)
        for key, value in point.values.items():
            if key.startswith("machine."):
                _, section, name = key.split(".")
                assert getattr(getattr(machine, section), name) == value


@pytest.mark.long
def test_points_share_their_simulations():
    """Only Track & Trigger's kernels have a policy: those of 64 cases under four are 704 of 1,536."""
    points = points_of(load_study("regimes"))
    each = [task.key for point in points for task in point.tasks]
    assert len(points) == 256 and len(each) == 1536 and len(set(each)) == 704


def test_a_scenario_is_a_study_of_one_point(tmp_path):
    """Under its keys or their short names, in a section or in `[options]`, a setting is the same."""
    as_scenario = written(tmp_path, """
        techniques = ["sequential", "t3"]
        machine = "t3-accelsim"
        [layer]
        gemm = "1024x512x256"
        devices = 4
        """)
    only, = points_of(load_study(str(as_scenario)))
    as_options = written(tmp_path, """
        [options]
        technique = "sequential,t3"
        machine = "t3-accelsim"
        gemm = "1024x512x256"
        devices = 4
        """)
    other, = points_of(load_study(str(as_options)))
    assert only.scenario == other.scenario and [task.key for task in only.tasks] == [task.key for task in other.tasks]
    assert only.values["layer.gemm"] == other.values["gemm"] == "1024x512x256"


@pytest.mark.parametrize("values", [
    {"gemm": "262144x262144x262144", "devices": 8, "technique": "sequential"},
    {"operator": "gemm", "gemm": "262144x262144x262144"},
    pytest.param({"collective": "ag", "bytes": 8 * 10**9, "devices": 8, "values": True},
                 marks=pytest.mark.builds_loops)])
def test_a_point_that_would_take_days_is_refused_unless_the_study_insists(values):
    with pytest.raises(BadInput, match="would take about .*; insist = true runs it anyway"):
        ScenarioPoint(values)
    assert ScenarioPoint(values | {"insist": True}).tasks


def test_a_key_knows_the_numbers_behind_a_name(tmp_path):
    file = tmp_path / "m.toml"
    keys = set()
    for bandwidth in (75.0, 80.0):
        file.write_text(f'extends = "t3-table1"\n[link]\nbandwidth_gb_per_s = {bandwidth}\n')
        keys |= {task.key for task in ScenarioPoint({"machine": str(file), "tp": 8, "technique": "sequential"}).tasks}
        keys |= {task.key for task in ScenarioPoint({"machine": str(file), "operator": "gemm",
                                                     "gemm": "512x512x512"}).tasks}
    assert len(keys) == 8


def test_leaves_of_an_answer():
    content = {"a": {"b": [1, {"c": 2.5}], "host_seconds": 3}, "versions": {"x": "y"}, "d": None, "e": True}
    assert flat(content) == {"a.b.0": 1, "a.b.1.c": 2.5, "d": None, "e": True}


@pytest.mark.parametrize("change, words", [
    (('"ring:4", "full:4"', ""), "grid.topology is empty"),
    (('"ring:4", "full:4"', '"ring:4", "ring:4"'), "grid.topology has a value twice"),
    (('command = "collective"', 'command = "explode"'), "command = 'explode'"),
    (('title = "Algorithms"', ""), "title is missing\n"),
    (('title = "Algorithms"', 'title = "A"\ncolour = 1'), "colour is unknown: allowed are "),
    (('series = "topology"', 'colour = "topology"'), "plots.0.colour is unknown: allowed are x, y, series, "),
    (('"ring:4", "full:4"', 'nan'),
     "grid.topology.0 = nan: a word, a finite number of 64 bits, true or false is allowed"),
    (("[[plots]]", "[[maps]]\nx = 'sizes'\ny = 'topology'\nleast_of = ['a', 'a']\n[[plots]]"),
     "maps.least_of has a column twice"),
    (('collective = "ar"', 'colective = "ar"'),
     "options.colective: 'colective' is no option of `t3 collective`: allowed are "),
    (('collective = "ar"', 'json = "x"'), "'json' is no option"),
    (('x = "sizes"', 'x = "size"'), "'size', which does not vary: allowed are topology, sizes"),
    (("[grid]", "[grid"), "is not TOML"),
    (("[grid]", "[[points]]\ntopology = 'ring:2'\n[grid]"), "topology is in points and in grid"),
    (('collective = "ar"', 'collective = "ar"\ntopology = "ring:2"'), "topology is in options and in grid"),
    (("[grid]", "[machine.tracker]\nways = 8\n[grid]"), "machine.tracker.ways goes with run, area, hbm-replay only"),
])
def test_a_study_that_cannot_be_run_is_refused_in_a_line(change, words, tmp_path, capsys):
    assert change[0] in COLLECTIVES
    assert t3(written(tmp_path, COLLECTIVES.replace(*change)), "--out", tmp_path / "out") == 2
    told = capsys.readouterr()
    assert words in told.err and told.err.count("\n") == 1 and not told.out and not (tmp_path / "out").exists()


@pytest.mark.parametrize(("more", "words"), [
    (('[[maps]]\nx = "tp"\ny = "machine.gpu.compute_units"\n'
      'least_of = ["techniques.t3.total_ns", "techniques.t4.total_ns"]'),
     "maps.least_of names 'techniques.t4.total_ns': allowed techniques are sequential, "),
    ('[[plots]]\nx = "tp"\ny = ["speedup.t9"]', "plots.y names 'speedup.t9': allowed techniques are "),
    ('[machine.link]\nbandwidth_gb_per_s = -1.0', "[link] bandwidth_gb_per_s = -1.0: 0.1 to "),
])
def test_what_a_study_of_runs_cannot_have(more, words, tmp_path, capsys):
    study = 'title = "t"\ncommand = "run"\n[grid]\ntp = [8, 16]\n"machine.gpu.compute_units" = [40, 80]\n'
    assert t3(written(tmp_path, f"{study}{more}\n"), "--out", tmp_path / "out") == 2
    told = capsys.readouterr()
    assert words in told.err and told.err.count("\n") == 1 and not (tmp_path / "out").exists()


@pytest.mark.long
def test_a_column_that_no_result_has_is_told(tmp_path, capsys):
    study = written(tmp_path, COLLECTIVES.replace("runs.0.collective_ns", "runs.0.colective_ns"))
    assert t3(study, "--out", tmp_path / "out", "--jobs", 1) == 2
    assert "plots.y names 'runs.0.colective_ns', which no result has: allowed are " in capsys.readouterr().err
    assert (tmp_path / "out" / "results.parquet").exists() and not (tmp_path / "out" / "report.html").exists()


@pytest.mark.builds_rtl
@pytest.mark.slow
def test_gates_are_swept_like_any_answer(tmp_path):
    """An argument, a switch that is off, and a machine that differs."""
    study = written(tmp_path, """
        title = "What does a way cost?"
        command = "area"
        [options]
        block = "tracker"
        fpga = false
        library = "embedded"
        [grid]
        "machine.tracker.ways" = [8, 16]
        """)
    assert t3(study, "--out", tmp_path / "out", "--jobs", 1) == 0
    eight, sixteen = pq.read_table(tmp_path / "out" / "results.parquet").to_pylist()
    assert sixteen["blocks.tracker.memory_bits"] == 2 * eight["blocks.tracker.memory_bits"] > 0
    assert sixteen["blocks.tracker.gate_equivalents"] > eight["blocks.tracker.gate_equivalents"] > 0


def test_a_command_gets_its_words_as_it_takes_them():
    with CommandTask("area", {"block": "all", "fpga": False, "geometry": "ways=4"}).arguments() as words:
        assert words == ["area", "--no-fpga", "--geometry=ways=4", "--", "all"]
    with CommandTask("end-to-end", {"search": False, "ignore-memory": True}).arguments() as words:
        assert words == ["end-to-end", "--ignore-memory"]


@pytest.mark.long
def test_a_trace_that_changed_is_another_setting(tmp_path):
    (tmp_path / "trace.json").write_text("{}", encoding="utf-8")
    before = CommandTask("explain", {"folder": str(tmp_path), "wg": 3}).key
    (tmp_path / "trace.json").write_text("{ }", encoding="utf-8")
    assert CommandTask("explain", {"folder": str(tmp_path), "wg": 3}).key != before


@pytest.mark.parametrize("line, words", [
    ('"machine.tracker.ways" = [8, 3]', "ways"), ('"machine.tracker.wayz" = [8]', "wayz is unknown"),
    ("tp = [8, 1000]", "1000"), ('model = ["t-nlg", "t-nog"]', "t-nog"), ('policy = ["best"]', "best"),
    ("tp = [true]", "tp"), ("jsonn = [1]", "jsonn"),
])
def test_a_point_that_cannot_be_run_is_refused_before_any_is(line, words, tmp_path, capsys):
    study = f'title = "x"\ncommand = "run"\n[grid]\n{line}\n'
    assert t3(written(tmp_path, study), "--out", tmp_path / "out") == 2
    told = capsys.readouterr()
    assert words in told.err and told.err.count("\n") == 1 and not (tmp_path / "out").exists()


DRAWN = COLLECTIVES.replace("[grid]", """
    [draw]
    count = 3
    seed = 4
    [draw.settings]
    sizes = ["1M", "2M", "4M", "8M"]
    [grid]
    """).replace('sizes = ["1M", "2M", "4M"]', "") + """
    [compare]
    over = "topology"
    by = "runs.0.collective_ns"
    against = "ring:4"
    """


def test_points_are_drawn_once_and_the_same_again(tmp_path):
    drawn = [load_study(str(written(tmp_path, DRAWN.replace("seed = 4", f"seed = {seed}")))) for seed in (4, 4, 5)]
    first, again, other = ([tuple(one.items()) for one in study.points_settings()] for study in drawn)
    assert first == again != other and len(set(first)) == 6


@pytest.mark.long
def test_values_of_a_setting_are_compared_over_cases(tmp_path, capsys):
    assert t3(written(tmp_path, DRAWN), "--out", tmp_path / "out", "--jobs", 1, "--json", tmp_path / "a.json") == 0
    rows = pq.read_table(tmp_path / "out" / "results.parquet").to_pylist()
    ratios = [full["runs.0.collective_ns"] / ring["runs.0.collective_ns"] for ring, full in zip(rows[::2], rows[1::2])]
    ring, full = json.loads((tmp_path / "a.json").read_text())["compared"]
    assert ring == {"value": "ring:4", "cases": 3, "mean_percent": 0, "worst_percent": 0, "good_percent": 0,
                    "worst_case": ring["worst_case"], "behind_best_percent": pytest.approx(100 / min(ratios) - 100),
                    "unharmed_percent": 100, "spread_percent": 0, "worst_spread_percent": 0,
                    "by_case": [{"case": f"sizes = {row['sizes']}", "slower_percent": 0, "spread_percent": 0}
                                for row in rows[::2]]}
    assert full["worst_percent"] == pytest.approx(100 * max(ratios) - 100) and max(ratios) < 0.9
    assert full["worst_case"] == f"sizes = {rows[2 * ratios.index(max(ratios))]['sizes']}"
    assert full["good_percent"] == 100
    assert "100 % of cases" in capsys.readouterr().out
    assert "topology: which serves best?" in (tmp_path / "out" / "report.html").read_text()


def test_repetitions_of_a_case_are_averaged_before_values_are_compared():
    """Slower by chance in one repetition and faster in the other is no loss; 1 % slower in both is one."""
    compare = Compare(over="policy", by="ns", against="turns", average="latency")
    times = {("turns", 1): 100, ("turns", 2): 110, ("chance", 1): 110, ("chance", 2): 100, ("late", 1): 101,
             ("late", 2): 111.1}
    rows = [{"policy": policy, "latency": latency, "gemm": 7, "ns": ns} for (policy, latency), ns in times.items()]
    rows += [{**rows[0], "gemm": 8}]  # not all repetitions have a result yet
    turns, chance, late = regrets(compare, rows, ["gemm", "policy", "latency"], ["policy"])
    assert turns.cases == 1 and turns.worst_case == "gemm = 7"
    assert chance.worst_percent == chance.mean_percent == 0 and chance.unharmed_percent == 100
    assert late.worst_percent == pytest.approx(1) and late.unharmed_percent == 0 and late.good_percent == 100
    assert [one.spread_percent for one in (turns, chance, late)] == pytest.approx([10, 10, 10])
    (case,) = late.by_case
    assert (case.case, case.slower_percent, case.spread_percent) == ("gemm = 7", pytest.approx(1), pytest.approx(10))
    alone = regrets(compare.model_copy(update={"average": None}), rows[:-1], ["gemm", "policy", "latency"],
                    ["policy"])
    assert alone[1].worst_percent == pytest.approx(10) and alone[1].unharmed_percent == 50


def test_points_are_compared_by_the_values_that_they_set(tmp_path):
    study = load_study(str(written(tmp_path, DRAWN.partition("[draw]")[0] + """
    [[points]]
    topology = "ring:4"
    [[points]]
    topology = "full:4"
    algorithm = "ring"
    [grid]
    sizes = ["1M", "2M"]
    [compare]
    over = "points"
    by = "ns"
    against = "full:4 ring"
    """)))
    rows = [{"sizes": size, "ns": ns, **point} for point, times in zip(study.points, ((3, 6), (2, 6)))
            for size, ns in zip(study.grid["sizes"], times)]
    one, two = regrets(study.compare, rows, study.varied_settings, study.compared_settings)
    assert (one.value, two.value, one.cases) == ("ring:4", "full:4 ring", 2)
    assert one.worst_case == "sizes = 1M" and one.worst_percent == pytest.approx(50) and two.worst_percent == 0


@pytest.mark.parametrize("change, words", [
    (('against = "ring:4"', 'against = "ring:4"\naverage = "sizes"'),
     "compare.average = 'sizes' is no other setting of the grid: allowed are none"),
    (("count = 3", "count = 5"), "draw.count = 5: its settings make 4 different points"),
    (("count = 3", "count = 0"), "draw.count = 0"),
    (('"1M", "2M", "4M", "8M"', ""), "draw.settings.sizes is empty"),
    (('sizes = ["1M"', 'topology = ["ring:4"]\nsizes = ["1M"'), "topology is in draw and in grid"),
    (('against = "ring:4"', 'against = "ring:5"'), "compare.against = 'ring:5' is no value of grid.topology: allowed"),
    (('over = "topology"', 'over = "sizes"'), "is no value of grid.sizes: allowed are none"),
    (('over = "topology"', 'over = "points"'), "compare.against = 'ring:4' is no value of points: allowed are none"),
])
def test_a_draw_or_comparison_that_cannot_be_is_refused_in_a_line(change, words, tmp_path, capsys):
    assert change[0] in DRAWN
    assert t3(written(tmp_path, DRAWN.replace(*change)), "--out", tmp_path / "out") == 2
    told = capsys.readouterr()
    assert words in told.err and told.err.count("\n") == 1 and not (tmp_path / "out").exists()


MAPPED = COLLECTIVES + """
[[maps]]
title = "Where the ring's steps cost less"
x = "sizes"
y = "topology"
least_of = ["runs.0.collective_ns", "runs.0.closed_form_ns"]
"""


def test_the_least_of_several_results_is_found_at_each_pair():
    winner_map = Map(x="k", y="links", least_of=["techniques.t3.total_ns", "techniques.flux.total_ns"])
    rows = [{"k": 1, "links": 2, "techniques.t3.total_ns": 100.0, "techniques.flux.total_ns": 80.0},
            {"k": 2, "links": 2, "techniques.t3.total_ns": 50.0, "techniques.flux.total_ns": 50.0},
            {"k": 3, "links": 2, "techniques.t3.total_ns": 70, "techniques.flux.total_ns": None},
            {"k": 4, "links": 2}]
    assert winners(winner_map, rows) == [WinnerCell(1, 2, "flux", 25.0), WinnerCell(2, 2, "t3", 0.0),
                                         WinnerCell(3, 2, "t3", None)]
    assert short_names(["a.b.c", "a.d.c"]) == ["b", "d"] and short_names(["a.b", "a.c"]) == ["b", "c"]


@pytest.mark.slow
def test_a_map_is_drawn_and_its_numbers_are_in_the_table(tmp_path):
    assert t3(written(tmp_path, MAPPED), "--out", tmp_path / "out", "--jobs", 1) == 0
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Where the ring&#39;s steps cost less" in page and "<th>runs.0.closed_form_ns</th>" in page
    assert (tmp_path / "out" / "map0.svg").exists() and (tmp_path / "out" / "map0.png").stat().st_size > 1000


@pytest.mark.parametrize("change, words", [
    (('x = "sizes"\ny = "topology"', 'x = "sizes"\ny = "sizes"'), "maps has x = 'sizes' and y = 'sizes': they must"),
    (('x = "sizes"\ny = "topology"', 'x = "sizes"\ny = "tp"'), "which are topology, sizes"),
    ((', "runs.0.closed_form_ns"]', "]"), "maps.0.least_of"),
])
def test_a_map_that_cannot_be_is_refused_in_a_line(change, words, tmp_path, capsys):
    assert change[0] in MAPPED
    assert t3(written(tmp_path, MAPPED.replace(*change)), "--out", tmp_path / "out") == 2
    told = capsys.readouterr()
    assert words in told.err and told.err.count("\n") == 1 and not (tmp_path / "out").exists()


@pytest.mark.parametrize("options, words", [
    (("--shard", "0/2"), "--shard '0/2'"), (("--shard", "3/2"), "--shard '3/2'"), (("--jobs", "0"), "--jobs 0"),
    (("--scheduler", "127.0.0.1:1"), "is no address such as"),
    (("--scheduler", "tcp://gpu7:8786"), "use tls://gpu7:8786"),
    (("--scheduler", "tcp://127.0.0.1:1", "--jobs", "2"), "does not go with --scheduler"),
])
def test_bad_options(options, words, tmp_path, capsys):
    assert t3(written(tmp_path, COLLECTIVES), "--out", tmp_path / "out", *options) == 2
    assert words in capsys.readouterr().err and not (tmp_path / "out").exists()
