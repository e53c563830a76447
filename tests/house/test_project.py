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
    from t3sim.commands.app import group

    assert group().commands.keys() == set(re.findall(r"^\| `t3 ([\w-]+)", README, re.M))


def test_make_help_names_every_target():
    told = subprocess.run(["make", "-s", "help"], cwd=ROOT, text=True, capture_output=True, timeout=30).stdout
    for target in ("run", "check", "test", "test-rest", "test-all", "cocotb", "soak", "alu-exhaustive", "lint",
                   "clean"):
        assert f"make {target} " in told


def run_ci(folder: Path, fails: str) -> subprocess.CompletedProcess:
    """Call .ci/run in a folder of its own, with a `make` that says its target and fails for one."""
    (folder / ".ci").mkdir()
    (folder / "make").write_text(f'#!/bin/sh\necho "made $1"\n[ "$1" != "{fails}" ]\n')
    for path, source in ((folder / ".ci" / "run", ROOT / ".ci" / "run"), (folder / "make", folder / "make")):
        path.write_text(source.read_text())
        path.chmod(0o755)
    return subprocess.run([folder / ".ci" / "run"], env=os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"},
                          text=True, capture_output=True, timeout=30)


@pytest.mark.parametrize(("fails", "status"), [("", 0), ("test", 1), ("test-rest", 1)])
def test_ci_runs_the_test_command_of_the_readme_then_the_rest(tmp_path, fails, status):
    assert "make test " in README and os.access(ROOT / ".ci" / "run", os.X_OK)
    done = run_ci(tmp_path, fails)
    shown = [line for line in done.stdout.splitlines() if line.startswith("made ")]
    assert (done.returncode, shown[:2]) == (status, ["made test", "made test-rest"]), done.stdout + done.stderr


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
