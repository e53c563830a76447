"""A GEMM that stores at its output's owners: what goes where, what is waited for, and what the order of tiles does."""

from dataclasses import dataclass

import numpy as np
import pytest

from t3sim.base.errors import BadInput
from t3sim.base.line import LINE_BYTES, lines_of
from t3sim.gpu.engine.end import DONE
from t3sim.gpu.engine.loop import Lockstep
from t3sim.machine import load_machine
from t3sim.machine.topologies import named_topology
from t3sim.mechanisms.flux.storing import FluxOptions, Owners, flux_sim, run_flux, storing_kernel
from t3sim.runs import build
from t3sim.runs.exchange import Exchange
from t3sim.runs.plan import Plan
from t3sim.runs.skew import Skew
from t3sim.study.techniques import kernels_of, run_sublayer
from t3sim.workload.operators.kernel_table import Route
from t3sim.workload.workloads import gemm_workload

pytestmark = pytest.mark.builds_loops

N = 4
SHAPE = gemm_workload("4096x2048x512", N)
SWITCH = named_topology(f"switch:{N}")
EXCHANGE = Exchange(topology="switch")


@dataclass(frozen=True)
class Unmirrored(FluxOptions):
    """Every GPU, although one could stand for all."""

    mirrored = False


@pytest.fixture(scope="module")
def machine():
    return load_machine()


@pytest.fixture(scope="module")
def one(machine):
    return run_flux(machine, SHAPE, FluxOptions(), SWITCH)


def table_of(machine, shape, rank: int, ranks: int):
    tiling = build.make_tiling(machine, shape)
    at = build.Addresses.of(shape, tiling)
    owners = Owners(tiling.n, ranks, tiling.pitch_bytes, at.c, at.copies)
    gemm = build.gemm_operator(machine, shape, tiling)
    return gemm.work(0), storing_kernel(gemm.work(0), owners, rank, Unmirrored()), owners


def lines(stores) -> list[int]:
    """Addresses of all lines of store blocks."""
    return [int(block["base"] + row * block["pitch"] + line * LINE_BYTES) for block in stores
            for row in range(block["rows"]) for line in range(lines_of(block["bytes"]))]


@pytest.mark.parametrize("shape", ["700x300x64", "1024x256x64", "5x128x64"])
def test_each_rank_stores_every_line_once_at_its_owner(machine, shape):
    """Whatever a rank's peers store at it lies in places of its own, and is what it waits for."""
    ranks, workload = 3, gemm_workload(shape, 3)
    received = {rank: [] for rank in range(ranks)}
    for rank in range(ranks):
        plain, table, owners = table_of(machine, workload, rank, ranks)
        assert table.bytes_stored() == plain.bytes_stored()
        away = table.stores["route"] == Route.PEER
        assert (table.stores["rows"] > 0).all()
        own = lines(table.stores[~away])
        chunk = range(owners.c_base + int(owners.edges[rank]) * owners.pitch_bytes,
                      owners.c_base + int(owners.edges[rank + 1]) * owners.pitch_bytes)
        assert all(address in chunk for address in own) and len(set(own)) == len(own)
        for peer in range(ranks - 1):
            target = (rank + peer + 1) % ranks
            received[target] += lines(table.stores[away & (table.stores["peer"] == peer)])
        # every line of the GEMM's is stored, own or away
        assert len(own) + len(lines(table.stores[away])) == len(lines(plain.stores))
    for rank, addresses in received.items():
        _, table, owners = table_of(machine, workload, rank, ranks)
        assert len(set(addresses)) == len(addresses) == table.arrivals[0]
        places = owners.reduction(rank).sources[1:]
        size = owners.chunk_bytes(rank)
        assert all(any(place <= address < place + size for place in places) for address in addresses)


def test_tiles_of_the_next_ranks_come_first_and_ones_own_last(machine):
    """Shifted by rank, so that the ranks store at different owners."""
    _, table, owners = table_of(machine, SHAPE, 1, N)
    step = table.steps[table.groups["first_step"] + table.groups["steps"] - 1]
    block = table.stores[step["first_store"]]
    away = np.where(block["route"] == Route.PEER, block["peer"] + 1, N)
    assert away.tolist() == sorted(away) and set(away) == {1, 2, 3, 4}


@pytest.mark.slow
def test_the_reduction_waits_for_all_that_comes(machine):
    """It starts after the last line has arrived from every peer."""
    run = Lockstep(flux_sim(machine, SHAPE, FluxOptions(), SWITCH))
    assert run.advance(10_000_000) == DONE
    sim, expected = run.sim, SHAPE.output_bytes * (N - 1) // N // LINE_BYTES
    assert sim.network.arrived[0] == sim.kernel.first.work.arrivals[0, 0] == expected
    assert sim.network.sent_bytes[0] == expected * LINE_BYTES
    assert sim.kernel.first.state.phase_over[0, 0] >= sim.kernel.first.state.finish_time[0]
    launched = sim.kernel.first.state.phase_over[0, 0] + sim.kernel.launch_cycles
    read = SHAPE.output_bytes / (machine.dram.channels * machine.dram.column_bytes)  # N parts of a chunk at DRAM's peak
    assert sim.kernel.second.state.phase_over[0, 0] > launched + read


@pytest.mark.slow
def test_one_gpu_stands_for_all(machine, one):
    """Representative GPU and every GPU around a switch: equal bytes, times within 2 %."""
    every = run_flux(machine, SHAPE, Unmirrored(), SWITCH)
    assert every.dram == one.dram
    assert every.cycles == pytest.approx(one.cycles, rel=0.02)


@pytest.mark.slow
def test_the_same_order_on_all_gpus_fills_one_link_more_than_others(machine, one):
    """Shifted by rank, the link is busy but for the first stage and the last.

    The first has nothing to store, and the last stores at home. In one order all store at the same GPU, whose link is
    the bottleneck while the others' wait.
    """
    same = run_flux(machine, SHAPE, FluxOptions("same"), SWITCH)
    chunk = SHAPE.output_bytes / N / machine.link.bandwidth_gb_per_s
    assert one.gemm_cycles < (N - 1) * chunk + 2 * one.collective_start
    assert same.gemm_cycles > 1.3 * one.gemm_cycles and same.dram == one.dram


@pytest.mark.slow
def test_bytes_and_losses(machine):
    """Bytes are the closed form's, and losses add up."""
    found = run_sublayer(Plan(machine, SHAPE, exchange=EXCHANGE), ("sequential", "decomposed", "flux"))
    flux, chunk = found.techniques["flux"], SHAPE.output_bytes // N
    assert flux.dram["rs_write"] == N * chunk and flux.dram["rs_read"] == N * chunk, "parts come, are read, are added"
    assert flux.dram["gemm_write"] == chunk, "its own part"
    assert sum(flux.loss_ns.values()) == pytest.approx(flux.total_ns - found.baseline.gemm_ns, abs=1e-6)
    assert flux.loss_ns["kernel_launches"] == pytest.approx(machine.collective.kernel_launch_ns, abs=1)
    efficiency = found.overlap_efficiency
    ect = flux.total_ns - flux.ag_ns - found.baseline.gemm_ns
    assert efficiency["flux"] == pytest.approx(1 - ect / found.baseline.rs_ns)
    assert found.exchange.to_json()["topology"] == "switch"


def test_what_cannot_be_is_refused(machine, error_of):
    with pytest.raises(BadInput, match="it needs exchange.topology = switch"):
        kernels_of("flux", Plan(machine, SHAPE))
    with pytest.raises(BadInput, match="gpus.every = true does not go with it"):
        kernels_of("flux", Plan(machine, SHAPE, exchange=EXCHANGE, skew=Skew()))
    with pytest.raises(BadInput, match="M = 3 cannot be shared by 4 GPUs"):
        Owners(3, 4, 64, 0, 0)
    for arguments, words in ((["--technique", "flux", "--topology", "star"], "allowed are ring, switch"),
                             (["--technique", "flux", "--topology", "switch", "--flux-order", "any"], "shifted, same"),
                             (["--technique", "t3", "--flux-order", "same"], "is for technique flux"),
                             (["--technique", "t3", "--comm-units", "8"], "is for technique decomposed")):
        assert words in error_of("run", *arguments)


def test_a_ring_around_a_switch_is_a_ring(machine):
    ring, switch = Plan(machine, SHAPE), Plan(machine, SHAPE, exchange=EXCHANGE)
    for name in ("t3-mca+", "sequential"):
        assert kernels_of(name, switch) == kernels_of(name, ring)
