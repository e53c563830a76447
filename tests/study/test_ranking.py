"""A scenario's file gives `t3 overlap` and `t3 kernel` what their options do, and its faults name it."""


import pytest

from t3sim.base.errors import BadInput
from t3sim.study.scenario.dispatch import run
from t3sim.study.scenario.files import scenario_of
from t3sim.study.scenario.kernel import KernelAlone
from t3sim.study.scenario.ranking import LayerToRank
from t3sim.study.scenario.recorded import recorded
from t3sim.study.sweeps.scenario_point import ScenarioPoint

RANKED = 'machine = "a100-sxm"\n[layer]\nmodel = "qwen2.5-72b"\ntp = 4\ntokens = 2048\n'


def test_a_file_and_options_rank_alike(tmp_path, json_of):
    (tmp_path / "layer.toml").write_text(RANKED)
    by_file = json_of("overlap", str(tmp_path / "layer.toml"))
    options = "--model", "qwen2.5-72b", "--machine", "a100-sxm", "--tp", "4", "--tokens"
    assert by_file == json_of("overlap", *options, "2048")
    assert json_of("overlap", str(tmp_path / "layer.toml"), "--tokens", "4096") == json_of(
        "overlap", *options, "4096")
    (tmp_path / "layer.toml").write_text(RANKED + 'operator = "gemm-rs"\n')
    split = json_of("overlap", str(tmp_path / "layer.toml"))
    assert split == json_of("overlap", *options, "2048", "--sequence-parallel") != by_file


def test_a_scenario_of_the_library_level_is_ranked_wherever_it_is_asked(json_of):
    keys = {"layer.model": "qwen2.5-72b", "machine": "a100-sxm", "layer.tp": 4, "layer.tokens": 2048}
    library = scenario_of({}, {**keys, "level": "library"})
    ranked = run(library).to_json()
    assert ranked == LayerToRank(scenario_of({}, keys)).run().to_json() and len(ranked["ranking"]) > 3
    options = "--model", "qwen2.5-72b", "--machine", "a100-sxm", "--tp", "4", "--tokens", "2048"
    assert json_of("run", "--level", "library", *options) == ranked == json_of("overlap", *options)
    point = ScenarioPoint({"level": "library", "model": "qwen2.5-72b", "machine": "a100-sxm", "tp": 4, "tokens": 2048})
    (task,) = point.tasks
    values = point.answer({task.key: task.run(lambda share: None)})
    assert values["ranking.0.mechanism"] == ranked["ranking"][0]["mechanism"] and point.warm_up() is None
    with pytest.raises(BadInput, match="a trace records the cycle level"):
        recorded(library)
    with pytest.raises(BadInput, match="a ranking of mechanisms does not go with a kernel"):
        KernelAlone(scenario_of({}, {"level": "library", "layer.operator": "gemm"}))
    with pytest.raises(BadInput, match="level = event does not go with a ranking"):
        LayerToRank(scenario_of({}, {"level": "event"}))


@pytest.mark.parametrize(("changes", "words"), [
    ({"layer.gemm": "8x8x8"}, "layer.gemm = 8x8x8 does not go with a ranking"),
    ({"exchange.topology": "switch"}, "exchange.topology = switch does not go with a ranking"),
    ({"layer.operator": "gemm-a2a"}, "layer.operator = gemm-a2a is not ranked: allowed are gemm-ar, gemm-rs"),
    ({"layer.tp": 3}, "layer.tp = 3 is not possible: 2 to 8 GPUs"),
    ({"layer.tokens": 0}, "layer.tokens = 0 is not possible: 1 to 1048576"),
    ({"layer.tokens": 4, "layer.operator": "gemm-rs"}, "layer.tokens = 4 is not possible: 8 to"),
    ({"layer.dtype": "int4"}, "layer.dtype = int4 is unknown"),
], ids=str)
def test_what_cannot_be_ranked_is_refused_by_its_key(changes, words):
    with pytest.raises(BadInput, match=words):
        LayerToRank(scenario_of({}, changes))


def test_a_kernel_of_a_file_is_that_of_options(tmp_path):
    content = {"layer": {"operator": "gemm", "gemm": "256x256x512"}}
    alone = KernelAlone(scenario_of(content, {"layer.split_k": 2}))
    assert alone.workload.size == "256x256x512"
    with pytest.raises(BadInput, match="layer.operator = gemm-rs is no kernel alone: allowed are gemm, decode"):
        KernelAlone(scenario_of({}, {"layer.gemm": "256x256x512"}))


def test_faults_of_a_kernels_file_name_it_and_options_go_before_it(tmp_path, error_of):
    file = tmp_path / "kernel.toml"
    file.write_text('[layer]\noperator = "gemm"\ngemm = "256x256x512"\n')
    assert f"{file}: GEMM shape '2x2' is not MxNxK" in error_of("kernel", str(file), "--gemm", "2x2")
    file.write_text('[layer]\noperator = "gemm"\nshape = "256x256x512"\n')
    assert f"{file}: 'layer.shape' is unknown: allowed are" in error_of("kernel", str(file))
