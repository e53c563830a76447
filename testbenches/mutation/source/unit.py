"""A block's tests in `tests/rtl`, with one mistake in its source."""

import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import asdict

from ..model import Mutant
from . import plugin
from .changes import Change
from .rewrite import ROOT

_LIMIT_S = 600


def unit_test(block: str, mutant: Mutant) -> tuple[str, str] | None:
    """The first test that fails, and how; None if all pass."""
    tests = ROOT / "tests" / "rtl" / f"test_{block}.py"
    change = Change(mutant.file, mutant.line, mutant.column, mutant.mode)
    with tempfile.TemporaryDirectory() as cache:  # builds of this source must not be taken for those of the real one
        environment = os.environ | {plugin.MISTAKE: json.dumps(asdict(change)), "T3_CACHE": cache}
        command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "--tb=line", "-p", "no:cacheprovider",
                   "-p", plugin.__name__, str(tests)]
        try:
            done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=_LIMIT_S)
        except subprocess.TimeoutExpired:
            return tests.name, f"never ends ({_LIMIT_S} s)"
    if done.returncode == 0:
        return None
    lines = done.stdout.splitlines()
    failed = [line.split()[1] for line in lines if line.startswith(("FAILED ", "ERROR "))]
    told = [found[1] for line in lines if (found := re.match(r"\S+\.py:\d+: (.+)", line))]
    return (failed or [tests.name])[0], (told or lines[-1:] or [""])[0]
