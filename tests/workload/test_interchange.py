"""Workloads out of a Hugging Face config.json and Chakra traces: what is found, that it is run, and bad files."""

import json
import random
import re
from pathlib import Path

import pytest

from t3sim import cli
from t3sim.base.errors import BadInput
from t3sim.workload.interchange.chakra import chakra_workloads
from t3sim.workload.interchange.config import config_workloads, lacking
from t3sim.workload.model_file import load_transformer
from t3sim.workload.workloads import Workload, WorkloadError

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "workloads"
CONFIG, TRACE = EXAMPLES / "small-config.json", EXAMPLES / "small-trace.json"


def shapes(found):
    return [(one.gemm, one.workload.m, one.workload.n, one.workload.k, one.workload.dtype, one.count) for one in found]


def test_sub_layers_of_a_config():
    found = config_workloads(str(CONFIG), tp=4, tokens=1024)
    assert [(one.sublayer, one.m, one.n, one.k, times) for one, times in found] == [
        ("op", 1024, 512, 512 // 4, 4), ("fc1", 1024, 512, 2 * 1536 // 4, 4),  # gate and up
        ("fc2", 1024, 512, 1536 // 4, 4), ("ip", 1024, 512, (512 + 2 * 256) // 4, 4)]  # keys and values of 4 of 8 heads


def test_the_t3_papers_model_as_a_config(tmp_path):
    file = tmp_path / "t-nlg.json"
    file.write_text(json.dumps({"hidden_size": 4256, "num_hidden_layers": 78, "num_attention_heads": 28,
                                "vocab_size": 51200}))
    [(found, times)] = config_workloads(str(file), tp=8, sublayer="FC2")
    assert found == Workload("t-nlg", "fc2", 8, 8192, 4256, 2128) and times == 78


def test_experts_are_not_all_reduced(tmp_path):
    file = tmp_path / "experts.json"
    file.write_text(json.dumps({**json.loads(CONFIG.read_text()), "num_local_experts": 8,
                                "num_experts_per_tok": 2}))
    assert [one.sublayer for one, _ in config_workloads(str(file), tp=4)] == ["op", "ip"]
    with pytest.raises(WorkloadError, match="'fc2' of experts is one of 8 experts'"):
        config_workloads(str(file), tp=4, sublayer="fc2")


@pytest.mark.parametrize("named, dtype, said", [
    ({"torch_dtype": "bfloat16"}, "bf16", None), ({"torch_dtype": "float16"}, "fp16", None), ({}, "fp16", None),
    ({"torch_dtype": "bfloat16", "quantization_config": {"quant_method": "fp8"}}, "fp16", "experts is in fp8, which")])
def test_a_model_s_format_is_run_or_it_is_said(tmp_path, named, dtype, said):
    """DeepSeek-V3's keys, in which a layer's experts are routed ones with a width of their own."""
    file = tmp_path / "experts.json"
    file.write_text(json.dumps({
        "hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128,
        "intermediate_size": 18432, "moe_intermediate_size": 2048, "n_routed_experts": 256, "num_experts_per_tok": 8,
        "vocab_size": 129280, "hidden_act": "silu", **named}))
    assert {one.dtype for one, _ in config_workloads(str(file), tp=8)} == {dtype}
    assert {one.dtype for one, _ in config_workloads(str(file), tp=8, dtype="fp32")} == {"fp32"}
    told = lacking(str(file))
    assert told is None if said is None else str(told).startswith(said)
    model = load_transformer(str(file))
    assert (model.experts, model.experts_per_token, model.feed_forward) == (256, 8, 2048)


def test_gemms_of_a_trace_whose_outputs_are_all_reduced():
    """Two layers of the example: the projection behind the attention, the second linear of the feed-forward part."""
    assert shapes(chakra_workloads(str(TRACE), 4)) == [
        ("aten::mm", 1024, 512, 128, "fp16", 2), ("aten::linear", 1024, 512, 384, "fp16", 2)]


def objects(collective="0", size=1 << 20, kind="COMM_COLL_NODE", types="Half"):
    return [{"version": "0.0.4"},
            {"id": "5", "name": "gemm", "type": "COMP_NODE",
             "inputs": {"shapes": "[[512], [1024, 128], [128, 512]]", "types": f"['{types}', '{types}']"}},
            {"id": "6", "name": "gelu", "type": "COMP_NODE", "ctrlDeps": ["5"]},
            {"id": "7", "name": "sum", "type": kind, "dataDeps": ["6"],
             "attr": [{"name": "comm_type", "int64Val": collective}, {"name": "comm_size", "int64Val": str(size)}]}]


@pytest.mark.parametrize("form", [
    lambda all: "\n".join(map(json.dumps, all)), json.dumps, lambda all: json.dumps({"nodes": all[1:]}, indent=1)])
def test_forms_of_json(form, tmp_path):
    (tmp_path / "a").write_text(form(objects()))
    assert shapes(chakra_workloads(str(tmp_path / "a"), 8)) == [("gemm", 1024, 512, 128, "fp16", 1)]


@pytest.mark.parametrize(("operator", "collective", "rows"), [
    ("gemm-rs", "REDUCE_SCATTER", 1024), ("gemm-ar", "ALL_REDUCE", 1024), ("gemm-ag", "2", 4096),
    ("gemm-a2a", "ALL_TO_ALL", 4096)])
def test_what_an_operator_looks_for(operator, collective, rows, tmp_path):
    """Where each rank has a part of the tokens, the whole has those of all ranks."""
    (tmp_path / "a").write_text(json.dumps(objects(collective)))
    assert shapes(chakra_workloads(str(tmp_path / "a"), 4, operator)) == [("gemm", rows, 512, 128, "fp16", 1)]
    (tmp_path / "a").write_text(json.dumps(objects("5")))  # a broadcast
    with pytest.raises(BadInput, match=f"layer.operator = {operator}.*of 3 nodes 2 compute, 1 are collectives"):
        chakra_workloads(str(tmp_path / "a"), 4, operator)


@pytest.mark.parametrize(("types", "size", "dtype"), [
    ("c10::Half", 1 << 20, "fp16"), ("c10::BFloat16", 1 << 20, "bf16"), ("float", 1 << 21, "fp32")])
def test_formats(types, size, dtype, tmp_path):
    (tmp_path / "a").write_text(json.dumps(objects(size=size, types=types)))
    assert chakra_workloads(str(tmp_path / "a"), 4)[0].workload.dtype == dtype


def test_a_collective_of_another_size_is_of_something_else(tmp_path):
    (tmp_path / "a").write_text(json.dumps(objects(size=4096)))
    with pytest.raises(BadInput, match="no GEMM's whole output"):
        chakra_workloads(str(tmp_path / "a"), 4)


def grouped(*groups, first=(), **attributes):
    """Return a trace of a GEMM, 512 columns wider each, and an all-reduce in each of these groups."""
    nodes = [{"version": "0.0.4"}, *first]
    for place, group in enumerate(groups):
        n = 512 * (place + 1)
        gemm, total = objects(size=2 * 1024 * n)[1::2]
        gemm |= {"id": 10 * place + 5, "inputs": {"shapes": f"[[1024, 128], [128, {n}]]", "types": "['Half', 'Half']"}}
        total |= {"id": 10 * place + 7, "dataDeps": [10 * place + 5]}
        total["attr"] += [] if group is None else [{"name": name, **value} for name, value in group.items()]
        nodes += [gemm, total]
    return json.dumps(nodes)


def named(name, **more):
    return {"pg_name": {"stringVal": name}, **more}


def listed(*groups):
    text = json.dumps([{"pg_name": name, "backend_config": "cuda:nccl", **more} for name, more in groups])
    return [{"id": 1, "name": "## process_group:init ##", "type": "METADATA_NODE",
             "inputs": {"values": json.dumps([text]), "shapes": "[[]]", "types": "['String']"}}]


SIXTEEN = {"pg_size": {"int32Val": 16}}


@pytest.mark.parametrize(("text", "widths", "left"), [
    (grouped(named("1"), named("2", **SIXTEEN)), [512], ["1 of 2 GEMMs.*groups of 16 ranks, not 4"]),
    (grouped(named("1", **SIXTEEN), named("2", pg_size={"int64Val": "4"})), [1024], ["groups of 16 ranks"]),
    (grouped(named("1", group_size={"uint32Val": 4}), named("2")), [512], ["groups of unknown ranks"]),
    (grouped(named("1", pg_ranks={"int64List": {"values": ["0", "1", "2", "3"]}}), named("2")), [512], ["unknown"]),
    (grouped(named("1", pg_ranks={"stringVal": "[4, 5, 6, 7]"}), named("2", **SIXTEEN)), [512], ["16"]),
    (grouped(named("dp"), named("tp"), first=listed(("dp", {"ranks": [*range(16)]}), ("tp", {"group_size": 4}))),
     [1024], ["groups of 16 ranks"]),
    (grouped(named("dp", **SIXTEEN), named("dp"), named("tp")), [1536], ["2 of 3 GEMMs.*groups of 16 ranks"]),
    (grouped(named("tp"), named("tp")), [512, 1024], []), (grouped(None, None), [512, 1024], []),
    # As many replicas as GPUs that share a layer: ranks, words or names tell which is which.
    (grouped(named("1", pg_ranks={"int64List": {"values": [0, 4, 8, 12]}}),
             named("2", pg_ranks={"int64List": {"values": [0, 1, 2, 3]}})), [1024], ["other groups of 4: '1'"]),
    (grouped(named("1"), named("2"), first=listed(("1", {"ranks": [*range(4)]}), ("2", {"ranks": [0, 4, 8, 12]}))),
     [512], ["other groups of 4: '2'"]),
    (grouped(named("1", pg_desc={"stringVal": "DATA_PARALLEL_GROUP"}),
             named("2", pg_desc={"stringVal": "TENSOR_MODEL_PARALLEL_GROUP"})), [1024], ["other groups: '1'"]),
    (grouped({"process_group": {"stringVal": "dp"}}, {"process_group": {"stringVal": "tp"}}), [1024], ["'dp'"]),
    (grouped({"comm_group": {"int32Val": 7}}, {"comm_group": {"int32Val": 7}}), [512, 1024], [])])
def test_a_gemm_goes_with_the_collective_of_its_group(text, widths, left, tmp_path):
    (tmp_path / "a").write_text(text)
    words: list[str] = []
    assert [one.workload.n for one in chakra_workloads(str(tmp_path / "a"), 4, "gemm-rs", words)] == widths
    assert len(words) == len(left) and all(re.search(told, word) for told, word in zip(left, words))


@pytest.mark.parametrize(("text", "told"), [
    (grouped(named("1"), named("2")), "among groups '1', '2', and no node says how many ranks"),
    (grouped(named("1", pg_size={"int32Val": 4}), named("2", pg_size={"int32Val": 4})),
     "among groups '1', '2' of 4 ranks each, and no node says which ranks they are"),
    (grouped({"involved_dim": {"stringVal": "10"}}, {"involved_dim": {"stringVal": "01"}}), "among groups '10', '01'"),
    (grouped(named("1", **SIXTEEN)), "1 of 1 GEMMs, whose collectives are among groups of 16 ranks, not 4"),
    (grouped(named("1", pg_size={"int32Val": -4})), "pg_size = -4 is not possible")])
def test_a_trace_whose_group_is_not_known_is_refused(text, told, tmp_path):
    (tmp_path / "a").write_text(text)
    with pytest.raises(BadInput, match=told):
        chakra_workloads(str(tmp_path / "a"), 4)


@pytest.mark.parametrize(("types", "size", "told"), [
    ("Tensor(c10::Float8_e4m3fn)", 1 << 20, "fp8"), ("Tensor(c10::Float8_e4m3fn)", 1 << 21, "fp8"),
    ("Tensor(c10::Float8_e5m2)", 1 << 19, "fp8"), ("Tensor(c10::Float8_e4m3fnuz)", 1 << 21, "fp8"),
    ("Tensor(double)", 1 << 22, "fp64"), ("Tensor(signed char)", 1 << 21, "Tensor.signed char")])
def test_operands_of_another_format_are_named_and_not_taken_for_one_of_ours(types, size, told, tmp_path):
    (tmp_path / "a").write_text(json.dumps(objects(size=size, types=types)))
    with pytest.raises(BadInput, match=f"node 5, gemm, whose operands are .*{told}.*: allowed are fp16, bf16, fp32"):
        chakra_workloads(str(tmp_path / "a"), 4)


def test_scales_and_a_bias_do_not_make_the_format(tmp_path):
    trace = objects(size=1 << 20, types="x")
    trace[1]["inputs"] = {"shapes": "[[512], [1024, 128], [128, 512], [], []]",
                          "types": "['Float8_e4m3fn', 'BFloat16', 'BFloat16', 'float', 'float']"}
    (tmp_path / "a").write_text(json.dumps(trace))
    assert chakra_workloads(str(tmp_path / "a"), 4)[0].workload.dtype == "bf16"


@pytest.mark.parametrize(("trace", "told"), [
    ({"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": [{"id": 2, "name": "aten::mm", "ctrl_deps": 1}]},
     "a PyTorch execution trace: convert it"),
    ({"nodes": [{"id": 2, "name": "aten::mm", "ctrl_deps": 1}]}, "a PyTorch execution trace: convert it"),
    ([{"ph": "X", "name": "aten::mm", "ts": 1, "dur": 2}], "a Kineto trace: convert it"),
    ({"schemaVersion": 1, "traceEvents": []}, "a Kineto trace: convert it")])
def test_traces_of_pytorch_are_to_be_converted(trace, told, tmp_path, monkeypatch, error_of):
    monkeypatch.chdir(tmp_path)
    Path("a.json").write_text(json.dumps(trace))
    assert told in error_of("run", "--chakra", "a.json", "--tp", "4")


def varint(number):
    return (bytes([number & 0x7F | 0x80]) + varint(number >> 7)) if number > 0x7F else bytes([number])


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def as_protobuf():
    """The same trace by the field numbers of the schema, by hand: packed dependencies, and fields that are not read."""
    metadata = field(1, "0.0.4")
    gemm = (field(1, 5) + field(2, "gemm") + field(3, 4) + field(7, 100)
            + field(8, field(2, "[[512], [1024, 128], [128, 512]]") + field(3, "['c10::BFloat16']")))
    gelu = field(1, 6) + field(2, "gelu") + field(3, 4) + field(5, varint(5))
    size = field(1, "comm_size") + field(9, 1 << 20)
    kind = field(1, "comm_type") + field(9, 0)
    total = field(1, 7) + field(2, "sum") + field(3, 7) + field(5, varint(6)) + field(10, kind) + field(10, size)
    return b"".join(varint(len(one)) + one for one in (metadata, gemm, gelu, total))


def test_protobuf(tmp_path):
    (tmp_path / "a.et").write_bytes(as_protobuf())
    assert shapes(chakra_workloads(str(tmp_path / "a.et"), 4)) == [("gemm", 1024, 512, 128, "bf16", 1)]


def node(**changes):
    good = objects()
    good[3] |= changes
    return json.dumps(good)


@pytest.mark.parametrize(("content", "told"), [
    (b"", "no GEMM"), (b"{}", "of 0 nodes"), (b"[1]", "object 0 is not a node"), (b"{", "not a Chakra trace"),
    (b"\xff\xfe\x00", "no length of a message|is cut off|no node"), (as_protobuf()[:-3], "is cut off"),
    (b"\x02\x00\x00\x03\xff\xff\xff", "no node"), (b"not JSON", "is cut off|no node|no message"),
    (b"[" * 100000, "not a Chakra trace"), (b'{"id": "\xff"}', "not a Chakra trace"),
    (node(id=-1), "id = -1"), (node(id=5), "node 5 appears twice"), (node(type="SOMETHING"), "type = 'SOMETHING'"),
    (node(dataDeps="5"), "data_deps is not a list"), (node(dataDeps=["x"]), "a dependency = 'x'"),
    (node(dataDeps=[6.5]), "a dependency = 6.5"), (node(attr=[3]), "not an attribute"),
    (node(attr={}), "attr is not a list"),
    (node(attr=[{"name": "comm_type", "int64Val": "many"}]), "comm_type = 'many'"),
    (node(attr=[{"name": ["x"], "int64Val": 1}]), "not an attribute"),
    (node(dataDeps=["99"]), "no GEMM"), (node(name="a\nb", dataDeps=[]), "no GEMM"),
    (json.dumps(objects()).replace("[1024, 128]", "[1024, "), "shapes"),
])
def test_a_bad_trace_is_one_line(content, told, tmp_path, monkeypatch, error_of):
    monkeypatch.chdir(tmp_path)
    Path("a.et").write_bytes(content if isinstance(content, bytes) else content.encode())
    line = error_of("run", "--chakra", "a.et", "--tp", "4")
    assert "--chakra 'a.et'" in line and re.search(told, line) and len(line) < 300, line


@pytest.mark.parametrize(("changes", "told"), [
    ({"hidden_size": None}, "hidden_size is missing"), ({"hidden_size": "512"}, "hidden_size = 512"),
    ({"num_attention_heads": 7}, "heads"), ({"head_dim": -1}, "head_dim = -1"),
    ({"num_attention_heads": 1024}, "must divide"),
    ({"intermediate_size": 1537}, "TP=4 does not divide K=3074 of a fc1"),
    ({"hidden_size": 1 << 40}, "hidden_size"), ({"num_hidden_layers": True}, "num_hidden_layers = True")])
def test_a_bad_config_is_one_line(changes, told, tmp_path, monkeypatch, error_of):
    monkeypatch.chdir(tmp_path)
    Path("a.json").write_text(json.dumps({**json.loads(CONFIG.read_text()), **changes}))
    assert told in error_of("run", "--model", "a.json", "--tp", "4")


@pytest.mark.parametrize(("words", "told"), [
    (["--chakra", str(TRACE)], "needs --tp"),
    (["--chakra", str(TRACE), "--tp", "4", "--gemm", "1x1x1"], "--gemm 1x1x1"),
    (["--chakra", str(TRACE), "--tp", "65"], "65 GPUs"), (["--model", str(CONFIG), "--tp", "0"], "0 GPUs"),
    (["--chakra", "no-such-file", "--tp", "4"], "No such file"),
    (["--chakra", str(EXAMPLES), "--tp", "4"], "directory"),
    (["--model", str(CONFIG), "--tokens", "0"], "M=0"), (["--model", str(CONFIG), "--sublayer", "fc3"], "'fc3'"),
    (["--model", "t-nlg", "--tokens", "5"], "--tokens 5 is for a config.json"),
    (["--model", str(CONFIG), "--plot", "a.svg"], "--plot a.svg is of one sub-layer, and here are 4"),
    (["--chakra", str(TRACE), "--tp", "4", "--level", "event"], "does not go with --level event")])
def test_options_that_do_not_fit(words, told, error_of):
    assert told in error_of("run", *words)


@pytest.mark.parametrize("good", [TRACE.read_bytes(), as_protobuf()], ids=["json", "protobuf"])
def test_traces_with_bytes_changed_or_cut(good, tmp_path, seed):
    """Whatever is in the file: workloads, or one line that says what is wrong."""
    chance, file, refusals = random.Random(seed), tmp_path / "a.et", 0
    for _ in range(300):
        bad = bytearray(good[:chance.randrange(len(good))] if chance.random() < 0.3 else good)
        for _ in range(chance.randrange(1, 6)):
            if bad:
                bad[chance.randrange(len(bad))] = chance.randrange(256)
        file.write_bytes(bad)
        try:
            assert chakra_workloads(str(file), 4)
        except BadInput as error:
            refusals += 1
            assert "\n" not in str(error) and str(error).isprintable()
    assert refusals


@pytest.mark.builds_rtl
@pytest.mark.builds_loops
@pytest.mark.slow
@pytest.mark.parametrize("words", [
    ["--model", str(CONFIG), "--tokens", "256"], ["--chakra", str(TRACE)]], ids=["config", "trace"])
def test_what_is_found_is_run_on_the_rtl(words, tmp_path, capsys):
    """Each sub-layer with the hardware in the loop, and all of them as often as the file has them."""
    out = tmp_path / "out.json"
    assert cli.main(["run", *words, "--tp", "4", "--technique", "sequential,t3", "--json", str(out)]) == 0
    printed = capsys.readouterr().out
    found = json.loads(out.read_text())["sublayers"]
    assert [one["times"] for one in found] == ([4] * 4 if "--model" in words else [2, 2])
    for one in found:
        assert one["techniques"]["t3"]["rtl_in_loop"] and one["speedup"]["t3"] > 1
    totals = {name: sum(one["times"] * one["techniques"][name]["total_ns"] for one in found)
              for name in ("sequential", "t3")}
    assert re.search(rf" all +{sum(one['times'] for one in found)} +{totals['sequential'] / 1e3:,.1f} +"
                     rf"{totals['t3'] / 1e3:,.1f}\n", printed)
    assert f"t3 {totals['sequential'] / totals['t3']:.3f}" in printed
