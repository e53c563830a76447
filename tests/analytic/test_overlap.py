"""What overlaps on GPUs of today: bounds that every mechanism keeps, and the command's answer."""

import csv
import json
from dataclasses import replace
from importlib import resources
from pathlib import Path

import pytest

from t3sim.analytic.libraries.collectives import copies_ns, triggered_ns
from t3sim.analytic.libraries.contention import beside, collective_job, gemm_job
from t3sim.analytic.libraries.experts import EXPERTS_MECHANISMS
from t3sim.analytic.libraries.mechanisms import MECHANISMS, OPERATORS, TRIGGERED, OverlapPlan, play, possible
from t3sim.analytic.libraries.prompts import norm_ns, prompt_ns
from t3sim.analytic.libraries.triggered import TileExchange, Tiles, trigger_limits, triggered_gemm
from t3sim.base.errors import BadInput
from t3sim.cli import main
from t3sim.machine import load_machine
from t3sim.machine.levels import COMMERCIAL, CYCLE
from t3sim.machine.load import cycle_machine_of, machines_of
from t3sim.workload.transformer import TODAY

H100, MB = load_machine("h100-sxm", COMMERCIAL), 1 << 20
MACHINES = [load_machine(name, COMMERCIAL) for name in machines_of(COMMERCIAL)]
LARGE = 8192, 8192, 8192
RESULTS = Path(__file__).parents[2] / "docs" / "results"


@pytest.mark.parametrize("machine", MACHINES, ids=lambda one: one.name)
def test_beside_a_collective_a_gemm_is_slower_than_alone_and_both_faster_than_in_turn(machine):
    gpus = min(8, machine.gpus)
    for mover in ("units", "engines", "near-memory"):
        job = collective_job(machine, "all_gather", gpus, 256 * MB, mover)
        found, alone = beside(machine, LARGE, "bf16", job), gemm_job(machine, *LARGE).ns
        # With one clock and memory enough for both, who holds no unit takes nothing.
        assert found.gemm_ns > alone or not machine.sharing.power_share and mover != "units"
        assert found.gemm_ns >= alone and found.collective_ns >= job.ns
        assert max(alone, job.ns) <= found.ns < alone + job.ns


def test_copy_engines_leave_the_units_to_the_gemm():
    by = {mover: beside(H100, LARGE, "bf16", collective_job(H100, "all_gather", 8, 512 * MB, mover)).gemm_ns
          for mover in ("units", "engines")}
    assert by["engines"] < by["units"]


def test_without_power_and_with_endless_memory_engines_take_nothing_from_a_gemm():
    quiet = H100.model_copy(update={
        "sharing": H100.sharing.model_copy(update={"power_share": 0.0}),
        "memory": H100.memory.model_copy(update={"bandwidth_gb_per_s": 1e9})})
    job = collective_job(quiet, "all_gather", 8, 64 * MB, "engines")
    assert beside(quiet, LARGE, "bf16", job).gemm_ns == pytest.approx(gemm_job(quiet, *LARGE).ns)


@pytest.mark.parametrize("machine", MACHINES, ids=lambda one: one.name)
@pytest.mark.parametrize("operator", OPERATORS)
def test_every_mechanism_takes_at_least_the_gemm(machine, operator):
    hardware = cycle_machine_of(machine.name)
    plan = OverlapPlan(machine, operator, min(8, machine.gpus), (4096, 4096, 2048), hardware=hardware)
    names = possible(plan)
    assert {"in-turn", "t3", "t3-direct"} <= set(names) <= set(MECHANISMS)
    assert ("t3-mca+" in names) == (hardware is not None)
    for name in names:
        run = play(plan, name)
        assert run.ns >= gemm_job(machine, 4096, 4096, 2048).ns * 0.999 and run.memory_bytes > 0 and run.bound


@pytest.mark.parametrize("operator", ["gemm+ar", "gemm+rs"])
def test_few_tokens_go_straight_to_their_owners_and_wait_for_fewer_links_than_around_a_ring(operator):
    few = OverlapPlan(H100, operator, 8, (8, 8192, 8192))
    steps = (2 if operator == "gemm+ar" else 1) * (7 - 1)
    saved = play(few, "t3").ns - play(few, "t3-direct").ns
    assert saved == pytest.approx(steps * H100.wires.latency_ns, rel=0.1)


def test_small_pieces_make_decomposition_slower_than_in_turn_and_large_ones_faster():
    small, large = (OverlapPlan(H100, "ag+gemm", 8, (rows, 8192, 8192)) for rows in (1024, 32768))
    assert play(small, "decomposed").ns > play(small, "in-turn").ns
    assert play(large, "decomposed").ns < play(large, "in-turn").ns


def test_shots_by_size_and_norms_in_the_all_reduce():
    few, many = (OverlapPlan(H100, "gemm+ar", 8, (rows, 8192, 1024)) for rows in (8, 8192))
    for plan, first, second in ((few, "one-shot", "two-shot"), (many, "two-shot", "one-shot")):
        assert play(plan, first).ns < play(plan, second).ns
    for plan in (few, many):
        saved = play(plan, "symmetric").ns - play(plan, "fused-norm").ns
        assert saved == pytest.approx(norm_ns(H100, plan.shape[0], 8192) - H100.wires.latency_ns)
    tokens_once = OverlapPlan(H100, "gemm+ar", 8, (8192, 8192, 1024), rows=1024)
    assert play(tokens_once, "fused-norm").ns < play(many, "fused-norm").ns


@pytest.mark.parametrize("machine", ["mi300x", "h100-sxm"])
def test_chains_after_a_gemm_hide_all_but_the_last_shard(machine):
    node = load_machine(machine, COMMERCIAL)
    plan = OverlapPlan(node, "gemm+rs", 8, (8192, 8192, 8192))
    chain, turn = (play(plan, name) for name in ("sdma-chain", "copy-engines"))
    assert gemm_job(node, *plan.shape).ns < chain.ns < turn.ns and chain.units == 0
    reduced = play(OverlapPlan(node, "gemm+ar", 8, plan.shape), "sdma-chain").ns
    assert reduced - chain.ns == pytest.approx(copies_ns(node, "all_gather", 8, plan.size))


def test_units_that_exchange_do_not_multiply():
    node = load_machine("mi355x", COMMERCIAL)
    plan = OverlapPlan(node, "a2a+gemm", 8, (6144, 8192, 8192))
    fused, engines = play(plan, "fused-units"), play(plan, "flux")
    assert fused.units == node.sharing.kernel_units and engines.units == 0
    assert engines.ns < fused.ns < play(plan, "in-turn").ns


def test_every_mechanism_is_in_the_table_of_techniques(capsys, json_of):
    all_told = json_of("techniques")
    told = all_told["mechanisms"]
    assert set(told) == set(MECHANISMS) and all(one["source"] and one["operators"] for one in told.values())
    assert set(all_told["experts"]) == set(EXPERTS_MECHANISMS)
    assert set(all_told["event"]) == {"sequential", "decomposed", "flux", "ideal-overlap", "fused-wg"}
    assert main(["techniques"]) == 0
    shown = capsys.readouterr().out
    assert "opus_gemm_dist" in shown and "2502.19811" in shown
    levels = [line.split()[1 + ("*" in line.split()[:2])] for line in shown.splitlines()
              if line[:2] == "  " and line[2:3].isalpha()][1:]
    assert levels == ["cycle"] * 10 + ["event"] * 5 + ["library"] * (len(MECHANISMS) + len(EXPERTS_MECHANISMS))


def test_what_is_not_possible_is_named():
    with pytest.raises(BadInput, match="'scan' is unknown"):
        OverlapPlan(H100, "scan", 8, LARGE)
    with pytest.raises(BadInput, match="allowed are in-turn"):
        play(OverlapPlan(load_machine("a100-sxm", COMMERCIAL), "gemm+ar", 8, LARGE), "in-switch-fused")


@pytest.mark.parametrize("name", TODAY)
def test_a_prompt_without_all_reduces_is_faster_and_longer_ones_take_longer(name):
    model = TODAY[name]
    times = {way: [prompt_ns(H100, model, tokens, 8, way) for tokens in (1024, 4096, 16384)]
             for way in ("baseline", "without", "tokenweave")}
    assert all(one == sorted(one) for one in times.values())
    assert all(without < base for without, base in zip(times["without"], times["baseline"]))


def test_the_command_ranks_with_reason_and_expected_error(capsys, json_of):
    told = json_of("overlap", "--model", "llama-3.3-70b", "--tokens", "4096")
    times = [one["ns"] for one in told["ranking"]]
    assert times == sorted(times) and len(times) == len(MECHANISMS) - 1  # fused-units is for what comes before
    assert all(one["bound"] for one in told["ranking"])
    assert 0 < told["expected_error"]["mean_abs_error"] < 0.2 and told["expected_error"]["rows"] > 50
    assert told["checked"]["GEMMs alone"]["mean_abs_error"] < 0.1 and told["checked"]["in-switch-fused"] is None
    assert not {"t3", "t3-mca+", "t3-direct"} & set(told["checked"])
    assert set(told["ranges"]) == {name for name, error in told["checked"].items() if error is None}
    assert told["ranges"]["flux"]["factor"] > 1.1 and told["ranges"]["flux"]["rows"] >= 10
    assert main(["overlap", "--model", "llama-3.1-8b", "--sequence-parallel", "--machine", "mi300x"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "measured rows of mi300x" in printed and "Not checked: no row within a factor of 2" in printed
    assert "host's call" not in printed
    assert main(["overlap", "--tokens", "8"]) == 0
    assert "host's call limits an in-turn collective: 39.0 µs here ([rings] call_ns of a machine)" in " ".join(
        capsys.readouterr().out.split())


@pytest.mark.parametrize("arguments", [["--tokens", "1"], ["--tokens", "1", "--tp", "2", "--machine", "mi300x"],
                                       ["--machine", "gb200", "--tp", "64", "--tokens", "64", "--sequence-parallel"]])
def test_few_tokens_and_many_gpus_are_ranked_within_80_columns(arguments, capsys):
    assert main(["overlap", *arguments]) == 0
    table = capsys.readouterr().out.partition("GEMMs with their collectives")[2]
    table = table.split("\n\n")[1].splitlines()
    assert all(len(line) <= 80 for line in table) and any("in-turn" in line for line in table)


def test_narrow_operands_make_gemms_faster_and_collectives_no_smaller(capsys):
    wide, narrow = (main(["overlap", *more, "--json", "-"]) or json.loads(capsys.readouterr().out)["ranking"]
                    for more in ([], ["--dtype", "fp8"]))
    narrow = {one["mechanism"]: one for one in narrow}
    assert all(narrow[one["mechanism"]]["ns"] < one["ns"] for one in wide)
    assert all(narrow[one["mechanism"]]["memory_bytes"] == one["memory_bytes"] for one in wide
               if one["mechanism"] != "t3-mca+")  # it stages a chunk where the GEMM outlasts the ring


@pytest.mark.parametrize("experts", [[], ["--expert-parallel"]])
def test_a_format_that_is_not_taken_is_said(experts, tmp_path, capsys):
    (tmp_path / "one.json").write_text(json.dumps({
        "hidden_size": 4096, "num_hidden_layers": 2, "num_attention_heads": 32, "vocab_size": 32000,
        "num_local_experts": 8, "num_experts_per_tok": 2, "quantization_config": {"quant_method": "int3\x1b"}}))
    assert main(["overlap", "--model", str(tmp_path / "one.json"), *experts]) == 0
    told = capsys.readouterr().err
    assert "its GEMMs are taken in bf16" in told and "\x1b" not in told


@pytest.mark.parametrize("arguments", [["--model", "no-such"], ["--model", "llama-3.3-70b", "--tp", "7"],
                                       ["--tp", "1"], ["--machine", "gb200", "--tp", "72"],
                                       ["--dtype", "int3"], ["--dtype", ""],
                                       ["--dtype", "fp8", "--machine", "a100-sxm"],
                                       ["--tokens", "7", "--sequence-parallel"], ["--tp", "16"],
                                       ["--model", "llama-3.3-70b", "--tokens", "0"],
                                       ["--machine", "h100-sxm", "--set", "machine.tracker.sets=1", "--set",
                                        "machine.dma.ready_commands=8"],
                                       ["--machine", "h100-sxm", "--set", "machine.dma.enginez=8"],
                                       ["--model", "llama-3.3-70b", "--machine", "t3-table1"]])
def test_bad_arguments_of_overlap_are_one_line(arguments, error_of):
    error_of("overlap", *arguments)


FC2 = 2048, 8192, 3584


def _tracked(way: str, shape=FC2, operator="gemm+ar", **hardware):
    changed = load_machine({"extends": "h100-sxm", **hardware}, CYCLE)
    return play(OverlapPlan(H100, operator, 8, shape, hardware=changed), way)


@pytest.mark.parametrize("way", ["t3", "t3-mca+"])
def test_track_and_trigger_is_slower_with_a_small_tracker_as_the_rtl_is(way):
    rtl_ns = [json.loads((RESULTS / f"{name}.json").read_text())["techniques"][way]["total_ns"]
              for name in ("run-h100", "run-h100-256-sets")]
    ours = [_tracked(way, tracker={"sets": sets}, dma={"ready_commands": 8 * sets}) for sets in (512, 256)]
    assert [one.ns for one in ours] == pytest.approx(rtl_ns, rel=0.1)
    assert ours[1].ns / ours[0].ns > 1.03 and rtl_ns[1] / rtl_ns[0] > 1.03
    assert ours[0].losses_ns["window_blocked"] == 0 and ours[1].losses_ns["window_blocked"] > 20_000
    few_commands = _tracked(way, dma={"ready_commands": 2048})
    assert few_commands.ns == ours[1].ns, "the queue of commands limits the window, too"


def test_layers_of_several_stages_take_as_long_as_on_the_rtl_under_round_robin():
    """Layers of `t3 reproduce --only levels` with more tiles than places, whose loads share memory with the ring."""
    with resources.files("t3sim.study.scenario").joinpath("track_trigger_rtl.csv").open(encoding="utf-8") as file:
        rtl_ns = {tuple(int(row[name]) for name in "MNK"): 1e3 * float(row["total"]) for row in csv.DictReader(file)
                  if row["technique"] == "t3" and int(row["M"]) == 2048 and int(row["N"]) > 4096}
    assert len(rtl_ns) == 4
    assert [_tracked("t3", shape).ns for shape in rtl_ns] == pytest.approx([*rtl_ns.values()], rel=0.04)


def test_loads_of_the_next_stage_take_memory_from_the_stores_of_the_last():
    tiles, limits = Tiles(512, 132, 264, 65536.0), trigger_limits(load_machine("h100-t3", CYCLE))
    ring = TileExchange(8, 450.0, 500.0, turns=True)
    times_ns = [triggered_gemm(162_900.0, tiles, replace(ring, loads_bytes_per_ns=loads), limits).ns
                for loads in (0.0, 225.0, 450.0, 1e9)]
    assert times_ns == sorted(times_ns) and times_ns[0] < times_ns[1] < times_ns[2] < times_ns[3] < 1.3 * times_ns[0]
    one_stage = [triggered_gemm(80_000.0, replace(tiles, count=256), replace(ring, loads_bytes_per_ns=loads), limits).ns
                 for loads in (0.0, 450.0)]
    assert one_stage[0] == one_stage[1], "after the last stage nothing is loaded"
    first = replace(ring, turns=False)
    assert triggered_gemm(162_900.0, tiles, replace(first, loads_bytes_per_ns=450.0), limits) == triggered_gemm(
        162_900.0, tiles, first, limits), "arbiters that let the GEMM go first take no turns"


@pytest.mark.parametrize("operator", ["gemm+ar", "gemm+rs", "ag+gemm"])
@pytest.mark.parametrize("shape", [FC2, (512, 8192, 1024), (8192, 8192, 3584), (1, 1024, 1024)])
@pytest.mark.parametrize("way", TRIGGERED)
def test_losses_of_track_and_trigger_add_up(way, shape, operator):
    run, gemm_ns = _tracked(way, shape, operator), gemm_job(H100, *shape).ns
    assert gemm_ns + sum(run.losses_ns.values()) == pytest.approx(run.ns)
    assert all(ns > -1e-6 * gemm_ns for ns in run.losses_ns.values())
    assert ("all_gather" in run.losses_ns) == (operator == "gemm+ar")


def test_one_stage_hides_nothing_and_slow_engines_or_a_small_buffer_cost():
    one_stage, fast, direct = _tracked("t3-mca+", (2048, 4096, 1792)), _tracked("t3-mca+"), _tracked("t3-direct")
    ring_ns = triggered_ns(H100, "reduce_scatter", 8, 2.0 * 2048 * 4096)
    assert one_stage.losses_ns["link_tail"] > 0.7 * ring_ns
    assert fast.losses_ns["link_tail"] < 0.5 * triggered_ns(H100, "reduce_scatter", 8, 2.0 * 2048 * 8192)
    assert _tracked("t3-mca+", dma={"engines": 2}).losses_ns["link_tail"] > fast.losses_ns["link_tail"]
    assert direct.losses_ns["store_to_link"] > 10_000 > _tracked(
        "t3-direct", link={"egress_buffer_bytes": 1 << 26}).losses_ns["store_to_link"]
    assert _tracked("t3").losses_ns["store_to_memory"] > fast.losses_ns["store_to_memory"] == 0


def test_overlap_prints_losses_and_the_rtl_where_it_is_kept(capsys, json_of):
    asked = "overlap", "--model", "llama-3.3-70b", "--tokens", "2048"
    answer, apart = json_of(*asked), json_of(*asked, "--sequence-parallel")
    assert answer["hardware"] == "h100-t3" and set(answer["rtl_ns"]) == {"op", "fc2"} == set(apart["rtl_ns"])
    for way, ns in answer["rtl_ns"]["fc2"].items():
        run = json.loads((RESULTS / "run-h100.json").read_text())["techniques"][way]
        assert ns == pytest.approx(run["total_ns"], abs=51)
        assert apart["rtl_ns"]["fc2"][way] == pytest.approx(run["total_ns"] - run["loss_ns"]["all_gather"], abs=101)
    changed = "--machine", "h100-sxm", "--set", "machine.tracker.sets=256"
    other = json_of(*asked, *changed)
    assert other["rtl_ns"] == {}
    window = {one["mechanism"]: one["losses_ns"]["fc2"]["window_blocked"] for one in other["ranking"]
              if one["losses_ns"]}
    assert set(window) == set(TRIGGERED) and min(window.values()) > 0
    assert main([*asked]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "window" in printed and "hold 512 workgroups; the compute units hold 264" in printed
    assert "no result is kept" not in printed
    assert main([*asked, *changed]) == 0
    assert "– under RTL: no result is kept" in " ".join(capsys.readouterr().out.split())


def test_without_hardware_nothing_limits_track_and_trigger_and_this_is_said(capsys, json_of):
    asked = "overlap", "--machine", "gb200", "--tokens", "2048"
    answer = json_of(*asked)
    assert answer["hardware"] is None and not answer["rtl_ns"]
    assert "t3-mca+" not in {one["mechanism"] for one in answer["ranking"]}
    assert main([*asked]) == 0
    assert "gb200 names no machine of the cycle level (cycle_machine), so" in " ".join(capsys.readouterr().out.split())
