"""The test plan: which tests and proofs verify a block, and what each of them says in its docstring.

Read from the source, which is not imported. Tests of a block are in `tests/rtl/test_BLOCK.py` (of the top in several
files, `test_gpu_top*.py`) and in its testbench; `tests/rtl/elsewhere.toml` names those in other files.
"""

import ast
import re
import tomllib
from pathlib import Path

from t3sim.testbenches.formal.campaign import PROPERTIES
from t3sim.testbenches.formal.property import Property

ROOT = Path(__file__).resolve().parents[1]


def tests_in(path: Path) -> dict[str, str]:
    """Return the docstrings of a file's tests by name: of those that pytest collects, or cocotb in a testbench.

    A test without a docstring has an empty one.
    """
    functions = [node for node in ast.parse(path.read_text(encoding="utf-8")).body
                 if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    if path.name.startswith("tb_"):
        tests = [function for function in functions if any(
            re.match(r"rounds\(|cocotb\.test", ast.unparse(decorator)) for decorator in function.decorator_list)]
    else:
        tests = [function for function in functions if function.name.startswith("test_")]
    return {test.name: " ".join((ast.get_docstring(test) or "").split()) for test in tests}


def testbench(block: str) -> Path:
    """Return the file of a block's testbench."""
    return ROOT / "testbenches" / f"tb_{block}.py"


def unit_tests(block: str) -> list[Path]:
    """Return the files of a block's unit tests."""
    return sorted((ROOT / "tests" / "rtl").glob(f"test_{block}{'*' if block == 'gpu_top' else ''}.py"))


def elsewhere() -> dict[str, dict[str, list[str]]]:
    """Return tests in files that are not a block's own, by block and file."""
    return tomllib.loads((ROOT / "tests" / "rtl" / "elsewhere.toml").read_text(encoding="utf-8"))


def proofs(block: str) -> list[Property]:
    """Return the properties that `make formal BLOCK=...` proves."""
    return [one for one in PROPERTIES if one.block == block]
