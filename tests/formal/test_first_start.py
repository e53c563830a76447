"""YoWASP's programs compile themselves at their first start, and say so: nobody may take that for an answer."""

import fcntl
import os
import subprocess
import sys
import time

import pytest

from t3sim.base import yowasp
from t3sim.base.errors import Failure
from t3sim.testbenches.formal import solver

pytestmark = pytest.mark.builds_rtl

#: Prepares Boolector and asks it a question, with both of its outputs in one as SymbiYosys's driver has them.
_ASK = """
import subprocess
from t3sim.base import yowasp
yowasp.prepare("boolector")
print(subprocess.run([*yowasp.command("boolector"), "--smt2", "--incremental"], input="(set-logic QF_BV)(check-sat)",
                     stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout, end="")
"""


#: What a first start says on standard error, once.
_NOTICE = "t3: compiling Yosys and its like, which are WebAssembly: a minute each, once (it is kept)\n"


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    """The cache of a machine that never started one of the programs."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("YOWASP_CACHE_DIR", str(folder))
    return folder


def test_several_first_starts_at_once_and_each_first_word_is_an_answer(empty_cache):
    asking = [subprocess.Popen([sys.executable, "-c", _ASK], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
              for _ in range(3)]
    answers = [process.communicate(timeout=300) for process in asking]
    assert [answer for answer, _ in answers] == ["sat\n"] * 3
    assert {words for _, words in answers} <= {"", _NOTICE} and _NOTICE in {words for _, words in answers}
    assert list(empty_cache.iterdir())


def test_a_first_start_waits_for_another(empty_cache):
    empty_cache.mkdir()
    lock = os.open(empty_cache, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with subprocess.Popen([sys.executable, "-c", _ASK], stdout=subprocess.PIPE, text=True) as asking:
        time.sleep(2)  # it would have begun by now
        assert asking.poll() is None and not list(empty_cache.iterdir())
        os.close(lock)
        assert asking.communicate(timeout=300)[0] == "sat\n"


def test_a_proof_prepares_what_it_starts(monkeypatch, tmp_path):
    prepared = []
    monkeypatch.setattr(yowasp, "prepare", prepared.append)

    def started(arguments, **_):
        raise Failure(f"started after {prepared}")

    monkeypatch.setattr(solver.subprocess, "Popen", started)
    with pytest.raises(Failure, match=r"started after \['yosys', 'boolector'\]"):
        solver.check("", tmp_path / "proof", mode="bmc", depth=1, timeout_s=1)


@pytest.mark.parametrize("log", ["line 986, in check_timeout\nAttributeError: no hierarchy", "SyntaxError"])
def test_a_solver_out_of_time_before_it_began_is_no_failure(log, monkeypatch, tmp_path):
    class Process:
        returncode, pid = 1, 0

        def __init__(self, *_, **options):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def communicate(self, timeout):
            return log, None

    monkeypatch.setattr(yowasp, "prepare", lambda tool: None)
    monkeypatch.setattr(solver.subprocess, "Popen", Process)
    if "check_timeout" in log:
        assert solver.check("", tmp_path / "proof", mode="bmc", depth=1, timeout_s=1).status == "timeout"
    else:
        with pytest.raises(Failure, match="sby failed"):
            solver.check("", tmp_path / "proof", mode="bmc", depth=1, timeout_s=1)


def test_a_cache_that_cannot_be_written_is_one_line(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("YOWASP_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(Failure, match=r"^the cache of YoWASP's programs \(YOWASP_CACHE_DIR\) cannot be used: .*file'$"):
        yowasp.prepare.__wrapped__("boolector")
