"""The command line as its users meet it.

Simulation is replaced by a finished result: what counts here is what is printed where, what is refused, and what is
left behind.
"""

import io
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
import types
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from t3sim import cli
from t3sim.base import console as consoles
from t3sim.base.errors import Failure
from t3sim.base.output import collect_versions, json_text, whole_file, write_json, write_whole
from t3sim.base.streams import Trimmed
from t3sim.machine import load_machine
from t3sim.mechanisms.result import DRAM_STREAMS
from t3sim.mechanisms.table import BY_DEFAULT
from t3sim.rtl.geometry import GeometryError
from t3sim.runs.exchange import FUSED_OPERATORS
from t3sim.runs.kernels import ALL_GATHER, GEMM
from t3sim.runs.phases import Moved
from t3sim.study import techniques
from t3sim.study.report import print_bench, print_run
from t3sim.study.results import (
    BenchResult,
    EventCase,
    FirstRun,
    RunResult,
    SimulatorSpeed,
    TechniqueResult,
    WholeRun,
)
from t3sim.workload.workloads import transformer_workload
from tests.support.fake_run import fake_result

ROOT = Path(__file__).resolve().parents[2]


def replace_module(monkeypatch, name: str, **content) -> None:
    module = types.ModuleType(name)
    vars(module).update(content)
    monkeypatch.setitem(sys.modules, name, module)


def replace_techniques(monkeypatch, run_sublayer) -> None:
    monkeypatch.setattr(techniques, "run_sublayer", run_sublayer)
    monkeypatch.setattr(techniques, "kernels_of", lambda technique, plan: (GEMM, ALL_GATHER))


@pytest.fixture
def calls(monkeypatch):
    """`run_sublayer` that returns at once; the list of what it was asked."""
    asked = []

    def run_sublayer(plan, techniques, progress, jobs, kept=None):
        asked.append((plan.workload, plan.machine, tuple(techniques), plan.seed,
                      *([plan.policy] if plan.policy else [])))
        for name in techniques:
            progress(name, 0.5)
            progress(name, 1.0)
        return fake_result(plan.workload, plan.machine, techniques, plan.seed)

    replace_techniques(monkeypatch, run_sublayer)
    return asked


def t3(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "t3sim.cli", *arguments], cwd=ROOT, text=True,
                          capture_output=True, timeout=60)


# what is printed

@pytest.mark.long
def test_run_without_arguments(calls, capsys):
    assert cli.main(["run"]) == 0
    (workload, machine, techniques, seed), = calls
    assert (workload.m, workload.n, workload.k, workload.tp) == (8192, 4256, 2128, 8)
    assert machine.name == "t3-table1"
    assert techniques == ("sequential", "t3", "t3-mca", "t3-mca+", "ideal-overlap", "ideal-rs-nmc") == BY_DEFAULT
    assert seed == 0
    printed = capsys.readouterr()
    assert "T-NLG FC-2, TP=8: M=8192 N=4256 K=2128, fp16, 8 GPUs" in printed.out
    for heading in ("Time", "DRAM traffic per GPU (MB)", "Time that is not hidden", "Simulation"):
        assert heading in printed.out
    for number in ("3,265.4", "1.255", "94.6%", "1,376.5", "130.7", "146.8", "2,602,100", "118,817"):
        assert number in printed.out
    assert "t3: t3-mca done" in printed.err


def test_what_it_will_take_is_said_before(monkeypatch, capsys):
    def run_sublayer(plan, techniques, progress, jobs, kept=None):
        said = capsys.readouterr()
        assert said.out == ""
        assert re.fullmatch(r"t3: t-nlg: 17.18 billion parameters; 78 layers; .*\n"
                            r"t3: estimated: about \d+ (s|min) and \d\.\d GB of memory for [\d,]+ cycles\n", said.err)
        return fake_result(plan.workload, plan.machine, techniques, plan.seed)
    replace_techniques(monkeypatch, run_sublayer)
    assert cli.main(["run", "--technique", "t3"]) == 0


def test_what_cannot_end_is_refused(calls, capsys):
    began = time.monotonic()
    impossible = ["run", "--gemm", "1048576x1048576x1048576", "--devices", "8"]
    assert cli.main(impossible) == 2
    assert time.monotonic() - began < 10 and not calls
    line = capsys.readouterr().err
    assert re.fullmatch(r"t3: error: a GEMM of 1048576x1048576x1048576 would take about [\d,]+ days and [\d,.]+ GB "
                        r"of memory for [\d,]+ cycles \(estimated\): .*; --insist runs it anyway\n", line)
    assert cli.main([*impossible, "--insist"]) == 0 and len(calls) == 1


def test_a_long_technique_says_how_far_it_is(monkeypatch, capsys):
    monkeypatch.setattr(consoles, "SILENCE_SECONDS", 0.0)
    with consoles.progress_bar(["t3"]) as progress:
        for fraction in (0.25, 0.5, 1.0):
            progress("t3", fraction)
    assert capsys.readouterr().err == "t3: t3 25%\nt3: t3 50%\nt3: t3 done\n"


@pytest.mark.parametrize("operator", FUSED_OPERATORS)
def test_the_operator_reaches_the_run(monkeypatch, operator):
    asked = []

    def run_sublayer(plan, techniques, progress, jobs, kept=None):
        asked.append(plan.exchange)
        return fake_result(plan.workload, plan.machine, techniques, plan.seed)
    replace_techniques(monkeypatch, run_sublayer)
    direct = ["--topology", "switch", "--algorithm", "direct"] if operator.endswith("a2a") else []
    what = {"gemv-ar": ["--gemm", "1024x1x512", "--devices", "4"],
            "moe-dispatch": ["--gemm", "512x256x128", "--experts", "8x2", "--devices", "4"],
            "moe-combine": ["--gemm", "512x256x128", "--experts", "8x2", "--devices", "4"],
            "embedding-a2a": ["--embedding", "64x4", "--devices", "4"]}.get(operator, [])
    assert cli.main(["run", "--operator", operator, *what, *direct]) == 0
    assert [exchange.operator for exchange in asked] == [operator]


def test_options_reach_the_run(calls, tmp_path, capsys):
    machine = tmp_path / "slow.toml"
    machine.write_text('extends = "t3-table1"\nname = "slow link"\n[link]\nbandwidth_gb_per_s = 10.0\n')
    assert cli.main(["run", "--model", "gpt-3", "--sublayer", "op", "--tp", "32", "--technique", "t3, sequential",
                     "--machine", str(machine), "--seed", "7"]) == 0
    (workload, described, techniques, seed), = calls
    assert workload == transformer_workload("gpt-3", "op", 32)
    assert described.link.bandwidth_gb_per_s == 10
    assert (techniques, seed) == (("t3", "sequential"), 7)
    assert "machine slow link; seed 7" in capsys.readouterr().out


def test_a_policy_reaches_the_run(calls, error_of):
    line = error_of("run", "--technique", "t3-mca", "--policy", "mca")
    assert "--policy mca is for technique t3: it needs --technique t3" in line
    line = error_of("run", "--policy", "fifo")
    assert "--policy 'fifo' is unknown: allowed are round_robin, compute_first, mca, ring_aware" in line
    assert cli.main(["run", "--technique", "sequential,t3", "--policy", "compute_first"]) == 0
    assert calls[0][-1] == "compute_first"


def test_gemm(calls, capsys):
    assert cli.main(["run", "--gemm", "1000x200x300", "--devices", "3"]) == 0
    assert "GEMM on 3 GPUs: M=1000 N=200 K=300" in capsys.readouterr().out


def test_json_to_standard_output_only(calls, json_of):
    payload = json_of("run")
    assert payload["workload"] == {"model": "t-nlg", "sublayer": "fc2", "tp": 8, "M": 8192, "N": 4256, "K": 2128}
    for key in ("techniques", "speedup", "overlap_efficiency"):
        assert list(payload[key]) == list(BY_DEFAULT)
    one = payload["techniques"]["t3-mca"]
    assert set(one) >= {"total_ns", "gemm_ns", "rs_ns", "ag_ns", "dram", "mc_cycles", "rtl_in_loop", "host_seconds",
                        "loss_ns"}
    assert set(one["dram"]) == set(DRAM_STREAMS)
    assert one["total_ns"] == 2_492_000 and one["rtl_in_loop"] is True
    assert payload["machine"]["link"]["bandwidth_gb_per_s"] == 75
    assert payload["seed"] == 0 and payload["versions"]


def test_json_file_and_tables(calls, tmp_path, capsys):
    target = tmp_path / "run.json"
    target.write_text("old")
    assert cli.main(["run", "--json", str(target)]) == 0
    assert "Time (" in capsys.readouterr().out
    assert json.loads(target.read_text())["speedup"]["sequential"] == 1
    assert [file.name for file in tmp_path.iterdir()] == ["run.json"]


def test_without_the_baseline(calls, capsys):
    assert cli.main(["run", "--technique", "t3"]) == 0
    out = capsys.readouterr().out
    assert "add sequential" in out


@pytest.mark.parametrize("width", [30, 40, 50, 60, 80, 100, 200])
def test_tables_never_cut_a_number_or_a_name(width):
    result = fake_result(transformer_workload(), load_machine())
    printed = io.StringIO()
    print_run(result, Console(width=width, file=Trimmed(printed), highlight=False))
    text = printed.getvalue()
    assert "…" not in text and max(map(len, text.splitlines())) <= width
    assert not re.search(r" +$", text, re.MULTILINE)
    rows = [line.split() for line in text.splitlines() if re.search(r" [\d–]", line)]
    for name, one in result.techniques.items():
        assert sum(row[0] == name for row in rows) >= 3  # once in each table of techniques, or in each of its parts
        assert f"{one.total_ns / 1e3:,.1f}" in text
        assert f"{sum(one.loss_ns.values()) / 1e3:,.1f}" in text
        assert f"{sum(one.dram.values()) / 1e6:,.1f}" in text


@pytest.mark.parametrize("width", [30, 40, 60, 120])
def test_a_column_of_words_folds_where_room_is_short(width):
    printed = io.StringIO()
    consoles.print_table("", ("technique", "GEMM", "bound by"), [
        ("t3-mca+", "78%", "the collective after the GEMM"), ("flux", "65%", "launches of kernels")],
        Console(width=width, file=Trimmed(printed), highlight=False))
    text = printed.getvalue()
    assert max(map(len, text.splitlines())) <= width
    for word in ("the collective after the GEMM", "launches of kernels"):
        assert all(part in text.split() for part in word.split()) and (width < 60 or word in text)


def test_no_zero_has_a_sign():
    result = fake_result(transformer_workload(), load_machine())
    one = result.techniques["t3"]
    result = replace(result, techniques=result.techniques | {"t3": replace(one, loss_ns={"reduce_scatter": -40.0})})
    printed = io.StringIO()
    print_run(result, Console(width=120, file=printed, highlight=False))
    assert not re.search(r"-0\.0+\b(?!\d)", printed.getvalue()) and " 0.0" in printed.getvalue()


def test_bench_table_and_json(monkeypatch, capsys, json_of):
    def run_bench(machine, engines, cycles, progress, seed, beside):
        asked = BenchResult.ENGINES[:-len(BenchResult.ON_REQUEST)]
        assert (machine, engines, cycles, seed, beside) == ("t3-table1", asked, 20_000, 0, ())
        return BenchResult({"lockstep": 200e3, "bare": 300e3, "amaranth": 50.0}, {"bare": 20_000},
                           {"cocotb": "no simulator"})
    replace_module(monkeypatch, "t3sim.study.engine_speed", run_bench=run_bench)
    assert cli.main(["bench"]) == 0
    out = capsys.readouterr().out
    assert "0.67x" in out and "4,000.00x" in out and "cocotb: no simulator" in out
    payload = json_of("bench")
    assert payload["lockstep_over_bare"] == pytest.approx(2 / 3)
    assert set(payload["cycles_per_second"]) == {"lockstep", "bare", "amaranth"}


def test_bench_of_the_event_level(monkeypatch, capsys, json_of):
    case = EventCase("ar, ring, ring:100000", 100_000, 1, 199_998, 19_999_800_000, 9.0, 0.25, -0.004)
    replace_module(monkeypatch, "t3sim.study.engine_speed", run_bench=lambda *_: BenchResult({}, event=(case,)))
    assert cli.main(["bench", "--engine", "event"]) == 0
    out = capsys.readouterr().out
    assert "799,992" in out and "22,222" in out and "19,999,800,000" in out and "-0.4%" in out
    assert "Engine speed" not in out
    (row,) = json_of("bench", "--engine", "event")["event"]
    assert (row["messages_per_second"], row["whole_messages_per_second"]) == (199_998 / 0.25, 199_998 / 9.0)


def test_bench_of_the_rtl_beside_other_simulators(monkeypatch, capsys, json_of):
    def run_bench(machine, engines, cycles, progress, seed, beside):
        assert engines == ("rtl",) and beside == ("cxxrtl", "amaranth")
        return BenchResult({}, rtl=tuple(SimulatorSpeed(name, seconds, {"3% change in a cycle": speed}) for
                                         name, seconds, speed in (("rtl", 12.0, 4e5), ("cxxrtl", 70.0, 5e3))))
    replace_module(monkeypatch, "t3sim.study.engine_speed", run_bench=run_bench)
    assert cli.main(["bench", "--engine", "rtl", "--beside", "cxxrtl,amaranth"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["inputs", "t3sim", "cxxrtl"] in rows and ["3%", "change", "in", "a", "cycle", "400,000", "5,000"] in rows
    assert ["core", "seconds", "to", "build", "12", "70"] in rows
    assert json_of("bench", "--engine", "rtl", "--beside", "cxxrtl,amaranth")["rtl"][1] == {
        "simulator": "cxxrtl", "build_seconds": 70.0, "cycles_per_second": {"3% change in a cycle": 5e3}}


def test_bench_without_the_lockstep():
    console = Console(width=80, record=True, file=open(os.devnull, "w"))
    print_bench(BenchResult({"bare": 1.0}), console)
    assert "lockstep: not run" in console.export_text(clear=False)
    assert "first: not run" in console.export_text(clear=False)
    assert BenchResult({"bare": 1.0}).to_json()["lockstep_over_bare"] is None


def test_bench_of_whole_and_first_runs(monkeypatch, capsys):
    whole = WholeRun(1_584_000, 150e3, 0.09, 33.4)
    first = FirstRun(30.0, 20.0, 90.0, 95.0, 4.0, 5.0)
    replace_module(monkeypatch, "t3sim.study.engine_speed",
                   run_bench=lambda *_: BenchResult({}, whole=whole, first=first))
    assert cli.main(["bench", "--engine", "first"]) == 0
    out = capsys.readouterr().out
    assert "build of the RTL: 30 core seconds in 20 s" in out and "the same run again: 4 core seconds in 5 s" in out
    assert ("1,584,000 cycles of it: 150,000 per second; the RTL's inputs do not change in 9% of them; 33 instances "
            "are idle") in " ".join(out.split())
    assert "first: not run" not in out and "whole: not run" not in out


@pytest.mark.long
def test_completion_works(tmp_path):
    env = {**os.environ, "HOME": str(tmp_path), "SHELL": "/bin/bash",
           "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}  # whatever shell runs the tests
    script = subprocess.run([sys.executable, "-m", "t3sim.cli", "--show-completion", "bash"], cwd=ROOT, env=env,
                            text=True, capture_output=True, timeout=60)
    assert script.returncode == 0 and "_t3_completion()" in script.stdout, script.stderr
    answer = subprocess.run([sys.executable, "-m", "t3sim.cli"], cwd=ROOT, text=True, capture_output=True,
                            env={**env, "_T3_COMPLETE": "complete_bash", "COMP_WORDS": "t3 re", "COMP_CWORD": "1"},
                            timeout=60)
    assert set(answer.stdout.split()) == {"reproduce", "registers"}


@pytest.mark.parametrize("command", [(), ("trace",), ("area",)])
def test_help_of_a_flag_names_no_value(command, capsys):
    assert cli.main([*command, "--help"]) == 0
    told = capsys.readouterr().out
    assert "--help" in told and not re.search("bool", told, re.IGNORECASE)


@pytest.mark.long
def test_help_names_every_command_and_is_instant():
    began = time.monotonic()
    result = t3("--help")
    assert result.returncode == 0
    assert time.monotonic() - began < 5  # on a loaded machine; 0.2 s alone
    for command in ("run", "bench", "hbm-replay"):
        assert command in result.stdout
    assert t3().stdout == result.stdout
    heavy = "import sys, t3sim.cli; sys.exit(bool({'numpy', 'numba', 'amaranth', 'pydantic'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", heavy], cwd=ROOT, timeout=60).returncode == 0


def test_version():
    assert re.fullmatch(r"t3sim \S.*\n", t3("--version").stdout)
    assert collect_versions()["numpy"][0].isdigit()


@pytest.mark.builds_loops
def test_hbm_replay(tmp_path, capsys, json_of):
    trace = tmp_path / "one.trace"
    trace.write_text("".join(f"0x{64 * line:X} READ 0\n" for line in range(256)))
    payload = json_of("hbm-replay", str(trace))
    assert payload["requests"] == 256
    assert set(payload) >= {"cycles", "bytes_per_cycle", "mean_read_latency_cycles", "activates", "refreshes",
                            "host_seconds"}
    assert 25 < payload["bytes_per_cycle"] <= 32  # a stream of row hits, less its start and end
    assert cli.main(["hbm-replay", str(trace), "--machine", "t3-table1"]) == 0
    assert re.search(r"requests +256", capsys.readouterr().out)


@pytest.mark.builds_loops
@pytest.mark.parametrize(("writes", "buffered"), [(1, 1), (8, 8), (9, 0)])
def test_hbm_replay_counts_writes_that_stay_in_the_buffer(writes, buffered, tmp_path, json_of):
    """The recorded simulator's controller empties its buffer above 8 writes; the unified queue always."""
    trace = tmp_path / "one.trace"
    trace.write_text("0x1FFFFFC0 READ 0\n" + "".join(f"0x{64 * line:X} WRITE 0\n" for line in range(writes)))
    payload = json_of("hbm-replay", str(trace))
    assert (payload["reads"], payload["writes"], payload["writes_buffered"]) == (1, writes - buffered, buffered)
    queued = json_of("hbm-replay", str(trace), "--machine", "t3-table1")
    assert (queued["writes"], queued["writes_buffered"]) == (writes, 0)


@pytest.mark.parametrize(("content", "words"), [
    (b"0x0 READ 0\n0x40 FETCH 1\n", "one.trace:2: expected"),
    (b"\xff\xfe", "is not a trace"),
    (b"0x0 READ -5\n", "is not a trace"),
    (b"0xFFFFFFFFFFFFFFFFFF READ 0\n", "one.trace:1: address 0xFFFFFFFFFFFFFFFFFF is beyond"),
    (b"0x3FFFFFC0 READ 0\n0x40000000 READ 0\n", "trace:2: address 0x40000000 is beyond the channel's 1073741824 bytes"),
])
def test_hbm_replay_of_what_is_no_trace(tmp_path, error_of, content, words):
    trace = tmp_path / "one.trace"
    trace.write_bytes(content)
    assert words in error_of("hbm-replay", trace)


def test_hbm_replay_config(tmp_path, error_of):
    trace = tmp_path / "one.trace"
    trace.write_text("0x0 READ 0\n")
    assert "'ddr5' is unknown: allowed are base, ccdwl4" in error_of("hbm-replay", str(trace), "--config", "ddr5")


# what is computed from a result

def test_speedup_and_overlap_efficiency():
    result = fake_result(transformer_workload(), load_machine())
    assert result.speedup["t3"] == pytest.approx(3265.4 / 2602.1)
    assert result.overlap_efficiency["sequential"] == pytest.approx(0, abs=1e-3)
    assert result.overlap_efficiency["ideal-overlap"] == pytest.approx(1)
    # T - G = 2602.1 - 817.0 - 1631.2 of R = 817.2 are not hidden
    assert result.overlap_efficiency["t3"] == pytest.approx(1 - 153.9 / 817.2)


def test_result_without_techniques():
    result = RunResult(transformer_workload(), load_machine(), 0, {}, {})
    assert (result.speedup, result.overlap_efficiency, result.baseline) == ({}, {}, None)


def test_phases_and_streams_have_names_and_the_older_keys_follow_from_them():
    one = TechniqueResult("own", 9.0, {"gemm": 5.0, "all-to-all": 4.0}, {"gemm": Moved(7), "a2a": Moved(write=3)}, 1,
                          True, 1.0, {}).to_json()
    assert one["phases_ns"] == {"gemm": 5.0, "all-to-all": 4.0}
    assert one["streams_bytes"] == {"gemm_read": 7, "gemm_write": 0, "a2a_read": 0, "a2a_write": 3}
    assert (one["gemm_ns"], one["rs_ns"], one["ag_ns"]) == (5.0, 0.0, 0.0)
    assert one["dram"] == {stream: 7 if stream == "gemm_read" else 0 for stream in DRAM_STREAMS}


def test_json_of_numpy_and_of_what_is_no_number():
    import numpy as np

    text = json_text({"a": np.int64(3), "b": np.arange(2), "c": float("nan"), "d": np.float32(0.5),
                      "e": (1, {2: None})})
    assert json.loads(text) == {"a": 3, "b": [0, 1], "c": None, "d": 0.5, "e": [1, {"2": None}]}


# bad input: one line, exit code 2, nothing written

@pytest.mark.parametrize(("arguments", "words"), [
    (["--nope"], ["--nope"]),
    (["reproduec"], ["'reproduec'"]),
    (["run", "extra"], ["extra"]),
    (["run", "--model", "gpt-5"], ["'gpt-5'", "mega-gpt-2, t-nlg, gpt-3, palm, mt-nlg"]),
    (["run", "--sublayer", "fc3"], ["'fc3'", "op, fc1, fc2, ip"]),
    (["run", "--tp", "3"], ["TP=3", "K=17024", "2, 4, 7, 8"]),
    (["run", "--tp", "65"], ["TP=65", "2 to 64"]),
    (["run", "--tp", "eight"], ["--tp", "'eight'", "whole number"]),
    (["run", "--tp"], ["--tp"]),
    (["run", "--gemm", "8x8", "--devices", "2"], ["'8x8'", "MxNxK"]),
    (["run", "--gemm", "8x8x8"], ["--devices"]),
    (["run", "--gemm", "8x8x8", "--devices", "1"], ["1 GPUs", "2 to 64"]),
    (["run", "--gemm", "8x8x8", "--devices", "2", "--tp", "2"], ["--tp 2", "--gemm"]),
    (["run", "--gemm", "8x8x8", "--devices", "2", "--model", "palm"], ["--model palm"]),
    (["run", "--devices", "2"], ["--devices 2", "--gemm"]),
    (["run", "--technique", "t3,fast"], ["'fast'", "t3, t3-mca"]),
    (["run", "--technique", ""], ["''", "sequential"]),
    (["run", "--machine", "h100"], ["'h100'", "t3-table1"]),
    (["run", "--json", "/no/such/folder/x.json"], ["/no/such/folder"]),
    (["run", "--json", "/tmp"], ["'/tmp'"]),
    (["run", "--json", ""], ["--json"]),
    (["run", "--seed", "-1"], ["--seed", "-1"]),
    (["bench", "--engine", "icarus"], ["'icarus'", "lockstep, bare, full, gpus, cocotb, amaranth, event, whole"]),
    (["bench", "--cycles", "1"], ["--cycles 1", "1000"]),
    (["bench", "--engine", "rtl", "--beside", "icarus"], ["'icarus'", "verilator, cxxrtl, amaranth"]),
    (["bench", "--beside", "cxxrtl"], ["--beside cxxrtl needs --engine rtl"]),
    (["hbm-replay"], ["TRACE"]),
    (["hbm-replay", "/no/such/trace"], ["/no/such/trace"]),
])
def test_bad_input(calls, error_of, arguments, words):
    line = error_of(*arguments)
    assert not calls and all(word in line for word in words), line


def test_bad_machine_file(calls, tmp_path, error_of):
    machine = tmp_path / "mine.toml"
    machine.write_text('extends = "t3-table1"\n[link]\nlatency_us = 0.5\n')
    line = error_of("run", "--machine", str(machine))
    assert line == f"t3: error: {machine}: [link] latency_us is unknown; did you mean latency_ns?\n"


@pytest.mark.parametrize(("error", "code", "line"), [
    (Failure("no C++ compiler found;\ninstall g++"), 1, "t3: error: no C++ compiler found; install g++\n"),
    (GeometryError("sets=3 is impossible"), 2, "t3: error: sets=3 is impossible\n"),
    (OSError(28, "No space left on device", "build/x"), 1, "t3: error: build/x: No space left on device\n"),
    (KeyboardInterrupt(), 130, "t3: interrupted\n"),
])
def test_run_that_fails(monkeypatch, tmp_path, capsys, error, code, line):
    def run_sublayer(*_):
        raise error
    replace_techniques(monkeypatch, run_sublayer)
    assert cli.main(["run", "--json", str(tmp_path / "run.json")]) == code
    printed = capsys.readouterr()
    assert (printed.out, printed.err.partition("cycles\n")[2]) == ("", line)
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_stands_still_is_a_table_of_gpus(monkeypatch, capsys):
    from t3sim.runs.failure import SimulationError

    gpus = [{"device": str(device), "workgroups finished": f"{device} of 64", "missing": "workgroup 48 wavefront 0",
             "hardware": "at least one tile is partly updated, ids are open, requests wait for the window, or its "
                         "memory is being cleared", "error": "None"} for device in range(8)]

    def run_sublayer(*_):
        raise SimulationError("nothing moved for 200000 cycles: GPU 0: 0 of 64 and much more", gpus)
    replace_techniques(monkeypatch, run_sublayer)
    assert cli.main(["run"]) == 1
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("nothing moved for 200000 cycles\n") == 1
    table = printed.err.partition("What waits, by GPU\n")[2]
    assert "GPU 0:" not in printed.err and max(map(len, table.splitlines())) <= consoles.PIPE_WIDTH
    assert all(f"{device} of 64" in table for device in range(8)) and table.count("partly") == 8
    assert table.count("cleared") == 8, "every word is there, however long what a GPU waits for is"
    assert not re.search(r"[ \t]$", printed.err, re.MULTILINE)


def test_a_fault_of_the_program_is_a_line_and_a_file(monkeypatch, capsys):
    def run_sublayer(*_):
        raise KeyError("a bug")
    replace_techniques(monkeypatch, run_sublayer)
    assert cli.main(["run", "--tp", "4"]) == 70
    line = capsys.readouterr().err.partition("cycles\n")[2]
    found = re.fullmatch(r"t3: error: a fault of t3 itself, please report it: KeyError \"'a bug'\" in request.py, "
                         r"line \d+; all about it is in (\S+)\n", line)
    told = Path(found[1]).read_text()
    Path(found[1]).unlink()
    assert told.startswith("t3 run --tp 4\nTraceback") and "raise KeyError" in told


def test_too_little_memory_is_a_line(monkeypatch, capsys):
    def run_sublayer(*_):
        raise MemoryError
    replace_techniques(monkeypatch, run_sublayer)
    assert cli.main(["run"]) == 1
    assert capsys.readouterr().err.endswith("\nt3: error: the memory that this process may have is used up\n")


# files

def test_json_is_written_whole_or_not_at_all(tmp_path):
    target = tmp_path / "x.json"
    target.write_text("old")
    with pytest.raises(TypeError):
        write_json({"a": object()}, str(target))
    assert target.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


def test_interrupted_write_leaves_the_old_file(tmp_path, monkeypatch):
    target = tmp_path / "x.json"
    target.write_text("old")

    def interrupted(*_):
        raise KeyboardInterrupt
    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_json({"a": 1}, str(target))
    assert target.read_text() == "old" and len(list(tmp_path.iterdir())) == 1


def test_json_follows_links_and_keeps_devices(tmp_path):
    real = tmp_path / "real.json"
    link = tmp_path / "link.json"
    link.symlink_to(real)
    write_json({"a": 1}, str(link))
    assert link.is_symlink() and json.loads(real.read_text()) == {"a": 1}
    assert real.stat().st_mode & 0o777 == 0o666 & ~_mask()
    write_json({"a": 1}, "/dev/null")
    assert not Path("/dev/null").is_file()


def test_a_pipe_is_written_and_no_file_takes_its_place(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_whole(pipe, "plan")
    with whole_file(pipe) as file:
        file.write(" timeline")
    assert os.read(reader, 99) == b"plan timeline" and pipe.is_fifo()
    os.close(reader)


def test_a_shell_s_pipe_is_written_by_its_name():
    reader, writer = os.pipe()
    write_json({"a": 1}, f"/dev/fd/{writer}")
    assert json.loads(os.read(reader, 99)) == {"a": 1}
    os.close(reader)
    os.close(writer)


def _mask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


# processes

_DRIVER = """
import sys, time
sys.path.insert(0, {tests!r})
from tests.support.fake_run import fake_result
from t3sim.study import techniques as runs
def run_sublayer(plan, techniques, progress, jobs, kept=None):
    {body}
    return fake_result(plan.workload, plan.machine, techniques, plan.seed)
runs.run_sublayer = run_sublayer
runs.kernels_of = lambda technique, plan: ()
from t3sim.cli import main
sys.exit(main())
"""


def driver(body: str) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(_DRIVER).format(tests=str(Path(__file__).parents[2]), body=body)]


@pytest.mark.long
def test_ctrl_c_ends_at_once(tmp_path):
    target = tmp_path / "run.json"
    process = subprocess.Popen([*driver("print('started', flush=True); time.sleep(60)"), "run", "--json", str(target)],
                               cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               # A shell's background job ignores the signal, and so would its children.
                               preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    assert process.stdout.readline() == "started\n"
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    out, err = process.communicate(timeout=30)
    assert time.monotonic() - began < 5
    assert (process.returncode, out, err.splitlines()[2:]) == (130, "", ["t3: interrupted"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_what_is_told_to_end_ends_as_after_ctrl_c(tmp_path, number):
    target = tmp_path / "run.json"
    body = f"""try:
        print('started', flush=True)
        time.sleep(60)
    finally: open({str(tmp_path / 'tidied')!r}, 'w').close()"""
    process = subprocess.Popen([*driver(body), "run", "--json", str(target)],
                               cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL))
    assert process.stdout.readline() == "started\n"
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err.splitlines()[2:]) == (128 + number, "", ["t3: terminated"])
    assert [path.name for path in tmp_path.iterdir()] == ["tidied"]


_SIGNALS_ITSELF = """
import os, signal, sys, time
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), {number})
            time.sleep(5)
sys.meta_path.insert(0, Finder())
from t3sim.cli import main
assert not {{"typer", "numpy", "t3sim.commands"}} & sys.modules.keys(), "imported before a signal ends it in a line"
sys.exit(main(["overlap"]))
"""


@pytest.mark.long
@pytest.mark.parametrize("module", ["typer.exceptions", "t3sim.commands.app", "t3sim.mechanisms.table", "numpy"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_among_the_imports_is_a_line(number, module):
    process = subprocess.run([sys.executable, "-c", _SIGNALS_ITSELF.format(module=module, number=int(number))],
                             cwd=ROOT, text=True, capture_output=True, timeout=60,
                             preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    words = "terminated" if number == signal.SIGTERM else "interrupted"
    assert (process.returncode, process.stdout, process.stderr) == (128 + number, "", f"t3: {words}\n")


@pytest.mark.parametrize("limit", ["-v 200000", "-v 400000", "-v 900000", "-d 300000"])
def test_less_memory_than_libraries_need_is_a_line(limit):
    done = subprocess.run(["bash", "-c", f"ulimit {limit}; exec {sys.executable} -m t3sim.cli run --devices 2"],
                          cwd=ROOT, text=True, capture_output=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(r"t3: error: this process may have 0\.[2-9] GB of memory \(ulimit\): 1 GB are needed\n",
                        done.stderr), done.stderr


def test_signals_are_as_they_were_after_a_command(capsys):
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)]
    assert cli.main(["cache"]) == 0
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)] == before


@pytest.mark.parametrize("arguments", [
    "--help", "run --help", "cache", "registers",
    pytest.param("collective --collective ar --topology ring:4 --sizes 1M:2M", marks=pytest.mark.builds_loops),
    "dma --collective ag --sizes 1M:2M", "end-to-end --model gpt-3 --gpus 64 --mapping tp=8,pp=8 --ignore-memory",
    "end-to-end --model gpt-3 --gpus 64 --search",
    pytest.param("run --gemm 1024x512x256 --devices 4", marks=[pytest.mark.builds_rtl, pytest.mark.slow])])
def test_no_line_in_a_pipe_ends_in_blanks(capsys, arguments):
    assert cli.main(arguments.split()) == 0
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) > 3 and not re.search(r"[ \t]$", printed.out + printed.err, re.MULTILINE)


@pytest.mark.long
@pytest.mark.parametrize("arguments", ["run", "sweep --help"])
def test_reader_that_leaves(arguments):
    process = subprocess.Popen([*driver("pass"), *arguments.split()], cwd=ROOT,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    err = process.stderr.read().decode()
    process.wait(timeout=30)
    assert process.returncode == 1
    assert "Traceback" not in err and "Exception" not in err and "fault" not in err


@pytest.mark.long
def test_files_are_written_although_the_reader_left(tmp_path):
    files = tmp_path / "run.json", tmp_path / "run.svg"
    process = subprocess.Popen([*driver("pass"), "run", "--json", files[0], "--plot", files[1]], cwd=ROOT,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    err = process.stderr.read().decode()
    assert process.wait(timeout=60) == 0 and "Traceback" not in err and "Exception" not in err
    assert json.loads(files[0].read_text())["techniques"] and "<svg" in files[1].read_text()


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_a_compilation_leaves_is_no_traceback(number):
    """An exception in a compiler's callback is dropped there, and half-made hardware warns when it goes."""
    body = f"""import ctypes, os, warnings
    class HalfMade:
        def __del__(self): warnings.warn('created but never used')
    half_made = HalfMade()
    def callback():
        os.kill(os.getpid(), {int(number)})
        time.sleep(20)
    ctypes.CFUNCTYPE(None)(callback)()
    time.sleep(20)"""
    process = subprocess.run([*driver(body), "run"], cwd=ROOT, text=True, capture_output=True, timeout=60,
                             preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    words = "terminated" if number == signal.SIGTERM else "interrupted"
    assert (process.returncode, process.stdout) == (128 + number, "")
    assert process.stderr.splitlines()[2:] == [f"t3: {words}"]


@pytest.mark.long
def test_terminal_without_unicode():
    result = subprocess.run([*driver("pass"), "run"], cwd=ROOT, capture_output=True, timeout=60,
                            env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"})
    assert result.returncode == 0, result.stderr
    assert b"3,265.4" in result.stdout
