"""What a run does not need is an extra, and a command that lacks one names the line that installs it."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from t3sim.base import extras
from t3sim.cli import main
from t3sim.commands.app import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]

#: Runs the command line where no module of an extra can be found.
WITHOUT = """
import sys
from t3sim.base import extras
from t3sim.cli import main

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if extras.install_line(name):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden())
sys.exit(main(sys.argv[1:]))
"""


def without_extras(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", WITHOUT, *arguments], text=True, capture_output=True, timeout=300)


@pytest.mark.parametrize("extra", extras._EXTRAS)
def test_every_module_is_in_its_extra(extra):
    packages = {re.match(r"[\w-]+", requirement)[0] for requirement in EXTRAS[extra]}
    packages_of = {"vcd": "pyvcd", "cocotb_tools": "cocotb"}
    named = {packages_of.get(module, module.replace("_", "-")) for module in extras._EXTRAS[extra]}
    assert named <= packages


@pytest.mark.long
@pytest.mark.parametrize("arguments", [
    ["--help"],
    pytest.param(["run", "--gemm", "256x256x64", "--devices", "2", "--technique", "sequential"],
                 marks=pytest.mark.slow),
    ["collective", "--collective", "ar", "--topology", "ring:4", "--sizes", "1M:1M"], ["registers"],
    ["end-to-end", "--model", "gpt-3", "--gpus", "8", "--mapping", "tp=8", "--ignore-memory"],
    ["dma", "--collective", "ag", "--sizes", "1M:1M"],
], ids=lambda arguments: arguments[0])
def test_a_run_needs_no_extra(arguments):
    done = without_extras(*arguments)
    assert done.returncode == 0, done.stderr


@pytest.mark.long
@pytest.mark.parametrize(("extra", "arguments"), [
    ("tables", ["explain", "folder", "--wg", "0", "--wf", "0"]),
    ("trace", ["collective", "--collective", "ar", "--topology", "ring:4", "--sizes", "1M:1M", "--algorithm", "ring",
               "--timeline", "out.pftrace"]),
    ("area", ["area", "arbiter"]), ("verilog", ["verilog", "arbiter", "--out", "folder"]),
    ("tables", ["sweep", "granularity", "--out", "folder"]),
], ids=lambda value: value[0] if isinstance(value, list) else value)
def test_a_command_names_its_extra_in_one_line(extra, arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = without_extras(*arguments)
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert f"pip install 't3sim[{extra}]'" in done.stderr and not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", extras._NEEDS)
def test_help_ends_with_the_line_that_installs_the_extra(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    assert main([command, "--help"]) == 0
    assert f"pip install 't3sim[{extras._NEEDS[command][0]}]'" in capsys.readouterr().out.rstrip().splitlines()[-1]
    assert extras.needs("run") == "" and set(extras._NEEDS) <= set(COMMANDS)


def test_other_missing_modules_are_faults_of_the_program():
    assert extras.install_line("nowhere.inner") is None
