"""A block's tests in `tests/rtl`, with one mistake in its source."""

import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from t3sim.testbenches.mutation.model import Mutant
from t3sim.testbenches.mutation.source import plugin
from t3sim.testbenches.mutation.source.changes import Change
from t3sim.testbenches.mutation.source.lived import Lived
from t3sim.testbenches.mutation.source.rewrite import ROOT

_LIMIT_S = 600


class Noticed(NamedTuple):
    what: str  #: unit: a test failed; time: they were ended by time, and none had failed
    by: str
    how: str


def unit_test(block: str, mutant: Mutant, limit_s: float = _LIMIT_S) -> Noticed | None:
    """Return the first test that fails, of the block's and of those of the mistaken file, and how; None if all pass."""
    change = Change(mutant.file, mutant.line, mutant.column, mutant.mode)
    tests = ROOT / "tests" / "rtl"
    files = sorted({path.relative_to(ROOT).as_posix() for pattern in (
        f"test_{block}*.py", f"test_{Path(mutant.file).stem}.py") for path in tests.glob(pattern)})
    return _noticed({plugin.MISTAKE: json.dumps(asdict(change))}, files, limit_s)


def noticed(mistake: Lived, limit_s: float = _LIMIT_S) -> Noticed | None:
    """Run the test of one of the mistakes that lived once. The top runs on Amaranth's simulator: it is one test."""
    return _noticed({plugin.LIVED: json.dumps(asdict(mistake))}, [mistake.test], limit_s)


def _noticed(mistake: dict[str, str], tests: list[str], limit_s: float) -> Noticed | None:
    with tempfile.TemporaryDirectory() as cache:  # builds of this source must not be taken for those of the real one
        environment = os.environ | mistake | {"T3_CACHE": cache}
        command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "--tb=line", "-p", "no:cacheprovider",
                   "-p", plugin.__name__, *tests]
        try:
            done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=limit_s)
        except subprocess.TimeoutExpired:
            return Noticed("time", tests[0].rpartition("/")[2], f"{limit_s:g} s")
    if done.returncode == 0:
        return None
    lines = done.stdout.splitlines()
    failed = [line.split()[1] for line in lines if line.startswith(("FAILED ", "ERROR "))]
    told = [found[1] for line in lines if (found := re.match(r"\S+\.py:\d+: (.+)", line))]
    return Noticed("unit", (failed or [tests])[0], (told or lines[-1:] or [""])[0])
