"""Lists words and first lines that a native reader stumbles over: CONTRIBUTING.md says which, and what to say instead.

`python scripts/english.py` looks at the pages; with folders (`rtl sim_models`) at docstrings and texts of code, too.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("README.md", "CONTRIBUTING.md", "docs")
#: Written by commands, from texts of the code; and reports, which name files.
GENERATED = {"docs/registers.md", "docs/verification/proofs.md"}

RULES = {
    "`told`: say reported": re.compile(r"\btold\b(?! :)", re.I),  #: a member's name has a colon
    #: What is late, hidden or concealed is behind; what comes later is after.
    "`behind`: say after, or the end of": re.compile(
        r"(?<!hidden )(?<!hide )(?<!hides )(?<!more )(?<!most )(?<!only )(?<!is )(?<!falls )(?<!lags )(?<!longer )"
        r"(?<!points )(?<!stage )(?<!% )"
        r"(?<!waits )(?<!lag )(?<!furthest )(?<!fallen )\bbehind\b(?! one interface)", re.I),
    "`so many`: say this many": re.compile(r"\bso many\b", re.I),
    "`of one's own`: say custom": re.compile(r"\bof one's own\b", re.I),
}
HARDWARE = re.compile(r"\w\.\w+\(|^\(\w+ >= ")  #: a piece of source, as broken designs quote it
FIRST = re.compile(r"(What|How|Who|Where)\b")  #: of a docstring: a thing is named, not circumscribed


def offenders(path: Path) -> Iterator[tuple[int, str, str]]:
    """Give line, rule and text of each offender in a page or a Python file."""
    text = path.read_text(encoding="utf-8")
    pieces = python(text) if path.suffix == ".py" else enumerate(re.sub(
        r"^```.*?^```|`[^`\n]*`|\]\([^)]*\)", lambda found: re.sub(r"[^\n]", " ", found[0]), text, flags=re.M | re.S
    ).splitlines(), 1)
    for line, piece in pieces:
        for rule, words in RULES.items():
            for found in words.finditer(re.sub(r"`[^`\n]*`", "``", piece)):
                yield line, rule, found.string[max(0, found.start() - 40):found.end() + 30].replace("\n", " ")
        if path.suffix == ".py" and FIRST.match(piece) and piece.splitlines()[0].endswith("."):
            yield line, "first line: name the thing", piece.splitlines()[0]


def python(text: str) -> Iterator[tuple[int, str]]:
    """Give line and text of docstrings and of texts with a space in them; names and keys are no English."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value and (
                "\n" in node.value or not HARDWARE.search(node.value)):
            yield node.lineno, node.value


def listed(places: tuple[str, ...]) -> list[str]:
    """Return the offenders of files and folders as lines."""
    paths = [path for place in places for path in ([ROOT / place] if (ROOT / place).is_file() else sorted(
        one for ending in ("*.md", "*.py") for one in (ROOT / place).rglob(ending)))]
    assert paths, places
    return [f"{name}:{line}: {rule}: {text}" for path in paths
            if (name := path.relative_to(ROOT).as_posix()) not in GENERATED for line, rule, text in offenders(path)]


if __name__ == "__main__":
    found = listed(tuple(sys.argv[1:]) or PAGES)
    print("\n".join([*found, f"{len(found)} offenders"]))
    sys.exit(bool(found))
