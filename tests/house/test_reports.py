"""The reports of the site: tables for each paper, of figures that there are; the pages are made, not kept."""

import csv
import re
import subprocess
from pathlib import Path

import pytest

from t3sim.papers.figure import PAPERS
from t3sim.papers.registry import FIGURES

REPORTS = Path(__file__).resolve().parents[2] / "docs" / "reports"


@pytest.mark.parametrize("paper", PAPERS)
def test_report_is_whole(paper):
    """What a page that is made links to lies beside it; the list of reports reads its numbers from the summary."""
    page = REPORTS / paper / "report.html"
    for link in re.findall(r'<a href="([^"#][^"]*)"', page.read_text(encoding="utf-8")) if page.is_file() else ():
        assert (REPORTS / paper / link).is_file(), f"{paper}/report.html links to {link}"
    figures = {figure.name for figure in FIGURES.values() if figure.paper == paper}
    with (REPORTS / paper / "tables" / "summary.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows and {row["figure"] for row in rows} <= figures


def test_no_report_of_a_paper_that_is_not_reproduced():
    assert {folder.name for folder in REPORTS.iterdir()} == set(PAPERS)


def test_what_is_generated_is_not_kept():
    found = subprocess.run(["git", "ls-files"], cwd=REPORTS, text=True, capture_output=True, check=False).stdout.split()
    assert not [path for path in found if not re.fullmatch(r"\w+/tables/[\w.-]+\.csv", path)]
