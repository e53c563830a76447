"""Measured figures in pages are those of result files: `scripts/figures.py` writes them there."""

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import figures  # noqa: E402


def test_figures_in_pages_are_those_of_result_files():
    assert not figures.moved()


@pytest.fixture
def page(tmp_path, monkeypatch):
    """Return a function that writes a page beside two result files and gives what becomes of its text."""
    results = tmp_path / "docs" / "results"
    results.mkdir(parents=True)
    (results / "a.csv").write_text(
        'figure,quantity,ours\nf16,"T3, mean",32.819\nf16,largest,"12,345.6"\nf6,mean,-0.04\nf7,span,-3 to +8.2 %\n')
    one = {"total_ns": 2518848, "efficiency": 0.943, "size_bytes": 2e6, "kernel_ns": {"64": 5000}, "ns": 7000}
    (results / "b.json").write_text(json.dumps({"t3": [one]}))
    (results / "run.txt").write_text("head\n\nTime (µs)\n t3 1.0 µs\n")
    monkeypatch.setattr(figures, "ROOT", tmp_path)

    def become(text: str) -> str:
        (tmp_path / "docs" / "page.md").write_text(text)
        return figures.written(tmp_path / "docs" / "page.md")
    return become


@pytest.mark.parametrize(("text", "place", "becomes"), [
    ("1.0 %", "a.csv#f16/t3-mean/ours", "32.8 %"), ("+1", "a.csv#f16/t3-mean/ours", "+33"),
    ("about 1 %", "a.csv#f16/largest/ours", "about 12,346 %"), ("1.0 %", "a.csv#f6/mean/ours", "0.0 %"),
    ("1.00", "a.csv#f6/mean/ours", "-0.04"), ("1.0 %", "a.csv#f7/span/ours~2", "8.2 %"),
    ("1.0 µs", "b.json#t3/0/total_ns", "2,518.8 µs"),
    ("1.0 µs", "b.json#t3/0/kernel_ns/64", "5.0 µs"), ("1 µs", "b.json#t3/0/ns", "7 µs"),
    ("1.00 ms", "b.json#t3/0/total_ns", "2.52 ms"), ("1.0 %", "b.json#t3/0/efficiency", "94.3 %"),
    ("0.00", "b.json#t3/0/efficiency", "0.94"), ("1 MB", "b.json#t3/0/size_bytes", "2 MB")])
def test_a_figure_takes_the_form_of_the_one_before(page, text, place, becomes):
    assert page(f"It takes [{text}](results/{place}).") == f"It takes [{becomes}](results/{place})."


@pytest.mark.parametrize(("place", "words"), [
    ("a.csv#f17/mean/ours", "0 rows"), ("a.csv#f16/t3-mean/theirs", "0 columns"), ("a.csv#f16/ours", "2 rows"),
    ("b.json#t3/1/total_ns", "no 1"), ("c.csv#x/y", "no result file"), ("a.csv#f7/span/ours~3", "no number"),
    ("../page.json#x", "no result file")])
def test_what_no_file_has_is_named(page, place, words):
    with pytest.raises(figures.Missing, match=words):
        page(f"[1.0 %](results/{place})")


def test_output_of_a_command_is_put_in_whole_or_from_a_line_on(page):
    block = "<!-- output: results/run.txt{} -->\n{}<!-- end -->\n"
    whole = block.format("", "```text\nhead\n\nTime (µs)\n t3 1.0 µs\n```\n")
    assert page(block.format("", "old\n")) == whole == page(whole)
    some = ' from "Time (µs)"'
    assert page(block.format(some, "")) == block.format(some, "```text\nTime (µs)\n t3 1.0 µs\n```\n")
    with pytest.raises(figures.Missing, match="no line"):
        page(block.format(' from "Cost"', ""))


def test_a_table_of_a_command_is_put_in(page):
    block = "<!-- output: results/a.csv -->\n{}<!-- end -->\n"
    whole = block.format("\n| figure | quantity | ours |\n| --- | --: | --: |\n| f16 | T3, mean | 32.819 |\n"
                         "| f16 | largest | 12,345.6 |\n| f6 | mean | -0.04 |\n| f7 | span | -3 to +8.2 % |\n\n")
    assert page(block.format("old\n")) == whole == page(whole)
