"""What only compiled code calls has no machine code of its own; what Python calls has, whenever it does."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.builds_loops

_MODULE = """
from typing import NamedTuple

import numpy as np

from t3sim.base.compiled.by_reference import by_reference
from t3sim.base.compiled.jit import compiled


class Shelf(NamedTuple):
    books: np.ndarray


@compiled
def longest(a, b):
    return max(a, b)


@compiled
def at(shelf, i):
    if i >= len(shelf.books):
        raise IndexError("no such book")
    return longest(shelf.books[i], 0)


@compiled
def pages(shelf, i):
    return at(by_reference(shelf), i)


@compiled
def twice(shelf, i):
    return 2 * at(by_reference(shelf), i)
"""

_PROGRAM = """
import sys

import numpy as np
from shelves import Shelf, at, longest, pages, twice

shelf = Shelf(np.array([3, 5]))
print(*[function(shelf, 1) for function in (pages, twice)[:int(sys.argv[1])]], longest(2, 7))
try:
    pages(shelf, 2)
except IndexError as error:
    print(error)
print(*[result.library._emitted for function in (at, pages) for result in function.overloads.values()])
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Run the program with its first one or two functions in a process of its own; all have one cache."""
    folder = tmp_path_factory.mktemp("machine_code")
    (folder / "shelves.py").write_text(_MODULE, encoding="utf-8")
    (folder / "program.py").write_text(_PROGRAM, encoding="utf-8")

    def run(functions: int) -> list[str]:
        done = subprocess.run([sys.executable, str(folder / "program.py"), str(functions)], text=True,
                              env=os.environ | {"NUMBA_CACHE_DIR": str(folder / "cache")}, capture_output=True,
                              cwd=Path(__file__).resolve().parents[2], timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()
    return run


def test_machine_code_is_made_of_what_python_calls(run):
    assert run(1) == ["5 7", "no such book", "False True"], "compiled"
    assert run(1) == ["5 7", "no such book", "True"], "kept as machine code, without its parts"
    assert run(2) == ["5 10 7", "no such book", "False True"], "the part was kept, too, and is part of what is new"


_THREADS = """
import threading
import time

import numpy as np
from numba.core.dispatcher import Dispatcher
from shelves import Shelf, at, twice

shelf, compile = Shelf(np.array([3, 5])), Dispatcher.compile


def slowly(dispatcher, signature):
    if threading.current_thread().name == "python":
        time.sleep(2)
    return compile(dispatcher, signature)


Dispatcher.compile = slowly
threads = [threading.Thread(target=lambda: print(at(shelf, 1)), name="python"),
           threading.Thread(target=lambda: print(twice(shelf, 1)))]
for thread in threads:
    thread.start()
    time.sleep(0.2)
for thread in threads:
    thread.join()
"""


@pytest.mark.slow
def test_a_function_that_two_threads_need_in_two_ways_has_both(tmp_path):
    """One calls it from Python, while for the other it becomes a part of what calls it."""
    (tmp_path / "shelves.py").write_text(_MODULE, encoding="utf-8")
    (tmp_path / "program.py").write_text(_THREADS, encoding="utf-8")
    done = subprocess.run([sys.executable, str(tmp_path / "program.py")], text=True, capture_output=True,
                          env=os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}, timeout=300)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split()) == ["10", "5"]
