"""Tokens' exchanges alone: every GPU moves its own uneven share, in little more than the fullest link takes."""

from dataclasses import replace

import numpy as np
import pytest

from t3sim.machine import load_machine
from t3sim.runs.exchange import fused_with
from t3sim.runs.kernels import PACKED, ExpertsAlone, simulate
from t3sim.runs.program_kernels import combining_passes, uneven_passes
from t3sim.workload.operators.kernel_table import Route
from t3sim.workload.workloads import experts_workload

MACHINE = load_machine()
PARTS = np.array([[4, 1, 0], [2, 2, 5], [3, 0, 7]])


def test_passes_are_as_long_as_what_each_peer_gets():
    plans = uneven_passes(PARTS, 128, 0, 1 << 20)
    for rank, passes in enumerate(plans):
        others = [(rank + hop) % 3 for hop in (1, 2)]
        assert [one.size_bytes for one in passes] == [128 * PARTS[rank, to] for to in others]
        assert [one.arrivals for one in passes] == [0, 2 * PARTS[others, rank].sum()]
        assert [one.concurrent for one in passes] == [False, True], "all peers' at once"
        assert all(one.route is Route.PEER for one in passes)
    added = combining_passes(PARTS, 128, 3, 0, 1 << 20)
    assert [passes[:-1] for passes in added] == plans
    assert [passes[-1].size_bytes for passes in added] == [128 * count // 3 for count in PARTS.sum(axis=0)]
    assert all(len(passes[-1].sources) == 3 for passes in added)


def test_rows_that_are_no_lines_begin_on_one():
    passes = uneven_passes(np.array([[0, 3], [1, 0]]), 40, 0, 1 << 20)
    assert [(one.sources, one.size_bytes, one.arrivals) for one, in passes] == [((128,), 128, 1), ((0,), 64, 2)]


@pytest.mark.builds_loops
@pytest.mark.parametrize("topology", ["switch", "full"])
@pytest.mark.parametrize("zipf", [0.0, 1.2])
def test_a_dispatch_reads_and_writes_what_crosses_and_uses_all_links(zipf, topology):
    workload = experts_workload("1024x256x1024", 4, "16x2", zipf, 1, first=True)
    ran = simulate(ExpertsAlone(fused_with("moe-dispatch", topology)), MACHINE, workload)
    row, between = workload.k * workload.format.bytes, workload.between
    moved = ran.dram["dispatch"]
    assert moved.read == row * (between[0].sum() - between[0, 0])
    assert moved.write == row * (between[:, 0].sum() - between[0, 0])
    sent = between - np.diag(np.diag(between))
    fullest = sent.max() * 3 if topology == "full" else max(sent.sum(axis=0).max(), sent.sum(axis=1).max())
    least = row * fullest / MACHINE.link.bandwidth_gb_per_s
    assert least < ran.exchange_ns < 1.15 * least


@pytest.mark.builds_loops
@pytest.mark.parametrize("dtype, read", [("bf16", 2 * 1024), ("e4m3", 2 * 1056)])
def test_packing_reads_each_token_once_and_stores_it_for_each_expert(dtype, read):
    workload = replace(experts_workload("4096x256x1024", 4, "16x3", 0.6, 1, first=True), dtype=dtype)
    ran, own = simulate(PACKED, MACHINE, workload), 1024
    assert ran.dram == {"packing": (own * read, own * 3 * workload.exchanged_elements * workload.format.bytes)}
    least = sum(ran.dram["packing"]) / MACHINE.dram_peak_bytes_per_ns
    assert least < ran.ns - MACHINE.collective.kernel_launch_ns < 2 * least, "at least half of memory's peak"
    with pytest.raises(TypeError, match="tokens are packed before they are dispatched"):
        simulate(PACKED, MACHINE, experts_workload("1024x256x1024", 4, "16x3"))
