"""A GEMM in one GEMM per chunk beside its ring's kernels: what waits for what, and what splitting costs."""

import numpy as np
import pytest

from t3sim.base.errors import BadInput
from t3sim.gpu.engine.end import DONE
from t3sim.gpu.engine.loop import Lockstep
from t3sim.machine import load_machine
from t3sim.mechanisms.decomposed.kernels import decomposed_sim, run_decomposed, split_gemm
from t3sim.runs import build, kernels
from t3sim.runs.isolated_collectives import with_compute_units
from t3sim.runs.plan import Plan
from t3sim.runs.skew import Skew
from t3sim.study.techniques import kernels_of, run_sublayer
from t3sim.workload.workloads import gemm_workload

pytestmark = [pytest.mark.builds_loops, pytest.mark.slow]

N = 4
UNITS = 16  #: of communication
SHAPE = gemm_workload("4096x2048x512", N)  #: 64 tiles a chunk, a wave of the other 64 units
TECHNIQUES = ("sequential", "decomposed", "ideal-overlap")


@pytest.fixture(scope="module")
def machine():
    return load_machine()


@pytest.fixture(scope="module")
def ran(machine):
    run = Lockstep(decomposed_sim(machine, SHAPE, UNITS))
    assert run.advance(10_000_000) == DONE
    return run.sim


@pytest.fixture(scope="module")
def result(machine):
    return run_sublayer(Plan(machine, SHAPE), TECHNIQUES)


def test_a_chunk_is_sent_when_its_gemm_is_over_and_the_last_one_has_come(machine, ran):
    """Each step waits for its GEMM, for the arriving chunk, and for a launch."""
    launch = ran.kernel.launch_cycles
    assert launch == round(machine.collective.kernel_launch_ns)
    gemm, scatter = ran.kernel.first.state.phase_over[0], ran.kernel.second.state.phase_over[0]
    assert (np.diff(gemm) > launch).all() and len(gemm) == len(scatter) == N
    chunk_ns = SHAPE.output_bytes / N / machine.link.bandwidth_gb_per_s + machine.link.latency_ns
    before = np.concatenate([[0], scatter[:-1]])
    begun = np.maximum(gemm, before) + launch
    assert (scatter[:-1] >= begun[:-1] + chunk_ns).all(), "a chunk takes a link's time from then on"
    assert (scatter[:-1] <= begun[:-1] + 1.1 * chunk_ns + 2000).all(), "and nothing else holds it up"


def test_every_split_gemm_takes_its_own_time_and_a_launch(machine, ran):
    """Chunks of whole waves and of a quarter of one, with 16 and 48 units for communication."""
    fewer = with_compute_units(machine, machine.gpu.compute_units - UNITS)
    chunk = kernels.simulate(kernels.GEMM, fewer, gemm_workload(f"{SHAPE.m // N}x{SHAPE.n}x{SHAPE.k}", N)).ns
    ends = ran.kernel.first.state.phase_over[0]
    each = np.diff(ends) - ran.kernel.launch_cycles
    assert ends[0] == pytest.approx(chunk, rel=0.03)
    assert (0.97 * chunk < each).all() and (each < 1.3 * chunk).all(), "the others share memory with the ring"
    assert each[0] == pytest.approx(chunk, rel=0.03), "until the cache is full of results"


def test_bytes_are_those_of_the_kernels_in_turn(result):
    """DRAM and link bytes equal the sequential baseline's."""
    assert result.techniques["decomposed"].dram == result.baseline.dram


def test_losses_sum_and_the_launches_are_counted(machine, result):
    """Losses add up to the time above the GEMM's; each GEMM after the first costs a launch."""
    one = result.techniques["decomposed"]
    assert sum(one.loss_ns.values()) == pytest.approx(one.total_ns - result.baseline.gemm_ns, abs=1e-6)
    assert one.loss_ns["kernel_launches"] == pytest.approx((N - 1) * machine.collective.kernel_launch_ns, abs=N)
    assert abs(one.loss_ns["wave_tails"]) < 0.02 * one.gemm_ns, "whole waves have no tail"


def test_a_chunk_of_few_tiles_leaves_units_idle(machine):
    """16 tiles a chunk: each GEMM keeps 16 of 64 units busy, where one kernel needs a wave for all."""
    shape = gemm_workload("2048x1024x512", N)
    found = run_sublayer(Plan(machine, shape), TECHNIQUES)
    one = found.techniques["decomposed"]
    assert one.loss_ns["wave_tails"] > 1.5 * found.baseline.gemm_ns
    assert one.loss_ns["wave_tails"] == max(ns for cause, ns in one.loss_ns.items() if cause != "all_gather")
    assert found.to_json()["bounds"]["decomposed"]["words"] == "last waves of split GEMMs"
    assert found.overlap_efficiency["decomposed"] < 0 < found.overlap_efficiency["ideal-overlap"]


def test_units_that_communication_has_are_the_gemms_loss(machine):
    few, many = (run_sublayer(Plan(machine, SHAPE, options={"decomposed": units}), ("sequential", "decomposed"))
                 .techniques["decomposed"] for units in (16, 48))
    assert few.loss_ns["communication_units"] < many.loss_ns["communication_units"]
    assert many.gemm_ns > 1.5 * few.gemm_ns


def test_split_gemms_cover_the_output_once(machine):
    """Of any number of rows, in the order asked for."""
    shape, order = gemm_workload("1000x300x64", N), [2, 0, 3, 1]
    gemm = build.gemm_operator(machine, shape, build.make_tiling(machine, shape))
    split = split_gemm(gemm, order, 100.0)
    whole = gemm.work(0)
    assert split.bytes_stored() == whole.bytes_stored()
    first = [split.stores["base"][split.group_of_stores == np.flatnonzero(split.groups["phase"] == phase)[0]][0]
             for phase in range(N)]
    pitch = gemm.tiling.pitch_bytes
    assert [(base - gemm.c_base) // pitch for base in first] == [250 * chunk for chunk in order]


def test_what_cannot_be_is_refused(machine, error_of):
    with pytest.raises(BadInput, match="decomposed.communication_units = 80 of 80 compute units is not possible: 1 to "
                                       "79"):
        run_decomposed(machine, SHAPE, 80)
    with pytest.raises(BadInput, match="M = 3 cannot be split into 4 GEMMs"):
        small = gemm_workload("3x2048x64", N)
        split_gemm(build.gemm_operator(machine, small, build.make_tiling(machine, small)), range(N), 1.0)
    with pytest.raises(BadInput, match="technique decomposed has no GPUs that are not alike"):
        kernels_of("decomposed", Plan(machine, SHAPE, skew=Skew()))
    line = error_of("run", "--technique", "decomposed", "--comm-units", "0")
    assert "--comm-units 0 of 80 compute units is not possible: 1 to 79" in line
