"""A release says the same version everywhere, and its changes by kind, a line each."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KINDS = ["Added", "Changed", "Fixed", "Removed", "Security"]


def newest() -> tuple[str, str, str]:
    """Version, date and text of the newest release in the changelog."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    version, date, rest = re.search(r"^## (\d+\.\d+\.\d+), (\d{4}-\d\d-\d\d)\n(.*)", text, re.M | re.S).groups()
    return version, date, rest.partition("\n## ")[0]


def test_a_version_is_the_same_everywhere():
    version, date, _ = newest()
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    scm = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools_scm"]
    assert f"\nversion: {version}\n" in citation and scm["fallback_version"] == version
    assert f"\ndate-released: {date}\n" in citation


def test_the_newest_release_has_five_kinds_and_a_line_for_each_change():
    _, _, text = newest()
    assert re.findall(r"^#+ (.*)", text, re.M) == KINDS
    notes, *kinds = re.split(r"^### .*\n", text, flags=re.M)
    assert notes.strip(), "no notes"
    for kind, changes in zip(KINDS, kinds, strict=True):
        lines = changes.strip().splitlines()
        assert lines and not [line for line in lines if not line.startswith("- ") or len(line) > 130], kind
