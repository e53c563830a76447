"""Tells Verilator which modules to compile once and call for every instance. The behaviour is the same.

Left alone, Verilator flattens the design: 32 memory channels become 32 times the machine code, which no instruction
cache holds, and nothing can be left out while it is at rest (`at_rest`). Here a large module is kept whole. The ports
in which several instances differ are marked as visible from outside, so that Verilator does not replace them by what
drives them, which is different code for each instance (`-fno-dfg-scoped` keeps another of its passes from the same).
"""

import re
from collections import defaultdict

_MODULE = re.compile(r"^(?=module )", re.MULTILINE)
_NAME = re.compile(r"module (\\\S+|\w+)")
_INSTANCE = re.compile(r"^  (\\\S+|\w+) +(?:\\\S+|\w+) +\(\n((?:    \.[^\n]*\n)*)", re.MULTILINE)
_CONNECTION = re.compile(r"    \.(\\\S+ |\w+)(.*?),?\n")
#: Inputs, and outputs of one bit: a wide output usually is a register, of which this would make a copy.
_PORT = re.compile(r"^  (?:input (?:\[[\d:]+\] )?|output )(\\\S+ |\w+);", re.MULTILINE)
#: A smaller module is left to Verilator: a call would cost more than its code.
_LARGE_LINES = 300
_CLOCKING = {"clk", "rst"}


def share_modules(text: str) -> str:
    """Return the Verilog with instructions for Verilator."""
    head, *modules = _MODULE.split(text)
    uses: dict[str, list[dict[str, str]]] = defaultdict(list)  # module -> each instance's connections
    for module in modules:
        for name, connections in _INSTANCE.findall(module):
            uses[name].append(dict(_CONNECTION.findall(connections)))
    return head + "".join(_kept_whole(module, uses[_NAME.match(module)[1]]) for module in modules)


def _kept_whole(module: str, uses: list[dict[str, str]]) -> str:
    if not uses or module.count("\n") < _LARGE_LINES:
        return module
    for port in set(_PORT.findall(module)) - _CLOCKING:
        if len({connections.get(port) for connections in uses}) > 1:
            module = re.sub(rf"^(  (?:wire|reg) (?:\[[\d:]+\] )?{re.escape(port)})(?=;| =)",
                            r"\1 /*verilator public_flat_rd*/", module, count=1, flags=re.MULTILINE)
    start = module.index(";\n") + 2
    return f"{module[:start]}  /*verilator no_inline_module*/\n{module[start:]}"
