"""A new arbitration policy, by the recipe of docs/how-to/extend.md in a copy of the project.

It is one file and one line; then run, trace and explain it by its name.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from t3sim.base.user_cache import cache_folder

pytestmark = [pytest.mark.builds_rtl, pytest.mark.builds_loops, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
MACHINE = ROOT / "tests" / "data" / "machines" / "ring_small.toml"
RUN = ("--gemm", "256x256x64", "--devices", "4", "--machine", str(MACHINE))

#: Communication may go twice in a row while the DRAM queue is not half full: no other policy does that.
POLICY = '''
"""Communication has priority while the DRAM queue is short, compute while it is not."""

from t3sim.rtl.arbiter.policy import ALONE, COMMUNICATION, COMPUTE, Decision, Policy, Reason, View

_SHORT = Reason("the DRAM queue is short: communication has the channel",
                loser="compute has the channel only while the DRAM queue is not short")
_LONG = Reason("the DRAM queue is long: compute has the channel")


def grants(view: View):
    communication = view.communication_valid & (~view.compute_valid | (view.occupancy < 5))
    return view.compute_valid & ~communication, communication


def decide(view: View) -> Decision:
    if view.compute_valid and view.communication_valid:
        return (COMMUNICATION, _SHORT) if view.occupancy < 5 else (COMPUTE, _LONG)
    return (COMPUTE if view.compute_valid else COMMUNICATION), ALONE


SHORT_QUEUE = Policy(
    code=4, name="short_queue", title="short queue", description="Communication while the DRAM queue is short.",
    goes_by=("occupancy",), reasons=(ALONE, _SHORT, _LONG), grants=grants, decide=decide)
'''


class Copy:
    """A copy of the project with a fifth policy.

    What it compiles is kept in the project's cache, so that the test takes its minutes once.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name, there in (("sim_models", "t3sim"), ("rtl", "t3sim/rtl"), ("tests", "tests")):
            shutil.copytree(ROOT / name, folder / there, ignore=shutil.ignore_patterns("__pycache__"))
        arbiter = folder / "t3sim" / "rtl" / "arbiter"
        (arbiter / "short_queue.py").write_text(POLICY.lstrip())
        table = arbiter / "policies.py"
        text = table.read_text()
        assert text.count("    RING_AWARE,\n") == 1
        table.write_text(text.replace("    RING_AWARE,\n", "    RING_AWARE,\n    short_queue.SHORT_QUEUE,\n")
                         .replace("from t3sim.rtl.arbiter.policy import",
                                  "from t3sim.rtl.arbiter import short_queue\nfrom t3sim.rtl.arbiter.policy import"))

    def python(self, *arguments: str, expect: int = 0) -> str:
        """Standard output, lines joined."""
        environment = {**os.environ, "PYTHONPATH": str(self.folder), "T3_CACHE": str(cache_folder()), "COLUMNS": "400"}
        ran = subprocess.run([sys.executable, *arguments], cwd=self.folder, env=environment, text=True,
                             capture_output=True, timeout=900)
        assert ran.returncode == expect, ran.stderr
        return " ".join((ran.stdout if expect == 0 else ran.stderr).split())

    def t3(self, *arguments: str, expect: int = 0) -> str:
        return self.python("-m", "t3sim.cli", *arguments, expect=expect)


@pytest.fixture(scope="module")
def copy(tmp_path_factory) -> Copy:
    return Copy(tmp_path_factory.mktemp("project"))


@pytest.fixture(scope="module")
def recorded(copy) -> str:
    folder = str(copy.folder / "trace")
    copy.t3("trace", *RUN, "--technique", "t3", "--policy", "short_queue", "--out", folder)
    return folder


def test_it_is_known_by_its_name(copy):
    assert "short_queue" in copy.t3("run", "--help") and "short_queue" in copy.t3("trace", "--help")
    assert "allowed are round_robin, compute_first, mca, ring_aware, short_queue" in copy.t3(
        "run", *RUN, "--policy", "fifo", expect=2)
    registers = copy.t3("registers")
    assert "| POLICY | rw | 2:0 | policy |" in registers and "4 short queue" in registers
    assert "T3_POLICY_SHORT_QUEUE 4u" in copy.t3("registers", "--format", "c")


def test_its_gates_do_what_its_model_says(copy):
    """A fifth policy in a copy of the project; every policy test iterates over the table."""
    told = copy.python("-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "tests/rtl/test_arbiter.py", "-k",
                       "short_queue or changing")
    assert re.search(r"\b\d+ passed", told) and "failed" not in told


def test_it_runs(copy):
    """`t3 run` accepts the new policy by name."""
    def run(policy: str) -> dict:
        copy.t3("run", *RUN, "--technique", "t3", "--policy", policy, "--json", f"{policy}.json")
        return json.loads((copy.folder / f"{policy}.json").read_text())
    new, old = run("short_queue"), run("round_robin")
    assert new["policy"] == "short_queue"
    times = [result["techniques"]["t3"]["total_ns"] for result in (new, old)]
    assert 0.8 < times[0] / times[1] < 1.2 and times[0] != times[1]


def test_a_decision_of_it_is_explained_by_its_name_and_its_reason(copy, recorded):
    """The first decisions between two requests, one each way, as `t3 explain` shows them."""
    find = ("from pathlib import Path\n"
            "from t3sim.trace.schema import *\n"
            "from t3sim.trace.store import Trace\n"
            f"e = Trace.load(Path({recorded!r})).events; e = e[e['kind'] == Kind.DECIDE]\n"
            "for text in ('is short', 'is long'):\n"
            "    d = next(d for d in e if text in REASONS[int(d['reason'])]); print(d['unit'], d['cycle'])\n"
            "print(sum(int(r) == Reason.WRONG for r in e['reason']), {policy_of(int(f)).name for f in e['flags']})")
    unit, cycle, other_unit, other_cycle, wrong, *policies = copy.python("-c", find).split()
    assert wrong == "0" and policies == ["{'short_queue'}"]
    told = copy.t3("explain", recorded, "--channel", unit, "--cycle", cycle)
    assert "policy short_queue, " in told and "Why: the DRAM queue is short: communication has the channel." in told
    assert "Not compute: compute has the channel only while the DRAM queue is not short." in told
    told = copy.t3("explain", recorded, "--channel", other_unit, "--cycle", other_cycle)
    assert "Granted: compute, " in told and "Why: the DRAM queue is long: compute has the channel." in told


def test_another_installation_says_that_it_does_not_know_it(recorded, error_of):
    """Its codes would mean something else here, or nothing."""

    assert "short_queue" in error_of("explain", recorded, "--channel", "0", "--cycle", "0")
