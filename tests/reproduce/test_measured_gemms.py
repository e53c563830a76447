"""GEMMs of h100-t3 and mi300x-t3 beside measured ones: which rows, and what counts as near."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from t3sim.machine import load_machine
from t3sim.reproduce.figure import paper_setup
from t3sim.reproduce.measured_gemms import H100, MI300X

SETUP = paper_setup(load_machine())


def found(which, longer: float):
    """Findings if each kernel with its launch takes as long as measured, times this."""
    launch = which.machine.collective.kernel_launch_ns
    return which.evaluate(SETUP, {task: SimpleNamespace(ns=1e3 * us * longer - launch)
                                  for *_, us, task in which.cases(SETUP)})


def test_rows_are_the_h100s_in_bf16():
    shapes = [case[1:4] for case in H100.cases(SETUP)]
    assert len(shapes) == len(set(shapes)) == 75 and (8192, 8192, 3584) in shapes
    assert max(us for *_, us, _ in H100.cases(SETUP)) <= 650
    assert {task.workload.dtype for *_, task in H100.cases(SETUP)} == {"bf16"}


def test_rows_of_an_mi308x_are_for_as_many_units():
    cases = {case[1:4]: case[-1] for case in MI300X.cases(SETUP)}
    assert len(cases) == 6 and cases[10240, 15360, 8192].machine.gpu == load_machine("mi300x-t3").gpu
    assert cases[4096, 4096, 4096].machine.gpu.compute_units == cases[32, 384, 7168].machine.gpu.compute_units == 80
    assert cases[4096, 4096, 4096].machine.memory_cache == load_machine("mi300x-t3").memory_cache


@pytest.mark.parametrize(("longer", "near"), [(1.0, 100), (1.14, 100), (1.16, 0), (0.84, 0)])
def test_near_is_fifteen_percent(longer, near):
    ours = found(H100, longer).ours
    assert [ours[f"h100_{name}_within"] for name in ("whole", "small", "few")] == [near] * 3
    assert ours["h100_few_mean"] == pytest.approx(100 * abs(longer - 1))


def test_each_row_has_its_error():
    rows = found(H100, 1.1).tables[0].rows
    assert len(rows) == 75 and {row[4] for row in rows} == {"+10.0 %"}
    assert {row[1] for row in rows} == {"tiles for all units", "fewer tiles than units", "few tokens"}


def test_kinds_that_were_not_measured_have_no_number():
    findings = found(MI300X, 1.1)
    assert findings.ours.keys() == findings.targets.keys() == {
        f"mi300x_{kind}_{number}" for kind in ("whole", "small", "few") for number in ("within", "mean")}
    assert [row[0] for row in findings.tables[0].rows].count("MI308X") == 5
    assert found(replace(MI300X, gpus={"AMD MI300X": None}), 1.1).ours.keys() == {
        "mi300x_whole_within", "mi300x_whole_mean"}
