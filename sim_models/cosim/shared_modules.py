"""Tells Verilator which modules to compile once and call for every instance. The behaviour is the same.

Left alone, Verilator flattens the design: 32 memory channels become 32 times the machine code, which no instruction
cache holds. Here a large module is kept whole. The ports in which several instances differ are marked as visible from
outside, so that Verilator does not replace them by what drives them, which is different code for each instance
(`-fno-dfg-scoped` keeps another of its passes from the same). Ports of a module within one that there are several of
differ, whatever they are connected to; a reset does where it is not handed on.
"""

import re
from collections import Counter, defaultdict
from functools import cache

_MODULE = re.compile(r"^(?=module )", re.MULTILINE)
_NAME = re.compile(r"module (\\\S+|\w+)")
_INSTANCE = re.compile(r"^  (\\\S+|\w+) +(?:\\\S+|\w+) +\(\n((?:    \.[^\n]*\n)*)", re.MULTILINE)
_CONNECTION = re.compile(r"    \.(\\\S+ |\w+)(.*?),?\n")
#: Inputs, and outputs of one bit: a wide output usually is a register, of which this would make a copy.
_PORT = re.compile(r"^  (?:input (?:\[[\d:]+\] )?|output )(\\\S+ |\w+);", re.MULTILINE)
#: A smaller module is left to Verilator: a call would cost more than its code.
_LARGE_LINES = 300
_CLOCK, _HANDED_ON = "clk", {"(rst)"}
#: A memory whose words all begin with one value.
_ALIKE = re.compile(r"^    (\S+|\\\S+ )\[0\] = (\d+'h[0-9a-f]+);\n((?:    \1\[\d+\] = \2;\n)+)", re.MULTILINE)


def initialize_in_loops(text: str) -> str:
    """Return the Verilog with a loop for each memory whose words begin alike, else a line of code for each word."""
    def loop(memory: re.Match) -> str:
        name, value, others = memory.groups()
        words = 1 + others.count("\n")
        return f"    for (int word = 0; word < {words}; word = word + 1) {name}[word] = {value};\n"
    return _ALIKE.sub(loop, text)


def share_modules(text: str) -> str:
    """Return the Verilog with instructions for Verilator."""
    head, *modules = _MODULE.split(text)
    uses: dict[str, list[dict[str, str]]] = defaultdict(list)  # module -> each instance's connections
    within: dict[str, Counter[str]] = defaultdict(Counter)  # module -> where it is instantiated
    for module in modules:
        for name, connections in _INSTANCE.findall(module):
            uses[name].append(dict(_CONNECTION.findall(connections)))
            within[name][_name(module)] += 1

    @cache
    def instances(name: str) -> int:
        return sum(times * instances(outer) for outer, times in within[name].items()) if uses[name] else 1

    return head + "".join(_kept_whole(module, uses[_name(module)], instances(_name(module))) for module in modules)


def _name(module: str) -> str:
    found = _NAME.match(module)
    assert found
    return found[1]


def _kept_whole(module: str, uses: list[dict[str, str]], instances: int) -> str:
    if not uses or module.count("\n") < _LARGE_LINES:
        return module
    for port in set(_PORT.findall(module)) - {_CLOCK}:
        connected = {connections.get(port) for connections in uses}
        if len(connected) > 1 or (instances > len(uses) and connected != _HANDED_ON):
            module = re.sub(rf"^(  (?:wire|reg) (?:\[[\d:]+\] )?{re.escape(port)})(?=;| =)",
                            r"\1 /*verilator public_flat_rd*/", module, count=1, flags=re.MULTILINE)
    start = module.index(";\n") + 2
    return f"{module[:start]}  /*verilator no_inline_module*/\n{module[start:]}"
