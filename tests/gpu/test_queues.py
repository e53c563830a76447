"""The queues between units: what has no room is refused, not overwritten."""

import numpy as np
import pytest

from t3sim.base.compiled.jit import compiled
from t3sim.gpu.fabric import queues
from t3sim.machine import load_machine
from t3sim.runs.build import make_sim
from t3sim.runs.plan import Plan
from t3sim.workload.workloads import gemm_workload
from tests.support.variants import variant

pytestmark = pytest.mark.builds_loops


@compiled
def push(queue, row, number):
    queues.push_at(queue, row, 0, number, 0, 0)


def test_a_full_queue_refuses_a_request():
    queue = queues.timed_queue(2, 4)
    for number in range(4):
        push(queue, 1, number)
    with pytest.raises(OverflowError, match="full"):
        push(queue, 1, 4)
    assert queue.lo[1].tolist() == [0, 1, 2, 3] and queue.count.tolist() == [0, 4]


@compiled
def through(tags, put, taken):
    """Tags through a channel that holds three at most."""
    for at in range(len(put)):
        queues.push_tag(tags, 1, put[at])
        if at >= 2:
            taken[at - 2] = queues.pop_tag(tags, 1)


def test_tags_leave_hardware_in_the_order_in_which_they_went_in():
    tags, put = queues.tag_queue(2), np.arange(100) * 7 % 31
    taken = np.full(98, -1)
    through(tags, put, taken)
    np.testing.assert_array_equal(taken, put[:98])
    assert tags.count.tolist() == [0, 2]
    with pytest.raises(OverflowError, match="not given"):
        through(queues.tag_queue(2)._replace(count=np.array([0, -3])), put, taken)
    with pytest.raises(OverflowError, match="more requests of a stream"):
        through(queues.tag_queue(2)._replace(count=np.array([0, queues.INSIDE])), put, taken)


@pytest.mark.parametrize("stream, number", [(0, 0), (2, 16383), (3, 1 << 40)])
def test_a_tag_holds_a_stream_and_a_number(stream, number):
    tag = queues.tag_of.py_func(stream, number)
    assert (queues.stream_of.py_func(tag), queues.number_of.py_func(tag)) == (stream, number)


@pytest.mark.parametrize("lines", [2048, 65535])
def test_what_dma_has_read_has_room_whatever_the_machine_allows(lines):
    machine = variant(load_machine(), dma={"outstanding_lines": lines})
    assert make_sim(Plan(machine, gemm_workload("2048x1024x64", 4))).mem.dma_returns.lo.shape[1] >= lines
