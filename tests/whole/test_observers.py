"""Whoever watches a run watches beside others and changes nothing, and GPUs that start late can be watched too."""

import numpy as np
import pytest

from t3sim.base.errors import BadInput
from t3sim.cosim.traced import traced_gpu_design
from t3sim.gpu.engine.observers import Observer
from t3sim.gpu.fabric import bits
from t3sim.runs.data_mode import ACCESSES, DMA_READ, PLAIN, data_run
from t3sim.runs.fused import FusedRun
from t3sim.runs.plan import Plan, Policy
from t3sim.testbenches.soak import machine
from t3sim.trace.describe import describe_run, tiles_of
from t3sim.trace.record import TraceRecording
from t3sim.trace.recorder import Filter
from t3sim.trace.schema import Kind
from t3sim.trace.store import Trace, TraceWriter
from t3sim.workload.workloads import gemm_workload

pytestmark = [pytest.mark.builds_rtl, pytest.mark.builds_loops, pytest.mark.slow]

RING = machine("ring_tiny")
WORKLOAD = gemm_workload("40x70x32", 3)
LATE = 3000  #: cycle in which GPU 1 starts


@pytest.fixture(scope="module")
def library():
    return traced_gpu_design(RING.geometry())


def started_late(library):
    """A ring with numbers, random delays and a late GPU."""
    options = dict(seed=3, hold_back=0.1, link_jitter_cycles=100, start_cycles=(0, LATE, 0))
    return data_run(Plan(RING, WORKLOAD, **options), Policy("mca"), design=library)


@pytest.fixture(scope="module")
def watched(library, tmp_path_factory):
    """(run, ledger, trace) of a data-mode run that was traced."""
    folder = tmp_path_factory.mktemp("watched")
    run, ledger = started_late(library)
    with TraceWriter(folder, limit=10_000_000) as writer:
        run.observers.append(TraceRecording(run, tiles_of(run, Filter()), library, Filter(), writer))
        run.run()
        described = describe_run(run, "t3-mca", 3)
        writer.commit(described)
    yield run, ledger, np.array(Trace(folder, described).events)
    run.close()


@pytest.fixture(scope="module")
def unwatched(library):
    """(run, ledger) of the same run without a trace."""
    run, ledger = started_late(library)
    run.run()
    yield run, ledger
    run.close()


def state(run: FusedRun) -> list:
    sim = run.sim
    return [run.now, sim.mem.total_bytes.tolist(), sim.kernel.state.accounted.tolist(), sim.control.rs_end.tolist(),
            [list(run.counters(d).items()) for d in range(len(run.backends))]]


def test_a_data_mode_run_is_traced_and_stays_the_same(watched, unwatched):
    assert state(watched[0]) == state(unwatched[0])
    assert (watched[1].result().reduced == unwatched[1].result().reduced).all()


def test_ledger_and_trace_saw_the_same_accesses(watched):
    _, ledger, events = watched
    served = events[(events["kind"] == Kind.SERVE) & (events["region"] > 0)]
    for device in range(WORKLOAD.tp):
        mine = served[served["device"] == device]
        for access, name in enumerate(ACCESSES):
            chosen = (mine["op"] == bits.READ if access == DMA_READ
                      else (mine["op"] == bits.UPDATE) & (mine["source"] == access) if access < PLAIN
                      else (mine["op"] == bits.STORE) & (mine["source"] == access - PLAIN))
            assert mine["amount"][chosen].sum() // 2 == ledger.data.tally[access, device].sum(), name
    assert len(served) > 500


def test_a_traced_gpu_starts_late(watched):
    _, _, events = watched
    dispatched = events[events["kind"] == Kind.DISPATCH]
    first = [int(dispatched["cycle"][dispatched["device"] == device].min()) for device in range(WORKLOAD.tp)]
    assert first[1] >= LATE > 100 > max(first[0], first[2])


def test_results_do_not_depend_on_how_far_a_gpu_is_stepped_alone(library, unwatched):
    class Interleaved(Observer):
        interleaved = True
    run, _ = started_late(library)
    run.observers.append(Interleaved())
    run.run()
    assert state(run) == state(unwatched[0])
    run.close()


@pytest.mark.parametrize("starts", [(0, 1), (0, -1, 0)])
def test_start_cycles_that_fit_no_ring_are_refused(library, starts):
    with pytest.raises(BadInput, match="start_cycles=.* 3 numbers of at least 0"):
        data_run(Plan(RING, WORKLOAD, start_cycles=starts), design=library)
