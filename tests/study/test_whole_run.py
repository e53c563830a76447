"""A whole run's speed counts all cycles but the samples, in which some cycles are quiet and some hardware rests."""

import pytest

from t3sim.machine import load_machine
from t3sim.study.whole_run import measure_whole_run

pytestmark = [pytest.mark.builds_rtl, pytest.mark.builds_loops, pytest.mark.slow]


def test_the_beginning_of_a_whole_run():
    done = []
    result = measure_whole_run(load_machine(), done.append, most_cycles=200_000)
    assert result.cycles == 2 * 99_000 and done == [0.5, 1.0]
    assert 0 < result.quiet_share < 1 and 0 < result.asleep < 64 and result.cycles_per_second > 1000
