"""A release says the same version everywhere, and its changes by kind, a line each."""

import re
import subprocess
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KINDS = ["Added", "Changed", "Fixed", "Removed", "Security"]


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, text=True, capture_output=True, check=False).stdout


def newest() -> tuple[str, str, str]:
    """Version, date and text of the newest release in the changelog."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    version, date, rest = re.search(r"^## (\d+\.\d+\.\d+), (\d{4}-\d\d-\d\d)\n(.*)", text, re.M | re.S).groups()
    return version, date, rest.partition("\n## ")[0]


def changes_that_are_no_line(text: str) -> list[str]:
    """Lines below a kind's heading that are not one change each."""
    kinds = re.split(r"^### .*\n", text, flags=re.M)[1:]
    return [line for kind in kinds for line in kind.strip().splitlines() or ["(none)"] if not line.startswith("- ")]


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
    assert len(kinds) == len(KINDS) and not changes_that_are_no_line(text)


def test_every_section_has_its_changes_by_kind():
    sections = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").split("\n## ")[1:]
    assert len(sections) > 1
    for section in sections:
        kinds = re.findall(r"^#+ (.*)", section, re.M)
        assert kinds == [kind for kind in KINDS if kind in kinds], section.splitlines()[0]
        assert not changes_that_are_no_line(section), section.splitlines()[0]
    assert changes_that_are_no_line("### Fixed\n\n- one\nof two\n### Removed\n") == ["of two", "(none)"]


def test_a_tag_is_on_the_commit_of_its_release():
    """A clone may have none; one that it has names a version whose changes are written there."""
    tags = git("tag", "--list", "v*").split()
    assert not [tag for tag in tags if f"\n## {tag[1:]}, " not in git("show", f"{tag}:CHANGELOG.md")]
