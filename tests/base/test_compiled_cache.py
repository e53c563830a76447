"""numba's cache on disk: what cannot be read is compiled again, and replaced."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.damage import replaced

pytestmark = pytest.mark.builds_loops

ROOT = Path(__file__).resolve().parents[2]

_PROGRAM = """
import os

folder = os.environ.pop("NUMBA_CACHE_DIR")
import numba

os.environ["NUMBA_CACHE_DIR"] = folder  # numba looks again
from t3sim.base.compiled.jit import compiled

@compiled
def doubled(value):
    return 2 * value

print(doubled(21), doubled.stats.cache_hits[doubled.signatures[0]] if doubled.stats.cache_hits else 0)
"""


def run(program: Path, cache: Path) -> list[int]:
    """[result, hits in the cache] of a process of its own."""
    done = subprocess.run([sys.executable, str(program)], env=os.environ | {"NUMBA_CACHE_DIR": str(cache)}, text=True,
                          capture_output=True, cwd=ROOT, timeout=120)
    assert done.returncode == 0, done.stderr
    return [int(word) for word in done.stdout.split()]


@pytest.mark.parametrize(("kind", "damage"), [
    ("nbi", lambda content: content[:len(content) // 2]), ("nbc", lambda content: content[:len(content) // 2]),
    ("nbi", lambda content: replaced(content, b"numba", b"nambu"))],
    ids=["a cut index", "cut data", "of a module that is gone"])
def test_a_damaged_cache_costs_a_compilation(tmp_path, kind, damage):
    program, cache = tmp_path / "program.py", tmp_path / "cache"
    program.write_text(_PROGRAM, encoding="utf-8")
    assert run(program, cache) == [42, 0] and run(program, cache) == [42, 1]
    (kept,) = cache.rglob(f"*.{kind}")
    kept.write_bytes(damage(kept.read_bytes()))
    run(program, cache)
    assert run(program, cache) == [42, 1], "it was written anew"


def test_another_checkout_finds_what_was_compiled(tmp_path):
    """Same module, same text, another folder; with another text it is compiled."""
    for folder in ("one", "other", "changed"):
        (tmp_path / folder).mkdir()
        text = _PROGRAM.replace("2 *", "3 *") if folder == "changed" else _PROGRAM
        (tmp_path / folder / "program.py").write_text(text, encoding="utf-8")
    found = [run(tmp_path / folder / "program.py", tmp_path / "cache") for folder in ("one", "other", "changed")]
    assert found == [[42, 0], [42, 1], [63, 0]]


_TOGETHER = """
import sys
import time
from pathlib import Path
from t3sim.base.compiled.jit import compiled

@compiled
def steps(values):
    total = 0
""" + "".join(f"    for i in range(len(values)):\n        total += values[i] % {n + 3}\n" for n in range(20)) + """
    return total

import numpy as np
Path(sys.argv[1]).touch()
while len(list(Path(sys.argv[1]).parent.iterdir())) < 2:
    time.sleep(0.01)
print(steps(np.arange(9)), sum(steps.stats.cache_hits.values()))
"""


def test_processes_that_need_a_function_together_compile_it_once(tmp_path):
    """Both begin when both are there; the compilation takes longer than that."""
    program, begun = tmp_path / "program.py", tmp_path / "begun"
    program.write_text(_TOGETHER, encoding="utf-8")
    begun.mkdir()
    started = [subprocess.Popen([sys.executable, str(program), str(begun / name)], text=True, cwd=ROOT,
                                env=os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}, stdout=subprocess.PIPE)
               for name in ("one", "other")]
    told = [process.communicate(timeout=300)[0].split() for process in started]
    assert told[0][0] == told[1][0] and sorted(words[1] for words in told) == ["0", "1"]
