"""Options of the command line are named by its commands; what lies below speaks of keys, fields and values."""

import ast
import re

from test_imports import ROOT, files, parse

from t3sim.scenario.files import keys

#: Options of other programs, or of our own that these run or print commands for.
OTHERS = {
    "area/fpga.py", "area/history.py", "cosim/cocotb_run.py",
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


def keys_in(tree: ast.Module) -> list[str]:
    """Return strings that have a scenario's key among other words, but for docstrings."""
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    key = r"(?<![\w.'`-])(?:" + "|".join(map(re.escape, (one for one in keys() if "." in one))) + r")(?![\w.])"
    return [node.value for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told
            and re.search(key, node.value) and node.value not in keys()]


def test_keys_of_a_scenario_are_no_text():
    """A message has them as `Key`, for which a command writes its option."""
    found = {path.relative_to(ROOT / "sim_models").as_posix(): keys_in(parse(path)) for path in files("sim_models")}
    assert not {name: texts for name, texts in found.items() if texts and not name.startswith("commands/")}
    assert keys_in(ast.parse('"""exchange.sums."""\nx = f"exchange.sums = {y}"\nz = "exchange.sums"')) == [
        "exchange.sums = "]


def test_only_commands_name_options():
    found = {path.relative_to(ROOT / "sim_models").as_posix() for path in files("sim_models")
             if options_in(parse(path))}
    found = {name for name in found if not name.startswith("commands/")} - {"cli.py"}
    assert found == OTHERS


def test_an_option_is_found():
    assert options_in(ast.parse('"""--not-this."""\nx = f"{y} needs --devices N"\nz = "a--b ---"')) == [
        " needs --devices N"]
