"""Compiled functions say the types of their parameters and results."""

import ast

from test_imports import files, parse

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
