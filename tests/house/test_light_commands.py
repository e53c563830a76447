"""Commands that simulate nothing import neither compiler: they start in half the time."""

import json
import subprocess
import sys

import pytest

from t3sim.commands.app import COMMANDS

HEAVY = ("numba", "amaranth", "pandas", "matplotlib", "scipy", "pyarrow")
CODE = """
import json, sys
from t3sim import cli
for command in json.loads(sys.argv[1]):
    code = cli.main(command)
    print(*command, code, *(name for name in sys.argv[2:] if name in sys.modules), file=sys.stderr, sep=" | ")
"""
SMALL = ["run", "--machine", "tests/data/machines/ring_small.toml", "--gemm", "256x128x64", "--devices", "2"]


def ends_of(*commands, modules=HEAVY):
    """Run commands in one process; return the lines of their exit codes, and the modules that it has by then."""
    done = subprocess.run([sys.executable, "-c", CODE, json.dumps(commands), *modules], capture_output=True, text=True,
                          timeout=600)
    return [line for line in done.stderr.splitlines() if " | " in line], done.stderr


def line(command, code):
    return " | ".join([*command, str(code)])


def test_what_simulates_nothing_starts_without_compilers():
    commands = [["machines", "t3-table1"], ["techniques"], ["overlap"], ["validate"], ["dma", "--sizes", "1M"],
                ["end-to-end", "--model", "llama-3.1-8b", "--gpus", "8", "--global-batch", "8"]]
    ends, told = ends_of(*commands)
    assert ends == [line(command, 0) for command in commands], told


@pytest.mark.parametrize("command", [["machines"], ["techniques"], ["registers"], ["cache"], ["run", "--help"]],
                         ids=" ".join)
def test_what_calculates_nothing_imports_neither_numpy_nor_other_commands(command):
    others = [f"t3sim.commands.{name.replace('-', '_')}" for name in COMMANDS if name != command[0]]
    if command == ["techniques"]:  # its list is kept
        ends_of(command)
    ends, told = ends_of(command, modules=(*HEAVY, "numpy", "jinja2", "t3sim.mechanisms", *others))
    assert ends == [line(command, 0)], told


def test_what_is_refused_needs_no_compiler_either():
    commands = [["run", "--technique", "x"], ["collective", "--topology", "ring:x"], ["hbm-replay"],
                ["hbm-replay", "nowhere"], ["hbm-replay", "seq_rd", "--config", "x"], ["hbm-replay", "README.md"],
                ["calibrate", "--out", "x.toml"]]
    ends, told = ends_of(*commands)
    assert ends == [line(command, 2) for command in commands], told


@pytest.mark.builds_rtl
@pytest.mark.builds_loops
def test_nor_does_a_run_whose_results_are_kept():
    assert ends_of(SMALL)[0][-1].startswith(line(SMALL, 0))
    ends, told = ends_of(SMALL)
    assert ends == [line(SMALL, 0)], told
