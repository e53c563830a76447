"""Each notebook runs from its first cell to its last, as a plain program."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.builds_loops, pytest.mark.builds_rtl, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.py"))


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_a_notebook_runs(notebook):
    ran = subprocess.run([sys.executable, "-W", "error::DeprecationWarning:__main__", notebook.name],
                         cwd=notebook.parent, capture_output=True, text=True, timeout=800,
                         env={**os.environ, "MPLBACKEND": "Agg"})
    assert ran.returncode == 0, ran.stderr[-2000:]


def test_every_notebook_is_in_the_site():
    pages = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert NOTEBOOKS and all(f"notebooks/{path.name}" in pages for path in NOTEBOOKS)
