"""The queues between units: what has no room is refused, not overwritten."""

import pytest

from sim_models.compiled.jit import compiled
from sim_models.fabric import queues
from sim_models.machine import load_machine
from sim_models.runs.build import make_sim
from sim_models.workloads import gemm_workload
from tests.models.variants import variant


@compiled
def push(queue, row, number):
    queues.push_at(queue, row, 0, number, 0)


def test_a_full_queue_refuses_a_request():
    queue = queues.timed_queue(2, 4)
    for number in range(4):
        push(queue, 1, number)
    with pytest.raises(OverflowError, match="full"):
        push(queue, 1, 4)
    assert queue.lo[1].tolist() == [0, 1, 2, 3] and queue.count.tolist() == [0, 4]


@pytest.mark.parametrize("lines", [2048, 65535])
def test_what_dma_has_read_has_room_whatever_the_machine_allows(lines):
    machine = variant(load_machine(), dma={"outstanding_lines": lines})
    assert make_sim(machine, gemm_workload("2048x1024x64", 4)).mem.dma_returns.lo.shape[1] >= lines
