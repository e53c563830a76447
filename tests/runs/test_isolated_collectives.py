"""Collectives alone: one GPU for all against all GPUs, fewer compute units, and what is refused."""

import pytest

from t3sim.analytic.rings import ring_time_ns
from t3sim.base.errors import BadInput
from t3sim.machine import load_machine
from t3sim.runs import isolated_collectives as collectives
from t3sim.runs.program_kernels import KINDS
from t3sim.workload.workloads import gemm_workload
from tests.support.variants import run_kernel

pytestmark = pytest.mark.builds_loops

MB = 1_000_000


def refresh_ns(machine) -> float:
    """Time of a DRAM refresh, which the slowest of several GPUs may meet in its last pass and one GPU may not."""
    return machine.dram.trfc_cycles / machine.memory_clock_ghz


@pytest.fixture(scope="module")
def machine():
    return load_machine()


@pytest.mark.parametrize("devices", [2, 4, 5])
def test_mirrored_against_all_gpus(machine, devices):
    def time(size: int, **options) -> float:
        return collectives.run_collective(machine, size, devices, "reduce-scatter", **options).ns

    small, large = 1 * MB, 6 * MB
    mirrored = {size: time(size) for size in (small, large)}
    for size, ns in mirrored.items():
        every = time(size, mirrored=False)
        assert ns == pytest.approx(every, rel=0.01, abs=refresh_ns(machine))
        closed = ring_time_ns(machine, size, devices)
        assert closed == (devices - 1) * (size / devices / 75 + 500)
        assert closed + machine.collective.kernel_launch_ns < ns
    assert mirrored[small] < mirrored[large] / 3


@pytest.mark.parametrize("kind", KINDS)
def test_every_gpu_moves_the_same_bytes(machine, kind):
    one = collectives.run_collective(machine, 1 * MB, 4, kind)
    every = collectives.run_collective(machine, 1 * MB, 4, kind, mirrored=False)
    assert one.dram == every.dram
    assert one.ns == pytest.approx(every.ns, rel=0.01, abs=refresh_ns(machine))


def test_near_memory_compute_saves_the_last_pass_only(machine):
    plain = collectives.run_collective(machine, 8 * MB, 4, "reduce-scatter")
    near = collectives.run_collective(machine, 8 * MB, 4, "reduce-scatter-nmc")
    assert near.exchange_ns == pytest.approx(plain.exchange_ns, rel=0.01)
    least = 3 * 2 * MB / (machine.dram.channels * machine.dram.column_bytes)
    assert least < plain.ns - near.ns


@pytest.mark.parametrize("kind", ["reduce-scatter", "all-gather"])
def test_fewer_compute_units_take_longer(machine, kind):
    workload = gemm_workload("2048x1024x64", 4)

    def time(units: int) -> float:
        few = collectives.with_compute_units(machine, units)
        return collectives.run_collective(few, workload.output_bytes, workload.tp, kind).ns

    times = {units: time(units) for units in (2, 4, 8, 16)}
    everything = collectives.run_collective(machine, workload.output_bytes, workload.tp, kind).ns
    assert times[2] > 1.4 * times[4] > 1.4 * times[8]
    assert times[8] > 0.99 * times[16] > 0.98 * everything  # the link is the limit
    assert everything == time(machine.gpu.compute_units)


@pytest.mark.parametrize("units", [72, 64, 16, 8])
def test_a_gemm_runs_on_fewer_compute_units(machine, units):
    """All tiles, in as many stages as the units need for them."""
    few = collectives.with_compute_units(machine, units)
    sim, _ = run_kernel(few, "2048x1024x256")
    tiles = 2048 * 1024 // (machine.gpu.tile_m * machine.gpu.tile_n)
    assert sim.kernel.state.finished[0] == tiles and sim.kernel.state.state.shape[1] == units
    gpu = machine.gpu
    flop_per_cycle = gpu.matrix_flop_per_cycle_per_cu * gpu.matrix_efficiency * gpu.clock_ghz
    tile, stages = 2 * gpu.tile_m * gpu.tile_n * 256 / flop_per_cycle, -(-tiles // units)
    assert stages * tile < sim.kernel.state.finish_time[0] < stages * (tile + 6000)


@pytest.mark.parametrize("call", [
    lambda m: collectives.with_compute_units(m, 0),
    lambda m: collectives.run_collective(m, 1 * MB, 1, "all-gather"),
    lambda m: collectives.run_collective(m, 1 * MB, 65, "all-gather"),
    lambda m: collectives.run_collective(m, 0, 4, "all-gather"),
    lambda m: collectives.run_collective(m, 1 * MB, 4, "all-reduce"),
])
def test_what_cannot_run_is_refused_in_one_line(machine, call):
    with pytest.raises(BadInput) as refused:
        call(machine)
    assert "\n" not in str(refused.value)
