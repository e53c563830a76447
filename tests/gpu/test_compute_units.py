"""Compute units on kernels made by hand: what a workgroup waits for, and what workgroups of one unit share."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest

from t3sim.gpu.agents.compute_units import set_condition
from t3sim.gpu.agents.units.state import UnitState
from t3sim.gpu.engine.end import DONE, RUNNING
from t3sim.gpu.engine.loop import Lockstep
from t3sim.gpu.setup import ACCOUNTS, STATES, Condition
from t3sim.machine import Machine, load_machine
from t3sim.runs import build
from t3sim.runs.failure import SimulationError
from t3sim.runs.isolated_collectives import collective_sim
from t3sim.runs.isolated_kernels import run_table
from t3sim.runs.operators import with_its_kernel
from t3sim.runs.plan import Plan
from t3sim.workload.operators.kernel_table import (
    GROUP,
    LOAD,
    STEP,
    STORE,
    WAIT,
    KernelError,
    KernelTable,
    Route,
    rows_of,
)
from t3sim.workload.workloads import gemm_workload
from tests.support.variants import Watches, variant

pytestmark = pytest.mark.builds_loops

MB = 1 << 20


@pytest.fixture(scope="module")
def machine() -> Machine:
    return load_machine()


def kernel(workgroups: int, steps: list[dict], loads: list[dict], stores: list[dict] = (), **scalars) -> KernelTable:
    """A kernel of one group; each step has the next one of `loads` (and of `stores`, from the last step back)."""
    first = len(steps) - len(stores)
    step_rows = np.concatenate([
        rows_of(STEP, 1, **{"repeats": 1, "loads": int(i < len(loads)), "first_load": i if i < len(loads) else 0,
                            "stores": int(i >= first), "first_store": max(0, i - first)} | step)
        for i, step in enumerate(steps)])
    return KernelTable(
        rows_of(GROUP, 1, workgroups=workgroups, steps=len(steps)), step_rows,
        np.concatenate([np.zeros(0, LOAD), *(rows_of(LOAD, 1, **block) for block in loads)]),
        np.concatenate([np.zeros(0, STORE), *(rows_of(STORE, 1, **block) for block in stores)]), **scalars)


def few(machine: Machine, units: int, places: int) -> Machine:
    return variant(machine, gpu={"compute_units": units, "workgroups_per_cu": places})


def test_workgroups_of_a_unit_share_its_matrix_units(machine):
    table = kernel(8, [{"compute_cycles": 1000.0, "repeats": 3}], [])
    assert 12_000 <= run_table(table, few(machine, 2, 1)).ns < 12_100
    assert 12_000 <= run_table(table, few(machine, 2, 4)).ns < 12_100, "side by side on one unit is no faster"
    assert 3000 <= run_table(table, few(machine, 8, 1)).ns < 3100


def test_workgroups_of_a_unit_share_its_port(machine):
    """64 KB each; whether two places of one unit or one place after the other, the port is the limit."""
    block = {"base": 0, "pitch": 4096, "rows": 16, "bytes": 4096, "workgroup_stride": MB}
    table = kernel(4, [{}], [block])
    least = 4 * 65536 / machine.gpu.cu_bytes_per_ns
    together = run_table(table, few(machine, 1, 4)).ns
    assert least <= together < 1.1 * least + 1000
    assert run_table(table, few(machine, 4, 1)).ns < 0.5 * together


@pytest.mark.parametrize("ahead, overlaps", [(1, False), (2, True)])
def test_steps_are_loaded_as_far_ahead_as_there_are_buffers(machine, ahead, overlaps):
    steps, load, compute = 20, 8192 / machine.gpu.cu_bytes_per_ns, 300.0
    block = {"base": 0, "pitch": 512, "rows": 16, "bytes": 512, "step_stride": 8192}
    table = kernel(1, [{"repeats": steps, "compute_cycles": compute}], [block], ahead=ahead)
    taken = run_table(table, machine).ns
    trip = machine.llc.hit_latency_ns  # of each step's last line, and more on a miss
    if overlaps:
        assert taken < steps * (load + trip + compute)
    else:
        assert taken > steps * (load + trip + compute)


@pytest.mark.parametrize(("working", "by_turn", "wanted"), [
    (3, True, [[0, 3, 6], [1, 4], [2, 5]]), (3, False, [[0], [1, 3, 4, 5, 6], [2]]),
    (2, True, [[0, 2, 4, 6], [1, 3, 5]])])
def test_units_take_workgroups_by_turn_or_when_they_are_free(machine, working, by_turn, wanted):
    """The first and third of seven take as long as all the others; a dead unit has no turn."""
    groups = rows_of(GROUP, 7, workgroups=1, first_step=np.arange(7), steps=1)
    steps = rows_of(STEP, 7, repeats=1, compute_cycles=[5000.0, 100.0, 5000.0, 100.0, 100.0, 100.0, 100.0])
    table = KernelTable(groups, steps, np.zeros(0, LOAD), np.zeros(0, STORE), by_turn=by_turn)
    sim = build.table_sim(few(machine, 3, 1), table)
    set_condition(sim.kernel, 0, Condition(working, 1.0))
    run, had = Lockstep(sim), [[] for _ in range(working)]
    while run.advance(10) == RUNNING:
        for unit, workgroups in enumerate(had):
            now = int(sim.kernel.state.wg[0, unit])
            if now >= 0 and now not in workgroups:
                workgroups.append(now)
    assert had == wanted


def test_listed_rows_are_what_is_read(machine):
    """Rows 7, 3, 7, 100: three lines of 128 bytes, each once."""
    block = {"base": MB, "pitch": 128, "rows": 4, "bytes": 128, "row_list": 1}
    table = kernel(1, [{}], [block], row_lists=np.array([999, 7, 3, 7, 100]))
    run = Lockstep(build.table_sim(machine, table))
    assert run.advance(1_000_000) == DONE
    assert sorted(int(line) for line in run.sim.llc.tag[0].ravel() if line >= 0) == [
        MB // 128 + row for row in (3, 7, 100)]
    assert run.sim.mem.total_bytes[0, 0] == 3 * 128


@pytest.mark.parametrize("route", [Route.CACHE, Route.MEMORY])
def test_steps_in_the_middle_store_too(machine, route):
    """Every turn of every step stores a block of its own; all of it reaches DRAM."""
    loads = [{"base": 0, "pitch": 256, "rows": 4, "bytes": 256, "step_stride": 1024}]
    stores = [{"base": MB + i * 65536, "pitch": 128, "rows": 4, "bytes": 128, "step_stride": 512,
               "workgroup_stride": 8192, "route": route} for i in range(2)]
    table = kernel(5, [{"repeats": 3, "compute_cycles": 10.0}, {"compute_cycles": 0.0}], loads, stores, ahead=2)
    found = run_table(table, machine)
    assert table.bytes_stored() == 5 * (3 + 1) * 512 == found.dram["gemm"].write


def test_a_phase_begins_when_the_one_before_is_over(machine):
    """Two phases of 1,000 cycles, of one workgroup each, on units that could run both at once."""
    groups = rows_of(GROUP, 2, workgroups=1, steps=1, phase=[0, 1])
    steps = rows_of(STEP, 1, repeats=1, compute_cycles=1000.0)
    none = np.zeros(0, LOAD), np.zeros(0, STORE)
    for persistent in (False, True):
        together = KernelTable(rows_of(GROUP, 1, workgroups=2, steps=1), steps, *none, persistent=persistent)
        apart = KernelTable(groups, steps, *none, arrivals=np.zeros(2, np.int64), persistent=persistent)
        assert 1000 <= run_table(together, machine).ns < 1100
        assert 2000 <= run_table(apart, machine).ns < 2200


def signalling(**changed) -> KernelTable:
    """One workgroup of 5000 cycles, whose end and another one's set a signal; one that waits for it has 100."""
    groups = rows_of(GROUP, 3, workgroups=1, first_step=[0, 1, 2], steps=1)
    waits = np.zeros(3, WAIT)
    waits[2] = 1, 1
    tables = {"waits": waits, "raises": np.array([1, 1, 0]), "signals": np.array([2])} | changed
    return KernelTable(groups, rows_of(STEP, 3, repeats=1, compute_cycles=[5000.0, 10.0, 100.0]), np.zeros(0, LOAD),
                       np.zeros(0, STORE), **tables)


@pytest.mark.parametrize("persistent", [False, True])
def test_a_workgroup_polls_until_its_signal_is_set(machine, persistent, monkeypatch):
    """All three have places at once; it sees the flag at most one read after it is set, and reads it once at least."""
    found = run_table(signalling(persistent=persistent), machine)
    poll = machine.llc.hit_latency_ns
    assert 5100 < found.ns <= 5100 + poll + 10
    polled = found.unit_cycles[STATES.index("poll")]
    assert 5000 - poll < polled <= 5000 + poll + 10
    early = run_table(signalling(persistent=persistent, signals=np.array([1])), machine)
    assert poll <= early.unit_cycles[STATES.index("poll")] <= 2 * poll + 10
    never = signalling(persistent=persistent, signals=np.array([3]))
    with pytest.raises(KernelError, match="signal 1 is set at 3, and 2 are counted for it: it would never be set"):
        run_table(never, machine)
    monkeypatch.setattr(build, "check_alone", lambda *arguments: None)
    with pytest.raises(SimulationError, match="did not move"):
        run_table(never, machine)


def test_time_in_tasks_that_add_is_their_own(machine):
    """It is accounted apart from computing and polling."""
    found = run_table(signalling(adding=1), machine)
    assert 100 <= found.unit_cycles[ACCOUNTS.index("adding")] <= 110
    assert found.unit_cycles[STATES.index("compute")] == pytest.approx(5010, abs=4)


class LooksAtPlaces(NamedTuple):
    """A watcher that lets no unit be quiet."""

    skipped: np.ndarray

    def before_edge(self, sim, kernel, hardware, gpu, now):
        pass

    def after_edge(self, sim, kernel, hardware, gpu, now):
        quiet = kernel.state.quiet
        for unit in range(quiet.shape[1]):
            self.skipped[0] += quiet[gpu, unit] > now + 1
            quiet[gpu, unit] = 0


@pytest.mark.parametrize("make", [
    lambda machine: build.make_sim(Plan(few(machine, 8, 2), gemm_workload("1024x512x256", 4))),
    lambda machine: build.make_sim(Plan(
        variant(few(machine, 8, 2), llc={"slices": 64, "slice_queue_loads": 8}), gemm_workload("1024x512x256", 4))),
    lambda machine: collective_sim(few(machine, 4, 2), 1 << 18, 4, "reduce-scatter", True),
    lambda machine: build.table_sim(few(machine, 1, 4), replace(
        signalling(persistent=True), loads=rows_of(LOAD, 3, base=[0, MB, 2 * MB], pitch=4096, rows=16, bytes=4096),
        steps=rows_of(STEP, 3, repeats=3, compute_cycles=[50.0, 10.0, 100.0], loads=1, first_load=[0, 1, 2]))),
], ids=["gemm", "slices", "copies", "signals"])
def test_a_unit_that_only_sends_is_served_as_if_its_places_were_looked_at(machine, make):
    quick, whole, skipped = Lockstep(make(machine)), Lockstep(make(machine)), np.zeros(1, np.int64)
    whole.observers.append(Watches(LooksAtPlaces(skipped)))
    assert quick.advance(1_000_000) == DONE == whole.advance(1_000_000)
    assert quick.now == whole.now and skipped[0] > 100
    for name, one, other in zip(UnitState._fields, quick.sim.kernel.state, whole.sim.kernel.state):
        assert name == "quiet" or (one == other).all(), name
    assert (quick.sim.mem.served == whole.sim.mem.served).all()
    assert (quick.sim.mem.waited == whole.sim.mem.waited).all()


def test_what_needs_other_hardware_is_refused(machine):
    for column, value in (("route", Route.MAPPED), ("region", 1)):
        table = kernel(1, [{}], [], [{"base": 0, "pitch": 64, "rows": 1, "bytes": 64, column: value}])
        with pytest.raises(KernelError, match="needs Track & Trigger"):
            run_table(table, machine)


def test_a_kernel_of_ones_own_from_the_command_line(machine, tmp_path, error_of, json_of):
    """A GEMM by its sizes and the same GEMM as a file take equally long; what cannot be is one line."""
    by_size = json_of("run", "--operator", "gemm", "--gemm", "512x512x96")
    from t3sim.workload.workloads import gemm_workload
    workload = with_its_kernel(machine, gemm_workload("512x512x96", 2))
    build.gemm_operator(machine, workload, build.make_tiling(machine, workload)).work(0).save(
        tmp_path / "own.npz")
    by_file = json_of("run", "--kernel", str(tmp_path / "own.npz"))
    assert by_file["kernel_ns"] == by_size["kernel_ns"] > 0 and by_file["dram_bytes"] == by_size["dram_bytes"]

    for arguments in (["--operator", "gemm"], ["--operator", "conv", "--gemm", "8x8x8"],
                      ["--operator", "gemm", "--gemm", "512x512x96", "--devices", "4"],
                      ["--kernel", str(tmp_path / "none.npz")], ["--kernel", "a.npz", "--operator", "gemm"]):
        error_of("run", *arguments)
