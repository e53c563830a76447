"""Options of the command line are named by its commands; what lies below speaks of keys, fields and values."""

import ast
import re

from test_imports import ROOT, files, parse

#: Options of other programs, or of our own that these run or print commands for.
OTHERS = {
    "area/fpga.py", "area/history.py", "cosim/build.py", "cosim/cocotb_run.py",
    "cosim/toolchain.py", "driver/register_map.py", "machine/levels.py", "reproduce/pipeline.py",
    "reproduce/registry.py", "study/first_run.py", "sweeps/cluster.py", "trace/explain_tile.py",
    "trace/testbench.py", "validation/page.py", "verilog/lint.py", "verilog/write.py", "yowasp.py",
}


def options_in(tree: ast.Module) -> list[str]:
    """Strings with an option's name in them, but for docstrings."""
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return [node.value for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told
            and re.search(r"(?<![\w-])--[a-z]", node.value)]


def test_only_commands_name_options():
    found = {path.relative_to(ROOT / "sim_models").as_posix() for path in files("sim_models")
             if options_in(parse(path))}
    found = {name for name in found if not name.startswith("commands/")} - {"cli.py"}
    assert found == OTHERS


def test_an_option_is_found():
    assert options_in(ast.parse('"""--not-this."""\nx = f"{y} needs --devices N"\nz = "a--b ---"')) == [
        " needs --devices N"]
