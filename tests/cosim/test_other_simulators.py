"""Other simulators beside the compiled RTL: the same outputs of the same inputs, or no speed at all."""

from itertools import chain, repeat

import numpy as np
import pytest
from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from t3sim.base.errors import Failure
from t3sim.cosim.other_simulators import activity_stimulus, compare_simulators
from t3sim.rtl.blocks import BLOCKS
from t3sim.rtlsim.port_map import Port, PortMap
from t3sim.study.results import BenchResult
from t3sim.testbenches.geometries import GEOMETRIES
from tests.support.tiers import on_one

pytestmark = pytest.mark.builds_rtl


class Counter(wiring.Component):
    enable: In(1)
    count: Out(70)

    def __init__(self, step: int) -> None:
        self._step = step
        super().__init__()

    def elaborate(self, platform) -> Module:
        m = Module()
        with m.If(self.enable):
            m.d.sync += self.count.eq(self.count + self._step)
        return m


def stimuli(ports: PortMap) -> dict[str, np.ndarray]:
    return {f"{share:.0%}": activity_stimulus(ports, 300, share, 1) for share in (0.0, 0.3, 1.0)}


@pytest.mark.parametrize(("block", "others"), on_one([
    ("coalescer", ("cxxrtl", "amaranth")), ("coalescer", ("verilator",)), ("memory_codec", ("verilator", "cxxrtl")),
    ("merge_table", ("verilator", "cxxrtl")), ("memory_channel", ("verilator", "cxxrtl"))]))
def test_all_agree_and_have_a_speed(block, others):
    """Of a block without a clock, too, and of ports of more than 64 bits."""
    speeds = list(compare_simulators(lambda: BLOCKS[block](GEOMETRIES["small"]), block, stimuli, others))
    assert [simulator for simulator, _, _ in speeds] == ["rtl", *others] and all(build > 0 for _, build, _ in speeds)
    assert all(speed > 0 for _, _, by_stimulus in speeds for speed in by_stimulus.values())
    assert len({tuple(by_stimulus) for _, _, by_stimulus in speeds}) == 1


@pytest.mark.parametrize("other", on_one(BenchResult.SIMULATORS, "cxxrtl", "amaranth"))
def test_one_that_differs_is_seen(other):
    """The first component is the compiled one; the other simulator gets one that counts otherwise."""
    steps = chain([1], repeat(2))
    with pytest.raises(Failure, match=other):
        list(compare_simulators(lambda: Counter(next(steps)), "counter", stimuli, [other]))


def test_as_many_inputs_change_as_asked_for():
    ports = PortMap("top", {"a": Port("a", "a", 40, 0), "b": Port("b", "b", 100, 1), "rst": Port("rst", "rst", 1, 3)},
                    {}, "clk")
    for share in (0.0, 0.03, 0.3, 1.0):
        stimulus = activity_stimulus(ports, 20_000, share, 1)
        assert not stimulus[:, 3].any() and not (stimulus[:, 0] >> np.uint64(40)).any()
        changes = (stimulus[1:] != stimulus[:-1]).mean(axis=0)
        assert np.allclose(changes[:3], share, atol=0.012)
        assert ((stimulus[1:, 1] != stimulus[:-1, 1]) == (stimulus[1:, 2] != stimulus[:-1, 2])).all()
