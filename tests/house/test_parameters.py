"""Parameter lists are short: what belongs together travels in a record."""

import ast
from collections.abc import Iterator

import pytest
from test_imports import files, parse

MOST = 8  #: parameters, by keyword or by position, without self

#: Functions that may have more, and why.
EXCEPTIONS = {
    "sim_models/driver/driver.py::dma_map": "by keyword only: the fields of one descriptor",
    "sim_models/hbm/bits.py::oldest_ready": "an LLVM intrinsic: numba hands it scalars",
    "sim_models/trace/recorder.py::put": "one column of an event each, in compiled code",
    "sim_models/trace/recorder.py::put_request": "likewise",
}


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> list[str]:
    of = function.args
    names = [argument.arg for argument in (*of.posonlyargs, *of.args, *of.kwonlyargs)]
    return names[1:] if names[:1] in (["self"], ["cls"]) else names


def functions(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Name and number of parameters of every function; a command line's options are no parameter list."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            options = sum("typer." in ast.unparse(argument.annotation) or "Option" in ast.unparse(argument.annotation)
                          for argument in (*node.args.args, *node.args.kwonlyargs) if argument.annotation)
            yield getattr(node, "name", "lambda"), len(parameters(node)) - options


def long_lists(sources: dict[str, ast.Module]) -> dict[str, int]:
    return {f"{path}::{name}": count for path, tree in sources.items() for name, count in functions(tree)
            if count > MOST}


@pytest.fixture(scope="module")
def found() -> dict[str, int]:
    root = files("sim_models")[0].parents[1]
    return long_lists({path.relative_to(root).as_posix(): parse(path)
                       for folder in ("rtl", "sim_models", "testbenches") for path in files(folder)})


def test_no_parameter_list_is_long(found):
    assert {name: count for name, count in found.items() if name not in EXCEPTIONS} == {}


def test_every_exception_is_one(found):
    assert EXCEPTIONS.keys() <= found.keys() and all(EXCEPTIONS.values())


def test_a_long_list_is_found():
    nine = ", ".join("abcdefghi")
    tree = ast.parse(f"def short({nine[:-3]}): pass\n\n\nclass C:\n    def long(self, *, {nine}): pass\n\n\n"
                     f"x = lambda {nine}: 0")
    assert long_lists({"file.py": tree}) == {"file.py::long": 9, "file.py::lambda": 9}


#: Decorators of what numba compiles.
COMPILED = {"compiled", "inlined", "merged", "unlocked", "by_address", "by_type", "njit"}


def is_compiled(function: ast.FunctionDef) -> bool:
    return any(ast.unparse(one).split("(")[0] in COMPILED for one in function.decorator_list)


def called_by_type(trees: list[ast.Module]) -> set[str]:
    """Names of named tuples' methods that compiled code calls."""
    return {node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)
            and "by_type" in map(ast.unparse, node.decorator_list)}


def unhinted(tree: ast.Module, methods: set[str]) -> list[str]:
    """Compiled functions, and methods of named tuples, with a parameter or a result whose type is not said."""
    of_tuples = [node for kind in ast.walk(tree)
                 if isinstance(kind, ast.ClassDef) and "NamedTuple" in map(ast.unparse, kind.bases)
                 for node in kind.body if isinstance(node, ast.FunctionDef) and node.name in methods]
    return [node.name for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef) and (is_compiled(node) or node in of_tuples)
            and (node.returns is None
                 or any(one.annotation is None for one in node.args.args if one.arg != "self"))]


def test_compiled_functions_have_type_hints():
    trees = {path: parse(path) for path in files("sim_models")}
    methods = called_by_type(list(trees.values()))
    assert "before_edge" in methods
    assert [f"{path}: {name}" for path, tree in trees.items() for name in unhinted(tree, methods)] == []


def test_a_compiled_function_without_hints_is_found():
    tree = ast.parse("@inlined\ndef a(x: int): pass\n@compiled\ndef b(x) -> int: pass\n"
                     "@njit(inline='always')\ndef c(x: int) -> int: pass\ndef d(x): pass\n"
                     "@by_type\ndef e(x: int) -> int: pass\nclass F(NamedTuple):\n    def e(self, x): pass\n"
                     "    def g(self, x): pass")
    assert unhinted(tree, called_by_type([tree])) == ["a", "b", "e"]


#: A letter that is the field's own word for it, as the operands a and b are.
LETTERS = {"sim_models/runs/operators.py: gemm_operator b"}


def letters(tree: ast.Module) -> list[str]:
    """Public functions' parameters that are a letter for a device, a geometry, a request's bits, or a memory's map."""
    return [f"{node.name} {one.arg}" for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
            for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
            if one.arg in ("d", "g") or one.arg == "b" and "a" not in parameters(node)
            or one.arg == "m" and one.annotation and "Map" in ast.unparse(one.annotation)]


def test_no_public_parameter_is_a_letter():
    root = files("sim_models")[0].parents[1]
    found = {f"{path.relative_to(root).as_posix()}: {one}" for folder in ("rtl", "sim_models")
             for path in files(folder) for one in letters(parse(path))}
    assert found == LETTERS


def test_a_letter_is_found():
    assert letters(ast.parse("def a(d, x: int): pass\ndef f(a, b): pass\ndef b(x: int, m: Module, n: int): pass\n"
                             "def c(m: MemoryMap): pass\ndef _e(g): pass")) == ["a d", "c m"]
