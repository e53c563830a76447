"""Commands that simulate nothing import neither compiler: they start in half the time."""

import subprocess
import sys

import pytest

HEAVY = ("numba", "amaranth", "pandas", "matplotlib", "scipy", "pyarrow")
CODE = """
import sys
from t3sim import cli
code = cli.main(sys.argv[2:])
print(code, *(name for name in sys.argv[1].split(",") if name in sys.modules), file=sys.stderr)
"""
SMALL = ["run", "--machine", "tests/data/machines/ring_small.toml", "--gemm", "256x128x64", "--devices", "2"]


def end_of(command):
    done = subprocess.run([sys.executable, "-c", CODE, ",".join(HEAVY), *command], capture_output=True, text=True,
                          timeout=600)
    return done.stderr.splitlines()[-1].split(), done.stderr


@pytest.mark.parametrize("command", [
    ["machines"], ["machines", "t3-table1"], ["techniques"], ["overlap"], ["validate"], ["dma", "--sizes", "1M"],
    ["registers"], ["end-to-end", "--model", "llama-3.1-8b", "--gpus", "8", "--global-batch", "8"],
    ["cache"], ["run", "--help"]], ids=" ".join)
def test_what_simulates_nothing_starts_without_compilers(command):
    end, told = end_of(command)
    assert end == ["0"], told


@pytest.mark.parametrize("command", [
    ["run", "--technique", "x"], ["collective", "--topology", "ring:x"], ["hbm-replay"], ["hbm-replay", "nowhere"],
    ["hbm-replay", "seq_rd", "--config", "x"], ["hbm-replay", "README.md"],
    ["calibrate", "--out", "x.toml"]], ids=" ".join)
def test_so_does_what_is_refused(command):
    end, told = end_of(command)
    assert end == ["2"], told


def test_so_does_a_run_whose_results_are_kept():
    assert end_of(SMALL)[0][0] == "0"
    end, told = end_of(SMALL)
    assert end == ["0"], told
