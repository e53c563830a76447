"""Amaranth's Verilog, rewritten so that Verilator simulates it faster. The behaviour is the same.

Amaranth describes each register as a combinational next value that defaults to the register itself:

    always @* begin                          always @(posedge clk) begin
      \\$5  = count;                            if (advance) begin
      if (advance) begin                 ->      count <= \\$4 ;
        \\$5  = \\$4 ;                            end
      end                                    end
    end
    always @(posedge clk)
      count <= \\$5 ;

Verilator computes and copies all next values in every cycle, those that depend on inputs even twice. Written to the
register directly, a register that keeps its value costs one test of its enable.
"""

import re
from collections import Counter

_MODULE = re.compile(r"^(?=module )", re.MULTILINE)
_COMBINATIONAL = re.compile(r"^  always @\* begin\n.*?^  end\n", re.MULTILINE | re.DOTALL)
_REGISTER = re.compile(r"^  always @\(posedge (\S+)\)\n    (\S+) +<= (\\\$\d+) ;\n", re.MULTILINE)
_GENERATED = re.compile(r"\\\$\d+(?= )")
_ASSIGNMENT = re.compile(r"^(\s+)(\S+)( +\[[\d:]+\])? += (.*)$")
#: Yosys makes old simulators evaluate a process at time 0 with this.
_DUMMY = "dump_module"


def write_registers_in_place(text: str) -> str:
    """Merge every next value that only its register uses into the register's own process."""
    return "".join(_rewrite(module) for module in _MODULE.split(text))


def _rewrite(module: str) -> str:
    registers = {value: (clock, register) for clock, register, value in _REGISTER.findall(module)}
    uses = Counter(_GENERATED.findall(module))
    merged = {}

    def merge(process: re.Match) -> str:
        lines = [line for line in process[0].splitlines() if _DUMMY not in line]
        assignments = [match for match in map(_ASSIGNMENT.match, lines) if match]
        targets = {match[2] for match in assignments}
        value = next(iter(targets), None)
        # Besides the assignments here: the declaration and the register's process.
        if len(targets) != 1 or value not in registers or uses[value] != len(assignments) + 2:
            return process[0]
        clock, register = merged[value] = registers[value]
        kept = [f"  always @(posedge {clock}) begin"]
        for line in lines[1:]:
            match = _ASSIGNMENT.match(line)
            if match is None:
                kept.append(line)
            elif match[3] or match[4].rstrip(" ;") != register:
                kept.append(f"{match[1]}{register}{match[3] or ''} <= {match[4]}")
        return "\n".join(kept) + "\n"

    module = _COMBINATIONAL.sub(merge, module)
    module = _REGISTER.sub(lambda process: "" if process[3] in merged else process[0], module)
    return re.sub(r"^  reg (?:\[[\d:]+\] )?(\\\$\d+) ;\n", lambda line: "" if line[1] in merged else line[0], module,
                  flags=re.MULTILINE)
