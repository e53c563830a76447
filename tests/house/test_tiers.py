"""Marks say what a test builds, and the commands of the tiers leave none out and run none twice."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

from tests import conftest

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "tests").rglob("test_*.py"))
OURS = {line.partition(":")[0] for line in tomllib.loads(
    (ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"]["ini_options"]["markers"]}
PYTESTS = {"filterwarnings", "parametrize", "skip", "skipif", "xfail"}

#: Modules that a test imports to build something, and the mark that says so.
BUILDERS = {"amaranth.sim": "builds_rtl", "t3sim.cosim.gpu": "builds_rtl", "t3sim.cosim.component": "builds_rtl",
            "t3sim.cosim.verilog": "builds_rtl",
            "t3sim.rtlsim.simulator": "builds_rtl", "t3sim.cosim.testbench": "builds_rtl",
            "t3sim.runs.data_mode": "builds_rtl", "t3sim.runs.fused": "builds_rtl",
            "tests.support.recorded": "builds_rtl", "tests.support.gpu": "builds_rtl",
            "tests.support.stream_bench": "builds_rtl",
            "t3sim.gpu.engine.loop": "builds_loops", "t3sim.event.flow.collective": "builds_loops",
            "t3sim.testbenches.hbm_replay.replay": "builds_loops"}


def marks(tree: ast.Module) -> set[str]:
    return {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)
            and ast.unparse(node.value) == "pytest.mark"}


def missing(tree: ast.Module) -> set[str]:
    """Marks that a file's imports ask for and none of its tests has."""
    imported = {node.module for node in tree.body if isinstance(node, ast.ImportFrom)}
    return {mark for module, mark in BUILDERS.items() if module in imported} - marks(tree)


def test_marks_are_known_and_what_builds_has_them():
    trees = {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8")) for path in FILES}
    assert len(trees) > 100
    assert not {path: told for path, tree in trees.items() if (told := marks(tree) - OURS - PYTESTS)}
    assert not {path: told for path, tree in trees.items() if (told := missing(tree))}
    assert {mark for tree in trees.values() for mark in marks(tree)} >= OURS, "a mark that no test has"


def test_what_is_not_marked_is_found():
    text = "from amaranth.sim import Simulator\nfrom t3sim.gpu.engine.loop import Lockstep\n"
    assert missing(ast.parse(text)) == {"builds_rtl", "builds_loops"}
    assert missing(ast.parse(f"{text}pytestmark = pytest.mark.builds_rtl\n")) == {"builds_loops"}


@pytest.mark.parametrize(("target", "words"), [
    ("check", "--compile-nothing "), ("test", '-m "not slow" '), ("test-rest", "-m slow "), ("test-all", "")])
def test_a_tier_is_what_its_command_runs(target, words):
    """The rest is what the second leaves out, and the last is both."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(rf"^{target}: .*\n\t\$\(python\) -m pytest {re.escape(words)}\$\(PYTEST_ARGS\)$", makefile, re.M)


def test_one_file_compiles_what_others_run_beside_those_of_hardware_and_files_stay_whole():
    """A file is where its longest build puts it; what begins first is not waited for in the end."""
    class Item:
        def __init__(self, path: str, *names: str) -> None:
            self.path, self.names = Path(path), names

        def iter_markers(self):
            return [getattr(pytest.mark, name).mark for name in self.names]

    class Config:
        def getoption(self, name: str) -> bool:
            return False

    first = f"whole/{conftest.FIRST}"
    assert (ROOT / "tests" / first).is_file()
    items = [Item("plain"), Item("loops"), Item("rtl", "builds_rtl"), Item("loops", "builds_rtl", "builds_loops"),
             Item("rtl"), Item(first, "builds_rtl", "builds_loops")]
    conftest.pytest_collection_modifyitems(Config(), items)
    assert [str(item.path) for item in items] == [first, "rtl", "rtl", "loops", "loops", "plain"]
    arguments = re.search(r"^PYTEST_ARGS \?= (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)[1]
    assert "--no-loadscope-reorder" in arguments.split(), "xdist would begin with the file of most tests"
