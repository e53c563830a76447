"""Ring collectives as kernels: bytes by the closed form, time by the link."""

import numpy as np
import pytest

from sim_models import lockstep, simulation
from sim_models.machine import load_machine
from sim_models.memory import ALL_GATHER, PURPOSES, REDUCE_SCATTER
from sim_models.workloads import gemm_workload
from tests.models.variants import run_kernel, variant

KERNELS = {"reduce-scatter": REDUCE_SCATTER, "reduce-scatter-nmc": REDUCE_SCATTER, "all-gather": ALL_GATHER}
PREFIX = {"reduce-scatter": "rs", "reduce-scatter-nmc": "rs", "all-gather": "ag"}
OUTPUT = "4096x2048x64"  #: 16 MB: long steps, so that the memory's latency is below a percent


def kernels():
    return pytest.mark.parametrize("collective", KERNELS)


@pytest.fixture(scope="module")
def machine():
    return load_machine()


def collective_run(machine, shape, devices, collective):
    workload = gemm_workload(shape, devices)
    sim, now = run_kernel(machine, workload, phase=KERNELS[collective], collective=collective)
    return sim, now, -(-workload.output_bytes // devices)


def traffic(sim) -> dict[str, int]:
    return {name: int(total) for name, total in zip(PURPOSES, sim.mem.total_bytes[0]) if total}


def chunks(collective: str, n: int) -> tuple[int, int]:
    """Chunks read and written: one copy is read first, then two per step and in the last pass (T3 paper, figure 10)."""
    return (2 * n - 1, n) if collective == "reduce-scatter" else (n - 1, n - 1)


@kernels()
@pytest.mark.parametrize("devices", [2, 3, 8])
def test_bytes_and_time(machine, collective, devices):
    sim, now, chunk = collective_run(machine, OUTPUT, devices, collective)
    reads, writes = chunks(collective, devices)
    prefix = PREFIX[collective]
    assert traffic(sim) == {f"{prefix}_read": reads * chunk, f"{prefix}_write": writes * chunk}
    assert sim.link.sent_bytes[0] == (devices - 1) * chunk

    bandwidth, latency = machine.link.bandwidth_gb_per_s / machine.memory_clock_ghz, machine.link.latency_ns
    steps = (devices - 1) * (chunk / bandwidth + latency)
    exchanged = int(sim.ring.step_end[0, devices - 2])
    assert steps <= exchanged <= 1.01 * steps
    if collective == "reduce-scatter":
        last = int(sim.ring.step_end[0, devices - 1]) - exchanged
        least = 3 * chunk / (machine.dram.channels * machine.dram.column_bytes)
        assert least <= last <= 1.5 * least + 1000
        assert exchanged + last <= now <= exchanged + last + 500
    else:
        assert exchanged <= now <= exchanged + 500


@kernels()
@pytest.mark.parametrize("devices", [3, 5])
def test_ragged_chunks(machine, collective, devices):
    """A chunk that ends within a line."""
    sim, _, chunk = collective_run(machine, "1001x333x64", devices, collective)
    assert chunk % 64
    reads, writes = chunks(collective, devices)
    assert list(traffic(sim).values()) == [reads * chunk, writes * chunk]


@kernels()
def test_the_link_never_exceeds_its_bandwidth(machine, collective):
    workload, window = gemm_workload("2048x512x64", 4), 256
    sim = simulation.make_sim(machine, workload, simulation.make_tiling(machine, workload), phase=KERNELS[collective],
                              collective=collective)
    now, state, arrived = 0, lockstep.RUNNING, [0]
    while state == lockstep.RUNNING:
        now, state = lockstep.baseline(sim, now, window)
        arrived.append(int(sim.link.arrived[0]) * 64)
    assert state == lockstep.DONE
    bandwidth = machine.link.bandwidth_gb_per_s / machine.memory_clock_ghz
    most = max(np.diff(arrived))
    assert 0.95 * bandwidth * window < most <= bandwidth * window + 64
    assert sim.link.sent_bytes[0] <= bandwidth * now
    assert sim.link.busy_cycles[0] == pytest.approx(sim.link.sent_bytes[0] / bandwidth)


@kernels()
def test_a_step_waits_for_the_one_before(machine, collective):
    sim, _, chunk = collective_run(machine, "1024x512x64", 4, collective)
    ends = sim.ring.step_end[0, :3].astype(float)
    least = chunk / (machine.link.bandwidth_gb_per_s / machine.memory_clock_ghz) + machine.link.latency_ns
    assert (np.diff(ends, prepend=0) >= least).all()


def test_few_loads_in_flight_make_the_kernel_slow(machine):
    """Then the latency of memory counts, not the link."""
    slow = variant(machine, gpu={"compute_units": 4}, collective={"outstanding_lines_per_cu": 1})
    sim, _, chunk = collective_run(slow, "1024x512x64", 4, "all-gather")
    round_trips = 3 * chunk / 64 / 4
    assert sim.ring.step_end[0, 2] >= round_trips * slow.llc.fill_latency_ns
    assert traffic(sim) == {"ag_read": 3 * chunk, "ag_write": 3 * chunk}


def test_a_kernel_starts_when_it_is_launched(machine):
    workload = gemm_workload("512x512x64", 2)
    tiling = simulation.make_tiling(machine, workload)
    ends = []
    for start in (0, 5000):
        sim = simulation.make_sim(machine, workload, tiling, phase=ALL_GATHER)
        sim.ring.start_time[:] = start
        assert lockstep.baseline(sim, 0, 1_000_000)[1] == lockstep.DONE
        ends.append(int(sim.ring.step_end[0, 0]))
    assert 4900 < ends[1] - ends[0] < 5100
