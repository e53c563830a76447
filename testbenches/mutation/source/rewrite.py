"""Reads a file of `rtl/` so that every place at which a mistake can be made asks `Changes` what it is to be."""

import ast
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from t3sim.testbenches.mutation.source.changes import Changes

ROOT = Path(__file__).resolve().parents[3]
CHANGES = "_changes"  #: the name under which a file that was read so knows them
_OPERATORS = {ast.Add: "+", ast.Sub: "-", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.Lt: "<", ast.LtE: "<=",
              ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=", ast.RShift: ">>"}


def place_of(node: ast.expr | ast.stmt) -> tuple[int, int]:
    """Return line and column of a mistake: of an operation those of its right side, which each in a chain has."""
    if isinstance(node, ast.BinOp):
        node = node.right
    elif isinstance(node, ast.Compare):
        node = node.comparators[0]
    return node.lineno, node.col_offset


class _Rewriter(ast.NodeTransformer):
    def __init__(self, file: str, text: str) -> None:
        self._file, self._text = file, text

    def _ask(self, node: ast.AST, method: str, *arguments: ast.expr) -> ast.expr:
        """Make the call `_changes.method((file, line, column), *arguments)`."""
        place = ast.Tuple([ast.Constant(part) for part in (self._file, *place_of(node))], ast.Load())
        call = ast.Call(ast.Attribute(ast.Name(CHANGES, ast.Load()), method, ast.Load()), [place, *arguments], [])
        return ast.fix_missing_locations(ast.copy_location(call, node))

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        """Rewrite `m.d.sync += statements`."""
        target = node.target
        domains = isinstance(target, ast.Attribute) and target.value
        if not (isinstance(domains, ast.Attribute) and domains.attr == "d" and isinstance(node.op, ast.Add)):
            return self.generic_visit(node)
        add = self._ask(node, "add", domains.value, ast.Constant(target.attr), self.visit(node.value))
        return ast.copy_location(ast.Expr(add), node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        """Rewrite `m.submodules.name = SoftReset(component, by)`."""
        value, target = node.value, node.targets[0]
        if not (isinstance(value, ast.Call) and getattr(value.func, "id", "") == "SoftReset"):
            return self.generic_visit(node)
        node.value = self._ask(value, "reset", target.value.value, value.func, *map(self.visit, value.args))
        return node

    def visit_For(self, node: ast.For) -> ast.AST:
        self.generic_visit(node)
        node.iter = self._loop(node, node.iter)
        return node

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        self.generic_visit(node)
        node.iter = self._loop(node.iter, node.iter)
        return node

    def _loop(self, node: ast.AST, iterable: ast.expr) -> ast.expr:
        return self._ask(node, "loop", self._words(iterable), iterable)

    def _words(self, node: ast.expr) -> ast.Constant:
        return ast.Constant(" ".join((ast.get_source_segment(self._text, node) or "").split()))

    def visit_Call(self, node: ast.Call) -> ast.AST:
        function = node.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        if name == "eq" and len(node.args) == 1:  # what is assigned to stays as it is
            return self._ask(node, "assign", function.value, self.visit(node.args[0]))
        if name in ("Cat", "ones") and len(node.args) == 1 and isinstance(node.args[0], ast.GeneratorExp):
            over = self._words(node.args[0].generators[0].iter)
            node.args = [self._ask(node.args[0], "each", over, self.visit(node.args[0]))]
        else:
            self.generic_visit(node)
        if name == "ones" and len(node.args) == 1:
            return self._ask(node, "count", function, *node.args)
        if name in ("If", "Elif"):
            node.args = [self._ask(node, "condition", *node.args)]
        elif name == "Mux":
            return self._ask(node, "choice", *node.args)
        elif name in ("any", "all") and not node.args:
            return self._ask(node, "reduction", ast.Constant(name), function.value)
        elif name == "connect" and len(node.args) == 3:
            return self._ask(node, "connect", *node.args)
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        return self._operation(node, node.op, node.left, node.right)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        if len(node.ops) == 1:
            return self._operation(node, node.ops[0], node.left, node.comparators[0])
        return self.generic_visit(node)

    def _operation(self, node: ast.expr, operator: ast.AST, left: ast.expr, right: ast.expr) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node, ast.BinOp):
            left, right = node.left, node.right
        else:
            left, right = node.left, node.comparators[0]
        sign = _OPERATORS.get(type(operator))
        return self._ask(node, "operation", ast.Constant(sign), left, right) if sign else node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        return self._ask(node, "inversion", node.operand) if isinstance(node.op, ast.Invert) else node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.ctx, ast.Load):
            return node
        key = node.slice
        if isinstance(key, ast.Slice):
            ends = [end or ast.Constant(None) for end in (key.lower, key.upper, key.step)]
            key = ast.Call(ast.Name("slice", ast.Load()), ends, [])
        return self._ask(node, "part", node.value, key)


def rewritten(text: str, file: str) -> ast.Module:
    """Rewrite a source, to be run with `CHANGES` among its names."""
    return _Rewriter(file, text).visit(ast.parse(text))


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, read: Callable[[str, str], str | ast.Module], names: dict) -> None:
        super().__init__(name, path)
        self._read, self._names = read, names

    def get_code(self, fullname: str):
        text = Path(self.path).read_text(encoding="utf-8")
        return compile(self._read(text, Path(self.path).relative_to(ROOT).as_posix()), self.path, "exec")

    def exec_module(self, module) -> None:
        vars(module).update(self._names)
        super().exec_module(module)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, files: dict[str, Path], *how) -> None:
        self._files, self._how = files, how

    def find_spec(self, fullname, path, target=None):
        file = self._files.get(fullname)
        return file and importlib.util.spec_from_file_location(
            fullname, file, loader=_Loader(fullname, str(file), *self._how))


def import_with(changes: Changes, files: Iterable[str]) -> None:
    """Import these files, such as `rtl/track/tracker.py`, with changes from now on. None may have been imported."""
    _import_as(rewritten, files, {CHANGES: changes})


def import_wrong(file: str, right: str, wrong: str) -> None:
    """Import this file with another text at one place from now on. It must not have been imported before."""
    def read(text: str, name: str) -> str:
        assert text.count(right) == 1, f"{name} has {text.count(right)} times {right!r}: 1 is needed"
        return text.replace(right, wrong)

    _import_as(read, [file], {})


def _import_as(read: Callable[[str, str], str | ast.Module], files: Iterable[str], names: dict) -> None:
    modules = {f"t3sim.{file.removesuffix('.py').replace('/', '.')}": ROOT / file for file in files}
    early = modules.keys() & sys.modules.keys()
    assert not early, f"already imported: {sorted(early)}"
    sys.meta_path.insert(0, _Finder(modules, read, names))
