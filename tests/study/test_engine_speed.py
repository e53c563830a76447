"""What `t3 bench` says of the first run, in a cache of its own, and of a whole run at full size."""

import pytest

from t3sim.base.errors import Failure
from t3sim.machine import load_machine
from t3sim.study import engine_speed

pytestmark = [pytest.mark.builds_rtl, pytest.mark.builds_loops, pytest.mark.slow]

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
    monkeypatch.setattr(engine_speed, "_FIRST_BUILD", PROGRAM)
    monkeypatch.setattr(engine_speed, "_FIRST_RUN", PROGRAM)
    monkeypatch.setenv("NUMBA_CACHE_DIR", "our own loops")
    for _ in range(2):  # each measurement has a cache of its own
        result = engine_speed.measure_first_run("a-machine")
        assert result.build_core_seconds > 1.0 > max(result.first_core_seconds, result.second_core_seconds)
        assert result.build_seconds > 0.9 * (result.build_core_seconds - result.second_core_seconds)


def test_a_failed_run_is_a_failure(monkeypatch):
    monkeypatch.setattr(engine_speed, "_FIRST_BUILD", "raise SystemExit('no compiler here')")
    with pytest.raises(Failure, match="the first run failed: no compiler here"):
        engine_speed.measure_first_run("a-machine")


def test_the_beginning_of_a_whole_run():
    """All cycles count for its speed but the samples, in which some cycles are quiet and some hardware rests."""
    done = []
    result = engine_speed.measure_whole_run(load_machine(), done.append, most_cycles=200_000)
    assert result.cycles == 2 * 99_000 and done == [0.5, 1.0]
    assert 0 < result.quiet_share < 1 and 0 < result.asleep < 64 and result.cycles_per_second > 1000
