"""Persistent kernels that store at the owners and add what came: real sums, what is waited for, bytes and losses."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from t3sim.base.errors import BadInput
from t3sim.base.line import LINE_BYTES, lines_of
from t3sim.gpu.engine.end import DONE
from t3sim.gpu.engine.loop import Lockstep
from t3sim.machine import load_machine
from t3sim.machine.topologies import named_topology
from t3sim.mechanisms.fused_wg.kernels import FusedOptions, owners_of, run_sending, sending_kernel, sending_sim
from t3sim.runs import build
from t3sim.runs.exchange import Exchange, fused_with
from t3sim.runs.operators import make_operator, make_tiling
from t3sim.runs.phases import by_stream
from t3sim.runs.plan import Plan
from t3sim.runs.skew import Skew
from t3sim.study.techniques import kernels_of, run_sublayer
from t3sim.workload.operators.kernel_table import Route
from t3sim.workload.workloads import gemm_workload, gemv_workload
from tests.support.tiers import on_one

pytestmark = pytest.mark.builds_loops

N = 4
SHAPE = gemm_workload("4096x1024x256", N)
SWITCH = named_topology(f"switch:{N}")


@dataclass(frozen=True)
class Unmirrored(FusedOptions):
    """Every GPU, although one could stand for all."""

    mirrored = False


@pytest.fixture(scope="module")
def machine():
    return load_machine()


def tables_of(machine, workload, options):
    tiling = make_tiling(machine, workload)
    at = build.Addresses.of(workload, tiling)
    plain = make_operator(machine, workload, tiling, at.c).work(0)
    owners = owners_of(workload, tiling, at)
    return plain, [sending_kernel(plain, owners, rank, 100.0, options) for rank in range(workload.tp)], owners


def written(dram) -> int:
    """Bytes written; what is written back to make room for loads counts as theirs."""
    return sum(count for stream, count in dram.items() if stream.endswith("_write"))


def lines(blocks, turn: int = 0) -> list[int]:
    """Addresses of all lines of load or store blocks, in one of their step's turns."""
    return [int(block["base"] + row * block["pitch"] + turn * block["step_stride"] + line * LINE_BYTES)
            for block in blocks for row in range(block["rows"]) for line in range(lines_of(block["bytes"]))]


def of_lines(blocks, column: str) -> list[int]:
    """A column of the block that each line is of."""
    return [int(block[column]) for block in blocks for _ in range(block["rows"] * lines_of(block["bytes"]))]


class Played:
    """Tables of all ranks, played with a number for each line that a rank makes."""

    def __init__(self, plain, tables) -> None:
        self.ranks, self.tables, rng = len(tables), tables, np.random.default_rng(5)
        addresses = lines(plain.stores)
        self.made = [dict(zip(addresses, rng.integers(1, 1 << 20, len(addresses)).tolist())) for _ in tables]
        self.memory: list[dict[int, int]] = [{} for _ in tables]
        self.under: list[dict[int, int]] = [{} for _ in tables]  #: which signal promises a line
        self.counts = [np.zeros(1 + len(table.signals), np.int64) for table in tables]
        for rank in range(self.ranks):
            self.compute(rank, addresses)
        for rank in range(self.ranks):
            self.add(rank)

    def compute(self, rank: int, addresses: list[int]) -> None:
        """Store blocks are cut, and in the order in which the plain kernel has them."""
        table = self.tables[rank]
        computing = table.groups[:len(table.groups) - table.adding]
        last = table.steps[computing["first_step"] + computing["steps"] - 1]
        stores = table.stores[:int((last["first_store"] + last["stores"]).max())]
        raised = np.zeros(len(stores), np.int64)
        for step, signal in zip(last, table.raises):
            raised[step["first_store"]:step["first_store"] + step["stores"]] = signal
            self.counts[rank][signal] += signal > 0
        columns = zip(lines(stores), *(of_lines(stores, name) for name in ("route", "peer", "id")),
                      np.repeat(raised, stores["rows"] * lines_of(stores["bytes"])).tolist(), strict=True)
        for source, (address, route, peer, signal, own) in zip(addresses, columns, strict=True):
            away = route == Route.PEER
            target = (rank + 1 + peer) % self.ranks if away else rank
            assert address not in self.memory[target]
            self.memory[target][address] = self.made[rank][source]
            self.under[target][address] = signal if away else own
            self.counts[target][signal] += away

    def add(self, rank: int) -> None:
        """A task loads all parts of a line, and nothing that its signal does not promise."""
        table = self.tables[rank]
        for group, signal in list(zip(table.groups, table.waits.tolist()))[len(table.groups) - table.adding:]:
            for step in table.steps[group["first_step"]:group["first_step"] + group["steps"]]:
                loads = table.loads[step["first_load"]:step["first_load"] + step["loads"]]
                stores = table.stores[step["first_store"]:step["first_store"] + step["stores"]]
                here = stores[stores["route"] != Route.PEER]
                for turn in range(step["repeats"]):
                    parts = np.reshape(lines(loads, turn), (self.ranks, -1))
                    assert {self.under[rank][address] for address in parts.flat} == {signal[0]} == {signal[1]}
                    sums = [sum(self.memory[rank][address] for address in of_line) for of_line in parts.T]
                    self.memory[rank].update(zip(lines(here, turn), sums, strict=True))
                    for peer in range(self.ranks - 1):
                        copies = stores[(stores["route"] == Route.PEER) & (stores["peer"] == peer)]
                        there = self.memory[(rank + 1 + peer) % self.ranks]
                        there.update(zip(lines(copies, turn), sums, strict=len(copies) > 0))


@pytest.mark.parametrize("slice_tiles", on_one([1, 2, 1 << 40], 2))
@pytest.mark.parametrize("broadcasts", [False, True])
@pytest.mark.parametrize("workload", [gemm_workload("1500x300x64", 3), gemm_workload("5x128x64", 3),
                                      gemm_workload("1536x256x32", 2), gemv_workload("395x1x40", 4)], ids=str)
def test_every_line_is_added_from_all_ranks(machine, workload, broadcasts, slice_tiles):
    """Whatever the shape, and however many tiles a signal is of, each of which is set by all of its lines, no more."""
    options = Unmirrored(adds=True, broadcasts=broadcasts, slice_tiles=slice_tiles)
    plain, tables, owners = tables_of(machine, workload, options)
    played = Played(plain, tables)
    for rank, table in enumerate(tables):
        assert played.counts[rank][1:].tolist() == table.signals.tolist()
        own = [address for address in played.made[rank] if owners.of(np.int64(address)) == rank]
        for address in played.made[rank] if broadcasts else own:
            assert played.memory[rank][address] == sum(made[address] for made in played.made)
        assert table.arrivals[0] == sum(address not in own for address in played.memory[rank])


@pytest.mark.parametrize("workload, broadcasts", [
    (gemm_workload("4096x2048x512", N), False), (gemv_workload("8192x1x1024", N), True)], ids=str)
def test_a_task_adds_when_all_has_come_and_one_gpu_stands_for_all(machine, workload, broadcasts):
    """Representative GPU and every GPU around a switch: equal bytes, times within 2 %."""
    options = dict(adds=True, broadcasts=broadcasts)
    run = Lockstep(sending_sim(machine, workload, SWITCH, FusedOptions(**options)))
    assert run.advance(10_000_000) == DONE
    sim = run.sim
    assert sim.control.signals[0, 1:].tolist() == sim.kernel.work.signals[0, 1:].tolist()
    chunk = workload.output_bytes // N // LINE_BYTES
    assert sim.network.arrived[0] == sim.kernel.work.arrivals[0, 0] == (N - 1) * chunk * (1 + broadcasts)
    one, every = (run_sending(machine, workload, SWITCH, kind(**options)) for kind in (FusedOptions, Unmirrored))
    assert written(by_stream(every.dram)) == written(by_stream(one.dram))
    assert every.dram["gemm"].read == one.dram["gemm"].read
    assert every.cycles == pytest.approx(one.cycles, rel=0.02)


def test_coarser_signals_wait_longer(machine):
    """A shard's tasks add when everything has come; those of a tile meanwhile."""
    fine, shard = (run_sending(machine, SHAPE, SWITCH, FusedOptions(adds=True, slice_tiles=tiles))
                   for tiles in (1, 1 << 40))
    assert shard.cycles > fine.cycles and shard.dram["rs"].write == fine.dram["rs"].write


def test_bytes_and_losses_of_a_reduce_scatter(machine):
    """Bytes are the closed form's, and losses add up."""
    found = run_sublayer(Plan(machine, SHAPE, exchange=Exchange(topology="switch")), ("sequential", "flux", "fused-wg"))
    flux, sent, chunk = found.techniques["flux"], found.techniques["fused-wg"], SHAPE.output_bytes // N
    assert (N - 1) * chunk <= sent.streams_bytes["rs_read"] <= N * chunk, "own parts may still be in the cache"
    after = sent.streams_bytes["ag_write"]
    assert written(sent.streams_bytes) - after == N * chunk, "parts come, and a sum takes its own part's place there"
    assert sent.ag_ns == flux.ag_ns
    assert sum(sent.loss_ns.values()) == pytest.approx(sent.total_ns - found.baseline.gemm_ns, abs=1e-6)
    assert sent.loss_ns["flags_polled"] > 0 and sent.loss_ns["local_reduction"] > 0


def test_a_gemvs_all_reduce_is_inside_its_kernel(machine):
    """Parts, other GPUs' sums and own ones are written once; losses add up, and no RTL takes part."""
    workload, exchange = gemv_workload("4096x1x1024", N), fused_with("gemv-ar", "switch", "direct")
    found = run_sublayer(Plan(machine, workload, exchange=exchange), ("sequential", "fused-wg"))
    sequential, sent = found.techniques.values()
    share = workload.output_bytes // N
    assert written(sent.streams_bytes) == (2 * (N - 1) + 1) * share, "parts, sums of others, and its own"
    assert sequential.gemm_ns < sent.total_ns < sequential.total_ns and not sent.rtl_in_loop
    assert sum(sent.loss_ns.values()) == pytest.approx(sent.total_ns - sequential.gemm_ns, abs=1e-6)


def test_what_cannot_be_is_refused(machine, error_of):
    plan = Plan(machine, SHAPE)
    with pytest.raises(BadInput, match="it needs exchange.topology = switch"):
        kernels_of("fused-wg", plan)
    with pytest.raises(BadInput, match="gpus.every = true does not go with it"):
        kernels_of("fused-wg", replace(plan, exchange=Exchange(topology="switch"), skew=Skew()))
    with pytest.raises(BadInput, match="layer.operator = ag-gemm does neither"):
        kernels_of("fused-wg", replace(plan, exchange=fused_with("ag-gemm")))
    with pytest.raises(BadInput, match="M = 100 of a GEMV cannot be shared by 8 GPUs"):
        sending_sim(load_machine(), gemv_workload("100x1x64", 8), SWITCH, FusedOptions(adds=True))
    line = error_of("run", "--gemm", "512x512x64", "--devices", "4", "--technique", "flux", "--topology", "switch",
                    "--signal", "shard")
    assert "--signal shard is for t3" in line
    line = error_of("run", "--gemm", "512x512x64", "--devices", "4", "--technique", "flux,t3", "--topology", "switch",
                    "--signal", "shard")
    assert "technique flux adds in a kernel after everything" in line
