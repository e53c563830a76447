"""Sums and greatest values of runs that overlap, against a loop over each."""

import numpy as np

from t3sim.workload.operators.kernel_table import added, greatest


def test_against_a_loop():
    dice = np.random.default_rng(1)
    for _ in range(300):
        places, runs = int(dice.integers(1, 40)), int(dice.integers(0, 8))
        first = dice.integers(0, places + 1, runs)
        count = np.array([dice.integers(0, places - one + 1) for one in first], np.int64)
        values = dice.integers(0, 100, runs)
        most, sums = np.zeros(places), np.zeros(places)
        for start, length, value in zip(first, count, values):
            most[start:start + length] = np.maximum(most[start:start + length], value)
            sums[start:start + length] += value
        assert (greatest(first, count, values, places) == most).all()
        assert (added(first, count, values, places) == sums).all()
    assert greatest(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0), 0).size == 0
