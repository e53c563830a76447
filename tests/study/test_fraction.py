"""`fraction`: a part of each GPU for as large a part of the tokens."""

import pytest

from t3sim.base.errors import BadInput
from t3sim.machine import load_machine
from t3sim.machine.fraction import fraction_of
from t3sim.study.scenario.collective import CollectiveRequest
from t3sim.study.scenario.files import scenario_of
from t3sim.study.scenario.kernel import KernelAlone
from t3sim.study.scenario.request import layer_request
from t3sim.study.scenario.scenario import Scenario

WHOLE = load_machine()


@pytest.mark.parametrize("parts", [2, 4, 8])
def test_everything_shrinks_alike(parts):
    part = fraction_of(WHOLE, parts)
    ratios = {(section, key): getattr(getattr(WHOLE, section), key) / getattr(getattr(part, section), key)
              for section, key in (("gpu", "compute_units"), ("channels", "count"), ("dram", "channels"),
                                   ("llc", "size_bytes"), ("llc", "bandwidth_bytes_per_ns"), ("tracker", "sets"),
                                   ("link", "bandwidth_gb_per_s"), ("network", "bandwidth_gb_per_s"),
                                   ("dma", "ready_commands"))}
    assert set(ratios.values()) == {parts}
    assert part.starvation_limit_cycles == WHOLE.starvation_limit_cycles
    for section, key in (("link", "latency_ns"), ("llc", "hit_latency_ns"), ("gpu", "clock_ghz"),
                         ("dram", "queue_entries")):
        assert getattr(getattr(part, section), key) == getattr(getattr(WHOLE, section), key)
    assert part.name == f"1/{parts} of t3-table1"


def test_an_eighth_of_an_mi300x_is_a_die_and_a_stack():
    whole, part = load_machine("mi300x-t3"), fraction_of(load_machine("mi300x-t3"), 8)
    assert (part.llc.parts, part.llc.size_bytes, part.gpu.compute_units) == (1, 4 << 20, 38)
    assert (part.channels.count, part.memory_cache.size_bytes, part.dma.engines) == (16, 32 << 20, 1)
    assert part.memory_cache.sets(16) == whole.memory_cache.sets(128) == 2048
    assert part.memory_cache.bandwidth_bytes_per_ns == whole.memory_cache.bandwidth_bytes_per_ns / 8
    assert fraction_of(whole, 4).llc.parts == 2


def test_half_of_four_switches_are_two_and_a_collective_has_half_of_its_bytes():
    layer = {"collective": "rs", "devices": 8, "bytes": 800_000}
    alone = CollectiveRequest(Scenario(fraction="1/2", machine="cais-8x4-t3", layer=layer, exchange={
        "topology": "switch", "algorithm": "in-switch"}))
    assert (alone.machine.switch.planes, alone.machine.gpu.compute_units, alone.bytes) == (2, 33, 400_000)
    assert not alone.notes and fraction_of(WHOLE, 2).switch == WHOLE.switch


def test_the_layer_has_as_large_a_part_of_its_tokens():
    request = layer_request(Scenario(fraction="1/4", layer={"gemm": "4096x512x256", "devices": 4}))
    assert (request.plans[0].workload.m, request.plans[0].machine.gpu.compute_units) == (1024, 20)
    alone = KernelAlone(Scenario(fraction="1/2", layer={"operator": "gemm", "gemm": "4096x512x256"}))
    assert (alone.workload.m, alone.machine.name) == (2048, "1/2 of t3-table1")
    assert layer_request(Scenario(layer={"gemm": "4096x512x256", "devices": 4})).plans[0].machine.name == "t3-table1"


@pytest.mark.parametrize(("given", "words"), [
    ({"fraction": "1/3", "layer": {"gemm": "3072x512x256", "devices": 4}},
     r"fraction = 1/3: \[gpu\] compute_units = 80 of t3-table1 has no such part"),
    ({"fraction": "1/8", "layer": {"gemm": "4100x512x256", "devices": 4}}, "fraction = 1/8: 4100 tokens have no such"),
    ({"fraction": "0.5"}, "fraction = '0.5': 1, 1/2, 1/3 to 1/999 are allowed"),
    ({"fraction": "1/2", "level": "event"}, "fraction = 1/2 does not go with level = event"),
    ({"fraction": "1/2", "layer": {"collective": "ar", "bytes": 4096, "devices": 4}}, "a collective alone does")])
def test_what_has_no_such_part_is_refused(given, words):
    with pytest.raises(BadInput, match=words):
        layer_request(scenario_of(given, {}))
