"""The public names of `t3sim`: results as objects, data frames and plots."""

import re
from pathlib import Path

import pandas
import pytest

import t3sim
from t3sim import BadInput, gemm_workload, load_machine, run, run_collectives, transformer_workload
from t3sim.cli import main
from t3sim.study.results import FileRun
from t3sim.study.scenario.files import scenario_of
from tests.support.fake_run import fake_result

pytestmark = [pytest.mark.builds_rtl, pytest.mark.builds_loops]

DOCUMENT = Path(__file__).parents[2] / "docs" / "python.md"


def test_every_public_name_is_there_and_documented():
    told = DOCUMENT.read_text()
    for name in t3sim.__all__:
        assert getattr(t3sim, name).__doc__ and f"`{name}" in told
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        t3sim.nothing  # noqa: B018


def test_names_are_listed_and_results_are_short():
    """A prompt completes the public names, and shows what an object is in a line or two."""
    assert {*t3sim.__all__} <= {*dir(t3sim)}
    result = fake_result(transformer_workload(), load_machine())
    assert repr(result).startswith("<RunResult T-NLG FC-2, TP=8 on t3-table1: sequential 3,265.4 µs, t3 2,602.1 µs, ")
    assert repr(result.techniques["t3"]) == (
        "<TechniqueResult t3: 2,602.1 µs, gemm 1,778.0, reduce-scatter 1,770.5, all-gather 817.0>")
    assert repr(load_machine()).startswith("<Machine t3-table1: memory_clock_ghz, gpu, ")
    network = run_collectives("ar", [1 << 20], topology="ring:4")
    assert repr(network).startswith("<CollectiveRuns ar on ring, 4 GPUs of ")
    ranking = t3sim.run_scenario(t3sim.Scenario(level="library"))
    assert repr(ranking).startswith("<Ranking llama-3.3-70b on 8 GPUs of h100-sxm, 8,192 tokens: ")
    everything = (result, FileRun(((2, result),)), load_machine(), network, ranking)
    assert all("\n" not in repr(one) and len(repr(one)) < 400 for one in everything)


def test_what_a_command_notes_is_a_warning(tmp_path, monkeypatch):
    """From here too a machine's limit that does nothing is said, and said of the caller's line."""
    file = tmp_path / "own.toml"
    file.write_text('extends = "t3-table1"\n[arbiter]\nstarvation_limit_cycles = 100\n')
    monkeypatch.setattr("t3sim.study.scenario.collective.CollectiveRequest.run", lambda *_: "ran")
    alone = scenario_of({"layer": {"collective": "rs", "bytes": 1 << 20, "devices": 4}, "machine": str(file)}, {})
    with pytest.warns(UserWarning, match=r"\[arbiter\] starvation_limit_cycles = 100 has no effect") as told:
        assert t3sim.run_scenario(alone) == "ran"
    assert told[0].filename == __file__


def test_a_run_is_what_the_command_prints(tmp_path):
    workload = gemm_workload("512x512x64", devices=2)
    shares = []
    result = run(workload, techniques=("sequential", "t3"), progress=lambda what, share: shares.append((what, share)))
    frame = result.to_frame()
    assert list(frame.technique) == ["sequential", "t3"] and set(frame.m) == {512} and frame.rtl_in_loop.tolist() == [
        False, True]
    assert frame.total_ns.tolist() == [one.total_ns for one in result.techniques.values()]
    assert frame.speedup[0] == 1 and frame.gemm_read_bytes[1] == result.techniques["t3"].dram["gemm_read"]
    assert ("t3", 1.0) in shares
    plot = tmp_path / "run.svg"
    assert main(["run", "--gemm", "512x512x64", "--devices", "2", "--technique", "sequential,t3", "--json",
                 str(tmp_path / "run.json"), "--plot", str(plot)]) == 0
    assert plot.read_text().startswith("<svg")
    assert f'"total_ns": {result.techniques["t3"].total_ns}' in (tmp_path / "run.json").read_text()


def test_frames_of_several_runs_stand_below_each_other():
    machine = load_machine()
    frames = [fake_result(transformer_workload(tp=tp), machine).to_frame() for tp in (8, 16)]
    both = pandas.concat(frames, ignore_index=True)
    assert len(both) == 12 and both.pivot(index="technique", columns="tp", values="speedup").shape == (6, 2)
    assert both.loss_all_gather_ns.notna().all() and both.loss_pipeline_fill_ns.isna().any()


def test_the_plot_shows_every_technique_to_its_end():
    result = fake_result(transformer_workload(), load_machine())
    (axes,) = result.plot().axes
    ends = [max(bar.get_x() + bar.get_width() for bar in axes.patches if bar.get_y() == y)
            for y in sorted({bar.get_y() for bar in axes.patches})]
    assert ends == pytest.approx([one.total_ns / 1e3 for one in result.techniques.values()])


def test_collectives_as_a_frame():
    found = run_collectives("ar", [1 << 20, 1 << 21], topology="torus:3x3")
    frame = found.to_frame()
    assert len(frame) == 4 and set(frame.algorithm) == {"hierarchical", "all-rings"} and set(frame.nodes) == {9}
    assert (frame.collective_ns / frame.closed_form_ns).between(0.97, 1.03).all()


@pytest.mark.parametrize(("call", "named"), [
    (lambda: run(gemm_workload("512x512x64", devices=2), techniques=("t4",)), "t4"),
    (lambda: run(gemm_workload("512x512x64", devices=2), policy="none"), "none"),
    (lambda: run(gemm_workload("512x512x64", devices=2), techniques=("sequential",), policy="mca"), "techniques = t3"),
    (lambda: run(gemm_workload("512x512x64", devices=2), machine="no-such-machine"), "no-such-machine"),
    (lambda: run_collectives("all", [1 << 20]), "all"),
    (lambda: run_collectives("ar", [1 << 20], topology="star:4"), "star:4"),
    (lambda: run_collectives("ar", [1 << 20], plan=Path("mine.xml")), "mine.xml"),
    (lambda: run_collectives("ar", [1 << 20], topology="nodes:2x4"), "nodes:2x4 joins nodes")])
def test_bad_input_is_one_line(call, named):
    with pytest.raises(BadInput, match=named) as raised:
        call()
    assert "\n" not in str(raised.value)


def test_the_document_s_code_is_ten_lines_that_compile():
    code = re.search(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)[1]
    compile(code, str(DOCUMENT), "exec")
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
