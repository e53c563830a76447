"""A GEMM behind an all-gather as in Flux: which signals stand for which rows, what waits for them, and for how long."""


from dataclasses import replace

import numpy as np
import pytest

from t3sim.base.console import output_console
from t3sim.base.errors import BadInput
from t3sim.base.line import LINE_BYTES
from t3sim.machine import load_machine
from t3sim.machine.topologies import named_topology
from t3sim.mechanisms.flux.gathering import Arrivals, pushed_rows, run_gathering, waiting_gemm
from t3sim.mechanisms.flux.storing import FluxOptions, Owners, tuned
from t3sim.runs import build
from t3sim.runs.exchange import fused_with
from t3sim.runs.plan import Plan
from t3sim.study.report import print_run
from t3sim.study.techniques import kernels_of, run_sublayer
from t3sim.workload.workloads import gemm_workload
from tests.mechanisms.test_flux import Unmirrored

pytestmark = [pytest.mark.builds_loops, pytest.mark.slow]

N = 4
SHAPE = gemm_workload("4096x2048x512", N)
SWITCH = named_topology(f"switch:{N}")
EXCHANGE = fused_with("ag-gemm", "switch")


@pytest.fixture(scope="module")
def machine():
    return load_machine()


@pytest.mark.parametrize("order, pieces", [("shifted", 1), ("shifted", 3), ("same", 2)])
@pytest.mark.parametrize("shape, ranks", [("1500x300x64", 3), ("1024x256x128", 4)])
def test_every_row_comes_once_under_the_signal_that_its_tiles_wait_for(machine, shape, ranks, order, pieces):
    """Lines of a signal are those that set it, and a tile's signals have all its rows but the rank's own."""
    workload, options = gemm_workload(shape, ranks), Unmirrored(order, pieces)
    gemm = build.gemm_operator(machine, workload, build.make_tiling(machine, workload))
    rows = Owners(workload.m, ranks, gemm.b.pitch, gemm.b.base, 0)
    everywhere = [Arrivals(rows, rank, options) for rank in range(ranks)]
    came = [dict[int, int]() for _ in range(ranks)]
    for rank in range(ranks):
        table = pushed_rows(everywhere, rank)
        for group in table.groups:
            load, store = table.loads[group["first_step"]], table.stores[group["first_step"]]
            for member in range(group["workgroups"]):
                for line in range(store["rows"]):
                    at = int(store["base"] + member * store["workgroup_stride"] + line * LINE_BYTES)
                    assert at == load["base"] + member * load["workgroup_stride"] + line * LINE_BYTES
                    target = came[(rank + 1 + store["peer"]) % ranks]
                    assert at not in target and rows.of(np.int64(at)) == rank
                    target[at] = int(store["id"])
    for rank in range(ranks):
        table = waiting_gemm(gemm, everywhere[rank])
        assert np.bincount(list(came[rank].values()), minlength=1 + len(table.signals))[1:].tolist() == (
            table.signals.tolist())
        for group, wait in zip(table.groups, table.waits):
            load = table.loads[table.steps["first_load"][group["first_step"]] + 1]  # of the activations
            needed = {came[rank].get(int(load["base"] + row * load["pitch"])) for row in range(load["rows"])} - {None}
            assert needed <= set(range(wait["first"], wait["last"] + 1)) and bool(needed) == bool(wait["last"])
        if order == "shifted":
            assert (np.diff(table.waits["last"]) >= 0).all(), "tiles come as their rows do"


def test_tiles_wait_for_the_last_rows_and_nothing_else(machine):
    """Its end is the last rows' arrival and what is left to compute; with fast links, the GEMM's own."""
    link_bound = gemm_workload("4096x512x2048", N)
    ran = run_gathering(machine, link_bound, FluxOptions(), SWITCH)
    alone = run_sublayer(Plan(machine, link_bound), ("sequential",)).baseline.gemm_ns
    pushed = link_bound.activation_bytes * (N - 1) / N / machine.link.bandwidth_gb_per_s
    assert pushed < ran.collective_end < pushed + N * machine.collective.kernel_launch_ns
    assert 0.9 * alone < ran.cycles - ran.collective_end < alone + 2000, "64 tiles are one wave: a tile takes all of it"
    fast = machine.model_copy(update={"link": replace_link(machine, 5000.0)})
    assert run_gathering(fast, SHAPE, FluxOptions(), SWITCH).cycles < 1.1 * run_sublayer(
        Plan(fast, SHAPE), ("sequential",)).baseline.gemm_ns


def replace_link(machine, bandwidth_gb_per_s: float):
    return machine.link.model_copy(update={"bandwidth_gb_per_s": bandwidth_gb_per_s, "latency_ns": 1.0,
                                           "egress_buffer_bytes": 1 << 22})


def test_one_gpu_stands_for_all(machine):
    """Representative GPU and every GPU: equal bytes, times within 2 %."""
    one, every = (run_gathering(machine, SHAPE, kind(pieces=2), SWITCH) for kind in (FluxOptions, Unmirrored))
    assert every.cycles == pytest.approx(one.cycles, rel=0.02)
    assert every.dram == one.dram and one.dram["ag"].write == SHAPE.activation_bytes * (N - 1) // N


def test_bytes_losses_and_the_best_choice(machine, capsys):
    """Bytes are the closed form's, losses add up, and the fastest number of communication tiles is chosen."""
    options = tuned(True, SHAPE.m // N)
    assert options == (*(FluxOptions("shifted", pieces) for pieces in (1, 2, 4, 8, 16)), FluxOptions("same"))
    plan = Plan(EXCHANGE.hardware(machine, SHAPE), SHAPE, exchange=EXCHANGE)
    each = [run_sublayer(replace(plan, options={"flux": tries}), ("sequential", "flux"))
            for tries in (options[:1], options[1:2], options[:2])]
    times = [one.techniques["flux"].total_ns for one in each]
    details = each[2].techniques["flux"].to_json()["details"]
    assert times[2] == min(times[:2]) == min(one["ns"] for one in details["tried"])
    assert details["choice"] == {"order": "shifted", "pieces": 1 + times.index(times[2])}
    print_run(each[2], output_console())
    assert "Choices of flux" in capsys.readouterr().out
    for found in each:
        flux = found.techniques["flux"]
        assert sum(flux.loss_ns.values()) == pytest.approx(flux.total_ns - found.baseline.gemm_ns, abs=1e-6)
        assert flux.streams_bytes["ag_write"] == flux.streams_bytes["ag_read"] == SHAPE.activation_bytes * (N - 1) // N
        assert flux.loss_ns["flags_polled"] > 0 and flux.total_ns < found.baseline.total_ns


def test_what_cannot_be_is_refused(error_of):
    with pytest.raises(BadInput, match="it needs exchange.topology = switch"):
        kernels_of("flux", Plan(machine, SHAPE, exchange=fused_with("ag-gemm")))
    rows = Owners(16, 4, 256, 0, 0)
    with pytest.raises(BadInput, match="flux.pieces = 5 of 4 rows is not possible"):
        Arrivals(rows, 0, FluxOptions(pieces=5))
    base = ["run", "--gemm", "1024x512x64", "--devices", "4", "--topology", "switch", "--technique"]
    for arguments, words in ((["flux", "--flux-pieces", "2"], "--flux-pieces 2 cuts what an all-gather brings"),
                             (["flux", "--tune", "--flux-order", "same"], "--tune tries all choices"),
                             (["t3", "--tune"], "--tune is for technique flux"),
                             (["flux", "--operator", "ag-gemm", "--flux-pieces", "0"], "1 to 1024"),
                             (["flux", "--operator", "ag-gemm", "--flux-transfer", "pull"], "needs --level event")):
        assert words in error_of(*base, *arguments)
