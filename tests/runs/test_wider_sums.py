"""Formats of an exchange's sums: what is refused, and what a run with them moves over links and to DRAM."""

import pytest

from t3sim.base.errors import BadInput
from t3sim.cosim.driver.driver import Driver, DriverError
from t3sim.gpu.fabric.network import outgoing
from t3sim.machine import load_machine
from t3sim.mechanisms.track_trigger import FusedGemm
from t3sim.rtl.formats import SUMS
from t3sim.runs import sums
from t3sim.runs.exchange import Exchange, fused_with
from t3sim.runs.failure import SimulationError
from t3sim.runs.fused import fused_run
from t3sim.runs.plan import Plan
from t3sim.runs.sums import Sums, sums_of
from t3sim.study.scenario.request import layer_request
from t3sim.study.scenario.scenario import Scenario
from t3sim.workload.workloads import gemm_workload

BF16 = gemm_workload("512x512x256", 4, "bf16")
FP32 = Sums("fp32")
BY_FP32 = Sums("fp32", "fp32")


@pytest.mark.parametrize(("sums", "operator", "algorithm", "topology", "words"), [
    (Sums("fp64"), "gemm-rs", None, None, "exchange.accumulate = 'fp64' is unknown: allowed are the layer's dtype"),
    (Sums("fp32", "e3m4"), "gemm-rs", None, None, "exchange.wire = 'e3m4' is unknown: allowed are the layer's dtype"),
    (Sums(None, "fp32"), "gemm-rs", None, None, "exchange.wire = fp32 needs exchange.accumulate = fp32"),
    (Sums("fixed", "fp32"), "gemm-rs", None, None, "exchange.wire = fp32 needs exchange.accumulate = fp32"),
    (FP32, "gemm-a2a", None, None, "exchange.accumulate = fp32 is of a GEMM's sums: it needs layer.operator = gemm-rs"),
    (Sums("fp32", "e4m3"), "gemm-ar", "direct", "full", "it needs layer.operator = gemm-rs and exchange.algorithm = d"),
    (Sums("fp32", "e4m3"), "gemm-rs", "ring", "ring", "exchange.wire = e4m3 is made by compute units"),
])
def test_what_cannot_be_is_refused(sums, operator, algorithm, topology, words):
    """One line for each wrong value."""
    with pytest.raises(BadInput, match=words):
        fused_with(operator, topology, algorithm, sums=sums)


@pytest.mark.parametrize(("exchange", "layer", "words"), [
    ({"accumulate": "fixed"}, {"dtype": "fp16"}, "exchange.accumulate = fixed is of bf16 and fp32: layer.dtype = fp16"),
    ({"accumulate": "bf16"}, {"dtype": "fp16"}, "exchange.accumulate = 'bf16' is unknown"),
    ({"accumulate": "fp32"}, {"operator": "gemm-ag"}, "exchange.accumulate = fp32 is of a GEMM"),
])
def test_a_scenario_is_refused_before_anything_runs(exchange, layer, words):
    """One line for each wrong value."""
    scenario = {"layer": {"gemm": "512x512x256", "devices": 4} | layer, "exchange": exchange}
    with pytest.raises(BadInput, match=words):
        layer_request(Scenario.model_validate(scenario))


def test_the_layer_s_own_format_says_nothing():
    assert sums_of("bf16", "bf16", "bf16") == Sums() == sums_of("fp32", "fp32", "fp32")
    assert Exchange(sums=FP32).name == "rs-ring-ring-in-fp32" and Exchange().name == "rs-ring-ring"


def test_bytes_of_an_element_and_a_link_that_carries_shorter_lines():
    assert [one.wire_bytes(BF16) for one in (Sums(), FP32, BY_FP32, Sums("fp32", "e4m3"))] == [2, 2, 4, 33 / 32]
    machine = load_machine()
    assert Sums().seen_from_memory(machine, BF16) == BY_FP32.seen_from_memory(machine, BF16) == machine
    assert {one.seen_from_memory(machine, BF16).geometry().channel.sums for one in (
        FP32, Sums("fixed"), Sums("fp32", "e4m3"))} == {"bf16-in-fp32", "bf16-in-fixed+fp32-in-fixed",
                                                        "e4m3-blocks-in-fp32"}
    link = FP32.seen_from_memory(machine, BF16).link
    assert (link.bandwidth_gb_per_s, link.egress_buffer_bytes, link.head_bytes) == (
        2 * machine.link.bandwidth_gb_per_s, 2 * machine.link.egress_buffer_bytes, 2 * machine.link.head_bytes)
    assert [Exchange(sums=one).link_bytes(BF16) / BF16.output_bytes for one in (Sums(), FP32, BY_FP32)] == [
        0.75, 0.75, 1.5]


def test_a_fixed_point_goes_with_sums_in_a_fixed_order():
    """`sums = fixed` with a direct exchange is refused unless memory adds in fixed point."""
    direct = {"layer": {"gemm": "512x512x256", "devices": 4, "dtype": "bf16"}, "techniques": ("t3",)}
    exchange = {"algorithm": "direct", "topology": "switch", "sums": "fixed"}
    with pytest.raises(BadInput, match="whose sums have two, and exchange.accumulate = fixed"):
        layer_request(Scenario.model_validate(direct | {"exchange": exchange}))
    layer_request(Scenario.model_validate(direct | {"exchange": exchange | {"accumulate": "fixed"}}))


def wide_run(accumulate: str, lacking: str | None = None):
    """Return a run of one GPU that stands for all, which its driver has programmed."""
    kernel, machine = FusedGemm("round_robin", exchange=Exchange(sums=Sums(accumulate))), load_machine()
    if lacking:
        machine = machine.model_copy(update={"channels": machine.channels.model_copy(update={"sums": lacking})})
    return fused_run("round_robin", kernel.prepare(Plan(machine, BF16)))


@pytest.mark.slow
@pytest.mark.builds_rtl
@pytest.mark.builds_loops
@pytest.mark.parametrize(("accumulate", "said"), [("fp32", ("bf16-in-fp32", 0)), ("fixed", ("bf16-in-fixed", 134))])
def test_memory_hears_what_it_adds(accumulate, said):
    """As the RTL of the top says for each region. The unit: 8 standard deviations of sums of 256 x 4 products, 2**8."""
    run = wide_run(accumulate)
    try:
        outputs, ports = run.backends[0].outputs, run.backends[0].ports.outputs
        words = [int(outputs[ports[f"sums[{number + 1}]"].offset]) for number in range(len(run.spaces[0].regions))]
        assert words and {(SUMS[word & 15].name, word >> 4) for word in words} == {said}
    finally:
        run.close()


@pytest.mark.slow
@pytest.mark.builds_rtl
@pytest.mark.builds_loops
def test_what_memory_hears_takes_no_time(monkeypatch):
    """The plain top, which has no such registers, takes the same cycles with the same lines."""
    cycles = []
    for _ in range(2):
        run = wide_run("fp32")
        try:
            run.run()
            cycles.append(run.now)
        finally:
            run.close()
        monkeypatch.setattr(sums, "sums_in_memory", lambda workload: ())
    assert cycles[0] == cycles[1]


@pytest.mark.slow
@pytest.mark.builds_rtl
@pytest.mark.builds_loops
def test_hardware_that_lacks_a_sum_refuses_it(monkeypatch):
    """The driver before anything runs; and the hardware itself, under a driver that does not look."""
    with pytest.raises(DriverError, match="sum='bf16-in-fp32' is not possible: fp16, bf16, fp32, bf16-in-fixed"):
        wide_run("fp32", "bf16-in-fixed+fp32-in-fixed")
    monkeypatch.setattr(Driver, "memory_sums", lambda driver, sums: driver.__dict__.update(_sums=dict(sums)))
    with pytest.raises(SimulationError, match="GPU 0: register 0x[0-9a-f]+: write refused: the hardware reports "
                                              "sum_unknown: workgroup 0, wavefront 0, region 1"):
        wide_run("fp32", "bf16-in-fixed+fp32-in-fixed")


@pytest.mark.slow
@pytest.mark.builds_rtl
@pytest.mark.builds_loops
@pytest.mark.parametrize("sums", [FP32, BY_FP32], ids=lambda sums: sums.name)
def test_what_a_run_moves(sums):
    """Sums of 32 bits are twice the bytes in DRAM, and on the link only if it carries them."""
    found = []
    for one in (Sums(), sums):
        kernel, machine = FusedGemm("round_robin", exchange=Exchange(sums=one)), load_machine()
        run = fused_run("round_robin", kernel.prepare(Plan(machine, BF16)))
        try:
            run.run()
            busy = float(run.sim.network.busy_cycles[outgoing(run.sim.network, 0)].sum())
            heads = int(run.sim.network.sent_heads[outgoing(run.sim.network, 0)].sum())
            found.append((run.counters(0)["packets"], busy - heads * machine.link.head_bytes
                          / machine.link.bandwidth_gb_per_s * machine.memory_clock_ghz))
        finally:
            run.close()
    (packets, busy), (more, longer) = found
    assert more == 2 * packets
    assert longer / busy == pytest.approx(2 if sums.wire else 1, rel=1e-6)
