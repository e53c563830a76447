"""A fused GEMM and reduce-scatter on the compiled RTL: exact traffic, an end, and clear words when there is none."""

import re
from typing import NamedTuple

import numpy as np
import pytest
from numba import typeof

from t3sim.cosim.driver.driver import Driver, DriverError
from t3sim.cosim.gpu import gpu_design, model_ports
from t3sim.gpu.engine.end import IDLE_LIMIT
from t3sim.gpu.setup import STATES
from t3sim.machine import load_machine
from t3sim.runs import address_space as track_trigger
from t3sim.runs import build
from t3sim.runs.checks import check
from t3sim.runs.failure import SimulationError
from t3sim.runs.fused import FusedRun
from t3sim.runs.isolated_collectives import collective_sim
from t3sim.runs.phases import PURPOSES
from t3sim.runs.plan import Plan, Policy
from t3sim.workload.workloads import gemm_workload
from tests.support.variants import Watches, small_machine, variant

pytestmark = [pytest.mark.builds_rtl, pytest.mark.builds_loops]

SHAPE = "2048x1024x512"


@pytest.fixture(scope="module")
def machine():
    """Square tiles, so that small shapes have some."""
    return variant(load_machine(), gpu={"tile_n": 128})


@pytest.fixture(scope="module")
def small(machine):
    """Few channels, and a Tracker of 16 sets, fewer than a stage and a chunk have workgroups."""
    return variant(small_machine(machine), gpu={"compute_units": 12})


def fused(machine, shape=SHAPE, devices=4, policy="mca", threshold="auto", mirrored=True, device=0,
          **options) -> FusedRun:
    geometry = machine.geometry()
    library = gpu_design(geometry)
    instances = 1 if mirrored else devices
    return FusedRun(Plan(machine, gemm_workload(shape, devices), **options),
                    [library.simulator() for _ in range(instances)], model_ports(library.ports, geometry),
                    Policy(policy, threshold), mirrored, device)


def traffic(run: FusedRun, device: int = 0) -> dict[str, int]:
    return {name: int(total) for name, total in zip(PURPOSES, run.sim.mem.total_bytes[device])}


def output_bytes(run: FusedRun, device: int, positions) -> int:
    """Output of a device's tiles at these ring positions."""
    rows = run.schedule.rows(device)
    chosen = rows.tile[np.isin(rows.level, list(positions))]
    return int((run.tiling.rows[chosen] * run.tiling.columns[chosen]).sum()) * 2


@pytest.mark.slow
def test_the_machine_has_one_type_whatever_runs_on_it(machine, small):
    """Otherwise everything that is compiled for it is compiled for each."""
    workload = gemm_workload(SHAPE, 4)
    runs = [build.make_sim(Plan(machine, workload)), collective_sim(machine, 1 << 20, 4, "reduce-scatter"),
            collective_sim(machine, 1 << 20, 4, "all-gather", mirrored=False), fused(machine).sim,
            fused(small, mirrored=False).sim, fused(small, devices=2).sim]
    machines, kernels, hardware = zip(*(map(typeof, sim.apart()) for sim in runs))
    assert len(set(machines)) == len(set(kernels)) == 1 and len(set(hardware)) == 2


def wf_tiles(run: FusedRun, device: int, positions) -> int:
    rows = run.schedule.rows(device)
    return int(run.tiling.wf_tiles[rows.tile[np.isin(rows.level, list(positions))]].sum())


def check_exact(run: FusedRun, device: int = 0, index: int = 0) -> None:
    """Bytes, triggers and packets that follow from the shape alone."""
    n = run.schedule.gpus
    total, counted = traffic(run, index), run.counters(index)
    assert total["rs_read"] == output_bytes(run, device, range(1, n - 1))
    assert total["gemm_write"] == total["rs_write"] == output_bytes(run, device, range(1, n))
    assert counted["triggers"] == wf_tiles(run, device, range(1, n))
    assert counted["commands"] * run.machine.dma.tiles_per_block == wf_tiles(run, device, range(1, n - 1))
    assert run.sim.control.event_count[index] == wf_tiles(run, device, [n - 1])
    assert run.sim.network.sent_bytes[index] >= output_bytes(run, device, range(n - 1))
    assert run.drivers[index].first_error(run.masters[index].read) is None
    rows = run.schedule.rows(device)
    tracked = rows.tile[rows.level > 0]
    lines = int((-(-run.tiling.rows[tracked] * 2 // 64) * run.tiling.columns[tracked]).sum())
    assert counted["updates"] + counted["coalesced"] == 2 * lines, "each line from here and from the ring"
    assert counted["set_full"] == 0, "the window keeps the Tracker from ever being full"


@pytest.mark.slow
@pytest.mark.parametrize("policy, threshold", [
    ("round_robin", "auto"), ("compute_first", "auto"), ("mca", "auto"), ("mca", 5), ("mca", None)])
def test_traffic_is_exact(machine, policy, threshold):
    """Every policy, block and shape: bytes, triggers and packets are the closed forms'."""
    run = fused(machine, policy=policy, threshold=threshold)
    run.run()
    chunk = 2048 * 1024 * 2 // 4
    total = traffic(run)
    assert total["gemm_read"] == (2048 + 1024) * 512 * 2
    assert total["rs_read"] == 2 * chunk and total["gemm_write"] + total["rs_write"] == 6 * chunk
    assert total["ag_read"] == total["ag_write"] == 0
    counted = run.counters()
    assert counted["triggers"] == 3 * 32 * 8 and counted["commands"] == 2 * 32 * 8
    assert counted["lines"] == 2 * chunk // 64 and counted["packets"] == 3 * chunk // 64
    assert counted["updates"] + counted["coalesced"] == 6 * chunk // 64
    assert counted["set_full"] == 0, "the window keeps the Tracker from ever being full"
    assert run.sim.control.event_count[0] == 32 * 8
    # No sooner than the link allows.
    bandwidth = machine.link.bandwidth_gb_per_s / machine.memory_clock_ghz
    assert run.sim.control.rs_end[0] >= run.sim.control.rs_start[0] + 3 * chunk / bandwidth + machine.link.latency_ns
    chosen, mean = run.chosen_threshold()
    assert chosen in (3, 5, 15, 127) and 0 < mean <= machine.dram.queue_entries


@pytest.mark.slow
@pytest.mark.parametrize("shape, devices", [
    ("2048x1024x32", 4),  # the link is slower than the GEMM
    ("1000x1064x128", 4),  # ragged tiles, narrow wavefront tiles
    ("1001x1064x64", 3),  # lines of two bytes
    ("1024x512x64", 2),  # nothing but remote stores
    ("1024x2048x64", 8),
])
def test_other_shapes_run_to_the_end(machine, shape, devices):
    run = fused(machine, shape, devices)
    run.run()
    check_exact(run)


@pytest.mark.slow
def test_a_staged_first_chunk_costs_a_write_and_a_read_of_it(machine):
    run = fused(machine, "1024x1024x64", stage_first_chunk=True)
    run.run()
    n, total, counted = run.schedule.gpus, traffic(run), run.counters()
    assert total["gemm_write"] == output_bytes(run, 0, range(n))
    assert total["rs_read"] == output_bytes(run, 0, range(n - 1))
    assert total["rs_write"] == output_bytes(run, 0, range(1, n))
    assert counted["triggers"] == wf_tiles(run, 0, range(n)) and counted["commands"] == wf_tiles(run, 0, range(n - 1))
    assert run.sim.kernel.state.accounted[0, STATES.index("store_link")] == 0


@pytest.mark.slow
@pytest.mark.parametrize("tiles_per_block", [2, 8])
def test_blocks_of_several_tiles(machine, tiles_per_block):
    run = fused(variant(machine, dma={"tiles_per_block": tiles_per_block}), "1024x1024x64")
    run.run()
    check_exact(run)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["round_robin", "mca"])
def test_a_small_tracker_only_takes_longer(small, policy):
    """Whole rings with a Tracker smaller than a stage: no update finds a full set."""
    run = fused(small, "1024x1024x64", policy=policy)
    assert run.schedule.policy.slices > 1
    run.run()
    check_exact(run)
    assert run.sim.control.blocked_cycles[0] > 0, "the window held the dispatcher back"


@pytest.mark.parametrize("shape, devices", [("1024x1024x64", 4), ("1024x768x64", 3), ("512x512x64", 2)])
@pytest.mark.parametrize("hold_back", [0.0, 0.3])
def test_a_whole_ring(small, shape, devices, hold_back, seed):
    """Each device with RTL of its own; random back-pressure and link delays change the time, not what happens."""
    run = fused(small, shape, devices, mirrored=False, seed=seed, hold_back=hold_back,
                link_jitter_cycles=int(100 * hold_back))
    run.run()
    for device in range(devices):
        check_exact(run, device, device)
        sent = run.sim.network.sent_bytes[device]
        assert sent == output_bytes(run, device, range(devices - 1))
        received = output_bytes(run, (device + 1) % devices, range(devices - 1))
        assert traffic(run, device)["rs_write"] == received


def test_a_whole_ring_of_ragged_chunks(small):
    fused(small, "1000x1064x64", 4, mirrored=False).run()


def test_slices_of_different_size(small):
    run = fused(small, "1024x1408x64", 4)
    assert len({len(run.schedule.chunk(s, 0)) for s in range(run.schedule.policy.slices)}) > 1
    run.run()


def test_every_gpu_is_told_the_derived_starvation_limit(small):
    """Four channels and 75 B per cycle give 1 cycle; a limit in the machine file goes before it."""
    for machine, cycles in ((small, 1), (variant(small, arbiter={"starvation_limit_cycles": 64}), 64)):
        run = fused(machine, policy="mca", shape="256x256x64", devices=2, mirrored=False)
        register = run.drivers[0].registers["STARVATION_LIMIT"].offset
        assert [master.read(register) for master in run.masters] == [cycles] * 2


class CountsStores(NamedTuple):
    """A watcher that keeps the most stores that wait for one link."""

    most: np.ndarray

    def before_edge(self, sim, kernel, hardware, gpu, now):
        pass

    def after_edge(self, sim, kernel, hardware, gpu, now):
        for link in range(len(sim.stores_out.count)):
            self.most[0] = max(self.most[0], sim.stores_out.count[link])


def test_stores_wait_in_a_buffer_of_their_own_if_the_machine_has_one(small):
    """With room for all of them none holds its compute unit, and not more than fit are there at any time."""
    def run_with(size: int | None) -> tuple[FusedRun, int]:
        run, most = fused(variant(small, link={"bandwidth_gb_per_s": 5.0, "egress_buffer_bytes": 1024,
                                               "store_buffer_bytes": size}), "512x512x64"), np.zeros(1, np.int64)
        run.observers.append(Watches(CountsStores(most)))
        run.run()
        check_exact(run)
        return run, int(most[0])
    (same, least), (explicit, _), (large, most) = run_with(None), run_with(1024), run_with(1 << 20)
    assert (same.now, traffic(same)) == (explicit.now, traffic(explicit)) and least == 1024 // 64
    held = [int(run.sim.kernel.state.accounted[0, STATES.index("store_link")]) for run in (same, large)]
    assert held[0] > 0 == held[1] and 1024 // 64 < most <= (1 << 20) // 64


@pytest.mark.slow
def test_runs_repeat(machine):
    first, second = fused(machine, "1024x1024x64"), fused(machine, "1024x1024x64")
    first.run()
    second.run()
    assert (first.now, traffic(first), first.counters()) == (second.now, traffic(second), second.counters())


@pytest.mark.slow
def test_progress_rises_to_the_end(machine):
    seen = []
    fused(machine).run(seen.append)
    assert seen == sorted(seen) and 0 <= seen[0] and seen[-1] == 0.99


@pytest.mark.slow
def test_the_all_gather_follows(machine):
    run = fused(machine, "1024x1024x64")
    run.run()
    before = traffic(run)
    cycles = run.all_gather()
    chunk = 1024 * 1024 * 2 // 4
    total = traffic(run)
    assert total["ag_read"] == total["ag_write"] == 3 * chunk
    assert all(total[name] == before[name] for name in PURPOSES if not name.startswith("ag"))
    least = machine.collective.kernel_launch_ns + 3 * (
        chunk / (machine.link.bandwidth_gb_per_s / machine.memory_clock_ghz) + machine.link.latency_ns)
    assert least <= cycles <= 1.05 * least + 500


@pytest.mark.slow
def test_an_all_gather_whose_stores_are_refused_does_not_end_well(machine, monkeypatch):
    """Its data would be missing from memory, though every packet arrived."""
    monkeypatch.setattr(Driver, "plain_arrivals", lambda driver, arrivals: [])
    run = fused(machine, "1024x1024x64")
    run.run()
    with pytest.raises(SimulationError, match="the hardware reports arrival_refused: .* region 0, address 0x"):
        run.all_gather()


def failure(run: FusedRun) -> str:
    with pytest.raises(SimulationError) as error:
        run.run()
    message = str(error.value)
    assert "\n" not in message
    return message


def thresholds_for(monkeypatch, updates: int) -> None:
    """A driver that programs every tracked region for another number of updates."""
    for name in ("event_map", "dma_map"):
        original = getattr(Driver, name)

        def wrong(driver, region, original=original, **mapping):
            return original(driver, region, **{**mapping, "updates_per_element": updates})
        monkeypatch.setattr(Driver, name, wrong)


@pytest.mark.slow
def test_a_run_that_stops_says_where(machine, monkeypatch):
    """A threshold that no tile reaches: the run ends with a line that names what waits."""
    thresholds_for(monkeypatch, 3)
    run = fused(machine, "1024x1024x64")
    message = failure(run)
    assert re.match(r"nothing moved for \d+ cycles: GPU 0: 64 of 64 workgroups finished, 0 of 128 final tiles "
                    r"\(missing workgroup 48 wavefront 0, workgroup 48 wavefront 1, workgroup 48 wavefront 2 "
                    r"and 125 more\), "
                    r"window head 16, queued: 0 compute, 0 arriving, 0 in DRAM, 0 leaving, 0 on the link, "
                    r"at least one tile is partly updated, ids are open, requests wait for the window, or its memory "
                    r"is being cleared, watchdog: tiles lack bytes, from compute units here or from a peer; "
                    r"ids are open, or requests for workgroups wait, error none$",
                    message), message
    assert run.now >= IDLE_LIMIT


@pytest.mark.slow
def test_too_low_a_threshold_is_reported_by_the_hardware(machine, monkeypatch):
    """The run ends with `threshold_exceeded` and the tile's details."""
    thresholds_for(monkeypatch, 1)
    # With the derived limit another error of the same mistake is the first: arrival_refused.
    machine = variant(machine, arbiter={"starvation_limit_cycles": 64})
    assert "the hardware reports threshold_exceeded: workgroup " in failure(fused(machine, "1024x1024x64"))


@pytest.mark.slow
def test_an_unmapped_region_is_reported_by_the_hardware(machine, monkeypatch):
    program = track_trigger.AddressSpace.program
    monkeypatch.setattr(track_trigger.AddressSpace, "program",
                        lambda self, driver: program(self, driver) + driver.unmap(1))
    message = failure(fused(machine, "1024x1024x64"))
    assert "GPU 0: the hardware reports region_unconfigured: " in message and "region 1, " in message


@pytest.mark.slow
def test_an_address_outside_the_region_is_reported_by_the_hardware(machine, monkeypatch):
    """What leads out of the output here is refused here; what leads out of the peer's, by the peer."""
    dma_map = Driver.dma_map

    def halved(driver, region, **mapping):
        return dma_map(driver, region, **{**mapping, "limit": (mapping["base"] + mapping["limit"]) // 2})

    def stretched(driver, region, **mapping):
        return dma_map(driver, region, **{**mapping, "pitch_bytes": mapping["pitch_bytes"] * 8})
    for wrong, code in ((halved, "address_out_of_range"), (stretched, "arrival_refused")):
        monkeypatch.setattr(Driver, "dma_map", wrong)
        assert code in failure(fused(machine, "1024x1024x64"))


@pytest.mark.slow
def test_checks_find_a_tile_that_completed_twice(machine):
    run = fused(machine, "1024x1024x64")
    run.run()
    check(run)
    wg, wf = np.argwhere(run.sim.control.events[0])[5]
    run.sim.control.events[0, wg, wf] += 1
    with pytest.raises(SimulationError, match=f"GPU 0: tile of workgroup {wg}, wavefront {wf} completed 2 times "
                                              "instead of 1$"):
        check(run)


@pytest.mark.slow
def test_checks_find_a_lost_trigger(machine):
    run = fused(machine, "1024x1024x64")
    run.run()
    for offset, value in run.drivers[0].clear_counters():
        run.masters[0].write(offset, value)
    with pytest.raises(SimulationError, match="GPU 0: 0 triggers for 384 tiles$"):
        check(run)


@pytest.mark.slow
def test_hardware_of_another_geometry_is_refused(machine, small):
    library = gpu_design(small.geometry())
    ports = model_ports(library.ports, small.geometry())
    with pytest.raises(DriverError, match="set_bits=4 is not possible: this driver was made for 8"):
        FusedRun(Plan(machine, gemm_workload(SHAPE, 4)), [library.simulator()], ports, Policy())


def test_a_ring_needs_its_number_of_devices(small):
    library = gpu_design(small.geometry())
    ports = model_ports(library.ports, small.geometry())
    with pytest.raises(ValueError, match="1 RTL instances for 4 GPUs"):
        FusedRun(Plan(small, gemm_workload(SHAPE, 4)), [library.simulator()], ports, Policy(), mirrored=False)
