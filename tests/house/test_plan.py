"""Every block has a testbench and unit tests, each of which says what it checks: the site lists them by block."""

import pytest

from t3sim.rtl.blocks import BLOCKS
from t3sim.testbenches import plan


def complaints(*files) -> list[str]:
    """What is missing in the test files of a block, one line each."""
    if not files:
        return ["no file of tests"]
    told = []
    for path in files:
        tests = plan.tests_in(path) if path.is_file() else {}
        told += [] if tests else [f"{path.name} has no test"]
        told += [f"{path.name}::{name} has no docstring" for name, words in tests.items() if not words]
    return told


@pytest.mark.parametrize("block", BLOCKS)
def test_every_block_has_a_testbench_and_unit_tests_that_say_what_they_check(block):
    assert not complaints(*plan.unit_tests(block))
    assert not complaints(plan.testbench(block))


def test_tests_in_other_files_exist():
    listed = plan.elsewhere()
    assert set(listed) <= set(BLOCKS)
    missing = [f"{block}: {path}::{name}" for block, files in listed.items() for path, names in files.items()
               for name in names if not plan.tests_in(plan.ROOT / path).get(name)]
    assert not missing, "no such test, or it has no docstring"


def test_every_proof_is_of_a_block():
    assert plan.PROPERTIES and {one.block for one in plan.PROPERTIES} <= set(BLOCKS)


@pytest.mark.parametrize(("name", "text", "told"), [
    ("test_a.py", "def test_it(): pass", ["test_a.py::test_it has no docstring"]),
    ("test_a.py", 'def test_it():\n    """What it checks."""', []),
    ("test_a.py", "def helper(): pass", ["test_a.py has no test"]),
    ("tb_a.py", "@rounds(2)\nasync def it(bench): pass\n", ["tb_a.py::it has no docstring"]),
    ("tb_a.py", 'async def helper(bench):\n    """No test."""', ["tb_a.py has no test"])])
def test_what_is_missing_is_told(tmp_path, name, text, told):
    (tmp_path / name).write_text(text)
    assert complaints(tmp_path / name) == told
    assert complaints() and complaints(tmp_path / "test_b.py") == ["test_b.py has no test"]
