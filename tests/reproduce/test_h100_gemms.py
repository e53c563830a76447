"""GEMMs of h100-t3 beside measured ones: which rows, and what counts as near."""

from types import SimpleNamespace

import pytest

from t3sim.machine import load_machine
from t3sim.reproduce.figure import paper_setup
from t3sim.reproduce.h100_gemms import H100_GEMMS, _cases

SETUP = paper_setup(load_machine())
LAUNCH = load_machine("h100-t3").collective.kernel_launch_ns


def found(longer: float):
    """Findings if each kernel with its launch takes as long as measured, times this."""
    return H100_GEMMS.evaluate(SETUP, {task: SimpleNamespace(ns=1e3 * us * longer - LAUNCH)
                                       for *_, us, task in _cases(SETUP)})


def test_rows_are_the_h100s_in_bf16():
    shapes = [case[:3] for case in _cases(SETUP)]
    assert len(shapes) == len(set(shapes)) == 75 and (8192, 8192, 3584) in shapes
    assert max(us for *_, us, _ in _cases(SETUP)) <= 650
    assert {task.workload.dtype for *_, task in _cases(SETUP)} == {"bf16"}


@pytest.mark.parametrize(("longer", "near"), [(1.0, 100), (1.14, 100), (1.16, 0), (0.84, 0)])
def test_near_is_fifteen_percent(longer, near):
    ours = found(longer).ours
    assert [ours[f"h100_{name}_within"] for name in ("whole", "small", "few")] == [near] * 3
    assert ours["h100_few_mean"] == pytest.approx(100 * abs(longer - 1))


def test_each_row_has_its_error():
    rows = found(1.1).tables[0].rows
    assert len(rows) == 75 and {row[4] for row in rows} == {"+10.0 %"}
    assert {row[1] for row in rows} == {"tiles for all units", "fewer tiles than units", "few tokens"}
