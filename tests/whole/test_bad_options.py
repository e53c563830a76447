"""Every option of every command with every kind of wrong value: one line, exit code 2, nothing left behind.

The line names the option or the value. The options are read from the commands themselves, so that a new one is met here
too.
"""

import os
import re
from pathlib import Path

import pytest

from t3sim import cli
from t3sim.commands.app import COMMANDS, command_of
from t3sim.runs import fused
from tests.support.naming import case

LONGEST_LINE = 260  # with the list of what is allowed instead
LONG = "x" * 5000

#: What a command needs besides the option that is wrong.
_BESIDES = {"reproduce": ["--out", "made"], "trace": ["--out", "made"], "verilog": ["--out", "made"],
            "export": ["tracker", "--out", "made"], "calibrate": ["--out", "made.toml"],
            "explain": ["nothing-here"], "step": ["nothing-here"], "hbm-replay": ["seq_rd"], "area": ["arbiter"],
            "end-to-end": ["--model", "megatron-145b", "--gpus", "8"], "sweep": ["tracker-ways", "--out", "made"]}

_NO_NUMBER = ("", "nan", "inf", "1.5", "1e3", "0x10", "1_0", "٤", "one", LONG, "9" * 5000, "\udcff", "-" + "9" * 5000)
_NO_NAME = ("", "nan", "-1", "no-such-name", LONG, "a,b", ",", "\udcff", "\x1b[31m")
_NO_VALUE = ("", "no-such-value", LONG, ",", "\udcff")  #: of whatever has no line below
_NO_FILE = ("", " ", LONG, "x " * 3000, "no/such/folder/file", "folder", "file/inside", "a/" * 5000 + "b")

#: Values that no option with this metavar takes.
_WRONG = {
    "N": _NO_NUMBER, "S": _NO_NUMBER, "B": _NO_NUMBER,
    "CYCLE": _NO_NUMBER, "W": _NO_NUMBER, "F": _NO_NUMBER, "C": _NO_NUMBER, "T": _NO_NUMBER,
    "D": _NO_NUMBER, "FILE": _NO_FILE, "MODEL": _NO_NAME, "SUBLAYER": _NO_NAME, "A,B,...": _NO_NAME, "NAME": _NO_NAME,
    "MxNxK": (*_NO_NAME, "0x0x0", "1x1", "1x1x1x1", "-1x1x1", "9999999999x1x1", "1.5x1x1"),
    "NAME|FILE": ("", "nan", "no-such-machine", LONG, "folder", "binary", "file/inside", "\udcff"),
    "SIZE=N,...": (*_NO_NAME, "ways", "ways=", "ways=x", "ways=0", "ways=-1", "ways=1e3", "ways=٤", "ways=1_6",
                   "ways=4,ways=8", "ways=4,ways=4", "ways=4,", "=4", "ways=" + "9" * 5000, LONG + "=4", "ways==4"),
    "SIZE=N,N,...": (*_NO_NAME, "ways", "ways=", "ways=x", "ways=2,", "ways=0", "ways=٤", "=2", LONG + "=2",
                     "ways=" + "2," * 5000),
    "tp=8,pp=4,...": _NO_NAME,
    "BEFORE": ("", LONG, "file", "folder", "no-such-folder"), "AFTER": ("", LONG, "file", "folder", "no-such-folder"),
    "DIR": ("", " ", LONG, "a/" * 5000 + "b", "file", "file/inside"),
    "TRACE": ("", LONG, "folder", "binary", "no-such-trace", "a/" * 5000 + "b"),
    "[BLOCK,...|all]": _NO_NAME, "[BLOCK|all]": _NO_NAME,
}

#: What these take as they are told on their own pages, by what the trace holds.
_ELSEWHERE = {("trace", "--channel"), ("trace", "--wg"), ("step", "--break")}


def parameters():
    """(command, the words before the value, what the value is) of every option and argument that takes one."""
    for name in COMMANDS:
        for parameter in command_of(name).params:
            if getattr(parameter, "is_flag", False):
                continue
            option = parameter.opts[0] if parameter.opts[0].startswith("-") else ""
            if (name, option) not in _ELSEWHERE:
                yield name, option, parameter.metavar


@pytest.mark.parametrize(("command", "option", "metavar"), [*parameters()])
def test_wrong_values(command, option, metavar, tmp_path, monkeypatch, error_of):
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("x")
    Path("binary").write_bytes(b"\xff\xfe\x00")
    Path("folder").mkdir()
    lawful = ("1.5", "1e3") if option == "--tokens" else ()
    for value in _WRONG.get(metavar, _NO_VALUE):
        if value not in lawful:
            with case(ascii(value[:30])):
                check_refusal(command, option, value, error_of)


def check_refusal(command: str, option: str, value: str, error_of) -> None:
    before = sorted(os.listdir())
    besides = _BESIDES.get(command, [])
    if option == "--out" or not option:
        besides = ["--out", "made"] if command in ("verilog", "export", "sweep") and not option else (
            {"sweep": ["tracker-ways"], "export": ["tracker"]}.get(command, []) if option else [])
    if (command, option) == ("run", "--gemm") or (command, option) == ("trace", "--gemm"):
        besides = [*besides, "--devices", "2"]
    if option == "--devices":
        besides = [*besides, "--gemm", "256x256x64"]
    if command == "kernel" and option:
        besides = {"--gemm": ["gemm"], "--embedding": ["embedding"],
                   "--locality": ["embedding", "--embedding", "64x4"]}.get(option, ["gemm", "--gemm", "256x256x64"])
    if (command, option) == ("area", "--plot"):
        besides = [*besides, "--sweep", "ways=2,4"]
    words = [f"{option}={value}"] if option.startswith("--") else [option, value] if option else ["--", value]
    line = error_of(command, *besides, *words)
    assert len(line) <= LONGEST_LINE, line
    told = value.strip().partition("=")[0][:6]
    assert not told.isprintable() or told.lower() in line or option.lstrip("-") in line.lower(), line
    assert sorted(os.listdir()) == before


@pytest.mark.parametrize("words", [
    [LONG], ["--" + LONG], ["run", LONG], ["run", "--" + LONG], ["run", "--json"], ["run", "--tp", "2", "--tp"],
    ["reproduce"], ["trace"], ["verilog"], ["export"], ["explain"], ["run", "\udcff"],
    ["explain", "file"], ["explain", "folder"], ["explain", "no-such-folder"], ["step", "file"], ["step", "folder"],
    ["hbm-replay", "seq_rd", "--all"],
])
def test_wrong_words(words, tmp_path, monkeypatch, error_of):
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("x")
    Path("folder").mkdir()
    assert len(error_of(*words)) <= LONGEST_LINE
    assert sorted(os.listdir()) == ["file", "folder"]


@pytest.mark.parametrize("words", [
    ["run", "--machine", "ENDLESS"], ["dma", "--machine", "ENDLESS"], ["collective", "--machine", "ENDLESS"],
    ["collective", "--plan", "ENDLESS"], ["end-to-end", "--model", "gpt-3", "--gpus", "8", "--machine", "ENDLESS"],
    ["sweep", "ENDLESS", "--out", "made"], ["hbm-replay", "ENDLESS"], ["run", "--kernel", "ENDLESS"],
    ["area", "arbiter", "--library", "ENDLESS"], ["run", "--chakra", "ENDLESS", "--tp", "4"],
])
def test_a_file_without_end(words, tmp_path, monkeypatch, error_of):
    monkeypatch.chdir(tmp_path)
    assert "/dev/zero" in error_of(*(word.replace("ENDLESS", "/dev/zero") for word in words))
    assert not os.listdir()


@pytest.mark.parametrize(("words", "told"), [
    (["run", "--every-gpu", "--skew", "link:0-2:5"],
     "--skew link:0-2:5: topology 'ring' has no such link: allowed from GPU 0 are 0-1, 0-3"),
    (["run", "--every-gpu", "--topology", "switch", "--skew", "link:0-1:5"],
     "--skew link:0-1:5: topology 'switch' has no such link: only links between two GPUs can differ"),
    (["run", "--every-gpu", "--topology", "switch", "--skew", "late:4:1"],
     "--skew late:4:1 names GPU 4: there are 0 to 3"),
    (["run", "--sums", "exact"], "--sums 'exact' is unknown: allowed are arrival, fixed"),
    (["run", "--sums", "fixed", "--topology", "switch", "--algorithm", "direct"],
     "--sums fixed: --algorithm direct between 4 GPUs adds up 4 terms .* allowed are ring and both-rings"),
    (["run", "--sums", "fixed", "--split-k", "2"],
     "--sums fixed: --algorithm ring between 4 GPUs of a GEMM whose K is in 2 parts adds up 4 terms"),
    (["run", "--technique", "flux"], "technique flux .* needs --topology switch"),
    (["run", "--algorithm", "direct"], "--algorithm direct .* needs --topology switch or full"),
    (["run", "--technique", "t3,sequential, t3"], "--technique t3,sequential,t3 names 't3' twice"),
    (["run", "--technique", "sequential,flux", "--topology", "switch", "--algorithm", "direct"],
     "--algorithm direct is for t3, t3-mca, t3-mca\\+, fused-wg, of which --technique sequential,flux names none"),
    (["run", "--technique", "t3", "--flux-order", "same"], "--flux-order same is for technique flux"),
    (["run", "--technique", "decomposed", "--comm-units", "80"], "--comm-units 80 of 80 .* 1 to 79"),
])
def test_what_does_not_go_together_is_refused_before_any_work(words, told, tmp_path, monkeypatch, error_of):
    monkeypatch.chdir(tmp_path)
    assert re.match(f"t3: error: {told}", error_of(*words, "--gemm", "512x512x256", "--devices", "4"))
    assert not os.listdir()


@pytest.mark.long
def test_too_few_regions_are_refused_before_anything_is_built(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(fused, "rtl_design", lambda geometry: pytest.fail("built"))
    Path("few.toml").write_text('extends = "t3-table1"\n[dma]\nregions = 2\n')
    assert cli.main(["run", "--gemm", "512x512x256", "--devices", "4", "--machine", "few.toml"]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and [line for line in printed.err.splitlines() if "estimated" not in line] == [
        ("t3: error: regions=2 are too few for the shapes and chunk sizes of a 512x512 output over 4 GPUs; a larger "
         "power of two up to 64 is needed in [dma] regions")]


@pytest.mark.parametrize(("words", "told"), [
    (["--gpus", "0"], "--gpus 0 is not possible on the cycle level: 2 to 16"), (["--machine", ""], "--machine"),
    (["--machine", "h200-sxm"], "[collective], [dram] are missing, which a collective by the RTL's"),
    (["--sizes", "1K", "--gpus", "3"], "--sizes: 1024 bytes on 3 GPUs"),
    (["--variant", "pcpy"], "--variant 'pcpy' is not possible for ag")])
def test_collectives_on_the_cycle_level_that_cannot_be(words, told, error_of):
    assert told in error_of("dma", "--level", "cycle", *words)


def test_a_size_that_is_swept_twice(tmp_path, monkeypatch, error_of):
    monkeypatch.chdir(tmp_path)
    line = error_of("area", "arbiter", "--sweep", "ways=2,4", "--sweep", "ways=8")
    assert line == "t3: error: --sweep gives ways twice: list all its values in one --sweep\n"


@pytest.mark.parametrize("content", ["", "\n\n", "1_0 READ 1\n"])
def test_a_request_trace_that_says_nothing(content, tmp_path, monkeypatch, error_of):
    monkeypatch.chdir(tmp_path)
    Path("one.trace").write_text(content)
    assert re.fullmatch(r"t3: error: one.trace[^\n]*expected [^\n]+\n", error_of("hbm-replay", "one.trace"))


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY", b"PK\x03\x04", b"\x80\x04}."])
def test_a_file_that_is_no_kernel(content, tmp_path, monkeypatch, error_of):
    monkeypatch.chdir(tmp_path)
    Path("a.npz").write_bytes(content)
    line = error_of("run", "--kernel", "a.npz")
    assert re.fullmatch(r"t3: error: --kernel a.npz is not an .npz file of plain arrays: [^\n]+\n", line)


@pytest.mark.parametrize("cycle", ["1000000000000000000", "9" * 5000, "-5", "soon"])
def test_request_trace_that_never_ends(cycle, tmp_path, monkeypatch, error_of):
    monkeypatch.chdir(tmp_path)
    Path("one.trace").write_text(f"0x0 READ {cycle}\n")
    line = error_of("hbm-replay", "one.trace")
    assert "one.trace" in line and len(line) <= LONGEST_LINE


def test_json_that_the_disk_does_not_take(capsys):
    assert cli.main(["registers", "--json", "/dev/full"]) == 1
    assert capsys.readouterr().err == "t3: error: /dev/full: No space left on device\n"
