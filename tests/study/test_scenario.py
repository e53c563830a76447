"""A scenario: file, options, `--set` and Python make the same object; what cannot be is refused in its own words."""

import re

import pytest

from t3sim import cli
from t3sim.base.errors import BadInput
from t3sim.commands.flags import FLAGS, in_options
from t3sim.machine import load_machine
from t3sim.study import techniques
from t3sim.study.scenario.collective import CollectiveRequest
from t3sim.study.scenario.files import keys, read_scenario, scenario_of, value_of
from t3sim.study.scenario.kernel import KernelAlone
from t3sim.study.scenario.request import layer_request
from t3sim.study.scenario.scenario import Scenario
from t3sim.workload.transformer import PRESETS
from t3sim.workload.workloads import gemm_workload
from tests.support.fake_run import fake_result

DIRECT = """
machine = { extends = "t3-table1", link = { bandwidth_gb_per_s = 100.0 } }
techniques = ["sequential", "t3"]

[layer]
gemm = "1024x512x256"
devices = 4
operator = "gemm-ar"

[exchange]
topology = "switch"
algorithm = "direct"

[t3]
policy = "mca"
"""
AS_OPTIONS = ["--gemm", "1024x512x256", "--devices", "4", "--operator", "gemm-ar", "--topology", "switch",
              "--algorithm", "direct", "--technique", "sequential,t3", "--policy", "mca"]
AS_SETTINGS = ["layer.gemm=1024x512x256", "layer.devices=4", "layer.operator=gemm-ar", "exchange.topology=switch",
               'exchange.algorithm="direct"', 'techniques=["sequential","t3"]', "t3.policy=mca"]
LINK = ["--set", "machine.link.bandwidth_gb_per_s=100.0"]


@pytest.fixture
def direct(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "direct.toml").write_text(DIRECT)
    return "direct.toml"


@pytest.fixture
def asked(monkeypatch):
    """What reaches the run."""
    found = []

    def run_sublayer(plan, names, progress=None, jobs=None, kept=None):
        found.append((plan, names))
        return fake_result(plan.workload, plan.machine, names, plan.seed)
    monkeypatch.setattr(techniques, "run_sublayer", run_sublayer)
    return found


def test_file_options_and_settings_ask_for_the_same(direct, asked, capsys):
    for words in ([direct], [*AS_OPTIONS, *LINK], [*(part for one in AS_SETTINGS for part in ("--set", one)), *LINK]):
        assert cli.main(["run", *words]) == 0, capsys.readouterr().err
    assert asked[0] == asked[1] == asked[2]
    plan, names = asked[0]
    assert plan.workload == gemm_workload("1024x512x256", 4) and names == ("sequential", "t3") and plan.seed == 0
    assert plan.machine.link.bandwidth_gb_per_s == 100 and plan.machine.dram == load_machine().dram
    assert (plan.exchange.operator, plan.exchange.algorithm, plan.policy) == ("gemm-ar", "direct", "mca")


def test_python_asks_for_the_same(direct, asked):
    from t3sim import fused_with, run

    of_file = layer_request(scenario_of(read_scenario(direct), {}))
    machine = load_machine({"extends": "t3-table1", "link": {"bandwidth_gb_per_s": 100.0}})
    run(gemm_workload("1024x512x256", 4), machine, ("sequential", "t3"), "mca",
        operator=fused_with("gemm-ar", "switch", "direct"))
    assert asked == [(of_file.plans[0], of_file.techniques)]


def test_options_and_settings_are_said_beside_a_file(direct, asked):
    assert cli.main(["run", direct, "--devices", "8", "--set", "seed=3"]) == 0
    plan, _ = asked[0]
    assert (plan.workload.tp, plan.seed, plan.exchange.algorithm) == (8, 3, "direct")


def test_every_option_is_a_short_cut_for_a_key():
    assert {flag.key for flag in FLAGS} <= set(keys()) and len({flag.word for flag in FLAGS}) == len(FLAGS)


@pytest.mark.parametrize(("content", "words", "told"), [
    ("[exchange]\ntopology = 'star'", [], "direct.toml: exchange.topology = 'star' is unknown: allowed are ring"),
    ("[exchange]\ntopology = 'ring'", ["--algorithm", "direct"],
     "direct.toml: --algorithm direct sends to every GPU, .* needs exchange.topology = switch or full"),
    ("[exchange]\ntopolgy = 'ring'", [], "direct.toml: 'exchange.topolgy' is unknown: allowed are exchange.topology"),
    ("[exchnge]\nx = 1", [], "direct.toml: 'exchnge' is unknown: did you mean exchange"),
    ("techniques = []", [], r"direct.toml: techniques = \(\): one or more is allowed"),
    ("seed = -3", [], "direct.toml: seed = -3: 0 or more is allowed"),
    ("seed = 9223372036854775808", [], "direct.toml: seed = 9223372036854775808: a number of 63 bits is allowed"),
    ("[layer]\ntp = 'eight'", [], "direct.toml: layer.tp = 'eight': a whole number is allowed"),
    ("layer = 3", [], r"direct.toml: layer = 3: a section is allowed, \[layer\]"),
    ("level = 'cycel'", [], "direct.toml: level = 'cycel' is unknown: allowed are cycle, event"),
    ("techniques = ['t3', 3]", [], "direct.toml: techniques = 3: a word is allowed"),
    ("machine = { extends = 't3-table1', dram = { queue_entries = 0 } }", [],
     r"direct.toml: machine: \[dram\] queue_entries = 0: 4 to 127 is allowed"),
    ("machine = 3", [], "direct.toml: machine = 3: .* is allowed"),
    ("level = 'event'\n[layer]\ntp = 8", [], "direct.toml: level = event needs layer.gemm"),
    ("[flux]\norder = 'same'", [], "direct.toml: flux.order = same is for technique flux: it needs techniques = flux"),
    ("layer.workload = 'x'", [], "direct.toml: layer.workload = 'x': .*"),
    ("[layer", [], "scenario 'direct.toml' is not TOML"),
    ("x = " + "[" * 5000, [], "scenario 'direct.toml' is not TOML: nested too deeply"),
])
def test_a_file_that_cannot_be_is_refused_in_its_own_words(direct, content, words, told, tmp_path, error_of):
    (tmp_path / direct).write_text(content)
    assert re.match(f"t3: error: {told}", error_of("run", direct, *words))


@pytest.mark.parametrize(("setting", "told"), [
    ("exchange.topolgy=ring", "'exchange.topolgy' is unknown: allowed are exchange.topology, "),
    ("exchange.topology=star", "--topology 'star' is unknown: allowed are ring, switch"),
    ("layer.tp=x", "--tp 'x': a whole number is allowed"),
    ("layer.tp", "--set 'layer.tp' is not KEY=VALUE"),
    ("=3", "--set '=3' is not KEY=VALUE"),
    ("machine.dram.queue_entries.x=3", "machine: "),
    ("machine.dram=3", "machine: "),
])
def test_settings_that_cannot_be_are_refused(setting, told, error_of):
    assert error_of("run", "--set", setting).startswith(f"t3: error: {told}")


@pytest.mark.parametrize("arguments, told", [
    (["--technique", "t3", "--policy", "ring_aware", "--set", "machine.arbiter.starvation_limit_cycles=100"],
     "machine.arbiter.starvation_limit_cycles = 100 has no effect under ring_aware: it is of mca"),
    (["--technique", "sequential,t3,t3-mca+", "--set", "machine.arbiter.starvation_limit_cycles=0"],
     "machine.arbiter.starvation_limit_cycles = 0 has no effect under ring_aware and round_robin: it is of mca"),
    (["--technique", "t3-mca+", "--set", "machine.arbiter.threshold=5"],
     "machine.arbiter.threshold = 5 has no effect under ring_aware: it is of mca"),
])
def test_limits_that_no_policy_of_the_run_has_are_refused(arguments, told, error_of, tmp_path):
    for command in (["run"], ["trace", "--out", str(tmp_path / "trace")]):
        if command == ["run"] or "," not in arguments[1]:
            assert told in error_of(*command, *arguments)


def test_a_limit_is_taken_if_one_of_the_policies_has_it_and_a_machines_own_is_told_otherwise(tmp_path):
    limited = {"extends": "t3-table1", "arbiter": {"starvation_limit_cycles": 100}}
    model = (str(PRESETS["t-nlg"]),)
    assert layer_request(Scenario(machine=limited)).notes == model
    mca = {"techniques": ["t3"], "t3": {"policy": "mca"}, "machine": limited}
    assert layer_request(scenario_of(mca, {})).notes == model
    assert layer_request(scenario_of({"techniques": ["sequential"], "machine": limited}, {})).notes == model
    file = tmp_path / "own.toml"
    file.write_text('extends = "t3-table1"\nname = "own"\n[arbiter]\nstarvation_limit_cycles = 100\n')
    assert layer_request(scenario_of({"techniques": ["t3-mca+"], "machine": str(file)}, {})).notes == (
        *model, "own: [arbiter] starvation_limit_cycles = 100 has no effect under ring_aware",)
    alone = scenario_of({"layer": {"collective": "rs", "bytes": 1 << 20, "devices": 4}, "machine": str(file)}, {})
    assert [str(note) for note in CollectiveRequest(alone).notes] == [
        "own: [arbiter] starvation_limit_cycles = 100 has no effect under round_robin"]


def test_what_is_read_is_a_value_or_a_word():
    assert [value_of(text) for text in ("3", "1.5", "true", '"3"', "switch", "[1, 2]", "1\n2", "")] == [
        3, 1.5, True, "3", "switch", [1, 2], "1\n2", ""]


def test_only_what_differs_is_given():
    assert Scenario().changes() == {}
    scenario = scenario_of({}, {"layer.tp": 8, "seed": 0, "flux.tune": True})
    assert scenario.changes() == {"layer.tp": 8, "flux.tune": True}


@pytest.mark.parametrize("message, only, written", [
    ("exchange.topology = switch needs gpus.every = true, no layer.gemm; level = event", None,
     "--topology switch needs --every-gpu, no --gemm; --level event"),
    ("software = false; t3.policy = 'x'", ["t3.policy"], "software = false; --policy 'x'"),
    ("software = false, flux.tune; flux.order, layer.tp", None, "--no-software, --tune; --flux-order, --tp"),
    ("software = true; layer.values = false; exchange.wire = fp16", None,
     "software = true; layer.values = false; exchange.wire = fp16"),
    ("a machine of level cycle; [run] seed = 3; my.layer.gemm; 'layer.gemm'; layer.gemma; layer.gemm.k", None,
     "a machine of level cycle; [run] seed = 3; my.layer.gemm; 'layer.gemm'; layer.gemma; layer.gemm.k"),
    ("layer.locality = 'seed = 3' of layer.tp.", None, "--locality 'seed = 3' of --tp.")])
def test_keys_are_written_as_the_options_that_stand_for_them(message, only, written):
    assert in_options(message, only) == written


def test_a_kernel_alone_has_no_exchange(error_of):
    line = error_of("run", "--operator", "gemm", "--gemm", "256x256x64", "--set", "exchange.sums=fixed")
    assert "--sums fixed does not go with a kernel alone" in line
    with pytest.raises(BadInput, match=r"layer.kernel = k.npz defines its own operator"):
        KernelAlone(scenario_of({"layer": {"kernel": "k.npz", "operator": "gemv"}}, {}))


@pytest.mark.parametrize("key", ["exchange.topology=ring", "exchange.algorithm=ring", "exchange.algorithm=direct",
                                 "flux.pieces=2", "decomposed.communication_units=8", "layer.experts=16x2"])
def test_a_kernel_of_a_scenario_refuses_what_it_has_not(key, tmp_path, monkeypatch, error_of):
    monkeypatch.chdir(tmp_path)
    table, _, rest = key.partition(".")
    name, _, value = rest.partition("=")
    inner = f'{name} = {value if value.isdigit() else repr(value)}'
    layer = '[layer]\noperator = "gemm"\ngemm = "256x256x64"\n'
    (tmp_path / "one.toml").write_text(f"{layer}{inner}" if table == "layer" else f"{layer}[{table}]\n{inner}\n")
    assert f"{table}.{name} = {value}" in error_of("kernel", "one.toml")


def test_a_memory_whose_requests_are_columns_is_for_replays():
    with pytest.raises(BadInput, match=r"hbm3-reference: \[dram\] scheduler = dramsim3 has requests of one column"):
        layer_request(Scenario(machine="hbm3-reference"))


def test_the_help_is_one_screen(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.main(["run", "--help"]) == 0
    assert len(capsys.readouterr().out.splitlines()) <= 45


def test_python_runs_a_scenario_and_its_file(direct, asked):
    from t3sim import Scenario, run_scenario

    found = run_scenario(direct)
    assert asked[0][1] == ("sequential", "t3") and found.to_json()["techniques"].keys() == {"sequential", "t3"}
    run_scenario(Scenario())
    assert asked[1][0].workload.model == "t-nlg"
    event = run_scenario(Scenario(level="event", machine="h800-sxm", layer={"operator": "ag-gemm",
                                                                               "gemm": "512x1024x1024"}))
    assert event.techniques["flux"].total_ns > 0
    with pytest.raises(BadInput, match="exchange.topology = 'moon'|moon"):
        run_scenario(Scenario(exchange={"topology": "moon"}))
