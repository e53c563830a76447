"""`t3 kernel`: a kernel alone, and beside copies of a stated rate, on the cycle level and on the event level."""


import numpy as np
import pytest

from t3sim.analytic.libraries.contention import slowed_by_copies
from t3sim.base.errors import BadInput
from t3sim.machine import load_machine
from t3sim.runs import build
from t3sim.runs.beside_copies import Copies, with_copies
from t3sim.runs.kernels import GEMM, BesideCopies, simulate
from t3sim.runs.operators import make_operator, make_tiling
from t3sim.workload.operators.kernel_table import Route
from t3sim.workload.workloads import gemm_workload, gemv_workload
from tests.support import damaged_kernels

pytestmark = [pytest.mark.builds_loops, pytest.mark.slow]


@pytest.fixture(scope="module")
def machine():
    return load_machine()


@pytest.fixture(scope="module")
def gemv(machine):
    """A kernel that takes what DRAM gives, and its workload."""
    workload = gemv_workload("8192x1x4096", 2)
    return workload, simulate(GEMM, machine, workload)


@pytest.mark.parametrize("text", ["75", "read:75", "write:75"])
def test_copies_move_what_is_stated(machine, gemv, text):
    workload, alone = gemv
    copies = Copies.of(text)
    beside = simulate(BesideCopies(copies), machine, workload)
    rates = [moved / beside.ns for moved in beside.dram["ag"]]
    for rate, asked in zip(rates, (copies.read, copies.write)):
        assert rate == pytest.approx(asked, rel=0.15)  # DRAM is full, and they take turns with the kernel
    assert beside.dram["gemm"].read == alone.dram["gemm"].read
    event = slowed_by_copies(machine, alone.ns, sum(map(sum, alone.dram.values())), copies.read, copies.write)
    assert beside.ns / alone.ns > 1.02
    assert event == pytest.approx(beside.ns / alone.ns, abs=0.1)


def test_a_gemm_that_multiplies_hardly_waits(machine):
    workload = gemm_workload("1024x2048x1024", 2)
    alone, *beside = (simulate(kernel, machine, workload) for kernel in (
        GEMM, BesideCopies(Copies.of("75")), BesideCopies(Copies.of("300"))))
    slowed = [one.ns / alone.ns for one in beside]
    assert 1 <= slowed[0] < 1.05 < slowed[1]
    assert slowed_by_copies(machine, alone.ns, sum(map(sum, alone.dram.values())), 75, 75) == 1
    assert beside[0].dram["ag"].read / beside[0].ns == pytest.approx(75, rel=0.03)


@pytest.mark.parametrize("text", ["", "0", "-3", "rad:3", "read:", "10001", "75,75"])
def test_other_rates_are_refused(text):
    with pytest.raises(BadInput, match="copies = .* is not possible: 1 to 10000 GB/s"):
        Copies.of(text)


def test_a_kernel_that_sends_to_its_neighbour_is_refused(machine):
    table = damaged_kernels.small()
    table.stores["route"][:] = Route.PEER
    with pytest.raises(BadInput, match="cannot tell its lines"):
        with_copies(machine, build.table_sim(machine, table), Copies.of("75"))


def test_the_command_says_what_run_says(json_of):
    asked = ("--gemm", "512x1024x256")
    found = json_of("kernel", "gemm", *asked, "--copies", "150")
    before = json_of("run", "--operator", "gemm", *asked)
    beside = found.pop("beside")
    assert {**found, "beside": None, "host_seconds": 0} == {**before, "host_seconds": 0}
    assert beside["slowdown"] == beside["kernel_ns"] / found["kernel_ns"]
    assert beside["error_points"] == pytest.approx(100 * (beside["event_slowdown"] - beside["slowdown"]))


@pytest.mark.parametrize(("arguments", "told"), [
    (["gemm"], "kernel 'gemm' needs --gemm MxNxK"),
    (["gemv", "--embedding", "16x16"], "--embedding 16x16 does not go with 'gemv'"),
    (["gem"], "kernel 'gem' is unknown: allowed are"),
    (["none.npz", "--gemm", "8x8x8"], "--gemm 8x8x8 does not go with 'none.npz'"),
])
def test_bad_requests_end_in_a_line(error_of, arguments, told):
    assert told in error_of("kernel", *arguments)


def test_a_file_runs_beside_copies(json_of, tmp_path):
    table = make_operator(load_machine(), workload := gemm_workload("512x512x128", 2),
                                make_tiling(load_machine(), workload)).work(0)
    table.save(tmp_path / "own.npz")
    found = json_of("kernel", str(tmp_path / "own.npz"), "--copies", "75")
    assert found["kernel"] == "own.npz" and found["beside"]["dram_bytes"]["ag_read"] > 0
    assert np.isfinite(found["beside"]["event_slowdown"])
