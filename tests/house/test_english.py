"""Pages have none of the words that `scripts/english.py` lists; it finds them in pages and in code."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
from english import PAGES, listed, offenders  # noqa: E402

#: Their docstrings and texts, too.
CODE = ("rtl", "sim_models", "testbenches", "scripts")


def test_pages_and_code_are_read_without_stumbling():
    assert not listed(PAGES + CODE)


@pytest.mark.parametrize(("name", "text", "found"), [
    ("x.md", "A signal is told behind a poll.", 2), ("x.md", "At most so many; a machine of one's own.", 2),
    ("x.md", "What `told` says is hidden behind the GEMM.\n```\ntold\n```\n[it](so many behind.md)", 0),
    ("x.py", '"""What a kernel takes."""\ntold = ["told", "who is told"]\n', 2),
    ("x.py", '"""Takes a kernel\'s name."""\ndef behind(x):\n    """Return what `told` is."""\n', 0)])
def test_an_offender_is_found_and_a_name_is_none(tmp_path, name, text, found):
    (tmp_path / name).write_text(text)
    assert len([*offenders(tmp_path / name)]) == found
