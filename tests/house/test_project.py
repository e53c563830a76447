"""What a newcomer touches first: the README's words are true, and the set-up asks for what is missing."""

import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_every_path_in_the_readme_exists():
    named = set(re.findall(r"`([\w./]+/[\w./]*)`", README)) | set(re.findall(r"\]\(([\w./]+)\)", README))
    made_by_commands = {"build/", ".venv/bin/t3"}
    assert len(named) > 20
    assert not [path for path in sorted(named - made_by_commands) if not (ROOT / path).exists()]


def test_the_source_is_read_in_ten_files():
    page = (ROOT / "docs" / "reading-the-source.md").read_text(encoding="utf-8")
    paths = re.findall(r"^\| \d+ \| `([^`]+)`", page, re.M)
    assert len(paths) == 10 and not [path for path in paths if not (ROOT / path).is_file()]


def test_readme_shows_the_last_lines_of_the_output_of_a_run():
    """They come from a file, as figures do: `tests/house/test_figures_in_pages.py`."""
    block = README.split('<!-- output: docs/results/run.txt from "Time (µs)" -->')[1].split("<!-- end -->")[0]
    assert 10 <= len(block.strip().splitlines()) - 2 <= 25


def test_machine_of_the_readme_loads(tmp_path):
    from t3sim.machine import load_machine

    path = tmp_path / "readme.toml"
    path.write_text(re.search(r"```toml\n(.*?)```", README, re.DOTALL)[1])
    assert load_machine(path).gpu.compute_units == 160


def test_readme_names_every_command():
    from t3sim.commands.app import COMMANDS

    assert set(COMMANDS) == set(re.findall(r"^\| `t3 ([\w-]+)", README, re.M))


def test_make_help_names_every_target():
    told = subprocess.run(["make", "-s", "help"], cwd=ROOT, text=True, capture_output=True, timeout=30).stdout
    for target in ("run", "check", "test", "test-rest", "test-all", "cocotb", "soak", "alu-exhaustive", "lint",
                   "clean"):
        assert f"make {target} " in told


SKIPPED_FOR_A_TOOL = ("Icarus Verilog is not installed", "there is no browser here", "OSU018 is not installed",
                      "clang is not installed", "CMake is not installed", "SystemC is not installed")


def run_ci(folder: Path, fails: str = "", *, user: int = 0, skips: str = "") -> subprocess.CompletedProcess:
    """Call .ci/run in a folder of its own, with a `make` that says its target and skips, and fails for one target."""
    (folder / ".ci").mkdir()
    (folder / ".ci" / "run").write_text((ROOT / ".ci" / "run").read_text())
    (folder / "make").write_text(f'#!/bin/sh\necho "made $1"\necho "{skips}"\n[ "$1" != "{fails}" ]\n')
    (folder / "apt-get").write_text(f'#!/bin/sh\n[ "{fails}" != apt-get ]\n')
    (folder / "id").write_text(f"#!/bin/sh\necho {user}\n")
    for path in (".ci/run", "make", "apt-get", "id"):
        (folder / path).chmod(0o755)
    return subprocess.run([folder / ".ci" / "run"], env=os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"},
                          text=True, capture_output=True, timeout=30)


@pytest.mark.parametrize(("fails", "status"), [("", 0), ("test", 1), ("test-rest", 1)])
def test_ci_runs_the_test_command_of_the_readme_then_the_rest(tmp_path, fails, status):
    assert "make test " in README and os.access(ROOT / ".ci" / "run", os.X_OK)
    done = run_ci(tmp_path, fails)
    shown = [line for line in done.stdout.splitlines() if line.startswith("made ")]
    assert (done.returncode, shown[:2]) == (status, ["made test", "made test-rest"]), done.stdout + done.stderr


@pytest.mark.parametrize(("fails", "user", "status", "words"), [
    ("", 0, 1, "skipped although Debian's packages are installed:\nSKIPPED [2]"),
    ("apt-get", 0, 0, "apt-get does not work here: tests without Icarus"),
    ("library", 0, 0, "apt-get does not work here"),
    ("", 1000, 0, "not root: Debian's packages are not installed")])
@pytest.mark.parametrize("reason", SKIPPED_FOR_A_TOOL)
def test_ci_fails_where_debian_s_tools_are_installed_and_a_test_is_still_skipped(
        tmp_path, reason, fails, user, status, words):
    done = run_ci(tmp_path, fails, user=user, skips=f"SKIPPED [2] tests/a.py:1: {reason}")
    assert done.returncode == status and words in done.stdout, done.stdout + done.stderr


def test_other_tests_may_be_skipped(tmp_path):
    assert run_ci(tmp_path, skips="SKIPPED [1] tests/a.py:1: no file systems may be mounted here").returncode == 0


def test_every_reason_to_skip_for_a_tool_is_known_to_ci():
    """A test that asks whether a program or library is there: its reason is one at which .ci/run looks."""
    pattern = re.compile(r'(?:skip\(|reason=)"([^"]*(?:not installed|no browser)[^"]*)"')
    reasons = {reason for path in (ROOT / "tests").rglob("test_*.py") for reason in pattern.findall(path.read_text())
               if reason and path != Path(__file__)}
    assert {reason.partition(":")[0] for reason in reasons} == {
        reason.partition(":")[0] for reason in SKIPPED_FOR_A_TOOL}


def test_every_package_is_installed():
    """Folders that pip would leave out: those without `__init__.py`."""
    for folder in ("rtl", "sim_models", "testbenches"):
        for path in (ROOT / folder).rglob("*.py"):
            assert (path.parent / "__init__.py").exists(), path.parent


def test_dependencies_are_bounded():
    for requirement in PROJECT["project"]["dependencies"]:
        assert re.search(r"[=>]=", requirement), requirement


@pytest.mark.parametrize(("python", "compiler", "words"), [
    ("no-such-python", None, ["Python 3.11 or newer", "apt install python3 python3-venv"]),
    (sys.executable, "no-such-compiler", ["C++20 compiler", "'no-such-compiler'", "apt install g++"]),
    ("no-such-python", "false", ["Python 3.11", "C++20 compiler", "apt install python3 python3-venv g++"]),
])
def test_missing_prerequisites_are_asked_for_in_one_line(python, compiler, words):
    env = {**os.environ, **({"CXX": compiler} if compiler else {})}
    result = subprocess.run(["sh", "scripts/prerequisites.sh", python], cwd=ROOT, text=True, capture_output=True,
                            env=env, timeout=30)
    assert result.returncode == 1 and result.stdout == ""
    assert re.fullmatch(r"t3: error: [^\n]+\n", result.stderr)
    for word in words:
        assert word in result.stderr


def test_prerequisites_that_are_there_say_nothing():
    result = subprocess.run(["sh", "scripts/prerequisites.sh", sys.executable], cwd=ROOT, text=True,
                            capture_output=True, timeout=30)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_make_stops_before_any_work():
    result = subprocess.run(["make", "run", "PYTHON=no-such-python", "VENV=no-such-venv"], cwd=ROOT, text=True,
                            capture_output=True, timeout=30)
    assert result.returncode != 0
    assert "t3: error: missing Python 3.11" in result.stderr and "installing" not in result.stdout
    assert not (ROOT / "no-such-venv").exists()


def test_no_two_test_files_have_one_name():
    """A fresh clone could not collect them: pytest takes a file without a package by its name alone."""
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []
