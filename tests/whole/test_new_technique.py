"""A new technique in a copy of the project, by the recipe of docs/how-to/extend.md.

It is one file; then run, sweep and report it by its name.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from t3sim.base.user_cache import cache_folder

pytestmark = [pytest.mark.builds_rtl, pytest.mark.builds_loops, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
MACHINE = ROOT / "tests" / "data" / "machines" / "ring_small.toml"

TECHNIQUE = '''
"""The reduce-scatter begins when half of the GEMM is done: arithmetic on isolated times."""

from t3sim.runs.kernels import ALL_GATHER, REDUCE_SCATTER
from t3sim.mechanisms.parts import gemm_alone, only_a_reduce_scatter, summed
from t3sim.mechanisms.result import TechniqueResult
from t3sim.mechanisms.technique import Technique


def _combine(name, parts, plan):
    gemm, scatter, gather = parts
    beside = max(gemm.ns, gemm.ns / 2 + scatter.ns)
    return TechniqueResult(
        name, beside + gather.ns, {"gemm": gemm.ns, "reduce-scatter": scatter.ns, "all-gather": gather.ns},
        summed(*parts), mc_cycles=0, rtl_in_loop=False, host_seconds=0.0,
        loss_ns={"link_tail": beside - gemm.ns, "all_gather": gather.ns})


HALVES = Technique(
    "halves", "the reduce-scatter begins when half of the GEMM is done", "nobody's",
    lambda plan: (gemm_alone(plan), REDUCE_SCATTER, ALL_GATHER), _combine,
    lambda plan: only_a_reduce_scatter("halves", plan))
'''

STUDY = f"""
title = "halves"
command = "run"
[options]
gemm = "256x256x64"
machine = {json.dumps(str(MACHINE))}
technique = "sequential,halves"
[grid]
devices = [4]
"""


class Copy:
    """A copy of the project with one more technique."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name, there in (("sim_models", "t3sim"), ("rtl", "t3sim/rtl")):
            shutil.copytree(ROOT / name, folder / there, ignore=shutil.ignore_patterns("__pycache__"))
        (folder / "t3sim" / "mechanisms" / "halves.py").write_text(TECHNIQUE.lstrip())

    def t3(self, *arguments: str, expect: int = 0) -> str:
        """Standard output, or the error, lines joined."""
        environment = {**os.environ, "PYTHONPATH": str(self.folder), "T3_CACHE": str(cache_folder()), "COLUMNS": "400"}
        ran = subprocess.run([sys.executable, "-m", "t3sim.cli", *arguments], cwd=self.folder, env=environment,
                             text=True, capture_output=True, timeout=900)
        assert ran.returncode == expect, ran.stderr
        return " ".join((ran.stdout if expect == 0 else ran.stderr).split())


@pytest.fixture(scope="module")
def copy(tmp_path_factory) -> Copy:
    return Copy(tmp_path_factory.mktemp("project"))


def run(copy: Copy, *more: str, expect: int = 0) -> str:
    return copy.t3("run", "--gemm", "256x256x64", "--devices", "4", "--machine", str(MACHINE), *more, expect=expect)


def test_it_is_listed(copy):
    listed = json.loads(copy.t3("techniques", "--json", "-"))["techniques"]
    assert listed["halves"] == {
        "title": "the reduce-scatter begins when half of the GEMM is done", "source": "nobody's", "by_default": False,
        "split_k": False, "operators": ["gemm-rs", "gemm-ar", "gemv-ar"], "topologies": ["ring", "switch", "full"]}
    assert "halves" in copy.t3("techniques")


def test_it_runs_and_is_reported(copy):
    told = run(copy, "--technique", "sequential,halves", "--json", "found.json")
    assert "halves" in told
    found = json.loads((copy.folder / "found.json").read_text())["techniques"]
    base, halves = found["sequential"], found["halves"]
    assert halves["total_ns"] == max(base["gemm_ns"], base["gemm_ns"] / 2 + base["rs_ns"]) + base["ag_ns"]


def test_what_it_refuses_is_refused(copy):
    assert "technique halves is of a reduce-scatter: --operator gemm-ag has none" in run(
        copy, "--technique", "halves", "--operator", "gemm-ag", expect=2)
    assert "--split-k 2 does not go with technique halves" in run(
        copy, "--technique", "halves", "--split-k", "2", expect=2)


def test_it_is_swept(copy):
    (copy.folder / "study.toml").write_text(STUDY)
    copy.t3("sweep", "study.toml", "--out", "swept", "--json", "swept.json")
    done = json.loads((copy.folder / "swept.json").read_text())
    assert (done["points"], done["done"], done["failed"]) == (1, 1, 0)


def test_a_name_that_is_taken_is_refused(copy):
    second = copy.folder / "t3sim" / "mechanisms" / "thirds.py"
    second.write_text(TECHNIQUE.lstrip())
    try:
        assert "technique halves is defined twice, once in t3sim.mechanisms.thirds" in copy.t3("techniques", expect=2)
    finally:
        second.unlink()
