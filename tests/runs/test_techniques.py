"""Whole techniques on a small layer: parts that must sum up, closed forms, ideals, and bad requests."""

import time
from dataclasses import replace

import numpy as np
import pytest
from numba import njit

from t3sim.base.console import output_console
from t3sim.base.errors import BadInput
from t3sim.gpu.setup import ACCOUNTS
from t3sim.machine import load_machine
from t3sim.machine.topologies import ring
from t3sim.mechanisms import losses
from t3sim.mechanisms.staging import staging_pays
from t3sim.mechanisms.table import TECHNIQUES
from t3sim.mechanisms.track_trigger import FusedGemm, GatherAfter
from t3sim.runs import kernels
from t3sim.runs.exchange import Exchange, fused_with
from t3sim.runs.gather_before import tiling_for
from t3sim.runs.kernel_results import IsolatedKernel
from t3sim.runs.phases import PURPOSES
from t3sim.runs.plan import Plan
from t3sim.runs.skew import Skew
from t3sim.study.bounds import who_waits
from t3sim.study.report import print_run
from t3sim.study.techniques import run_sublayer
from t3sim.workload.workloads import gemm_workload, paper_workloads
from tests.support.variants import variant

pytestmark = [pytest.mark.builds_rtl, pytest.mark.builds_loops, pytest.mark.slow]

N = 4


@pytest.fixture(scope="module")
def result():
    in_a_ring = tuple(name for name in TECHNIQUES if name not in ("flux", "fused-wg", "in-switch"))
    return run_sublayer(Plan(load_machine(), gemm_workload("2048x1024x512", N)), in_a_ring, jobs=1)


def test_kernels_at_once_give_what_they_give_in_turn(result):
    """Six fused and five plain kernels: whatever the compiled RTL or the loop shared between threads would show."""
    told = []
    other = run_sublayer(Plan(result.machine, result.workload), tuple(result.techniques),
                         lambda *news: told.append(news), jobs=5)
    assert list(other.techniques) == list(result.techniques)
    for name, one in result.techniques.items():
        assert replace(other.techniques[name], host_seconds=one.host_seconds) == one, name
        shares = [share for of, share in told if of == name]
        assert shares == sorted(shares) and shares[-1] == 1 and shares.count(1.0) == 1


def test_mca_and_ring_aware_gather_alike():
    """So one gather is simulated for both; the streams' turns alone would make a difference."""
    machine, ring_aware = load_machine(), GatherAfter("ring_aware")
    assert GatherAfter.after(FusedGemm("ring_aware")) == GatherAfter("mca")
    unlike = False
    for shape, devices in (("4096x1024x256", 8), ("2048x1536x64", 4), ("1024x512x64", 2)):
        workload = gemm_workload(shape, devices)
        own, mca, turns = (kernels.simulate(replace(ring_aware, policy=policy), machine, workload)
                           for policy in ("ring_aware", "mca", "round_robin"))
        assert own == mca, shape
        unlike |= turns != mca
    assert unlike


def test_losses_sum_to_the_time_beyond_the_gemm_alone(result):
    alone = result.baseline.gemm_ns
    for name, one in result.techniques.items():
        assert sum(one.loss_ns.values()) == pytest.approx(one.total_ns - alone, abs=1e-6), name


def test_traffic_is_the_closed_form_in_chunks(result):
    chunk = 2048 * 1024 * 2 // N
    sequential, fused = result.techniques["sequential"].dram, result.techniques["t3"].dram
    assert sequential["rs_read"] == (2 * N - 1) * chunk
    assert sequential["gemm_write"] + sequential["rs_write"] == 2 * N * chunk
    assert fused["rs_read"] == (N - 2) * chunk
    assert fused["gemm_write"] + fused["rs_write"] == (2 * N - 2) * chunk
    for one in result.techniques.values():
        assert one.dram["ag_read"] == one.dram["ag_write"] == (N - 1) * chunk


def test_fused_runs_lie_between_ideal_and_sequential(result):
    times = {name: one.total_ns for name, one in result.techniques.items()}
    assert times["ideal-rs-nmc"] <= times["ideal-overlap"] < times["sequential"]
    for name in ("t3", "t3-mca", "t3-mca+"):
        assert times["ideal-rs-nmc"] * 0.98 < times[name] < times["sequential"]
        assert result.techniques[name].rtl_in_loop and result.techniques[name].mc_cycles > 0


def test_hardware_counters_are_the_layer(result):
    tiles = 8 * 8 * 8  # 128x256 tiles of eight wavefronts
    for name in ("t3", "t3-mca"):
        counters = result.techniques[name].hardware.rtl_counters
        assert counters["triggers"] == tiles * (N - 1) // N
        assert counters["commands"] == tiles * (N - 2) // N
        assert counters["lines"] == counters["commands"] * 128
        assert counters["set_full"] == 0


@pytest.mark.parametrize("shape, bound_by_ring", [("2048x1024x512", True), ("2048x2048x2048", False)])
def test_t3_takes_the_longer_of_gemm_and_ring_and_its_fill_if_memory_never_delays(shape, bound_by_ring):
    """A ring starts when the GEMM's first stage is done; behind a longer GEMM one chunk is left at most."""
    instant = dict.fromkeys(("trrd_s", "trrd_l", "tras", "trp", "trcdrd", "trcdwr", "tccd_l", "ccdwl", "twtr_s",
                             "twtr_l", "twr", "trtp", "trfc"), 1) | {"trc": 2, "tfaw": 4}
    machine = variant(load_machine(), dram={"column_bytes": 64} | {f"{k}_cycles": v for k, v in instant.items()})
    workload = gemm_workload(shape, N)
    result = run_sublayer(Plan(machine, workload), ("sequential", "t3"))
    alone, fused = result.baseline, result.techniques["t3"]
    chunk_ns = workload.output_bytes / N / machine.link.bandwidth_gb_per_s
    ring_ns = (N - 1) * chunk_ns
    tiles = workload.n // machine.gpu.tile_m * workload.m // machine.gpu.tile_n
    stage_ns = alone.gemm_ns / -(-tiles // machine.gpu.compute_units)
    assert (ring_ns > alone.gemm_ns) == bound_by_ring
    fill_ns = fused.total_ns - alone.ag_ns - max(ring_ns, alone.gemm_ns)
    assert 0 < fill_ns < (stage_ns if bound_by_ring else chunk_ns)


def test_the_first_chunk_is_staged_where_the_gemm_outlasts_the_ring():
    machine = load_machine()
    staged = {(w.model, w.sublayer, w.tp) for w in paper_workloads() if staging_pays(machine, w)}
    assert ("t-nlg", "fc2", 8) in staged and ("t-nlg", "op", 8) not in staged and ("t-nlg", "fc2", 16) not in staged
    shape = gemm_workload("2048x1024x2048", N)
    name = FusedGemm("mca", staged=True)
    assert staging_pays(machine, shape)
    run = kernels.simulate(name, machine, shape)
    assert run.hardware.staged_first_chunk
    chunk = shape.output_bytes // N
    assert run.dram["gemm"].write == N * chunk and run.dram["rs"] == ((N - 1) * chunk, (N - 1) * chunk)


def test_attribution_sums_whatever_the_counts(seed):
    rng = np.random.default_rng(seed)
    for _ in range(100):
        states, purposes = len(ACCOUNTS), len(PURPOSES)
        units = int(rng.integers(1, 100))
        alone, fused = rng.integers(0, 10**6, (2, states))
        alone_cycles, finish = (int(x) for x in rng.integers(10**5, 10**7, 2))
        loss = losses.attribute(
            losses.Watched(alone_cycles, alone, rng.integers(0, 1000, purposes)),
            losses.Watched(finish, fused, rng.integers(0, 1000, purposes)),
            end=finish + 1000, units=units)
        assert sum(loss.values()) == pytest.approx(finish + 1000 - alone_cycles)
        assert np.isfinite(list(loss.values())).all()


def test_any_policy_runs_as_t3(result):
    """Under its own the result is t3's, cycle for cycle; under another it is not."""
    workload = gemm_workload("2048x1024x512", N)
    own, other = (run_sublayer(Plan(load_machine(), workload, policy=policy), ("t3",))
                  for policy in ("round_robin", "compute_first"))
    gemm_ns = [one.techniques["t3"].gemm_ns for one in (own, result, other)]  # the ring is the bottleneck, not the GEMM
    assert gemm_ns[0] == gemm_ns[1] != gemm_ns[2]
    assert own.techniques["t3"].total_ns == result.techniques["t3"].total_ns
    assert (own.to_json()["policy"], other.policy, result.policy) == ("round_robin", "compute_first", None)
    losses = other.techniques["t3"].loss_ns
    assert sum(losses.values()) == pytest.approx(other.techniques["t3"].total_ns - result.baseline.gemm_ns, abs=1e-6)


@pytest.fixture(scope="module")
def reduced_everywhere():
    """A layer of five stages whose sums are gathered slice by slice."""
    return run_sublayer(Plan(load_machine(), gemm_workload("4096x2048x2048", N), exchange=Exchange("ar")),
                        ("sequential", "t3", "ideal-overlap"))


def test_an_all_reduce_moves_each_byte_as_often_as_its_schedule_says(reduced_everywhere):
    """Sums: read to be sent on but for the first and the last of a ring. Copies: read where they are sent on."""
    chunk, one = 4096 * 2048 * 2 // N, reduced_everywhere.techniques["t3"]
    assert one.streams_bytes["ar_read"] == (N - 2 + N - 1) * chunk
    assert one.streams_bytes["ar_write"] == 2 * (N - 1) * chunk
    assert one.streams_bytes["gemm_write"] == (N - 1) * chunk
    assert not any(stream.startswith(("rs", "ag")) for stream in one.streams_bytes)
    tiles = 16 * 16 * 8
    assert one.hardware.rtl_counters["triggers"] == tiles * 2 * (N - 1) // N
    assert one.hardware.slices > 1


def test_an_all_reduce_by_slices_hides_part_of_the_gather(reduced_everywhere):
    """It is faster than with the gather at the end and slower than the ideal; losses add up."""
    fused, bound = (reduced_everywhere.techniques[name] for name in ("t3", "ideal-overlap"))
    sequential = reduced_everywhere.baseline
    ring_ns = 2 * (N - 1) / N * 4096 * 2048 * 2 / load_machine().link.bandwidth_gb_per_s
    assert ring_ns < fused.total_ns < sequential.total_ns and bound.total_ns < fused.total_ns
    assert fused.total_ns < max(sequential.gemm_ns, sequential.rs_ns) + sequential.ag_ns, "as if gathered at the end"
    for one in (fused, bound, sequential):
        assert sum(one.loss_ns.values()) == pytest.approx(one.total_ns - sequential.gemm_ns, abs=1e-6), one.name
    efficiency = reduced_everywhere.overlap_efficiency
    assert efficiency["sequential"] == pytest.approx(0) and 0 < efficiency["t3"] < efficiency["ideal-overlap"] <= 1
    assert reduced_everywhere.to_json()["operator"] == "gemm-ar"


def test_an_all_gather_hides_behind_what_each_gpu_makes(capsys):
    """Each GPU makes and stores its chunk, sends it as it is made, and reads for the others what it sends on."""
    exchange, workload, chunk = fused_with("gemm-ag"), gemm_workload("4096x2048x2048", N), 4096 * 2048 * 2 // N
    found = run_sublayer(Plan(load_machine(), workload, exchange=exchange), ("sequential", "t3", "ideal-overlap"))
    sequential, fused, bound = found.techniques.values()
    assert fused.streams_bytes["ag_read"] == (N - 2) * chunk and fused.streams_bytes["ag_write"] == (N - 1) * chunk
    assert fused.streams_bytes["gemm_write"] == chunk == sequential.streams_bytes["gemm_write"]
    assert "reduce-scatter" not in sequential.phases_ns and "rs_read" not in fused.streams_bytes
    ring_ns = (N - 1) * chunk / load_machine().link.bandwidth_gb_per_s
    first_packet_ns = fused.total_ns - fused.phases_ns["all-gather"]
    assert bound.total_ns == max(sequential.gemm_ns, sequential.ag_ns) < fused.total_ns < sequential.total_ns
    assert fused.total_ns == pytest.approx(first_packet_ns + ring_ns, rel=0.1), "behind the first stage, it is the link"
    for one in (sequential, fused, bound):
        assert sum(one.loss_ns.values()) == pytest.approx(one.total_ns - sequential.gemm_ns, abs=1e-6), one.name
    efficiency = found.overlap_efficiency
    assert efficiency["sequential"] == pytest.approx(0) and 0 < efficiency["t3"] < efficiency["ideal-overlap"]
    print_run(found, output_console())
    assert "AG reads, sequential / technique" in capsys.readouterr().out


@pytest.mark.parametrize("shape", ["4096x2048x2048", "4096x512x2048"])
def test_an_all_gather_hides_behind_the_gemm_that_waits_for_it(shape, capsys):
    """A long GEMM hides all of it; a short one ends when the last activations have come, and their workgroups."""
    exchange, workload = fused_with("ag-gemm"), gemm_workload(shape, N)
    machine, chunk = exchange.hardware(load_machine(), workload), 4096 * 2048 * 2 // N
    found = run_sublayer(Plan(machine, workload, exchange=exchange), ("sequential", "t3", "t3-mca", "ideal-overlap"))
    sequential, fused, mca, bound = found.techniques.values()
    ring_ns = (N - 1) * chunk / load_machine().link.bandwidth_gb_per_s
    assert sequential.ag_ns > ring_ns and sequential.total_ns == sequential.gemm_ns + sequential.ag_ns
    assert bound.total_ns == max(sequential.gemm_ns, sequential.ag_ns)
    for one in (fused, mca):
        assert one.streams_bytes["ag_read"] == one.streams_bytes["ag_write"] == (N - 1) * chunk
        assert one.hardware.rtl_counters["triggers"] == tiling_for(machine, workload).wf_tiles.sum()
        assert ring_ns < one.total_ns < sequential.total_ns and one.phases_ns["all-gather"] > ring_ns
        if bound.total_ns == sequential.gemm_ns:
            assert one.total_ns == pytest.approx(bound.total_ns, rel=0.03)
        else:  # the last group's workgroups start behind the ring
            assert bound.total_ns < one.total_ns and one.loss_ns["inputs_not_there"] > 0
    for one in found.techniques.values():
        assert sum(one.loss_ns.values()) == pytest.approx(one.total_ns - sequential.gemm_ns, abs=1e-6), one.name
    assert found.to_json()["operator"] == "ag-gemm"
    print_run(found, output_console())
    shown = capsys.readouterr().out
    assert "AG reads, sequential / technique" in shown and "cycles in which inputs held a workgroup" in shown
    assert ("the all-gather: inputs that have not come" in shown or "the link" in shown) == ("N=512" in shown)


def test_one_gpu_stands_for_all_that_gather_before():
    """Mirrored against every GPU with its own RTL, and one that starts late, for whose activations all wait."""
    exchange, workload = fused_with("ag-gemm"), gemm_workload("2048x1024x512", N)
    machine = exchange.hardware(load_machine(), workload)
    fusion = FusedGemm("mca", exchange=exchange)
    one, every, late = (kernels.simulate(replace(fusion, skew=skew), machine, workload)
                        for skew in (None, Skew(), Skew.of("late:1:30000", N)))
    assert every.cycles == pytest.approx(one.cycles, rel=0.02) and len(every.gpus) == N
    assert every.dram["ag"] == one.dram["ag"]
    assert every.cycles + 15_000 < late.cycles < every.cycles + 33_000


@pytest.mark.parametrize("topology", ["switch", "full"])
def test_an_all_to_all_writes_only_what_stays(topology, capsys):
    """Experts (T3 paper, section 7.2): what goes to another GPU is written there alone, and never read."""
    exchange = fused_with("gemm-a2a", topology, "direct")
    workload, pair = gemm_workload("4096x2048x2048", N), 4096 * 2048 * 2 // N // N
    found = run_sublayer(Plan(exchange.hardware(load_machine(), workload), workload, exchange=exchange),
                         ("sequential", "t3", "ideal-overlap"))
    sequential, fused, bound = found.techniques.values()
    assert sequential.streams_bytes["gemm_write"] == N * pair
    assert [sequential.streams_bytes[f"a2a_{way}"] for way in ("read", "write")] == [(N - 1) * pair] * 2
    assert fused.streams_bytes["gemm_write"] == pair and fused.streams_bytes["a2a_write"] == (N - 1) * pair
    assert fused.streams_bytes["a2a_read"] == 0 == fused.hardware.rtl_counters["commands"]
    assert fused.hardware.rtl_counters["triggers"] == 16 * 8 * 8 * 2 // N * (N - 1) // N
    link_ns = (N - 1) * pair / load_machine().link.bandwidth_gb_per_s
    assert sequential.phases_ns["all-to-all"] > link_ns and fused.total_ns < sequential.total_ns
    assert bound.total_ns == max(sequential.gemm_ns, sequential.phases_ns["all-to-all"])
    for one in (sequential, fused, bound):
        assert sum(one.loss_ns.values()) == pytest.approx(one.total_ns - sequential.gemm_ns, abs=1e-6), one.name
    print_run(found, output_console())
    assert " A2A " in capsys.readouterr().out


@pytest.mark.parametrize("operator, topology, algorithm, found", [
    ("gemm-rs", None, None, ("ring", "ring")), ("gemm-ar", "switch", None, ("switch", "ring")),
    ("gemm-a2a", None, None, ("switch", "direct")), ("embedding-a2a", "full", None, ("full", "direct")),
    ("gemm-rs", "full", None, ("full", "direct")), ("gemm-rs", "torus:2x4", None, ("torus:2x4", "hierarchical")),
    ("gemm-ag", "nodes:2x4", None, ("nodes:2x4", "hierarchical")),
    ("gemm-rs", "switch", "direct", ("switch", "direct"))])
def test_what_is_not_named_is_the_operators_and_the_topologys_own(operator, topology, algorithm, found):
    exchange = fused_with(operator, topology, algorithm)
    assert (exchange.topology, exchange.algorithm) == found


@pytest.mark.parametrize("exchange", [Exchange(), Exchange("ag"), Exchange("ar"), Exchange("a2a", "direct", "switch"),
                                      Exchange("rs", "direct", "switch"),
                                      Exchange("rs", "direct", "full"), Exchange("rs", "in-switch", "switch"),
                                      Exchange("ar", "in-switch", "switch")], ids=str)
def test_one_gpu_stands_for_all(exchange):
    """Representative GPU against every GPU with its own RTL: equal exchange bytes, time within 2 %."""
    workload = gemm_workload("2048x1024x512", N)
    machine = exchange.hardware(load_machine(), workload)
    fusion = FusedGemm("mca", exchange=exchange)
    one, every = (kernels.simulate(replace(fusion, skew=skew), machine, workload) for skew in (None, Skew()))
    assert every.cycles == pytest.approx(one.cycles, rel=0.02) and every.dram == one.dram
    assert not one.gpus and len(every.gpus) == N
    assert max(gpu["last_tile_ns"] for gpu in every.gpus) == pytest.approx(every.cycles, rel=0.01)


@pytest.mark.parametrize("topology", ["switch", "full"])
def test_a_direct_reduce_scatter_reads_nothing(topology, capsys):
    """T3 paper, section 7.1: each GPU keeps its own part, sends the others as it makes them, and reads nothing."""
    exchange = fused_with("gemm-rs", topology, "direct")
    workload, chunk = gemm_workload("2048x1024x512", N), 2048 * 1024 * 2 // N
    machine = exchange.hardware(load_machine(), workload)
    assert machine.dma.peers == N - 1
    found = run_sublayer(Plan(machine, workload, exchange=exchange), ("sequential", "t3"))
    direct = found.techniques["t3"]
    assert direct.dram["rs_read"] == 0 and direct.hardware.rtl_counters["commands"] == 0
    assert direct.dram["gemm_write"] == chunk and direct.dram["rs_write"] == (N - 1) * chunk
    assert sum(direct.loss_ns.values()) == pytest.approx(direct.total_ns - found.baseline.gemm_ns, abs=1e-6)
    assert direct.total_ns < found.baseline.total_ns and direct.loss_ns["window_blocked"] == 0
    print_run(found, output_console())
    assert "no reads" in capsys.readouterr().out


@pytest.mark.parametrize("options, words", [
    (("--algorithm", "direct"), "--algorithm direct sends to every GPU, in a ring over the others' links too"),
    (("--operator", "gemm-ag", "--technique", "decomposed"), "technique decomposed is of a reduce-scatter"),
    (("--operator", "gemm-ag", "--technique", "flux"), "technique flux is of a reduce-scatter: --operator gemm-ag has"),
    (("--operator", "ag-gemm", "--chakra", "trace.et", "--tp", "4"), "--operator ag-gemm does not go with --chakra"),
    (("--operator", "ag-gemm", "--sublayer", "fc3"), "sub-layer 'fc3' is unknown: allowed are op, fc1, fc2, ip"),
    (("--operator", "ag-gemm", "--tp", "9"), "TP=9 does not divide K=17024 of t-nlg fc1"),
    (("--operator", "gemm-a2a", "--algorithm", "ring"), "--operator gemm-a2a sends something else to every GPU"),
    (("--operator", "gemm-a2a", "--algorithm", "direct", "--topology", "switch", "--technique", "flux"),
     "--operator gemm-a2a has none"),
    (("--topology", "full", "--algorithm", "ring"),
     "--topology full divides a GPU's bandwidth among its links, of which a ring uses one"),
    (("--algorithm", "tree", "--topology", "switch"), "--algorithm 'tree' is unknown: allowed are ring, both-ring"),
    (("--algorithm", "in-switch"), "--algorithm in-switch adds and copies in a switch: it needs --topology switch"),
    (("--algorithm", "in-switch", "--topology", "switch", "--operator", "gemm-a2a"), "it needs --algorithm direct"),
    (("--algorithm", "in-switch", "--topology", "switch", "--tp", "64"), "the heads of at most 31 others"),
    (("--technique", "in-switch"), "technique in-switch adds and copies in a switch: it needs --topology switch"),
    (("--technique", "in-switch", "--topology", "switch", "--operator", "gemm-ag"), "technique in-switch all-reduces"),
    (("--algorithm", "direct", "--topology", "switch", "--tp", "64"), "the heads of at most 31 others"),
    (("--algorithm", "direct", "--operator", "gemm", "--gemm", "64x64x64"), "--algorithm"),
])
def test_an_exchange_that_cannot_be_is_refused(options, words, error_of):
    assert words in error_of("run", *options)


def test_a_late_gpu_and_a_slow_link_delay_all():
    """Sequential and T3 wait for the last; a slow link is the fullest, and its GPU's neighbour gets its tiles late."""
    machine, workload = load_machine(), gemm_workload("2048x1024x512", N)
    late, slow = Skew.of("late:2:30000", N), Skew.of("link:1-0:20", N)
    runs = [run_sublayer(Plan(machine, workload, skew=skew), ("sequential", "t3"))
            for skew in (Skew(), late, slow)]
    alike, behind, held = (run.techniques["t3"] for run in runs)
    assert runs[1].baseline.total_ns == runs[0].baseline.total_ns + 30_000
    assert behind.total_ns - alike.total_ns == pytest.approx(30_000, rel=0.1), "it makes a part of every tile"
    assert [gpu["start_ns"] for gpu in behind.gpus] == [0, 0, 30_000, 0]
    assert runs[2].baseline.rs_ns > 2 * runs[0].baseline.rs_ns
    assert held.gpus[1]["link_to"] == 0 and held.gpus[1]["link_busy"] == max(gpu["link_busy"] for gpu in held.gpus)
    assert held.total_ns > alike.total_ns + 30_000
    for run in runs:
        for one in run.techniques.values():
            alone = runs[0].baseline.gemm_ns
            assert sum(one.loss_ns.values()) == pytest.approx(one.total_ns - alone, abs=1e-6)
        assert run.to_json()["techniques"]["t3"]["gpus"][3].keys() == held.gpus[3].keys()


def test_a_slow_clock_and_dead_units_delay_all(capsys):
    """The GEMM alone is the slowest GPU's, whose own clock or units it goes by; T3's GPUs wait for it."""
    machine, workload = load_machine(), gemm_workload("2048x1024x1024", N)
    alike, clock, dead = (run_sublayer(Plan(machine, workload, skew=Skew.of(text, N)), ("sequential", "t3"))
                          for text in ("", "clock:2:0.5", "dead:3:40"))
    tiles, units = 8 * 8, machine.gpu.compute_units
    assert clock.baseline.gemm_ns == pytest.approx(2 * alike.baseline.gemm_ns, rel=0.05)
    stages = -(-tiles // (units // 2)) / -(-tiles // units)
    assert dead.baseline.gemm_ns == pytest.approx(stages * alike.baseline.gemm_ns, rel=0.1)
    for run, slow in ((clock, 2), (dead, 3)):
        t3, usual = run.techniques["t3"], alike.techniques["t3"]
        assert 0.95 * run.baseline.gemm_ns < t3.gemm_ns < 1.25 * run.baseline.gemm_ns
        ends = [gpu["gemm_end_ns"] for gpu in t3.gpus]
        assert ends.index(max(ends)) == slow
        assert usual.total_ns + 0.3 * (run.baseline.gemm_ns - alike.baseline.gemm_ns) < t3.total_ns
        assert min(ends) < 1.1 * usual.gemm_ns, "the others' GEMMs end as they did"
        assert sum(t3.loss_ns.values()) == pytest.approx(t3.total_ns - run.baseline.gemm_ns, abs=1e-6)
        print_run(run, output_console())
        shown = capsys.readouterr().out
        assert f"All GPUs wait for GPU {slow}, whose GEMM ends" in shown and f"GPU {slow} " in shown


def test_the_last_of_several_unlike_gpus_counts():
    """A late GPU and a slow one: whichever ends last is what the baseline waits for."""
    machine, workload = load_machine(), gemm_workload("512x512x512", N)
    slow, late, both = (kernels.simulate(kernels.GemmAlone(Skew.of(text, N)), machine, workload)
                        for text in ("clock:1:0.5", "late:2:1000", "clock:1:0.5,late:2:1000"))
    assert slow.start_ns == 0 and late.start_ns == 1000
    assert both == (slow if slow.ns > late.ns + 1000 else late)
    much = kernels.simulate(kernels.GemmAlone(Skew.of("clock:1:0.5,late:2:90000", N)), machine, workload)
    assert (much.start_ns, much.ns) == (90_000, late.ns)


@pytest.mark.parametrize(("text", "says"), [
    ("clock:1:1.5", "1.5 is not possible: 0.05 to 1"), ("clock:1:0", "0 is not possible"), ("clock:4:1", "GPU 4"),
    ("dead:1:-1", "is unknown: allowed is"), ("dead:1:3,dead:1:4", "it is given twice"),
    ("late:4:10", "GPU 4: there are 0 to 3"), ("late:1", "'late:1' is unknown: allowed is"), ("link:0-9:3", "GPU 9"),
    ("link:0-1:0", "not possible: 0.001 to"), ("late:0:1.2.3", "1.2.3 is no number"), ("slow", "late:GPU:NS"),
    ("late:0:10,,", "'' is unknown: allowed is"), ("late:0:10,late:0:20", "late:0:20: it is given twice"),
    ("link:1-1:5", "no link to itself"), ("link:0-1:5,link:0-1:5", "it is given twice")])
def test_a_wrong_skew_is_one_line(text, says):
    with pytest.raises(BadInput, match=says) as error:
        Skew.of(text, 4)
    assert "gpus.skew" in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("units", [0, 80, 999999])
def test_a_gpu_needs_a_unit_that_works(units):
    with pytest.raises(BadInput, match=f"^gpus.skew = dead:1:{units}: of 80 compute units 1 to 79 may not work$"):
        Skew.of(f"dead:1:{units}", N).check(ring(N), load_machine())


def test_who_waits_is_said():
    """Of four GPUs as a run reports them."""
    def gpus(ends, busy=(0.5,) * 4, held=0.0):
        return [{"gemm_end_ns": end, "link_to": (gpu - 1) % 4, "link_busy": link, "window_held_ns": held}
                for gpu, (end, link) in enumerate(zip(ends, busy))]
    assert who_waits(gpus([100e3, 130e3, 101e3, 99e3]), 150e3) == (
        "All GPUs wait for GPU 1, whose GEMM ends 29.0 µs after any other.")
    assert who_waits(gpus([100e3] * 4, [0.5, 0.5, 0.97, 0.4]), 150e3) == (
        "All GPUs wait for the link from GPU 2 to GPU 1, which is busy 97%.")
    assert who_waits(gpus([100e3, 130e3, 101e3, 130.2e3]), 150e3) == (
        "All GPUs wait for GPUs 1, 3, whose GEMMs end 29.0 µs after any other.")
    alike = who_waits(gpus([100e3, 100.1e3, 100e3, 100e3], [0.95] * 4, held=30e3), 150e3)
    assert alike.startswith("No GPU waits long for another's GEMM: they end within 0.1 µs.")
    assert alike.endswith("The window held free compute units for up to 30.0 µs (GPU 0).")


def test_a_skew_of_a_link_that_is_not_there():
    with pytest.raises(BadInput, match="no such links"):
        run_sublayer(Plan(load_machine(), gemm_workload("2048x1024x512", N), skew=Skew.of("link:0-2:3", N)), ("t3",))


def test_compilation_is_no_simulation():
    """What a first run compiles must not make its cycles per second look slow."""
    class Compiles:
        def run(self, *_):
            compiled_now = njit(lambda values: np.sort(values).sum())  # without a cache: every time
            started = time.perf_counter()
            compiled_now(np.arange(3))
            self.seconds = time.perf_counter() - started
            return IsolatedKernel(1.0, 1, {})
    kernel = Compiles()
    plan = Plan(load_machine(), gemm_workload("256x256x64", N))
    measured = kernels.simulate_plan(kernel, plan).host_seconds
    assert 0 <= measured < 0.5 * kernel.seconds
