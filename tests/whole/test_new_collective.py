"""A collective, a topology and an operator of a user's own: a file each, run with real numbers on every GPU's RTL."""

import importlib.util
import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from t3sim.cli import main
from t3sim.collectives.schedule import ScheduleError
from t3sim.runs.data_mode import run_data_mode
from t3sim.runs.operators import make_operator
from t3sim.runs.plan import Plan, Policy
from t3sim.testbenches.soak import machine
from t3sim.workload.operators.kernel_table import KernelError
from t3sim.workload.workloads import gemm_workload

pytestmark = [pytest.mark.builds_rtl, pytest.mark.builds_loops, pytest.mark.slow]

#: A ring that leaps over two GPUs at a time; in a reduce-scatter chunk c ends at the GPU after the usual one.
COLLECTIVE = '''
from t3sim.collectives import Op, Program
from t3sim.collectives.program import all_ranks, in_turn


def leaping(collective, ranks):
    """Build a reduce-scatter or an all-gather whose chunks leap three ranks at a time."""
    if collective == "ag":
        hops = ((chunk, (chunk + 3 * hop) % ranks, (chunk + 3 + 3 * hop) % ranks, Op.COPY)
                for hop in range(ranks - 1) for chunk in range(ranks))
        return Program(ranks, ranks, in_turn(hops),
                       start={(chunk, chunk): frozenset({chunk}) for chunk in range(ranks)},
                       goal={(rank, chunk): frozenset({chunk}) for rank in range(ranks) for chunk in range(ranks)})
    hops = ((chunk, (chunk + 4 + 3 * hop) % ranks, (chunk + 7 + 3 * hop) % ranks, Op.ADD)
            for hop in range(ranks - 1) for chunk in range(ranks))
    program = Program(ranks, ranks, in_turn(hops),
                      start={(rank, chunk): frozenset({rank}) for rank in range(ranks) for chunk in range(ranks)},
                      goal={((chunk + 1) % ranks, chunk): all_ranks(ranks) for chunk in range(ranks)})
    return program
'''

TOPOLOGY = '''
from t3sim.machine.topologies import Link, Topology


def chords(nodes):
    """Build links from each node to the third after it."""
    return Topology("chords", nodes, tuple(Link(node, (node + 3) % nodes) for node in range(nodes)))
'''

#: An outer product of two vectors: no loop over K. GPU d's lie d megabytes on, and it computes d times as long.
OPERATOR = '''
from dataclasses import dataclass

import numpy as np

from t3sim.workload.operators.kernel_table import GROUP, LOAD, STEP, KernelTable, rows_of
from t3sim.workload.operators.operator import output_stores


@dataclass(frozen=True)
class Outer:
    """A column vector times a row vector, of which each workgroup loads its tile's parts."""

    tiling: object
    base: int

    def work(self, device):
        tiling, tiles = self.tiling, np.arange(self.tiling.tiles)
        size, at = tiling.element_bytes, (64 + device) << 20
        column = rows_of(LOAD, len(tiles), base=at + tiling.first_row * size, rows=1, bytes=tiling.rows * size)
        row = rows_of(LOAD, len(tiles), base=at + (1 << 19) + tiling.first_column * size, rows=1,
                      bytes=tiling.columns * size)
        stores = tiling.wf_tiles
        steps = rows_of(STEP, len(tiles), repeats=1, compute_cycles=20.0 * (device + 1), first_load=2 * tiles, loads=2,
                        first_store=np.cumsum(stores) - stores, stores=stores)
        groups = rows_of(GROUP, len(tiles), workgroups=1, first_step=tiles, steps=1)
        return KernelTable(groups, steps, np.stack([column, row], axis=1).ravel(), output_stores(tiling, self.base))


def outer(machine, workload, tiling, base):
    """Make the operator of a run."""
    return Outer(tiling, base)
'''


def load(folder: Path, name: str, text: str):
    path = folder / f"{name}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def leaping(tmp_path):
    return partial(load(tmp_path, "leaping", COLLECTIVE).leaping, "rs")


@pytest.fixture
def chords(tmp_path):
    return load(tmp_path, "chords", TOPOLOGY).chords


@pytest.fixture
def outer(tmp_path):
    return load(tmp_path, "outer", OPERATOR).outer


@pytest.mark.parametrize(("shape", "staged"), [("96x160x24", False), ("100x131x24", True)])
def test_a_collective_of_ones_own_is_reduced_bit_for_bit(leaping, chords, shape, staged, seed):
    leaping(4).check()
    options = dict(seed=seed, stage_first_chunk=staged, hold_back=0.1, link_jitter_cycles=50, collective=leaping,
                      topology=chords)
    result = run_data_mode(Plan(machine("ring_tiny"), gemm_workload(shape, 4), **options), Policy())
    m, n, _ = map(int, shape.split("x"))
    assert result.elements == m * n and result.reduced.shape == (m, n)


def test_a_collective_needs_a_way_that_cannot_stop(leaping):
    """Over two links of a ring each: what waits for the next link may hold up what that one waits for."""
    with pytest.raises(ScheduleError, match=r"topology 'ring': the links .* could wait for each other in a circle"):
        run_data_mode(Plan(machine("ring_tiny"), gemm_workload("96x160x24", 5), collective=leaping), Policy())


@pytest.mark.parametrize("own_collective", [False, True])
def test_an_operator_of_ones_own_is_reduced_bit_for_bit(outer, leaping, chords, own_collective, seed):
    options = dict(seed=seed, hold_back=0.1, operator=outer)
    if own_collective:
        options |= dict(collective=leaping, topology=chords)
    gemm, workload = options | {"operator": make_operator}, gemm_workload("100x131x24", 4)
    own, usual = (run_data_mode(Plan(machine("ring_tiny"), workload, **one), Policy()) for one in (options, gemm))
    assert own.elements == usual.elements and own.packets == usual.packets and own.triggers == usual.triggers
    assert own.cycles != usual.cycles


def test_an_operator_that_makes_another_output_is_refused(outer):
    """A tile too few, and a wavefront's columns stored elsewhere."""
    workload = gemm_workload("96x160x24", 4)

    def fewer(machine, workload, tiling, base):
        return outer(machine, workload, replace(tiling, n=tiling.n - tiling.tile_n), base)

    def elsewhere(machine, workload, tiling, base):
        return outer(machine, workload, tiling, base + 64)
    with pytest.raises(KernelError, match=r"^groups: an operator makes each of its \d+ tiles by a group of one w"):
        run_data_mode(Plan(machine("ring_tiny"), workload, operator=fewer), Policy())
    with pytest.raises(KernelError, match=r"^stores\[0\]: base=64 is not that of the output's wavefront tile there: 0"):
        run_data_mode(Plan(machine("ring_tiny"), workload, operator=elsewhere), Policy())


@pytest.fixture
def parts(tmp_path) -> str:
    """Return a file with all three."""
    path = tmp_path / "parts.py"
    path.write_text(COLLECTIVE + TOPOLOGY + OPERATOR)
    return str(path)


def test_all_three_are_run_traced_and_explained_by_reference(parts, tmp_path, capsys):
    small = str(Path(__file__).parents[1] / "data" / "machines" / "ring_small.toml")
    asked = ("--gemm", "256x256x64", "--devices", "4", "--machine", small, "--operator", f"{parts}:outer-rs",
             "--topology", f"{parts}:chords", "--algorithm", f"{parts}:leaping")
    answer = tmp_path / "answer.json"
    assert main(["run", *asked, "--technique", "sequential,t3", "--json", str(answer)]) == 0
    found = json.loads(answer.read_text())
    assert found["operator"] == f"{parts}:outer-rs"
    assert found["techniques"]["t3"]["phases_ns"]["gemm"] > found["techniques"]["sequential"]["phases_ns"]["gemm"] > 0
    assert main(["trace", *asked, "--technique", "t3", "--out", str(tmp_path / "trace")]) == 0
    capsys.readouterr()
    assert main(["explain", str(tmp_path / "trace"), "--wg", "0", "--wf", "0"]) == 0
    assert "upstream" not in capsys.readouterr().out


@pytest.mark.parametrize("collective", ["rs", "ag"])
def test_a_custom_collective_alone_is_right_bit_for_bit(parts, collective, tmp_path):
    answer = tmp_path / "answer.json"
    assert main(["run", "--collective", collective, "--bytes", "65536", "--devices", "4", "--values",
                 "--machine", str(Path(__file__).parents[1] / "data" / "machines" / "ring_small.toml"),
                 "--topology", f"{parts}:chords", "--algorithm", f"{parts}:leaping", "--json", str(answer)]) == 0
    assert json.loads(answer.read_text())["words_compared"] > 0
