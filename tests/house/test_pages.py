"""Pages say in their first paragraph what they answer, have headings and paragraphs, and are short enough to read."""

import re
from pathlib import Path

from tests.support.naming import case

ROOT = Path(__file__).resolve().parents[2]
PAGES = [page for page in sorted((ROOT / "docs").rglob("*.md")) if "reports" not in page.parts]

MOST_WORDS = 2500
MOST_IN_A_PARAGRAPH = 220  #: or an item of a list; links count as the words that are seen
#: Written by commands: they are looked up, not read.
GENERATED = {"registers.md", "api.md", "results/area.md", "results/area-sweep.md", "results/fpga.md",
             "verification/proofs.md"}


def test_pages_can_be_read():
    assert PAGES
    for page in PAGES:
        with case(page.relative_to(ROOT)):
            check(page)


def check(page: Path) -> None:
    lines = page.read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("# ") and not lines[1]
    if page.relative_to(ROOT / "docs").as_posix() in GENERATED:
        return
    words = len(page.read_text(encoding="utf-8").split())
    assert words <= MOST_WORDS, f"{words} words: a page has at most {MOST_WORDS}"
    assert lines[2] and lines[2][0] not in "|<-", "the first paragraph says what the page answers"
    prose = sum(len(line.split()) for line in lines if not line.startswith("|"))
    assert prose < 500 or any(line.startswith("## ") for line in lines), "a long page has headings"
    text = re.sub(r"^```.*?^```|^\|.*$", "", re.sub(r"\]\([^)]*\)", "]", "\n".join(lines)), flags=re.M | re.S)
    longest = max(re.split(r"\n\s*\n|\n(?=- |\d+\. )", text), key=lambda paragraph: len(paragraph.split()))
    assert len(longest.split()) <= MOST_IN_A_PARAGRAPH, f"{len(longest.split())} words: {longest[:60]}"
