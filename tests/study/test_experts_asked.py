"""Scenarios of experts: which keys they have, routings of a file, and one line for what cannot be."""

import json

import pytest

from t3sim.base.errors import BadInput
from t3sim.mechanisms.table import TECHNIQUES
from t3sim.runs.dispatch_before import dispatch_tiling
from t3sim.runs.operators import largest_gemm
from t3sim.study.gemm_rate import gemm_rate
from t3sim.study.scenario.files import scenario_of
from t3sim.study.scenario.request import layer_request

EXPERTS = {"layer.operator": "moe-combine", "layer.gemm": "256x256x64", "layer.devices": 4, "layer.experts": "8x3"}


def request_with(**changes):
    keys = EXPERTS | {key.replace("__", "."): value for key, value in changes.items()}
    return layer_request(scenario_of({}, {key: value for key, value in keys.items() if value is not None}))


def test_the_request_has_the_tokens_and_the_hardware_of_a_direct_exchange():
    plan, = request_with(layer__locality="zipf:0.6", seed=5, layer__dtype="bf16").plans
    workload = plan.workload
    assert (workload.m, workload.experts, workload.per_token, workload.zipf, workload.seed) == (256, 8, 3, 0.6, 5)
    assert workload.routing.imbalance > 1 and plan.exchange.topology == "switch"
    assert plan.machine.dma.peers == 3 and plan.exchange.terms(workload) == 3
    rate = gemm_rate(plan.machine, workload, 1e5, 1e6)
    assert rate is not None and rate.tile[0] == plan.machine.gpu.tile_m


def test_a_routing_of_a_file_is_the_workload_s(tmp_path):
    counts = [[64, 64, 0, 64, 0, 0, 0, 0]] * 4
    file = tmp_path / "routing.json"
    file.write_text(json.dumps(counts))
    workload = request_with(layer__locality=str(file)).plans[0].workload
    assert workload.routing.counts.tolist() == counts
    assert sorted(workload.routing.experts_of[0].tolist()) == [0, 1, 3]
    file.write_text("[1, 2")
    with pytest.raises(BadInput, match="is not a routing"):
        request_with(layer__locality=str(file))
    file.write_text(json.dumps(counts[:3]))
    with pytest.raises(BadInput, match="a routing is a list of 4 lists"):
        request_with(layer__locality=str(file))


@pytest.mark.parametrize("changes, told", [
    ({"layer__experts": None}, "moe-combine needs .*EXPERTSxCHOSEN"),
    ({"layer__gemm": None}, "moe-combine needs .*MxNxK"),
    ({"layer__devices": None}, "moe-combine needs .*devices"),
    ({"layer__operator": "gemm-rs"}, "experts.* is for .*moe-dispatch.* and moe-combine"),
    ({"layer__experts": "9x3"}, "3 of 9 experts"),
    ({"layer__locality": "nowhere"}, "nowhere.* cannot be read"),
    ({"layer__model": "mixtral-8x7b"}, "gemm.* does not go with .*model.*mixtral-8x7b.*, which say it"),
    ({"layer__model": "t-nlg", "layer__gemm": None, "layer__devices": None, "layer__experts": None}, "no experts"),
    ({"gpus__skew": "late:1:500"}, "late:1:500 needs .*every"),
    ({"gpus__every": True, "gpus__skew": "link:0-1:9"}, "topology 'switch' has no such link"),
    ({"exchange__topology": "ring"}, "direct.* sends to every GPU"),
    ({"exchange__topology": "torus:2x4"}, "is of 8 GPUs, and here are 4"),
    ({"exchange__topology": "torus:2x2", "exchange__algorithm": "hierarchical"}, "it needs .*direct"),
    ({"exchange__topology": "nodes:2x2", "techniques": ("decomposed",)}, "technique decomposed"),
    ({"exchange__algorithm": "in-switch"}, "it needs .*direct"),
    ({"exchange__sums": "fixed"}, "3 experts of a token are added up in the order"),
    ({"layer__dtype": "e4m3"}, "'e4m3' is not a format of elements: allowed are fp16, bf16, fp32$"),
    ({"exchange__accumulate": "fp32", "exchange__wire": "e4m3"}, "wire"),
    ({"layer__split_k": 2}, "split_k"),
    ({"techniques": ("flux",)}, "technique flux is of a reduce-scatter"),
    ({"techniques": ("fused-wg",)}, "technique fused-wg"),
    ({"level": "event"}, "does not go with"),
], ids=lambda value: "-".join(map(str, value)) if isinstance(value, dict) else "")
def test_what_cannot_be_is_one_line(changes, told):
    with pytest.raises(BadInput, match=told):
        request_with(**changes)


def test_the_experts_of_a_config_are_those_of_all_but_its_first_layers(tmp_path):
    """Both GEMMs of a gate are one."""
    file = tmp_path / "small.json"
    file.write_text(json.dumps({
        "hidden_size": 512, "num_hidden_layers": 6, "num_attention_heads": 8, "vocab_size": 1000, "hidden_act": "silu",
        "n_routed_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 256, "intermediate_size": 2048,
        "first_k_dense_replace": 1, "torch_dtype": "bfloat16"}))
    for operator, columns, depth in (("moe-dispatch", 2 * 256, 512), ("moe-combine", 512, 256)):
        request = layer_request(scenario_of({}, {"layer.operator": operator, "layer.model": str(file), "layer.tp": 4,
                                           "layer.tokens": 1024, "layer.locality": "zipf:0.6"}))
        workload = request.plans[0].workload
        assert request.of_file and request.times == (5,) and workload.title == "small Experts' GEMM, 4 GPUs"
        assert (workload.m, workload.n, workload.k, workload.dtype) == (1024, columns, depth, "bf16")
        assert (workload.experts, workload.per_token, workload.zipf, workload.tp) == (16, 4, 0.6, 4)
    whole = layer_request(scenario_of({}, {"layer.operator": "moe-dispatch", "layer.model": "deepseek-v3",
                                       "layer.tokens": 1024, "machine": "h100-t3"}))
    workload = whole.plans[0].workload
    assert (whole.times, workload.n, workload.k, workload.experts) == ((58,), 4096, 7168, 256)


@pytest.mark.parametrize("operator", ["moe-dispatch", "moe-combine"])
@pytest.mark.parametrize("topology, links", [("torus:2x2", 8), ("nodes:2x2", 8)])
def test_the_fullest_link_counts_where_tokens_pass_through_others(operator, topology, links):
    """Each of the links of a GPU of four; the fullest has at least its share of all hops."""
    plan, = request_with(layer__operator=operator, exchange__topology=topology, layer__locality="zipf:0.6").plans
    workload, exchange = plan.workload, plan.exchange
    assert exchange.every_gpu and not exchange.by_levels and plan.machine.dma.peers == 3
    between = workload.between if operator == "moe-dispatch" else workload.between.T
    ways = {(source, to): exchange.links(4).way(source, to) for source in range(4) for to in range(4)}
    of_link = {link: sum(between[pair] for pair, way in ways.items() if link in way)
               for link in {link for way in ways.values() for link in way}}
    assert len(of_link) >= links and max(map(len, ways.values())) == (2 if topology == "torus:2x2" else 3)
    element = workload.exchanged_elements * workload.format.bytes
    assert exchange.link_bytes(workload) == max(of_link.values()) * element > 0


@pytest.mark.parametrize("operator", ["moe-dispatch", "moe-combine"])
def test_kernels_alone_are_of_the_gpus_and_links_that_are_not_alike(operator):
    skew = "late:1:500,clock:2:0.5,link:0-1:9"
    plan, = request_with(layer__operator=operator, exchange__topology="torus:2x2", gpus__every=True,
                             gpus__skew=skew).plans
    for name in ("sequential", "t3-mca", "ideal-overlap"):
        kernels = TECHNIQUES[name].kernels_of(plan)
        assert all(kernel.skew == plan.skew for kernel in kernels) and str(kernels[0].skew) == (
            "GPU 1 500 ns late, GPU 2 at 0.5 of its clock, link 0 to 1 at 9 GB/s")


DISPATCH = {"layer__operator": "moe-dispatch"}


def test_tokens_that_go_to_experts_have_a_counter_for_each_group():
    plan, = request_with(**DISPATCH, layer__locality="zipf:0.6", seed=5).plans
    workload, exchange = plan.workload, plan.exchange
    assert (workload.m, workload.k, workload.experts, workload.zipf, workload.seed) == (256, 64, 8, 0.6, 5)
    assert exchange.before and exchange.operator == "moe-dispatch" and exchange.hides == ("dispatch",)
    assert exchange.terms(workload) == 1 and exchange.every_gpu and exchange.unlike == "tokens tell them apart"
    assert plan.machine.dma.peers == 3 and plan.machine.dma.ready_groups >= 32
    assert exchange.link_bytes(workload) == workload.sent_bytes < workload.m * 3 * 64 * 2
    names = [[one.name for one in TECHNIQUES[name].kernels_of(plan)] for name in ("sequential", "t3-mca")]
    assert names == [["gemm", "dispatch-switch", "packing"],
                     ["gemm", "fused-mca-dispatch-direct-switch-before-every-gpu", "packing"]]
    rate = gemm_rate(plan.machine, workload, 1e5, 1e6)
    assert rate is not None and rate.tile[0] == plan.machine.gpu.tile_m


def test_tokens_of_8_bits_have_scales_and_what_experts_make_of_them_has_16():
    """A token of 1,024 elements has eight scales of four bytes; matrix units are twice as fast, but for losses."""
    shape = {"layer.operator": "moe-dispatch", "machine": "h100-t3", "layer.locality": "zipf:0.6",
             "layer.gemm": "1024x2048x1024", "layer.experts": "8x3"}
    few, wide = (layer_request(scenario_of({}, EXPERTS | shape | {"layer.dtype": dtype})).plans[0]
                 for dtype in ("e4m3", "bf16"))
    assert few.workload.exchanged_elements == 1024 + 4 * 8 and few.workload.sum_bytes == 2
    sent = few.exchange.link_bytes(few.workload)
    assert sent == few.workload.sent_bytes == wide.workload.sent_bytes * 1056 // 2048
    tiling, gemms = dispatch_tiling(few.machine, few.workload, 64), [largest_gemm(one.machine, one.workload)
                                                                     for one in (few, wide)]
    assert (tiling.m, tiling.element_bytes, tiling.pitch_bytes) == (1056, 1, 1280)
    assert few.machine.link == wide.machine.link and few.exchange.sums.seen_from_memory(
        few.machine, few.workload) == few.machine, "links carry what memory has"
    assert gemms[0].tiling.element_bytes == 2 and gemms[0].operand_bytes == 1 and gemms[0].block_k == 128
    assert gemms[1].cycles_per_k / gemms[0].cycles_per_k == pytest.approx(2 * 0.74 / 0.83)
    rate = gemm_rate(few.machine, few.workload, 1e5, 1e6)
    assert rate is not None and rate.peak_tflop_per_s == pytest.approx(1979, rel=1e-3)


@pytest.mark.parametrize("changes, told", [
    ({"layer__experts": None}, "moe-dispatch needs .*EXPERTSxCHOSEN"),
    ({"layer__devices": None}, "moe-dispatch needs .*devices"),
    ({"layer__locality": "nowhere"}, "nowhere.* cannot be read"),
    ({"layer__sublayer": "fc1"}, "sublayer.* does not go with .*moe-dispatch"),
    ({"layer__dtype": "e5m2"}, "'e5m2' is not a format of elements: allowed are fp16, bf16, fp32, e4m3"),
    ({"layer__dtype": "e4m3"}, r"layer.dtype of 8 bits needs a machine with \[gpu\] matrix_efficiency_8_bits: h"),
    ({"gpus__skew": "late:1:500"}, "late:1:500 needs .*every"),
    ({"gpus__every": True, "gpus__skew": "link:0-1:9"}, "topology 'switch' has no such link"),
    ({"exchange__topology": "ring"}, "direct.* sends to every GPU"),
    ({"exchange__topology": "torus:2x4"}, "is of 8 GPUs, and here are 4"),
    ({"exchange__topology": "torus:2x2", "exchange__algorithm": "hierarchical"}, "it needs .*direct"),
    ({"exchange__topology": "nodes:2x2", "techniques": ("decomposed",)}, "technique decomposed"),
    ({"exchange__algorithm": "in-switch"}, "it needs .*direct"),
    ({"exchange__accumulate": "fp32"}, "is of a GEMM's sums"),
    ({"layer__split_k": 2}, "split_k"),
    ({"flux__pieces": 2, "techniques": ("flux",)}, "it needs .*ag-gemm"),
    ({"techniques": ("flux",)}, "technique flux is of a reduce-scatter"),
    ({"techniques": ("fused-wg",)}, "technique fused-wg"),
    ({"techniques": ("decomposed",)}, "technique decomposed is of a reduce-scatter"),
    ({"level": "event"}, "does not go with"),
    ({"layer__gemm": "1024x256x2048", "layer__values": True}, "4 GPUs of 3,072 x 2,048 are 25,165,824 numbers: at"),
], ids=lambda value: "-".join(map(str, value)) if isinstance(value, dict) else "")
def test_what_a_dispatch_cannot_be_is_one_line(changes, told):
    with pytest.raises(BadInput, match=told):
        request_with(**DISPATCH, **changes)
