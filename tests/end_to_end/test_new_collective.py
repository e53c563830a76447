"""A collective and a topology of a user's own: a file each, run with real numbers on every GPU's RTL."""

import importlib.util
from pathlib import Path

import pytest

from t3sim.runs.build import Options
from t3sim.runs.data_mode import run_data_mode
from t3sim.runs.policy import Policy
from t3sim.schedule import ScheduleError
from t3sim.testbenches.soak import machine
from t3sim.workloads import gemm_workload

#: A reduce-scatter along a ring that leaps over two GPUs at a time, and chunk c ends at the GPU after the usual one.
COLLECTIVE = '''
from t3sim.collectives import Op, Program
from t3sim.collectives.program import all_ranks, in_turn


def leaping(ranks):
    """Build a reduce-scatter whose chunks leap three ranks at a time; chunk c ends at rank c + 1."""
    hops = ((chunk, (chunk + 4 + 3 * hop) % ranks, (chunk + 7 + 3 * hop) % ranks, Op.ADD)
            for hop in range(ranks - 1) for chunk in range(ranks))
    program = Program(ranks, ranks, in_turn(hops),
                      start={(rank, chunk): frozenset({rank}) for rank in range(ranks) for chunk in range(ranks)},
                      goal={((chunk + 1) % ranks, chunk): all_ranks(ranks) for chunk in range(ranks)})
    return program
'''

TOPOLOGY = '''
from t3sim.topologies import Link, Topology


def chords(nodes):
    """Build links from each node to the third after it."""
    return Topology("chords", nodes, tuple(Link(node, (node + 3) % nodes) for node in range(nodes)))
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
    return load(tmp_path, "leaping", COLLECTIVE).leaping


@pytest.fixture
def chords(tmp_path):
    return load(tmp_path, "chords", TOPOLOGY).chords


@pytest.mark.parametrize(("shape", "staged"), [("96x160x24", False), ("100x131x24", True)])
def test_a_collective_of_ones_own_is_reduced_bit_for_bit(leaping, chords, shape, staged, seed):
    leaping(4).check()
    options = Options(seed=seed, stage_first_chunk=staged, hold_back=0.1, link_jitter_cycles=50, collective=leaping,
                      topology=chords)
    result = run_data_mode(machine("ring_tiny"), gemm_workload(shape, 4), Policy(), options)
    m, n, _ = map(int, shape.split("x"))
    assert result.elements == m * n and result.reduced.shape == (m, n)


def test_a_collective_needs_a_way_that_cannot_stop(leaping):
    """Over two links of a ring each: what waits for the next link may hold up what that one waits for."""
    with pytest.raises(ScheduleError, match=r"topology 'ring': the links .* could wait for each other in a circle"):
        run_data_mode(machine("ring_tiny"), gemm_workload("96x160x24", 5), Policy(), Options(collective=leaping))
