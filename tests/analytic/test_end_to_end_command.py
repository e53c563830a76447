"""`t3 end-to-end` as a user meets it: numbers that add up, and one line for what cannot be."""

import json

import pytest

from t3sim.cli import main
from tests.support.damage import replaced

GOOD = ["end-to-end", "--model", "megatron-22b", "--gpus", "8", "--global-batch", "8"]


def run(capsys, *arguments):
    code = main(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_json_adds_up(capsys):
    code, out, _ = run(capsys, *GOOD, "--mapping", "tp=8,micro=4,sp=1", "--recompute", "selective",
                       "--json", "-")
    found = json.loads(out)
    assert code == 0
    assert sum(found["breakdown_ns"].values()) == pytest.approx(found["iteration_ns"])
    low, high = found["iteration_range_ns"]
    assert low < found["iteration_ns"] < high
    assert found["tflops_per_gpu"] > 100
    assert found["memory_bytes"] < 80e9
    assert found["training_days"] > 0


def test_the_same_seed_gives_the_same_range(capsys):
    ranges = [json.loads(run(capsys, *GOOD, "--mapping", "tp=8", "--json", "-", "--seed", seed)[1])[
        "iteration_range_ns"] for seed in ("1", "1", "2")]
    assert ranges[0] == ranges[1] != ranges[2]


def test_without_a_mapping_the_fastest_is_taken(capsys):
    _, ranked, _ = run(capsys, *GOOD, "--search", "--json", "-")
    _, out, _ = run(capsys, *GOOD, "--json", "-")
    best = json.loads(ranked)["mappings"][0]
    assert json.loads(out)["iteration_ns"] == pytest.approx(best["iteration_ns"])
    times = [one["iteration_ns"] for one in json.loads(ranked)["mappings"]]
    assert times == sorted(times)


@pytest.mark.long
def test_tables_and_plot(capsys, tmp_path):
    target = tmp_path / "search.svg"
    code, out, _ = run(capsys, *GOOD, "--search", "--plot", str(target))
    assert code == 0
    assert "mappings per second" in " ".join(out.split())
    assert target.read_text().startswith("<svg")
    for phase in ("training", "prompt", "decode"):
        code, out, _ = run(capsys, *GOOD, "--phase", phase, "--mapping", "tp=8")
        assert code == 0
        assert "Run time by part" in out


def test_hugging_face_s_config(capsys, tmp_path):
    config = tmp_path / "config.json"
    config.write_text(json.dumps({
        "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
        "intermediate_size": 14336, "vocab_size": 32000, "hidden_act": "silu", "num_local_experts": 8,
        "num_experts_per_tok": 2}))
    code, out, _ = run(capsys, "end-to-end", "--model", str(config), "--gpus", "32", "--global-batch", "64",
                       "--mapping", "tp=4,dp=8,ep=8", "--json", "-")
    found = json.loads(out)
    assert code == 0
    assert found["model"]["experts"] == 8
    assert found["breakdown_ns"]["ep"] > 0


@pytest.mark.parametrize("quantization", [{"quant_method": "fp8"}, {"load_in_4bit": True}, "fp8"])
def test_a_format_that_is_not_taken_is_said(quantization, capsys, tmp_path):
    config = tmp_path / "config.json"
    config.write_text(json.dumps({
        "hidden_size": 4096, "num_hidden_layers": 2, "num_attention_heads": 32, "vocab_size": 32000,
        "quantization_config": quantization}))
    assert run(capsys, *GOOD, "--model", str(config), "--phase", "prompt", "--mapping", "tp=8")[2].endswith(
        "; its GEMMs are taken in bf16 (--dtype)\n")


@pytest.mark.parametrize("arguments, named", [
    (["--model", "none"], "none"), (["--model", "missing.json"], "missing.json"), (["--gpus", "0"], "0"),
    (["--gpus", "8x"], "8x"), (["--mapping", "tp=3"], "3"), (["--mapping", "tp"], "tp"),
    (["--mapping", ""], "KEY=NUMBER"),
    (["--mapping", "tp=8,tp=8"], "tp"), (["--mapping", "xp=8"], "xp"), (["--mapping", "tp=-1"], "-1"),
    (["--mapping", "tp=8,dp=2"], "16"), (["--mapping", "tp=4,pp=2,interleave=5"], "layers"),
    (["--mapping", "tp=8,micro=3"], "micro"), (["--mapping", "tp=8,zero=4"], "zero"),
    (["--mapping", "tp=1,dp=8"], "80 GB"), (["--mapping", "tp=8", "--recompute", "some"], "some"),
    (["--phase", "sleep"], "sleep"), (["--technique", "t4"], "t4"), (["--kernels", "x"], "x"),
    (["--kernels", "", "--mapping", "tp=8"], "--kernels ''"),
    (["--recompute", "", "--mapping", "tp=8"], "--recompute ''"),
    (["--machine", "x"], "x"),
    (["--machine", ""], "machine file ''"), (["--sequence", "0"], "0"), (["--global-batch", "-1"], "-1"),
    (["--tokens", "0"], "0"), (["--plot", "x.svg"], "--search"), (["--search", "--plot", "x.pdf"], "x.pdf"),
    (["--search", "--mapping", "tp=8"], "--mapping"), (["--technique", "t3", "--mapping", "tp=8"], "cycle_machine"),
    (["--global-batch", "7", "--gpus", "1000", "--search"], "1000"), (["--tokens", "nan"], "nan")])
def test_bad_input_gets_one_line(capsys, arguments, named):
    code, out, error = run(capsys, *GOOD, *arguments)
    assert code == 2
    assert not out
    assert error.startswith("t3: error: ") and error.count("\n") == 1 and len(error) < 400
    assert named in error


@pytest.mark.parametrize("content, named", [
    ("", "JSON"), ("[]", "object"), ("{}", "hidden_size"), ('{"hidden_size": "x"}', "hidden_size"),
    ('{"hidden_size": 0}', "hidden_size"), ("[" * 100000, "JSON"),
    ('{"hidden_size": 100, "num_hidden_layers": 2, "num_attention_heads": 3, "vocab_size": 10}', "heads")])
def test_a_config_that_cannot_be(capsys, tmp_path, content, named):
    config = tmp_path / "config.json"
    config.write_text(content)
    code, _, error = run(capsys, *GOOD, "--model", str(config))
    assert code == 2
    assert named in error and error.count("\n") == 1


def test_a_cluster_of_one_s_own(capsys, tmp_path):
    from importlib import resources

    text = resources.files("t3sim.machine").joinpath("machines/a100-sxm.toml").read_text()
    mine = tmp_path / "mine.toml"
    mine.write_text(replaced(text, 'name = "a100-sxm"', 'name = "mine"'))
    assert run(capsys, *GOOD, "--machine", str(mine), "--mapping", "tp=8")[0] == 0
    memory = "memory_gb = 80.0"
    for old, new, named in ((memory, "memory_gb = 0.0", "memory_gb"), (memory, "", "memory_gb"),
                            ("[uncertainty]", "[within]", "within"), (memory, "memory_gb = nan", "memory_gb"),
                            ("[uncertainty]", "[intra]\nefficiency = 0.7\nstep_ns = 1.0\n\n[uncertainty]", "inter")):
        mine.write_text(text.replace(old, new))
        code, _, error = run(capsys, *GOOD, "--machine", str(mine), "--mapping", "tp=8")
        assert code == 2
        assert named in error and error.count("\n") == 1
