"""The test plan, docs/verification, names only tests that exist, and leaves no block out."""

import ast
import functools
import re
from pathlib import Path

import pytest

from t3sim.rtl.blocks import BLOCKS

ROOT = Path(__file__).resolve().parents[2]
PLAN = "\n".join(page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs" / "verification").glob("*.md")))


@functools.cache
def collected(path: Path) -> frozenset[str]:
    """Names that pytest would collect from a file of tests/, or cocotb from a testbench."""
    if not path.exists():
        return frozenset()
    functions = [node for node in ast.parse(path.read_text(encoding="utf-8")).body
                 if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    if path.parent.name == "testbenches":
        return frozenset(function.name for function in functions if any(
            re.match(r"rounds\(|cocotb\.test", ast.unparse(decorator)) for decorator in function.decorator_list))
    return frozenset(function.name for function in functions if function.name.startswith("test_"))


def rows(text: str, columns: int = 4) -> list[tuple[str, list[str]]]:
    """(heading, cells) of the rows of the tables whose last column is called tests."""
    found, heading, reading = [], "", False
    for line in text.splitlines():
        if line.startswith("#"):
            heading = line.strip("# ")
        cells = [cell.strip() for cell in line.strip("| ").split("|")] if line.startswith("|") else []
        if not cells:
            reading = False
        elif cells[-1] == "tests":
            reading = True
        elif reading and not set(line) <= set("|- "):
            found.append((heading, cells))
    return found


def stray_rows(text: str) -> list[str]:
    """Rows behind an empty line: no table has them, neither on the page nor for `rows`."""
    lines = ["", *text.splitlines(), ""]
    return [row for above, row, below in zip(lines, lines[1:], lines[2:])
            if row.startswith("|") and not above.startswith("|") and not re.fullmatch(r"[|: -]+", below)]


def complaints(text: str) -> list[str]:
    """What is wrong with a plan, one line each."""
    told = [f"no table around {row}" for row in stray_rows(text)]
    for heading, cells in rows(text):
        where = f"{heading}: {cells[0]}"
        if len(cells) != 4 or not all(cells):
            told.append(f"{where}: feature, stimulus, check and tests are needed")
            continue
        names = re.findall(r"`([^`]*)`", cells[3])
        if not names or re.sub(r"`[^`]*`", "", cells[3]).strip():
            told.append(f"{where}: {cells[3]!r} is no list of tests")
        for name in names:
            path, _, test = name.partition("::")
            if test not in collected(ROOT / path):
                told.append(f"{where}: there is no {name}")
    return told


def test_every_named_test_exists():
    assert len(rows(PLAN)) > 80
    assert not complaints(PLAN)


@pytest.mark.parametrize("block", BLOCKS)
def test_every_block_is_planned(block):
    """In tests/rtl, which sees inside, and by every test of its testbench."""
    named = {name for heading, cells in rows(PLAN) if heading == block for name in re.findall(r"`([^`]*)`", cells[3])}
    bench = f"testbenches/tb_{block}.py"
    assert any(name.startswith(f"tests/rtl/test_{block}.py::") for name in named)
    assert {f"{bench}::{test}" for test in collected(ROOT / bench)} <= named
    assert collected(ROOT / bench)


@pytest.mark.parametrize(("row", "told"), [
    ("| a | b | c | `tests/rtl/test_tracker.py::test_no_such` |", "there is no tests/rtl/test_tracker.py::test_no_"),
    ("| a | b | c | `tests/rtl/test_no_file.py::test_x` |", "there is no tests/rtl/test_no_file.py::test_x"),
    ("| a | b | c | `tests/rtl/test_tracker.py` |", "there is no tests/rtl/test_tracker.py"),
    ("| a | b | c | `testbenches/tb_tracker.py::Tracker` |", "there is no testbenches/tb_tracker.py::Tracker"),
    ("| a | b | c | later |", "'later' is no list of tests"),
    ("| a | b | `tests/rtl/test_tracker.py::test_random_updates` |", "are needed"),
    ("\n| a | b | c | `tests/rtl/test_tracker.py::test_random_updates` |", "no table around | a | b | c |"),
])
def test_a_wrong_plan_is_told(row, told):
    found = complaints(f"### tracker\n\n| feature | stimulus | check | tests |\n|---|---|---|---|\n{row}\n")
    assert len(found) == 1 and told in found[0]
