"""The reports of the site: one for each paper, whole, of figures that there are."""

import csv
import re
from pathlib import Path

import pytest

from t3sim.reproduce.figure import PAPERS
from t3sim.reproduce.registry import FIGURES

REPORTS = Path(__file__).resolve().parents[2] / "docs" / "reports"


@pytest.mark.parametrize("paper", PAPERS)
def test_report_is_whole(paper):
    """What the page links to lies beside it; its numbers are in the summary that the list of reports reads."""
    page = (REPORTS / paper / "report.html").read_text(encoding="utf-8")
    for link in re.findall(r'<a href="([^"#][^"]*)"', page):
        assert (REPORTS / paper / link).is_file(), f"{paper}/report.html links to {link}"
    figures = {figure.name for figure in FIGURES.values() if figure.paper == paper}
    with (REPORTS / paper / "tables" / "summary.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows and {row["figure"] for row in rows} <= figures


def test_no_report_of_a_paper_that_is_not_reproduced():
    assert {folder.name for folder in REPORTS.iterdir()} == set(PAPERS)
