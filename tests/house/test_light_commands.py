"""Commands that simulate nothing import neither compiler: they start in half the time."""

import subprocess
import sys

import pytest

HEAVY = ("numba", "amaranth", "pandas", "matplotlib", "scipy", "pyarrow")
CODE = """
import sys
from t3sim import cli
code = cli.main(sys.argv[2:])
print(code, *(name for name in sys.argv[1].split(",") if name in sys.modules), file=sys.stderr)
"""


@pytest.mark.parametrize("command", [
    ["machines"], ["overlap"], ["validate"], ["dma", "--sizes", "1M"], ["registers"],
    ["end-to-end", "--model", "llama-3.1-8b", "--gpus", "8", "--global-batch", "8"],
    ["cache"], ["run", "--help"]], ids=" ".join)
def test_what_simulates_nothing_starts_without_compilers(command):
    done = subprocess.run([sys.executable, "-c", CODE, ",".join(HEAVY), *command], capture_output=True, text=True,
                          timeout=600)
    assert done.stderr.splitlines()[-1].split() == ["0"], done.stderr
