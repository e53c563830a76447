"""Puts figures that commands wrote into pages: `python scripts/figures.py` writes them, `--check` only says what moved.

A figure is a link to its place in a result file:
`[32.8 %](reports/t3/tables/summary.csv#figure16/t3-geomean-speedup/ours)`.
After `#` come the first cells of a row and a column of a CSV file, or keys and places in lists of a JSON file: words in
lower case, a hyphen for whatever is no letter, digit, dot or plus; `~2` at the end means a cell's second number. The
text gives the form: a new figure has as many decimals, the same unit, and a plus where it has one now. As everywhere in
the project, JSON has times in ns, sizes in bytes and shares as ratios; tables have them in their columns' units. Output
of a command stands between `<!-- output: FILE -->`, or `<!-- output: FILE from "LINE" -->`, and `<!-- end -->`; of a
CSV file it is a table.
"""

import csv
import json
import re
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ("docs/results/", "docs/reports/")

_LINK = re.compile(r"\[([^\]\n]*)\]\(([^()#\s]+\.(?:csv|json))#([^()\s]+)\)")
_OUTPUT = re.compile(r'(<!-- output: (\S+?)(?: from "([^"\n]+)")? -->\n)(.*?)(<!-- end -->)', re.DOTALL)
_NUMBER = re.compile(r"([-+−]?)(\d[\d,]*(?:\.(\d+))?)")
_SCALES = {"_ns": {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9}, "_bytes": {"B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9},
           "_percent": {"%": 1}}


class Missing(Exception):
    """A page names a result that no file has."""


def pages() -> list[Path]:
    """Return all pages that people read."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def written(page: Path) -> str:
    """Return a page's text with today's figures. Raises `Missing`."""
    def link(found: re.Match) -> str:
        text, target, place = found.groups()
        path = result(page, target)
        return f"[{restated(text, place, value(path, place), path.suffix == '.json')}]({target}#{place})"

    def output(found: re.Match) -> str:
        head, target, title, _, end = found.groups()
        path = result(page, target)
        return head + (table(path) if path.suffix == ".csv" else f"```text\n{tail(path, title)}```\n") + end

    return _LINK.sub(link, _OUTPUT.sub(output, page.read_text(encoding="utf-8")))


def result(page: Path, target: str) -> Path:
    """Return the result file that a page names. Raises `Missing`."""
    path = (page.parent / target).resolve()
    if not path.is_file() or not path.relative_to(ROOT).as_posix().startswith(RESULTS):
        raise Missing(f"{target} is no result file: those are in {' and '.join(RESULTS)}")
    return path


def tail(path: Path, title: str | None) -> str:
    """Return a command's output from a line on. Raises `Missing`."""
    text = path.read_text(encoding="utf-8")
    start = 0 if title is None else f"\n{text}".find(f"\n{title}\n")
    if start < 0:
        raise Missing(f"{path.name} has no line {title!r}")
    return text[start:].strip("\n") + "\n"


def table(path: Path) -> str:
    """Return a CSV file as a table of a page: its first column's words to the left, numbers to the right."""
    first, *others = ([cell.replace("|", "\\|") for cell in row] for row in _content(path))
    lines = [first, ["---", *("--:" for _ in first[1:])], *others]
    return "\n" + "".join(f"| {' | '.join(row)} |\n" for row in lines) + "\n"


def slug(text: str) -> str:
    """Write words as links do."""
    return re.sub(r"[^\w.+]+", "-", text.lower()).strip("-")


@cache
def _content(path: Path):
    text = path.read_text(encoding="utf-8")
    return json.loads(text) if path.suffix == ".json" else list(csv.reader(text.splitlines()))


def value(path: Path, place: str) -> float:
    """Return the number at a place of a result file. Raises `Missing`."""
    words, _, which = place.partition("~")
    at = (_in_json if path.suffix == ".json" else _in_table)(_content(path), words.split("/"), f"{path.name}#{words}")
    numbers = [*_NUMBER.finditer(str(at).replace("−", "-"))]
    if not int(which or 1) <= len(numbers):
        raise Missing(f"{path.name}#{place} is no number: {at!r}")
    found = numbers[int(which or 1) - 1]
    return float(found[0].replace(",", "")) if isinstance(at, str) else float(at)


def _in_json(at, words: list[str], where: str):
    for word in words:
        if isinstance(at, list) and word.isdigit() and int(word) < len(at):
            at = at[int(word)]
        elif isinstance(at, dict) and len(keys := [key for key in at if slug(key) == word]) == 1:
            at = at[keys[0]]
        else:
            raise Missing(f"{where}: there is no {word}")
    return at


def _in_table(table: list[list[str]], words: list[str], where: str) -> str:
    *row, column = words
    rows = [one for one in table[1:] if [slug(cell) for cell in one[:len(row)]] == row]
    columns = [number for number, head in enumerate(table[0]) if slug(head) == column]
    if len(rows) != 1 or len(columns) != 1:
        raise Missing(f"{where}: {len(rows)} rows and {len(columns)} columns are called that, not one of each")
    return rows[0][columns[0]]


def restated(text: str, place: str, number: float, ratios: bool) -> str:
    """Write a number as the text has it now, with its sign, decimals and unit. `ratios`: shares are no percentages.

    Raises `Missing`.
    """
    found = _NUMBER.search(text)
    if found is None:
        raise Missing(f"the link to {place} has no number to take the form from: {text!r}")
    sign, _, decimals = found.groups()
    unit = (text[found.end():].split() or [""])[0]
    words = place.split("/") if ratios else [place]
    scales = next((units for ending, units in _SCALES.items() if any(f"_{word}".endswith(ending) for word in words)),
                  {"%": 0.01} if ratios else {})
    shown = f"{number / scales.get(unit, 1):{'+' if sign == '+' else ''}z,.{len(decimals or '')}f}"
    return f"{text[:found.start()]}{shown}{text[found.end():]}"


def moved() -> list[str]:
    """Return a line for each page whose figures are not those of the files, or that names what no file has."""
    found = []
    for page in pages():
        try:
            if written(page) != page.read_text(encoding="utf-8"):
                found.append(f"{page.relative_to(ROOT)}: figures moved; python scripts/figures.py writes them")
        except Missing as missing:
            found.append(f"{page.relative_to(ROOT)}: {missing}")
    return found


if __name__ == "__main__":
    if "--check" not in sys.argv[1:]:
        for page in pages():
            try:
                page.write_text(written(page), encoding="utf-8")
            except Missing:
                pass  # is in what follows
    print("\n".join(lines := moved()), end="\n" if lines else "")
    sys.exit(bool(lines))
