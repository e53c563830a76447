"""Plans, Chakra traces, campaigns, studies, names and surroundings that are traps: one line each."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from t3sim import cli
from t3sim.cosim import toolchain
from t3sim.end_to_end import mapping
from tests.support.damage import answered, damaged

XML = """<algo name="a" proto="Simple" nchannels="1" ngpus="2" coll="allgather" nchunksperloop="2">
<gpu id="0"><tb id="0" send="1" recv="-1" chan="0"><step s="0" type="s" srcbuf="o" srcoff="0" dstbuf="o" dstoff="0"
 cnt="1" depid="-1" deps="-1" hasdep="0"/></tb><tb id="1" send="-1" recv="1" chan="0"><step s="0" type="r" srcbuf="o"
 srcoff="1" dstbuf="o" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="0"/></tb></gpu>
<gpu id="1"><tb id="0" send="0" recv="-1" chan="0"><step s="0" type="s" srcbuf="o" srcoff="1" dstbuf="o" dstoff="1"
 cnt="1" depid="-1" deps="-1" hasdep="0"/></tb><tb id="1" send="-1" recv="0" chan="0"><step s="0" type="r" srcbuf="o"
 srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/></tb></gpu></algo>"""
BOMB = '<!DOCTYPE a [<!ENTITY a "aaaa"><!ENTITY b "' + "&a;" * 1000 + '">]><algo name="&b;"/>'


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def plan(capsys, content: str | bytes, name: str = "plan.xml", allowed=(2,)) -> str:
    Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())
    line = answered(capsys, ["collective", "--plan", name, "--topology", "ring:2"], allowed)
    assert not line or name in line or "--plan" in line, line
    return line


def test_damaged_plans(here, capsys):
    assert plan(capsys, XML, allowed=(0,)) == ""
    for content in damaged(XML.encode(), 60):
        plan(capsys, content, allowed=(0, 2))


@pytest.mark.parametrize("content", [
    BOMB, '<?xml version="1.0" encoding="no-such"?>' + BOMB, XML.encode("utf-16"), XML.encode("utf-32"), b"\xff" * 99,
    XML.replace('nchunksperloop="2"', 'nchunksperloop="65536"').replace('ngpus="2"', 'ngpus="256"'),
    XML.replace('cnt="1"', 'cnt="65536"'), "<a>" * 100_000, "<algo/>", "", "<", XML.replace("allgather", "[/red]"),
])
def test_plans_that_are_traps(here, capsys, content):
    started = time.process_time()
    plan(capsys, content)
    assert time.process_time() - started < 5


@pytest.mark.parametrize("content", [
    "{}", "[" * 100_000, '{"collective": "allreduce", "gpus": ' + "[" * 50_000, '{"collective": [], "gpus": {}}',
    '{"collective": "allgather", "gpus": [' + ",".join(json.dumps({
        "id": gpu, "input_chunks": 1 << 20, "output_chunks": 1 << 20, "threadblocks": []})
        for gpu in range(256)) + "]}",
])
def test_json_plans_that_are_traps(here, capsys, content):
    plan(capsys, content, "plan.json")


@pytest.mark.parametrize("content", [
    '{"id": [], "type": 4}', '{"id": 1, "type": []}', '{"id": 1, "type": {}}', '{"id": 1, "name": [[]], "type": [1]}',
    '{"id": 1, "type": 7, "attr": [{"name": "comm_type", "int64_val": [0]}]}',
    '{"id": 1, "type": 7, "attr": [{"name": ["x"], "int64_val": 0}]}', '{"id": 1, "type": 4, "data_deps": [[1]]}',
    '{"id": 1, "type": 4, "data_deps": {"a": 1}}', "[" * 100_000, '{"id": ' + "9" * 5000 + "}", '{"nodes": [[]]}',
])
def test_chakra(here, capsys, content):
    Path("trace.json").write_text(content)
    assert "trace.json" in answered(capsys, ["run", "--chakra", "trace.json", "--tp", "4"], (2,))


@pytest.mark.parametrize(("content", "told"), [
    ('{"a": ' * 200 + "1" + "}" * 200, "nested too deeply"), ("[" * 100_000, "nested too deeply"),
    ('{"a": ' + "9" * 4000 + "}", "is no number"), ('{"a": 1e999}', "is no number"), ("[]", "an object is expected"),
    ('{"a": ', "is not a campaign's results"),
])
def test_compare(here, capsys, content, told):
    for name, text in (("before", '{"a": 1}'), ("after", content)):
        Path(name).mkdir()
        Path(name, "results.json").write_text(text)
    line = answered(capsys, ["compare", "before", "after"], (2,))
    assert told in line and "after/results.json" in line


def test_a_search_without_bound(here, capsys, monkeypatch):
    monkeypatch.setattr(mapping, "MOST_MAPPINGS", 50)
    line = answered(capsys, ["end-to-end", "--model", "gpt-3", "--gpus", "96", "--global-batch", "5040", "--search"])
    assert "--gpus 96 and --global-batch 5040 have more than 50 mappings" in line
    assert mapping._divisors(36) == [1, 2, 3, 4, 6, 9, 12, 18, 36] and mapping._divisors(1) == [1]


@pytest.mark.parametrize(("part", "told"), [
    ("[options]\nways = 3", "options.ways: 'ways' is unknown: allowed are "),
    ('[options]\ngemm = true', "options.gemm: layer.gemm = True: a word is allowed"),
    ('[grid]\ntechnique = ["t3", "none"]', "grid.technique: "),
])
def test_options_of_a_study(here, capsys, part, told):
    Path("s.toml").write_text(f'command = "run"\ntitle = "x"\n{part}\n')
    line = answered(capsys, ["sweep", "s.toml", "--out", "made"], (2,))
    assert told in line, line


def test_names_that_are_markup(here, capsys):
    """Neither rich's markup nor what steers a terminal comes through from a file's name."""
    shape = {"hidden_size": 12288, "num_hidden_layers": 96, "num_attention_heads": 96, "vocab_size": 51200}
    for name in ("[red].json", "[bold]x[bold].json", "\x1b[31mred\x07.json"):
        Path(name).write_text(json.dumps(shape))
        words = ["end-to-end", "--model", name, "--gpus", "64", "--mapping", "tp=8,pp=8", "--ignore-memory"]
        assert cli.main(words) == 0
        printed = capsys.readouterr().out
        told = name.removesuffix(".json").replace("\x1b", "\\x1b").replace("\x07", "\\x07")
        assert "\x1b" not in printed and told in printed
        Path(name).write_text("{")
        assert "\x1b" not in answered(capsys, ["end-to-end", "--model", name, "--gpus", "64"], (2,))


@pytest.mark.parametrize("named", ["/bin/true", "/bin/echo", "'", " ", "/", "no-such", "/bin/false"])
def test_compilers_that_are_none(monkeypatch, named):
    monkeypatch.setenv("CXX", named)
    toolchain.find_toolchain.cache_clear()
    try:
        if named == " ":
            assert toolchain.find_toolchain().compiler
            return
        with pytest.raises(toolchain.ToolchainError) as caught:
            toolchain.find_toolchain()
        assert "\n" not in str(caught.value) and "CXX" in str(caught.value)
    finally:
        toolchain.find_toolchain.cache_clear()


def t3(words: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(["bash", "-c", f"{sys.executable} -m t3sim.cli {words}"], text=True, capture_output=True,
                          timeout=100, check=False, env=os.environ | environment)


def test_streams_that_are_closed_or_full(here):
    for words in ("registers >&-", "registers >&- 2>&-", "registers --json made.json >&- 2>&- <&-"):
        done = t3(words)
        assert done.returncode == 0 and not done.stderr, done.stderr
    assert json.loads(Path("made.json").read_text())
    done = t3("registers > /dev/full")
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "No space left" in done.stderr


def test_a_cache_that_is_a_loop(here):
    Path("loop").symlink_to("loop")
    environment = {"T3_CACHE": str(here / "loop")}
    done = subprocess.run([sys.executable, "-m", "t3sim.cli", "cache"], text=True, capture_output=True, timeout=100,
                          check=False, env={name: value for name, value in (os.environ | environment).items()
                                            if name != "NUMBA_CACHE_DIR"})
    assert "Traceback" not in done.stderr and done.returncode in (0, 1, 2)


def test_links_in_a_circle(here, capsys):
    Path("loop.svg").symlink_to("loop.svg")
    Path("study.toml").write_text('title = "x"\ncommand = "run"\noptions.machine = "loop.svg"\n'
                                  'machine.link.latency_ns = 3.0\ngrid.tp = [4, 8]\n')
    for words in (["run", "--plot", "loop.svg"], ["verilog", "--out", "loop.svg"], ["explain", "loop.svg"],
                  ["sweep", "study.toml", "--out", "out"], ["run", "--machine", "loop.svg"]):
        assert "loop.svg" in answered(capsys, words)
