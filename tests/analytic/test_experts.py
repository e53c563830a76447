"""Experts that GPUs share: routings, GEMMs of many groups, and what every way to bring tokens and back must keep."""

import json

import numpy as np
import pytest

from t3sim.analytic.gemm import grouped_kernel, library_kernel
from t3sim.analytic.libraries.collectives import exchange_ns, token_bytes
from t3sim.analytic.libraries.contention import gemm_job, grouped_job
from t3sim.analytic.libraries.experts import EXPERTS_MECHANISMS, rank_experts
from t3sim.analytic.rings import pair_gb_per_s
from t3sim.base.errors import BadInput
from t3sim.cli import main
from t3sim.machine import load_machine
from t3sim.machine.levels import COMMERCIAL
from t3sim.workload.routing import Routing, drawn, given, reach
from t3sim.workload.transformer import TODAY

H100, MI300X = (load_machine(name, COMMERCIAL) for name in ("h100-sxm", "mi300x"))
DEEPSEEK, MIXTRAL = TODAY["deepseek-v3"], TODAY["mixtral-8x7b"]


def even(gpus: int, experts: int, each: int, per_token: int) -> Routing:
    return Routing(np.full((gpus, experts), each), gpus * experts * each // per_token)


def test_a_token_goes_to_different_experts_and_the_same_seed_draws_the_same():
    one, again, other = (drawn(8, 16, 16, 40, 1.0, seed) for seed in (3, 3, 4))
    assert (one.counts == 5).all()  # all 16 experts of each of a GPU's five tokens
    few = [drawn(8, 64, 4, 1001, 1.0, seed).counts for seed in (3, 3, 4)]
    assert (few[0] == few[1]).all() and (few[0] != few[2]).any()
    assert [row.sum() for row in few[0]] == [4 * 126] + [4 * 125] * 7


@pytest.mark.long
def test_popularity_by_rank_is_zipfs():
    counts = np.sort(drawn(4, 64, 1, 400_000, 1.0).counts.sum(axis=0))[::-1]
    assert counts[0] / counts[[1, 3, 7]] == pytest.approx([2, 4, 8], rel=0.05)
    assert [drawn(8, 64, 4, 4096, zipf).imbalance for zipf in (0.0, 0.6, 1.2)] == sorted(
        drawn(8, 64, 4, 4096, zipf).imbalance for zipf in (0.0, 0.6, 1.2))


def test_groups_of_one_kernel_share_its_units_and_each_reads_its_weights():
    assert grouped_kernel(H100, (777,), 4096, 512) == library_kernel(H100, 777, 4096, 512)
    assert grouped_job(H100, (777,), 4096, 512).memory_bytes == gemm_job(H100, 777, 4096, 512).memory_bytes
    one, many = library_kernel(H100, 8192, 4096, 4096), grouped_kernel(H100, (1024,) * 8, 4096, 4096)
    assert one.tiles == many.tiles and one.tile == many.tile and many.memory_ns > one.memory_ns
    weights = 2 * 8 * 4096 * 4096 / H100.memory_bytes_per_ns
    assert grouped_kernel(H100, (1,) * 8, 4096, 4096).ns == pytest.approx(weights, rel=0.01)
    ragged = grouped_kernel(H100, (1,) * 64 + (4032,), 4096, 4096)  # as many tokens, but a tile for each that is alone
    assert ragged.ns > grouped_kernel(H100, (4096,), 4096, 4096).ns


@pytest.mark.parametrize("machine", [H100, MI300X], ids=lambda one: one.name)
@pytest.mark.parametrize("model", [DEEPSEEK, MIXTRAL], ids=lambda one: one.name)
@pytest.mark.parametrize("tokens", [8, 1024, 32768])
def test_no_way_is_faster_than_the_gemms_of_the_slowest_gpu_or_the_wires(machine, model, tokens):
    routing = drawn(8, model.experts, model.experts_per_token, tokens, 0.8)
    shapes = (2 * model.feed_forward, model.hidden), (model.hidden, model.feed_forward)
    slowest = max(sum(grouped_kernel(machine, rows, *shape, "fp8").ns for shape in shapes)
                  for rows in routing.groups if rows)
    bytes_ = routing.heaviest_once * sum(token_bytes(model.hidden, dtype) for dtype in ("fp8", "bf16"))
    wires = bytes_ / 8 / pair_gb_per_s(machine, 8)
    ranked = {one.mechanism: one for one in rank_experts(machine, model, routing, "fp8")}
    assert set(ranked) == set(EXPERTS_MECHANISMS)
    for one in ranked.values():
        assert one.ns >= max(slowest, wires) and one.ns == pytest.approx(one.first_ns + one.second_ns)
    assert ranked["t3"].ns < ranked["in-turn"].ns and ranked["t3"].units == 0 < ranked["fused-units"].units


@pytest.mark.long
def test_where_gemms_take_nothing_exchanges_are_left():
    fast = H100.model_copy(update={
        "peak": H100.peak.model_copy(update={"fp8": 1e9}), "memory": H100.memory.model_copy(update={
            "bandwidth_gb_per_s": 1e12}),
        "kernels": H100.kernels.model_copy(update={"unit_bytes_per_ns": 1e9, "tile_ns": 0.0, "launch_ns": 0.0})})
    routing = drawn(8, 256, 8, 65536, 0.8)
    bytes_ = sum(token_bytes(7168, dtype) for dtype in ("fp8", "bf16"))
    wires, wires_once = (tokens * bytes_ / 8 / pair_gb_per_s(H100, 8)
                         for tokens in (routing.heaviest, routing.heaviest_once))
    times = {one.mechanism: one.ns for one in rank_experts(fast, DEEPSEEK, routing, "fp8")}
    assert min(times.values()) >= wires_once, "libraries send a token once to a GPU"
    for name in ("t3", "fused-units"):
        assert times[name] == pytest.approx(wires / H100.wires.all_efficiency, rel=0.05)


def test_what_is_in_turn_is_a_sum_and_even_exchanges_are_those_that_are_measured():
    routing = even(8, 256, 4, 8)
    low, = (one for one in rank_experts(H100, DEEPSEEK, routing, "fp8") if one.mechanism == "low-latency")
    exchanged = [exchange_ns(H100, 8, 1, token_bytes(7168, dtype), 128 * 8, 0) for dtype in ("fp8", "bf16")]
    gemms = [grouped_job(H100, (32,) * 32, *shape, "fp8").ns for shape in ((4096, 7168), (7168, 2048))]
    assert low.ns == pytest.approx(sum(exchanged) + sum(gemms))


def test_halves_read_all_weights_twice():
    """So they lose where weights are what takes time, and win where tokens are."""
    def times(tokens: int) -> dict[str, float]:
        return {one.mechanism: one.ns for one in rank_experts(H100, DEEPSEEK, even(8, 256, tokens, 8), "fp8")}
    few, many = times(1), times(256)
    assert few["two-batches"] > few["low-latency"] and many["two-batches"] < many["low-latency"]


@pytest.mark.long
def test_imbalance_costs_every_way_and_links_of_a_full_mesh_carry_an_exchange_side_by_side():
    for tokens in (1024, 32768):
        base, skewed = ({one.mechanism: one.ns for one in rank_experts(H100, DEEPSEEK, drawn(8, 256, 8, tokens, zipf))}
                        for zipf in (0.0, 1.0))
        assert all(skewed[name] > ns for name, ns in base.items())
    fixed = MI300X.rings.simple.base_ns + MI300X.direct.base_ns
    assert exchange_ns(MI300X, 8, 1, 7168, 65536, 0) - fixed == pytest.approx(
        7168 * 65536 / 8 / (MI300X.wires.gb_per_s * 0.6))  # an eighth stays on the GPU


@pytest.mark.parametrize(("gpus", "experts", "per_token"), [(8, 64, 8), (4, 8, 2), (8, 8, 1)])
def test_a_token_reaches_as_many_gpus_as_draws_say(gpus, experts, per_token):
    routing = drawn(gpus, experts, per_token, 512 * gpus)
    owners = np.sort(routing.experts_of // (experts // gpus), axis=1)
    drawn_mean = (1 + (np.diff(owners, axis=1) > 0).sum(axis=1)).mean()
    assert gpus * reach(1 / gpus, per_token, experts) == pytest.approx(drawn_mean, rel=0.03)
    assert routing.heaviest_once == pytest.approx(512 * drawn_mean, rel=0.06)


@pytest.mark.parametrize("zipf", [0.6, 1.2])
def test_copies_of_uneven_routings_are_near_those_of_the_tokens_drawn(zipf):
    routing = drawn(8, 64, 8, 4096, zipf)
    pairs = np.zeros((8, 8))
    for token, experts in enumerate(routing.experts_of):
        pairs[token // 512, np.unique(experts // 8)] += 1
    assert routing.heaviest_once == pytest.approx(max(pairs.sum(axis=0).max(), pairs.sum(axis=1).max()), rel=0.05)
    assert routing.heaviest_once < 0.95 * routing.heaviest


@pytest.mark.parametrize(("counts", "words"), [
    ({}, "list of 2 lists"), ([[1, 2], [1]], "of 2 numbers"), ([[1, 2], [1, -1]], "-1 is not a number of tokens"),
    ([[1, 2], [1, 2.0]], "2.0 is not a number"), ([[0, 0], [0, 0]], "no token goes"),
    ([[1, 2], [1, 1]], "GPU 0 has 3 tokens.*multiple of"),
    ([[1, 1], [4, 0]], "GPU 1 has 4 tokens for expert 0, but 2 tokens in all")])
def test_a_routing_that_cannot_be_is_refused(counts, words):
    with pytest.raises(BadInput, match=words):
        given(counts, 2, 2, 2)


def test_the_command_takes_a_routing_and_draws_one(tmp_path, capsys):
    (tmp_path / "even.json").write_text(json.dumps([[32] * 8] * 8))
    asked = ["overlap", "--expert-parallel", "--model", "mixtral-8x7b", "--json", "-"]
    assert main([*asked, "--routing", str(tmp_path / "even.json")]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["imbalance"], told["tokens"], told["experts_with_tokens"]) == (1, 1024, 8)
    ranked = rank_experts(H100, MIXTRAL, even(8, 8, 32, 2))
    assert told["ranking"] == [one.to_json() for one in ranked]
    assert main([*asked, "--tokens", "1024", "--zipf", "1", "--seed", "2"]) == 0
    assert json.loads(capsys.readouterr().out)["imbalance"] == drawn(8, 8, 2, 1024, 1.0, 2).imbalance
    assert main(asked[:-2]) == 0
    assert all(len(line) <= 80 for line in capsys.readouterr().out.splitlines()[3:9])


@pytest.mark.parametrize(("options", "words"), [
    (["--zipf", "1"], "--zipf needs --expert-parallel"), (["--expert-parallel"], "llama-3.3-70b, which has none"),
    (["--expert-parallel", "--model", "mixtral-8x7b", "--zipf", "5"], "--zipf 5.0 is not possible: 0 to 4"),
    (["--expert-parallel", "--model", "mixtral-8x7b", "--routing", "no.json"], "--routing no.json cannot be read"),
    (["--expert-parallel", "--model", "mixtral-8x7b", "--routing", "no.json", "--seed", "1"], "do not go with it"),
    (["--expert-parallel", "--sequence-parallel"], "does not go with --expert-parallel")])
def test_what_does_not_go_with_experts_is_said_in_a_line(options, words, error_of):
    assert words in error_of("overlap", *options)
