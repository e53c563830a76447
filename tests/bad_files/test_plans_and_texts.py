"""Plans, Chakra traces, campaigns, studies, names and surroundings that are traps: one line each."""

import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from t3sim import cli
from t3sim.analytic.end_to_end import mapping
from t3sim.rtlsim import toolchain
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


@pytest.mark.builds_loops
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
    toolchain.compiler_command.cache_clear()
    try:
        if named == " ":
            assert toolchain.compiler_command()[0]
            return
        with pytest.raises(toolchain.ToolchainError) as caught:
            toolchain.compiler_command()
        assert "\n" not in str(caught.value) and "CXX" in str(caught.value)
    finally:
        toolchain.compiler_command.cache_clear()


def t3(words: str, limit: str = "", **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(["bash", "-c", f"{limit}{sys.executable} -m t3sim.cli {words}"], text=True,
                          capture_output=True, timeout=100, check=False, env=os.environ | environment)


@pytest.mark.long
def test_streams_that_are_closed_or_full(here):
    for words in ("registers >&-", "registers >&- 2>&-", "registers --json made.json >&- 2>&- <&-"):
        done = t3(words)
        assert done.returncode == 0 and not done.stderr, done.stderr
    assert json.loads(Path("made.json").read_text())
    for words in ("registers", "--help", "machines"):
        done = t3(f"{words} > /dev/full")
        assert (done.returncode, done.stderr) == (1, "t3: error: standard output: No space left on device\n")


@pytest.mark.long
def test_an_answer_that_nobody_can_get_is_refused(here):
    """What is printed for people is left out where standard output is closed; what was asked for as JSON is not."""
    for target in ("-", "/dev/stdout"):
        done = t3(f"registers --json {target} >&-")
        assert (done.returncode, done.stderr) == (2, f"t3: error: --json {target}: standard output is closed\n")


@pytest.mark.long
@pytest.mark.parametrize("words", ["run --gemm 256x256x64 --devices 4 --json x.json",
                                   "sweep tracker-ways --out o", "run scenario.toml"])
def test_a_folder_that_is_gone(words, here):
    done = t3(words, limit="mkdir gone; cd gone; rmdir ../gone; ", PYTHONPATH=str(Path(cli.__file__).parents[1]))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1) and "Errno" not in done.stderr
    assert "folder is not there any more" in done.stderr or "cannot be read" in done.stderr, done.stderr


_PIPED = ["run pipe", "run --machine pipe", "machines pipe", "sweep pipe --out made", "run --kernel pipe",
          "kernel pipe.npz", "run --chakra pipe --tp 4", "end-to-end --model pipe.json --gpus 8",
          "collective --plan pipe.json", "collective --plan pipe.xml", "validate --rows pipe", "validate --log pipe",
          "hbm-replay pipe", "area arbiter --library pipe", "explain folder", "step folder", "compare folder folder",
          "run --operator embedding-a2a --embedding 64x4 --devices 4 --locality pipe",
          "run --operator moe-combine --gemm 512x256x256 --experts 8x2 --devices 4 --locality pipe",
          "overlap --routing pipe --expert-parallel --model mixtral-8x7b",
          "run --gemm 256x256x64 --devices 4 --algorithm pipe.py:x"]


@pytest.mark.parametrize("words", _PIPED)
def test_a_pipe_that_nobody_writes_to_is_not_waited_for(words, here, capsys):
    """By any name, and in a folder that is read."""
    os.mkfifo("pipe")
    for name in ("pipe.npz", "pipe.json", "pipe.xml", "pipe.py"):
        os.symlink("pipe", name)
    Path("folder").mkdir()
    for name in ("trace.json", "results.json"):
        os.symlink("../pipe", f"folder/{name}")
    opened = threading.Timer(20, lambda: os.close(os.open("pipe", os.O_RDWR | os.O_NONBLOCK)))
    opened.daemon = True
    opened.start()  # so that a command that waits ends, with another line
    code = cli.main(words.split())
    line, = capsys.readouterr().err.splitlines()
    assert code == 2 and opened.is_alive() and ("pipe" in line or "folder" in line), line
    assert "regular" in line or "is unknown" in line or "is neither a file" in line or "is not a file" in line, line
    opened.cancel()


@pytest.mark.long
def test_what_the_shell_has_opened_is_read(here):
    """A pipe by its number, as `<(command)` gives it, and standard input."""
    done = t3("""machines <(echo 'extends = "h100-t3"') --json -""")
    assert done.returncode == 0 and "dram.write_low_watermark" in done.stdout, done.stderr
    done = t3("run /dev/stdin --json -", limit="echo 'level = \"library\"' | ")
    assert done.returncode == 0 and json.loads(done.stdout)["ranking"], done.stderr


def test_copies_that_would_take_weeks_are_refused(here, error_of):
    """Before any of them is planned; what is run says first what it will take."""
    line = error_of("dma", "--level", "cycle", "--sizes", "1024G")
    assert re.search(r"an all-gather by engines of 1024 GB on 4 GPUs would take about \d+ days and .* --insist", line)


@pytest.mark.builds_rtl
def test_too_little_memory_for_yosys(here):
    done = t3("verilog arbiter --out made", T3_CACHE=str(here / "cache"), limit="ulimit -v 1200000; ")
    assert done.returncode == 1 and not Path("made").exists()
    assert re.fullmatch(r"t3: error: arbiter: Yosys writes no Verilog: [^\n]+\n", done.stderr), done.stderr


@pytest.mark.slow
def test_folders_that_may_not_be_read(here):
    """Of root too, once it has no more rights than others."""
    bound = "setpriv --bounding-set=-dac_override,-dac_read_search " if os.getuid() == 0 else ""
    Path("zero").mkdir(mode=0)
    if subprocess.run(["bash", "-c", f"{bound}ls zero"], capture_output=True, check=False).returncode == 0:
        pytest.skip("no rights can be taken away here")
    for words, told in (("verilog arbiter --out zero", "--out 'zero' cannot be written: permission denied"),
                        ("trace --out zero/x", "--out 'zero/x' cannot be written: permission denied"),
                        ("run --json zero/x.json", "zero/x.json: Permission denied"),
                        ("explain zero", "zero/trace.json cannot be read: Permission denied"),
                        ("run --machine zero/m.toml", "machine file 'zero/m.toml' cannot be read: Permission denied")):
        done = t3(words, limit=bound)
        assert (done.returncode, done.stdout, done.stderr) == (2, "", f"t3: error: {told}\n")
    done = t3("cache", limit=bound, T3_CACHE=str(here / "zero"), NUMBA_CACHE_DIR=str(here / "numba"))
    assert (done.returncode, done.stderr) == (2, f"t3: error: {here}/zero: Permission denied\n")


@pytest.mark.long
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
