"""Parts of another distribution, which entry points name: a folder with its metadata on the path is one."""

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from t3sim.base.custom import GROUPS, installed, reference_of
from t3sim.base.errors import BadInput
from t3sim.base.user_cache import cache_folder
from t3sim.study.scenario.files import scenario_of
from t3sim.study.scenario.kernel import KernelAlone
from t3sim.study.scenario.request import layer_request
from tests.whole.test_new_collective import COLLECTIVE, OPERATOR, TOPOLOGY
from tests.whole.test_new_policy import POLICY
from tests.whole.test_new_technique import TECHNIQUE

SMALL = str(Path(__file__).parents[1] / "data" / "machines" / "ring_small.toml")
ENTRIES = """
[t3sim.operators]
outer = my_parts.links:outer
[t3sim.algorithms]
leaping = my_parts.links:leaping
ring = my_parts.links:leaping
[t3sim.topologies]
chords = my_parts.links:chords
[t3sim.techniques]
halves = my_parts.halves:HALVES
[t3sim.policies]
short_queue = my_parts.short_queue:SHORT_QUEUE
"""


def distribution(folder: Path, entries: str) -> Path:
    """Write a distribution of these entries."""
    package, metadata = folder / "my_parts", folder / "my_parts-1.0.dist-info"
    for made in (package, metadata):
        made.mkdir()
    (package / "__init__.py").write_text("")
    (package / "links.py").write_text(f"{COLLECTIVE}{TOPOLOGY}{OPERATOR}\nNOTHING = 7\n")
    (package / "halves.py").write_text(TECHNIQUE)
    (package / "short_queue.py").write_text(POLICY)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: my_parts\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(entries)
    return folder


@pytest.fixture
def mine(tmp_path, monkeypatch) -> Path:
    folder = distribution(tmp_path, ENTRIES)
    monkeypatch.syspath_prepend(folder)
    return folder


def t3(folder: Path, *arguments: str) -> tuple[int, str]:
    """Return the exit code, and the output or the error in one line."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "T3_CACHE": str(cache_folder()), "COLUMNS": "400"}
    ran = subprocess.run([sys.executable, "-m", "t3sim.cli", *arguments], cwd=folder, env=environment, text=True,
                         capture_output=True, timeout=300)
    return ran.returncode, ran.stderr if ran.returncode else ran.stdout


def test_names_stand_for_functions(mine):
    given = {"layer.gemm": "256x256x64", "layer.devices": 4, "machine": SMALL, "layer.operator": "outer-rs",
             "exchange.topology": "chords", "exchange.algorithm": "leaping"}
    exchange = layer_request(scenario_of({}, given)).plans[0].exchange
    assert exchange.custom == {"layer.operator": "my_parts.links:outer", "exchange.topology": "my_parts.links:chords",
                               "exchange.algorithm": "my_parts.links:leaping"}
    assert exchange.program(4) == import_module("my_parts.links").leaping("rs", 4)
    assert (exchange.links(4).name, exchange.links(4).gpus) == ("chords", 4)
    alone = KernelAlone(scenario_of({}, {"layer.operator": "outer", "layer.gemm": "64x64x64", "machine": SMALL}))
    assert "my_parts.links:outer" in str(vars(alone))


def test_names_of_the_project_come_first(mine):
    assert reference_of("exchange.algorithm", "ring") == "my_parts.links:leaping"
    scenario = scenario_of({}, {"exchange.algorithm": "ring", "exchange.topology": "ring"})
    assert (scenario.exchange.algorithm, scenario.exchange.topology) == ("ring", "ring")


@pytest.mark.long
def test_a_technique_and_a_policy_are_listed(tmp_path):
    folder = distribution(tmp_path, ENTRIES)
    code, told = t3(folder, "techniques", "--json", "-")
    assert code == 0 and json.loads(told)["techniques"]["halves"]["source"] == "nobody's"
    code, told = t3(folder, "registers")
    assert code == 0 and "4 short queue" in told and "| POLICY | rw | 2:0 | policy |" in told
    code, told = t3(folder, "run", "--policy", "fifo")
    assert code == 2 and "allowed are round_robin, compute_first, mca, ring_aware, short_queue" in told


@pytest.mark.long
@pytest.mark.parametrize("group, key", [("t3sim.policies", "policy"), ("t3sim.techniques", "Technique")])
@pytest.mark.parametrize("reference", ["my_parts.links:NOTHING", "my_parts.gone:X", "my_parts.halves:_combine"])
def test_one_that_cannot_be_loaded_is_one_line(group, key, reference, tmp_path):
    code, told = t3(distribution(tmp_path, f"[{group}]\nwrong = {reference}\n"), "techniques")
    assert code == 2 and told.count("\n") == 1 and told.startswith(f"t3: error: entry point wrong of {group}")
    assert reference in told or "my_parts.gone" in told


@pytest.mark.long
@pytest.mark.parametrize(("before", "after", "said"), [
    ("def _combine(name, parts, plan)", "def _combine(name, parts, machine, workload)",
     "combine(name, parts, machine, workload) is to take (name, parts, plan)"),
    ("lambda plan: (gemm_alone(plan)", "lambda plan, options: (gemm_alone(plan)",
     "kernels(plan, options) is to take (plan)"),
    ("lambda plan: only_a", "lambda plan, options: only_a", "refuses(plan, options) is to take (plan)")])
def test_functions_that_take_something_else_are_one_line(before, after, said, tmp_path):
    folder = distribution(tmp_path, "[t3sim.techniques]\nhalves = my_parts.halves:HALVES\n")
    assert before in TECHNIQUE
    (folder / "my_parts" / "halves.py").write_text(TECHNIQUE.replace(before, after))
    code, told = t3(folder, "techniques")
    assert (code, told) == (2, f"t3: error: entry point halves of t3sim.techniques fails: TypeError: {said}\n")


@pytest.mark.long
@pytest.mark.parametrize(("entries", "said"), [
    ("[t3sim.topologies]\nchords\n", "entry_points.txt of my_parts cannot be read"),
    ("[t3sim.topologies]\nchords = \xff\n", "entry_points.txt of my_parts cannot be read"),
    ("[t3sim.topologies]\nchords = my_parts.links\n", "= 'my_parts.links': MODULE:NAME is needed"),
    ("[t3sim.techniques]\nhalves = a b c::\n", "= 'a b c::': MODULE:NAME is needed"),
    ("[t3sim.policies]\nshort_queue = ...:x\n", "= '...:x': MODULE:NAME is needed"),
    ("[t3sim.techniques]\nleaves = my_parts.leaves:NAME\n", "fails: SystemExit: 0"),
    ("[t3sim.policies]\nleaves = my_parts.leaves:NAME\n", "is no policy: SystemExit: 0")])
def test_a_file_that_is_malformed_is_one_line(entries, said, tmp_path):
    """So is a module that ends the program when it is imported."""
    folder = distribution(tmp_path, "")
    (folder / "my_parts" / "leaves.py").write_text("import sys\nsys.exit(0)\n")
    (folder / "my_parts-1.0.dist-info" / "entry_points.txt").write_bytes(entries.encode("latin-1"))
    code, told = t3(folder, "run", "--topology", "chords", "--json", "out.json")
    assert code == 2 and told.count("\n") == 1 and said in told and not (folder / "out.json").exists()


@pytest.mark.long
@pytest.mark.parametrize(("technique", "said"), [
    ("lambda plan: 1 / 0, COMBINE", "fails: ZeroDivisionError: division by zero"),
    ("lambda plan: sys.exit(0), COMBINE", "fails: SystemExit: 0"),
    ("lambda plan: 7, COMBINE", "technique halves has kernels 7: a tuple of Kernels is needed"),
    ("lambda plan: (), COMBINE, lambda plan: [][1]", "fails: IndexError"),
    ("lambda plan: (), None", "fails: TypeError: combine = None is not a function")])
def test_a_technique_that_fails_is_one_line(technique, said, tmp_path):
    folder = distribution(tmp_path, "[t3sim.techniques]\nhalves = my_parts.halves:HALVES\n")
    (folder / "my_parts" / "halves.py").write_text(
        "import sys\nfrom t3sim.mechanisms.technique import Technique\nCOMBINE = lambda name, parts, plan: None\n"
        f"HALVES = Technique('halves', 'title', 'source', {technique})\n")
    code, told = t3(folder, "run", "--gemm", "256x256x64", "--devices", "4", "--machine", SMALL, "--technique",
                    "halves", "--json", "out.json")
    assert code == 2 and told.count("\n") == 1 and said in told and not (folder / "out.json").exists()


def test_of_another_kind_or_name(mine):
    with pytest.raises(BadInput, match="a Path of this name is needed"):
        installed("techniques", Path, {})
    assert not installed("techniques", Path, {"halves"}) and set(GROUPS) == {
        "layer.operator", "exchange.algorithm", "exchange.topology", "techniques"}


@pytest.mark.slow
@pytest.mark.builds_rtl
@pytest.mark.builds_loops
def test_all_of_them_are_simulated(tmp_path):
    """By their names, with the RTL of a fifth policy in the loop; each changes something that the others do not."""
    folder = distribution(tmp_path, ENTRIES)

    def run(name: str, *more: str) -> dict:
        code, told = t3(folder, "run", "--gemm", "256x256x64", "--devices", "4", "--machine", SMALL, *more,
                        "--json", f"{name}.json")
        assert code == 0, told
        return json.loads((folder / f"{name}.json").read_text())

    parts = ("--operator", "outer-rs", "--topology", "chords", "--algorithm", "leaping", "--technique", "sequential,t3")
    whole = run("whole", *parts, "--policy", "short_queue")
    assert (whole["operator"], whole["topology"], whole["algorithm"], whole["policy"]) == (
        "my_parts.links:outer-rs", "my_parts.links:chords", "my_parts.links:leaping", "short_queue")
    usual, policy = run("usual", "--technique", "sequential,halves,t3"), run("policy", "--policy", "short_queue",
                                                                             "--technique", "t3")

    def ns(found: dict, technique: str, phase: str) -> float:
        return found["techniques"][technique]["phases_ns"][phase]
    assert ns(whole, "sequential", "gemm") != ns(usual, "sequential", "gemm")
    assert len({ns(one, "t3", "reduce-scatter") for one in (whole, usual, policy)}) == 3
    halves, alone = (usual["techniques"][name]["total_ns"] for name in ("halves", "sequential"))
    assert halves < alone
