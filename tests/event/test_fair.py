"""Fair shares against what can be worked out by hand, and against the definition of max-min fairness."""

import numpy as np
import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from t3sim.analytic.fair import fair_rates
from t3sim.event.flow.dma import Fabric


def rates_of(capacity, uses):
    """`uses`: per flow a dictionary of resource and weight."""
    flow = np.array([place for place, used in enumerate(uses) for _ in used], np.int64)
    resource = np.array([name for used in uses for name in used], np.int64)
    weight = np.array([value for used in uses for value in used.values()], float)
    return fair_rates(np.array(capacity, float), flow, resource, weight, len(uses))


def test_flows_of_one_link_share_it():
    assert rates_of([9], [{0: 1}] * 3) == pytest.approx([3, 3, 3])


def test_who_is_held_elsewhere_leaves_its_share_to_the_others():
    assert rates_of([10, 2], [{0: 1, 1: 1}, {0: 1}]) == pytest.approx([2, 8])


def test_a_flow_that_takes_a_resource_twice_fills_it_twice_as_fast():
    assert rates_of([9], [{0: 2}, {0: 1}]) == pytest.approx([3, 3])


def test_a_flow_over_nothing_is_not_held():
    assert np.isinf(rates_of([1], [{}])[0])


@pytest.mark.long
@settings(max_examples=200, deadline=None)
@given(st.data())
def test_max_min(data):
    """Nobody can get more without taking it from somebody who has no more.

    Each flow uses a resource that is full and on which no other is faster.
    """
    resources = data.draw(st.integers(1, 5))
    capacity = data.draw(st.lists(st.floats(0.5, 100), min_size=resources, max_size=resources))
    uses = data.draw(st.lists(st.dictionaries(st.integers(0, resources - 1), st.sampled_from([1.0, 2.0, 3.0]),
                                              min_size=1), min_size=1, max_size=8))
    rates = rates_of(capacity, uses)
    load = np.zeros(resources)
    for rate, used in zip(rates, uses):
        for name, weight in used.items():
            load[name] += rate * weight
    assert (load <= np.array(capacity) * (1 + 1e-9)).all()
    for rate, used in zip(rates, uses):
        held = [name for name in used if load[name] >= capacity[name] * (1 - 1e-9)
                and all(other <= rate * (1 + 1e-9) for other, theirs in zip(rates, uses) if name in theirs)]
        assert held


def test_flows_that_come_and_go():
    """One alone for 10 ns, two for the rest: 100 bytes at 4 B/ns, then half of it."""
    env = simpy.Environment()
    fabric = Fabric(env, {"link": 4.0})
    ends = {}

    def flow(name, start, size):
        yield env.timeout(start)
        yield fabric.move(size, {"link": 1.0})
        ends[name] = env.now

    env.process(flow("first", 0, 100))
    env.process(flow("second", 10, 20))
    env.run()
    assert ends["second"] == pytest.approx(20)  # 20 bytes at 2 B/ns
    assert ends["first"] == pytest.approx(10 + 10 + (100 - 40 - 20) / 4)
    assert fabric.moved == {"link": 120}


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 100), st.floats(1, 1000)), min_size=1, max_size=12))
def test_a_link_is_never_idle_while_somebody_waits(flows):
    """The last flow over one link ends when a queue that never idles would."""
    env = simpy.Environment()
    fabric = Fabric(env, {"link": 5.0})

    def flow(start, size):
        yield env.timeout(start)
        yield fabric.move(size, {"link": 1.0})

    for start, size in flows:
        env.process(flow(start, size))
    env.run()
    free = 0.0
    for start, size in sorted(flows):
        free = max(free, start) + size / 5.0
    assert env.now == pytest.approx(free, rel=1e-6)


def test_nothing_takes_no_time():
    env = simpy.Environment()
    fabric = Fabric(env, {"link": 1.0})
    assert fabric.move(0, {"link": 1.0}).triggered
