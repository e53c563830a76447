"""What the first run costs is measured in a cache of its own, with what its programs start."""

import pytest

from t3sim.base.errors import Failure
from t3sim.study import first_run

pytestmark = [pytest.mark.builds_loops, pytest.mark.slow]

#: Fills the cache in its first call, spends a second of a core in a process of its own if it finds it empty.
PROGRAM = """
import os, pathlib, subprocess, sys
assert sys.argv[-1] == "a-machine" and "NUMBA_CACHE_DIR" not in os.environ, sys.argv
made = pathlib.Path(os.environ["T3_CACHE"]) / "made"
if not made.exists():
    busy = "import time\\nwhile time.process_time() < 1.0: pass"
    subprocess.run([sys.executable, "-c", busy], check=True)
    made.touch()
"""


def test_an_empty_cache_costs_once(monkeypatch):
    monkeypatch.setattr(first_run, "_BUILD", PROGRAM)
    monkeypatch.setattr(first_run, "_RUN", PROGRAM)
    monkeypatch.setenv("NUMBA_CACHE_DIR", "our own loops")
    for _ in range(2):  # each measurement has a cache of its own
        result = first_run.measure_first_run("a-machine")
        assert result.build_core_seconds > 1.0 > max(result.first_core_seconds, result.second_core_seconds)
        assert result.build_seconds > 0.9 * (result.build_core_seconds - result.second_core_seconds)


def test_a_failed_run_is_a_failure(monkeypatch):
    monkeypatch.setattr(first_run, "_BUILD", "raise SystemExit('no compiler here')")
    with pytest.raises(Failure, match="the first run failed: no compiler here"):
        first_run.measure_first_run("a-machine")
