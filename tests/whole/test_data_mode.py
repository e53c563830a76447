"""Rings of GPUs with real numbers: whatever the timing, every device ends with numpy's bits."""

import dataclasses
from functools import partial

import numpy as np
import pytest
from amaranth.hdl import Signal

from t3sim.collectives import direct, ring
from t3sim.collectives.schedule import Ids, Limits, Schedule, ScheduleError, Shuffle
from t3sim.cosim.component import build_component
from t3sim.cosim.driver.driver import Driver
from t3sim.gpu.engine import loop
from t3sim.gpu.engine.end import RUNNING
from t3sim.gpu.fabric.network import outgoing
from t3sim.machine import load_machine, topologies
from t3sim.machine.formats import FORMATS, FP16
from t3sim.machine.topologies import fully_connected, switch
from t3sim.machine.topologies.shapes import multi_node
from t3sim.rtl.channel.order_guard import OrderGuard
from t3sim.rtl.gpu_top import GpuTop
from t3sim.runs import data_mode
from t3sim.runs.build import late_starts
from t3sim.runs.data_mode import DataLedger, Products, Variation, data_run, reduction, run_data_mode
from t3sim.runs.failure import SimulationError
from t3sim.runs.fused import FusedRun
from t3sim.runs.phases import PURPOSES
from t3sim.runs.plan import Plan, Policy
from t3sim.testbenches.soak import draw, machine
from t3sim.workload.operators.tiling import Tiling, TilingError
from t3sim.workload.workloads import gemm_workload

pytestmark = [pytest.mark.builds_rtl, pytest.mark.builds_loops]


def chaos(seed: int, hold_back: float = 0.1, jitter: int = 200) -> dict:
    return dict(seed=seed, hold_back=hold_back, link_jitter_cycles=jitter)


SLOW_LINK = {"link": {"bandwidth_gb_per_s": 3.0, "latency_ns": 400.0}}
FAST_LINK = {"link": {"bandwidth_gb_per_s": 400.0, "latency_ns": 20.0}}


#: Workgroups along tokens, two per unit and single-buffered, and GPGPU-Sim's DRAM scheduler, as in t3-accelsim.
AS_ACCELSIM = {"gpu": {"workgroup_order": "tokens", "workgroups_per_cu": 2, "load_buffers": 1},
               "dram": {"scheduler": "gpgpusim", "trefi_cycles": 0, "entry_latency_cycles": 20}}


#: The last-level cache's other ways, with queues so short that units wait for slices.
IN_SLICES = {"llc": {"slices": 16, "slice_queue_loads": 2, "replacement": "srrip"}}


def cached(sets: int, ways: int, requests: int = 20) -> dict:
    """A memory-side cache before each of four channels, so small that lines of the output come and go."""
    return {"memory_cache": {"size_bytes": 4 * sets * ways * 64, "ways": ways, "replacement": "lru",
                             "requests": requests, "hit_latency_ns": 30.0, "fill_latency_ns": 10.0,
                             "bandwidth_bytes_per_ns": 200.0}}


def blocks(tiles: int) -> dict:
    return {"dma": {"tiles_per_block": tiles}}


def others_slow(rings: list[tuple]) -> list:
    """Mark those of another geometry than the first's: each is hardware to be built."""
    return [ring if ring[0] == rings[0][0] else pytest.param(*ring, marks=pytest.mark.slow) for ring in rings]


@pytest.mark.parametrize("name, shape, devices, changes", others_slow([
    # Everything divides: 4 x 8 tiles of 64 x 32.
    ("ring_small", "256x256x64", 2, {}),
    ("ring_small", "256x256x64", 4, blocks(2)),
    ("ring_small", "256x256x64", 8, blocks(4)),
    # Ragged rows and columns, chunks that do not divide.
    ("ring_small", "200x300x70", 3, blocks(4)),
    ("ring_small", "514x130x64", 4, blocks(2) | SLOW_LINK),
    ("ring_small", "33x517x40", 8, {}),  # last tiles of 5 columns, of 1 row
    ("ring_small", "97x65x16", 8, FAST_LINK),  # exactly one tile per device
    ("ring_small", "300x400x200", 3, FAST_LINK),
    ("ring_small", "200x300x70", 3, blocks(2) | AS_ACCELSIM),
    ("ring_small", "200x300x70", 3, blocks(4) | IN_SLICES),
    ("ring_small", "200x300x70", 3, blocks(4) | cached(4, 4)),
    ("ring_small", "97x65x16", 8, FAST_LINK | cached(64, 16)),
    ("ring_small", "514x130x64", 4, blocks(2) | SLOW_LINK | cached(1, 1, 5)),
    ("ring_tiny", "60x100x32", 2, {}),
    ("ring_tiny", "41x33x24", 8, blocks(2)),  # 12 tiles for 8 devices
    ("ring_tiny", "67x90x32", 3, SLOW_LINK),
    ("ring_tiny", "128x64x8", 4, FAST_LINK | blocks(2)),
    ("ring_tiny", "67x90x32", 3, {"channels": {"count": 5}, "dram": {"channels": 5}}),
    ("ring_wide", "512x96x64", 8, blocks(8)),
    ("ring_wide", "200x300x64", 3, blocks(2)),
    ("ring_wide", "449x161x96", 4, SLOW_LINK),
]))
def test_every_element_equals_numpy(name, shape, devices, changes, seed):
    """Ring reduce-scatters of 2 to 8 GPUs: every element, accessed as often as it must be."""
    workload = gemm_workload(shape, devices)
    options = dict(chaos(seed), start_cycles=late_starts(devices, 1000, seed))
    result = run_data_mode(Plan(machine(name, **changes), workload, **options), Policy("mca"),
                           Variation(overtaking_reads=True))
    assert result.elements == workload.m * workload.n
    # Each element is added to twice on all devices but the first of its ring; a column has 16 of them at most.
    assert result.columns_added >= result.elements * 2 * (devices - 1) // 16
    # A line leaves each device but the last.
    assert result.packets >= result.elements * (devices - 1) // 32


@pytest.mark.slow
@pytest.mark.parametrize("dtype, name, shape, devices, changes", [
    ("bf16", "ring_small", "200x300x70", 3, blocks(4)),
    ("bf16", "ring_wide", "449x161x96", 4, SLOW_LINK),
    ("fp32", "ring_small", "200x300x70", 3, blocks(4)),  # a line holds 16 elements
    ("fp32", "ring_tiny", "41x33x24", 8, blocks(2) | FAST_LINK),
    ("fp32", "ring_wide", "449x161x96", 4, SLOW_LINK),
])
@pytest.mark.parametrize("staged", [False, True])
def test_every_element_of_other_formats_equals_numpy(dtype, name, shape, devices, changes, staged, seed):
    """Rings in bf16 and fp32, element by element."""
    workload = gemm_workload(shape, devices, dtype)
    options = dict(chaos(seed), stage_first_chunk=staged, start_cycles=late_starts(devices, 1000, seed))
    result = run_data_mode(Plan(machine(name, **changes), workload, **options), Policy("mca"),
                           Variation(overtaking_reads=True))
    element_bytes = {"bf16": 2, "fp32": 4}[dtype]
    assert result.elements == workload.m * workload.n and result.reduced.itemsize == element_bytes
    additions = 2 * devices - 1 if staged else 2 * (devices - 1)
    assert result.columns_added >= result.elements * additions * element_bytes // 32
    assert result.packets >= result.elements * (devices - 1) * element_bytes // 64


@pytest.mark.slow
@pytest.mark.parametrize("dtype", FORMATS)
def test_hardware_of_the_real_size(dtype, seed):
    """256 sets of 8 ways in 8 banks, 32 channels, 4 engines: what `t3 run` simulates, with numbers."""
    described = machine("ring_full")
    assert described.geometry() == load_machine("t3-table1").geometry()
    workload = gemm_workload("1100x700x32", 3, dtype)
    result = run_data_mode(Plan(described, workload, **chaos(seed)), Policy("mca"), Variation(overtaking_reads=True))
    assert result.elements == workload.m * workload.n
    assert result.triggers > 256 * 8  # as many as the Tracker has entries


@pytest.mark.slow
@pytest.mark.parametrize("name, shape, devices, changes", [
    ("ring_small", "200x300x70", 3, blocks(4)),
    ("ring_tiny", "67x90x32", 3, SLOW_LINK),
    ("ring_wide", "449x161x96", 4, {}),
    ("ring_tiny", "60x100x32", 2, {}),
])
def test_a_staged_first_chunk_equals_numpy(name, shape, devices, changes, seed):
    """Kept in local memory and sent by DMA; every tile of every device is tracked, so every element is added to."""
    options = dict(chaos(seed), stage_first_chunk=True,
                                  start_cycles=late_starts(devices, 1000, seed))
    workload = gemm_workload(shape, devices)
    result = run_data_mode(Plan(machine(name, **changes), workload, **options), Policy("mca"),
                           Variation(overtaking_reads=True))
    assert result.elements == workload.m * workload.n
    assert result.columns_added >= result.elements * (2 * devices - 1) // 16


@pytest.mark.slow
@pytest.mark.parametrize("name, shape, devices, places, staged", [
    ("ring_small", "200x300x70", 3, 6, False),
    ("ring_small", "514x130x64", 4, 11, True),
    ("ring_tiny", "67x90x32", 3, 5, False),
    ("ring_tiny", "128x64x8", 4, 3, True),
    ("ring_wide", "449x161x96", 4, 3, False),
    ("ring_small", "300x400x40", 2, 20, False),
])
@pytest.mark.parametrize("ids", Ids)
def test_ids_that_are_not_the_order_of_dispatch(name, shape, devices, places, staged, ids, seed):
    """Each GPU dispatches its tiles in a random order of its own, with a slack below the window.

    Ids in that order are no longer 0, 1, 2, ..., and, if only tracked tiles have one, some workgroups have none.
    """
    options = dict(chaos(seed), stage_first_chunk=staged, ids=ids, limits=Limits.EXACT,
                                  shuffle=Shuffle(places, seed), start_cycles=late_starts(devices, 1000, seed))
    workload = gemm_workload(shape, devices)
    schedule = Plan(machine(name), workload, **options).schedule
    assert any((np.diff(schedule.requests(d).id[schedule.requests(d).opens != 0]) < 0).any() for d in range(devices))
    result = run_data_mode(Plan(machine(name), workload, **options), Policy("mca"), Variation(overtaking_reads=True))
    assert result.elements == workload.m * workload.n


@pytest.mark.slow
@pytest.mark.parametrize("ids", Ids)
def test_a_direct_reduce_scatter_of_two(ids, seed):
    """Each GPU has one peer; own tiles come last, in an order that differs by GPU."""
    options = dict(chaos(seed), ids=ids, limits=Limits.EXACT, shuffle=Shuffle(4, seed),
                                  collective=direct.reduce_scatter, topology=fully_connected)
    result = run_data_mode(Plan(machine("ring_small", **SLOW_LINK), gemm_workload("256x192x40", 2), **options),
                           Policy("mca"), Variation(overtaking_reads=True))
    assert result.elements == 256 * 192


@pytest.mark.slow
def test_an_order_with_too_much_slack_is_refused():
    with pytest.raises(ScheduleError, match=r"up to \d+ ids ahead .* dispatch window of more than \d+ is needed"):
        data_run(Plan(machine("ring_tiny"), gemm_workload("128x64x8", 4), limits=Limits.EXACT, shuffle=Shuffle(1000)))


@pytest.mark.slow
@pytest.mark.parametrize("number", range(24))
def test_random_rings(number, seed):
    """Ragged shapes, slow links, random delays and starts: every element equals numpy's."""
    case = draw(1000 * seed + number)
    print(case)
    case.run()


@pytest.mark.slow
def test_one_compiled_loop_serves_all_rings():
    run_data_mode(Plan(machine("ring_small"), gemm_workload("128x128x8", 2)))
    compiled = len(loop.advance.signatures)
    for name, devices, dtype in (("ring_tiny", 3, "bf16"), ("ring_wide", 8, "fp32"), ("ring_full", 2, "fp16")):
        run_data_mode(Plan(machine(name), gemm_workload("128x128x8", devices, dtype)))
    assert len(loop.advance.signatures) == compiled


@pytest.mark.slow
def test_same_seed_same_run():
    first, second = (run_data_mode(Plan(machine("ring_tiny"), gemm_workload("40x70x32", 3), **chaos(7)), Policy("mca"))
                     for _ in range(2))
    assert first.cycles == second.cycles
    assert (first.reduced == second.reduced).all()


@pytest.mark.slow
@pytest.mark.parametrize("dtype, scale, expected", [
    ("fp16", 4000.0, "overflow"), ("fp16", 2e-7, "subnormal"), ("bf16", 2e37, "overflow"), ("bf16", 1e-40, "subnormal"),
    ("fp32", 2e37, "overflow"), ("fp32", 1e-40, "subnormal")])
def test_numbers_at_the_ends_of_a_format(dtype, scale, expected):
    """Products that overflow or are subnormal: every element equals numpy's."""
    result = run_data_mode(Plan(machine("ring_tiny"), gemm_workload("64x64x64", 4, dtype), **chaos(1)),
                           variation=Variation(scale=scale))
    values = FORMATS[dtype].value(result.reduced)
    if expected == "overflow":
        assert np.isinf(values).any() and np.isnan(values).any()
    else:
        magnitude = np.abs(values[values != 0].astype(np.float64))
        assert (magnitude < 2.0 ** (-14 if dtype == "fp16" else -126)).mean() > 0.9


@pytest.mark.slow
def test_links_slower_than_the_gemm_back_everything_up():
    """The window holds the dispatcher back; without it a Tracker would be asked for more than it has."""
    described = machine("ring_tiny", link={"bandwidth_gb_per_s": 0.5, "latency_ns": 1000.0})
    result = run_data_mode(Plan(described, gemm_workload("96x128x8", 4), **chaos(3)), Policy("compute_first"))
    assert result.blocked_cycles > result.cycles


# The reference

def test_reduction_follows_the_ring():
    """Chunk 0 starts on the last device and goes down to its owner, GPU 0; fp16 addition is not associative."""
    schedule = Schedule(Tiling(64, 96, tile_m=32, tile_n=16, wavefronts=2), ring.reduce_scatter(3), topologies.ring(3))
    product = Products.of(schedule, 64, seed=1).product
    memory, tally, owner = reduction(schedule, product)
    p = product[:, 0, 0].view(np.float16)
    assert owner[0, 0] == 0
    assert memory[0, 0, 0] == ((p[2] + p[1]) + p[0]).view(np.uint16)
    assert memory[1, 0, 0] == (p[2] + p[1]).view(np.uint16)
    assert memory[2, 0, 0] == FP16.negative_zero
    assert tally[:data_mode.PLAIN, :, 0, 0].T.tolist() == [[1, 0, 1, 0], [1, 1, 0, 1], [0, 0, 0, 0]]
    assert not tally[data_mode.PLAIN:].any()
    final = np.take_along_axis(memory, owner[None], axis=0)[0].view(np.float16)
    other = product.view(np.float16)
    assert (final != (other[0] + other[1]) + other[2]).mean() > 0.1


@pytest.mark.slow
@pytest.mark.parametrize("dtype", FORMATS)
def test_minus_zero_is_the_identity(dtype):
    number, step = FORMATS[dtype], 1 if FORMATS[dtype].bytes == 2 else 65_521
    every = np.arange(0, 1 << (8 * number.bytes), step).astype(number.bits)
    total = number.add(every, np.array([number.negative_zero], number.bits))
    assert (total == every)[~np.isnan(number.value(every))].all()


def several(devices: int, topology=fully_connected, *, seed: int = 0, **options) -> tuple[FusedRun, DataLedger]:
    """A direct reduce-scatter, whose GPUs send to all others."""
    chosen = dict(chaos(seed), limits=Limits.EXACT, collective=direct.reduce_scatter, topology=topology,
                                 **options)
    described, workload = machine("ring_small", dma={"peers": 3}), gemm_workload("256x192x40", devices)
    return data_run(Plan(described, workload, **chosen), Policy("mca"), Variation(overtaking_reads=True))


@pytest.mark.slow
@pytest.mark.parametrize(("devices", "topology", "ids", "slices"), [
    (4, fully_connected, Ids.TOUCHED, 1), (4, fully_connected, Ids.TRACKED, 1), (3, fully_connected, Ids.TRACKED, 1),
    (4, partial(fully_connected, divided=True), Ids.TRACKED, 3), (4, switch, Ids.TOUCHED, 1),
    (4, switch, Ids.TRACKED, 3), (4, lambda gpus: multi_node(2, 2), Ids.TRACKED, 1),
])
def test_a_direct_reduce_scatter_sums_what_all_others_send(devices, topology, ids, slices, seed):
    """A tile is a sum of as many parts as there are GPUs, in the order in which they came. Nothing is read for it."""
    run, _ = several(devices, topology, seed=seed, ids=ids, start_cycles=late_starts(devices, 1000, seed),
                     shuffle=Shuffle(4, seed), slices=slices)
    run.run()
    sim, gathered = run.sim, run.tiling.output_bytes
    assert sim.mem.total_bytes[:, PURPOSES.index("rs_read")].sum() == 0
    assert sim.network.injected.sum() * 64 >= gathered * (devices - 1)
    assert sim.network.arrived.sum() == sim.network.injected.sum()
    for device in range(devices):
        used = {int(sim.network.target[port]) for port in outgoing(sim.network, device)
                if sim.network.sent_packets[port]}
        ways = {run.schedule.topology.next_hop(device, peer) for peer in run.schedule.peers(device)}
        assert used >= ways and (topology is not fully_connected or used == set(run.schedule.peers(device)))
    run.close()


@pytest.mark.slow
def test_a_slow_link_holds_up_only_what_goes_over_it():
    """GPU 0's lines for GPUs 2 and 3 have left long before those for GPU 1, behind a link at a thirtieth."""
    def last_cycles(picks: bool) -> dict[int, int]:
        slow = load_machine().link.model_copy(update={"bandwidth_gb_per_s": 1.0, "egress_buffer_bytes": 1024})
        run, _ = several(4, shuffle=Shuffle(4, 1), links={(0, 1): slow})
        assert run.sim.control.picks_ports.all()
        run.sim.control.picks_ports[:] &= picks
        network, last = run.sim.network, {}
        before = network.sent_packets.copy()
        while run.advance(64) == RUNNING:
            for port in outgoing(network, 0):
                if network.sent_packets[port] > before[port]:
                    last[int(network.target[port])] = run.now
            before = network.sent_packets.copy()
        run.close()
        return last
    good, shared = last_cycles(True), last_cycles(False)
    fast, held = max(good[2], good[3]), max(shared[2], shared[3])
    assert fast < 0.8 * good[1], "compute units that store over the slow link are all that it holds up"
    assert fast < 0.8 * held, "as if all ports had one buffer"


@pytest.mark.slow
def test_a_sum_in_another_order_is_noticed(monkeypatch):
    """Of four parts: which came when is part of what is compared."""
    run, ledger = several(4)
    add = data_mode._sum
    monkeypatch.setattr(data_mode, "_sum", lambda parts, came, number: add(
        parts, None if came is None else came[::-1], number))
    broken("numpy's reduction in the schedule's order gives", run)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", FORMATS)
def test_an_element_too_wide_for_the_egress_buffer_is_refused(dtype):
    described = machine("ring_tiny", link={"egress_buffer_bytes": 64})
    if dtype == "fp32":
        with pytest.raises(TilingError, match="egress_buffer_bytes = 64 does not hold the 128 bytes .* in fp32"):
            run_data_mode(Plan(described, gemm_workload("40x70x32", 3, dtype)))
    else:
        run_data_mode(Plan(described, gemm_workload("40x70x32", 3, dtype)))


# The checks fail when they should

TINY = "40x70x32"


def broken(match: str, run: FusedRun) -> None:
    with pytest.raises(SimulationError, match=match):
        run.run()
    run.close()


def tiny_run(devices: int = 3, **changes) -> tuple[FusedRun, DataLedger]:
    return data_run(Plan(machine("ring_tiny", **changes), gemm_workload(TINY, devices), **chaos(5)), Policy())


@pytest.mark.slow
def test_an_early_trigger_is_noticed(monkeypatch):
    """With half the threshold a tile is sent on when half of its updates have come."""
    for name in ("event_map", "dma_map"):
        original = getattr(Driver, name)

        def hasty(driver, region, original=original, **mapping):
            return original(driver, region, **{**mapping, "updates_per_element": 1})
        monkeypatch.setattr(Driver, name, hasty)
    broken("completed|triggers|the hardware reports|numpy|saw 2 times|nothing moved", tiny_run()[0])


@pytest.mark.slow
def test_a_read_that_overtakes_a_write_is_noticed(monkeypatch):
    """Without the order guard, behind a DRAM controller that lets reads pass."""
    described = machine("ring_small")
    elaborate = OrderGuard.elaborate

    def never_blocks(guard, platform):
        blocked, guard.blocked = guard.blocked, Signal()  # what is left undriven stays 0
        m = elaborate(guard, platform)
        guard.blocked = blocked
        return m
    monkeypatch.setattr(OrderGuard, "elaborate", never_blocks)
    design = build_component(lambda: GpuTop(described.geometry()), "gpu_top")
    run, _ = data_run(Plan(described, gemm_workload("100x130x16", 3), **chaos(0)), Policy("compute_first"),
                      Variation(overtaking_reads=True), design=design)
    broken("numpy's reduction", run)


def test_a_wrong_workgroup_offset_is_noticed(monkeypatch):
    """The run fails and says where."""
    offset = Schedule.id_offset
    monkeypatch.setattr(Schedule, "id_offset", lambda self, share, route: offset(self, share, route) + 1)
    broken("nothing moved|the hardware reports|completed", tiny_run()[0])


def test_another_order_of_addition_is_noticed():
    """The run fails and says where."""
    run, ledger = tiny_run()
    forward = ledger.products
    memory = reduction(run.schedule, np.roll(forward.product, 1, axis=0))[0]
    ledger.products = dataclasses.replace(forward, memory=memory)
    broken("numpy's reduction in the schedule's order gives", run)


@pytest.mark.parametrize("where", ["memory", "sent", "product"])
def test_one_wrong_bit_is_noticed(where):
    run, ledger = tiny_run()
    tile = run.schedule.chunk(0, 1)[0]  # GPU 1 owns it, GPU 0 begins it
    element = run.tiling.offsets[tile] // 2
    if where == "memory":
        ledger.data.memory[1, element] = 0x4C00
    elif where == "sent":
        ledger.data.sent[0, element] ^= 0x2000
    else:
        ledger.data.product[1, element] ^= 0x2000
    broken(r"GPU \d: row \d+, column \d+ is 0x", run)


def test_a_line_counted_twice_is_noticed():
    run, ledger = tiny_run()
    ledger.data.tally[data_mode.DMA_READ, 0, 0] += 1
    broken("GPU 0: row 0, column 0 saw 2 times DMA read instead of 1|saw 1 times DMA read instead of 0", run)


def test_an_address_outside_the_output_is_noticed():
    run, ledger = tiny_run()
    ledger.data.base[1] += 1 << 20
    broken("GPU 1: .* outside the output", run)


# The other simulator

@pytest.mark.slow
def test_amaranth_s_simulator_gives_the_same_run():
    """Same bits and cycles as with the compiled RTL."""
    described = machine("ring_tiny", gpu={"compute_units": 4}, link={"latency_ns": 30.0})
    workload = gemm_workload("10x33x8", 2)
    compiled, interpreted = (run_data_mode(
        Plan(described, workload, **chaos(2, jitter=20)), Policy("mca"), simulator=simulator)
                             for simulator in ("compiled", "amaranth"))
    assert (compiled.reduced == interpreted.reduced).all()
    for field in dataclasses.fields(compiled):
        if field.name != "reduced":
            assert getattr(compiled, field.name) == getattr(interpreted, field.name), field.name
