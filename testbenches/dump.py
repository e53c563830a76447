"""Dumps of Verilator and Icarus, with the signals that a source names.

Yosys calls each intermediate value `$N`, and a second signal of one name `name$N`.
"""

import re
from collections import defaultdict
from pathlib import Path

_VARIABLE = re.compile(r"\$var\s+(\w+)\s+(\d+)\s+(\S+)\s+\\?(\S+)((?:\s+\[[\d:]+\])?)\s+\$end")
_SCOPE = re.compile(r"\$scope\s+\w+\s+(\S+)\s+\$end")
_NUMBERED = re.compile(r"([^$]+)\$(\d+)(\..*)?")
_TOP = "$rootio"  #: Verilator's copy of the top's ports, without the fields of structs


def name_signals(vcd: Path) -> None:
    """Leave out values without a name, and number signals of one name: `data`, `data__1`, `data__2`."""
    with vcd.open(encoding="utf-8") as file:
        header = []
        for line in file:
            header.append(line)
            if line.startswith("$enddefinitions"):
                break
        numbers = _numbers(header)
        kept: set[str] = set()
        scopes: list[str] = []
        partial = vcd.with_name(vcd.name + ".partial")
        with partial.open("w", encoding="utf-8") as out:
            for line in header:
                if scope := _SCOPE.search(line):
                    scopes.append(scope[1])
                elif variable := _VARIABLE.search(line):
                    kind, width, code, name, bits = variable.groups()
                    if _TOP in scopes or name.startswith("$"):
                        continue
                    kept.add(code)
                    if numbered := _NUMBERED.fullmatch(name):
                        base, number, field = numbered.groups()
                        name = f"{base}__{numbers[*scopes, base].index(int(number)) + 1}{field or ''}"
                    line = f"$var {kind} {width} {code} {name}{bits} $end\n"
                hidden = _TOP in scopes
                if "$upscope" in line:
                    scopes.pop()
                if not hidden:
                    out.write(line)
            for line in file:
                code = line[1:] if line[0] in "01xzXZ" else line.rpartition(" ")[2] if line[0] in "bBrRsS" else None
                if code is None or code.strip() in kept:
                    out.write(line)
    partial.replace(vcd)


def _numbers(header: list[str]) -> dict[tuple[str, ...], list[int]]:
    """Return by scope and name the numbers of further signals of that name, in the order of the source."""
    numbers: dict[tuple[str, ...], set[int]] = defaultdict(set)
    scopes: list[str] = []
    for line in header:
        if scope := _SCOPE.search(line):
            scopes.append(scope[1])
        elif "$upscope" in line:
            scopes.pop()
        elif (variable := _VARIABLE.search(line)) and (numbered := _NUMBERED.fullmatch(variable[4])):
            numbers[*scopes, numbered[1]].add(int(numbered[2]))
    return {where: sorted(found) for where, found in numbers.items()}
