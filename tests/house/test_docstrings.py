"""The first line of a public docstring stands alone, as CONTRIBUTING.md asks: what ruff's rules cannot see."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("rtl", "sim_models", "testbenches", "scripts")

#: What a sentence goes on with that began in the name above it, or in the docstring before. "Where" is none: "Where a
#: link leads" says what a class is. "In", "From" and "To" can begin a sentence, which then has a comma.
FRAGMENT = re.compile(r"(Of|As|For|With|Without|Whether|That|By|At|Until|And|Or|But|Also|Then|The same|See)[ ,]"
                      r"|(In|From|To) [^,]*$")


def public_docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Give line and first line of the docstrings of a module and of what it and its classes offer."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if text := ast.get_docstring(node):
            yield getattr(node, "lineno", 1), text.splitlines()[0]
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            waiting += [inner for inner in node.body if not getattr(inner, "name", "_").startswith("_")]


def fragments(text: str) -> list[str]:
    return [f"{line}: {first}" for line, first in public_docstrings(ast.parse(text)) if FRAGMENT.match(first)]


@pytest.mark.parametrize("folder", FOLDERS)
def test_first_lines_are_no_fragments(folder):
    paths = sorted((ROOT / folder).rglob("*.py"))
    assert paths and not [f"{path.relative_to(ROOT)}:{fragment}" for path in paths
                          for fragment in fragments(path.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("first", [
    "Of one element.", "As `run`, without keeping the outputs.", "For people: 64 KB.", "Whether it waits.",
    "The same for a folder.", "In contacted pitches.", "With its steps sorted by time."])
def test_a_fragment_is_found(first):
    assert fragments(f'class Kind:\n    @property\n    def name(self):\n        """{first}"""\n') == [f"3: {first}"]


def test_what_nobody_reads_alone_may_be_short():
    assert not fragments('"""What a kernel takes."""\ndef _of(x):\n    """Of x."""\n')
