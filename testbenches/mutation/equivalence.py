"""Proofs that a mutant is the same machine, or a run in which it is not.

Both netlists stand side by side, from their initial state and with equal inputs in every cycle, resets included:
property-directed reachability (ABC's `pdr`, inside PyPI's Yosys) either proves that no output ever differs while it
counts, for runs of any length, or finds a run in which one does. A payload counts while its stream is valid, an error's
details with its `valid`, an APB answer with `pready`.
"""

import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from amaranth.asserts import Initial
from amaranth.back import rtlil
from amaranth.hdl import Cat, Const, Instance, Module, Signal, Value
from amaranth.hdl._ir import PortDirection

from t3sim.area.yosys import run_yosys
from t3sim.engine.port_map import PortMap

from .aiger import Circuit
from .guarded import ANY, never, with_guards
from .model import SELECT, SELECT_BITS, Model, Mutant

_SCRIPT = """\
read_rtlil original.il
rename {block} original
read_rtlil mutated.il
rename {block} mutated
setattr -mod -unset top *
read_rtlil both.il
hierarchy -top both
flatten
setattr -unset init w:*
memory_map
setundef -undriven -init -zero
opt -full
async2sync
dffunmap
formalff -clk2ff
opt -fast
simplemap
techmap
opt -fast
aigmap
opt_clean
setundef -undriven -zero
write_aiger -zinit -miter -symbols both.aig
design -reset
read_rtlil any.il
abc -script prove.abc
"""
#: Equal registers are merged first, which often leaves nothing; the rest is searched.
_PROVE = """\
backup
read_aiger both.aig
scorr
write_aiger merged.aig
pdr -T {seconds}
write_status status.txt
restore
"""
_MEANING = {"snl_UNSAT": "equal", "snl_SAT": "differs"}
PORT = re.compile(r"^  wire (?:width (\d+) )?(input|output) \d+ \\(\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class Comparison:
    verdict: str  #: equal, differs, or unknown when the time was up
    cycles: int  #: of the run found in which an output differs, or until the proof closed


def compare(model: Model, mutant: Mutant, seconds: int) -> Comparison:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file in ("original.il", "mutated.il"):
            shutil.copy(model.folder / file, folder)
        (folder / "both.il").write_text(_both((folder / "original.il").read_text(), model.ports, mutant.number))
        (folder / "any.il").write_text(ANY)
        (folder / "prove.abc").write_text(_PROVE.format(seconds=seconds))
        run_yosys(_SCRIPT.format(block=model.block), folder)
        if Circuit.read((folder / "merged.aig").read_bytes()).outputs[0] == 0:
            return Comparison("equal", 0)
        word, cycles, *_ = (folder / "status.txt").read_text().split()
        verdict = _MEANING.get(word, "unknown")
        if verdict == "unknown" and never(with_guards(Circuit.read((folder / "both.aig").read_bytes())), folder):
            verdict = "equal"
        return Comparison(verdict, int(cycles))


def _both(original: str, ports: PortMap, number: int) -> str:
    """Write a module with the block and its mutant.

    In the first cycle both are reset; `differ` counts from the second.
    """
    m, outside = Module(), {}
    differ, reset = Signal(), Signal()
    sides = {"original": {}, "mutated": {"i_" + SELECT: Const(number, SELECT_BITS)}}
    outputs = []
    for width, direction, name in PORT.findall(original):
        if name == "rst":
            outside[name] = (reset, PortDirection.Input)
            for side in sides.values():
                side["i_rst"] = reset | Initial()
        elif direction == "input":
            value = Signal(int(width or 1))
            outside[name] = (value, PortDirection.Input)
            for side in sides.values():
                side["i_" + name] = value
        else:
            outputs.append(name)
            for side in sides.values():
                side["o_" + name] = Signal(int(width or 1))
    for name, side in sides.items():
        m.submodules[name] = Instance(name, **side)
    here, there = ({name: side["o_" + name] for name in outputs} for side in sides.values())
    unequal = [(here[name] != there[name]) & (_counts(name, here, ports) | _counts(name, there, ports))
               for name in outputs]
    m.d.comb += differ.eq(Cat(unequal).any() & ~Initial())
    outside["differ"] = (differ, PortDirection.Output)
    return rtlil.convert(m, name="both", ports=outside, emit_src=False)


def _counts(name: str, outputs: dict[str, Signal], ports: PortMap) -> Value:
    """Return whether anybody may look at an output now: by the rules of streams, reports and APB, not always."""
    if name.endswith("__payload"):
        return outputs.get(name.removesuffix("payload") + "valid", Const(1))
    if name in ("prdata", "pslverr"):
        return outputs["pready"]
    port = next((port for port in ports.outputs.values() if port.verilog == name), None)
    if port and "valid" in port.fields:
        return outputs[name][port.fields["valid"].lsb]
    return Const(1)
