"""Proofs that a mutant is the same machine, or a run in which it is not.

Both netlists stand side by side, from their initial state and with equal inputs in every cycle, resets included:
property-directed reachability (ABC's `pdr`, inside PyPI's Yosys) either proves that no output ever differs while it
counts, for runs of any length, or finds a run in which one does. A payload counts while its stream is valid, an error's
details with its `valid`, an APB answer with `pready`.
"""

import re
import shutil
import tempfile
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from amaranth.asserts import Initial
from amaranth.back import rtlil
from amaranth.hdl import Cat, Const, Instance, Module, Signal, Value
from amaranth.hdl._ir import PortDirection

from t3sim.base.cache import cached, digest
from t3sim.cosim.yosys import OutOfTime, run_yosys
from t3sim.rtlsim.port_map import PortMap
from t3sim.testbenches.mutation.aiger import Circuit
from t3sim.testbenches.mutation.guarded import ANY, MERGE_S, never, pairs, with_guards
from t3sim.testbenches.mutation.model import SELECT, SELECT_BITS, Model, Mutant

#: Every register gets a name, so that it is found in both.
_BOTH = """\
read_rtlil mutated.il
rename {block} mutated
memory_map
opt_clean
rename -enumerate
setattr -mod -unset top *
read_rtlil both.il
hierarchy -top both
flatten
setattr -unset init w:*
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
"""
#: Registers found equal are merged first, which often leaves nothing; the rest is searched.
_PROVE = """\
backup
read_aiger both.aig
scorr
write_aiger merged.aig
pdr -T {seconds}
write_status status.txt
restore
"""
_FREE_S = 5  #: for a search in which all that is shared may be anything
_MEANING = {"snl_UNSAT": "equal", "snl_SAT": "differs"}
PORT = re.compile(r"^  wire (?:width (\d+) )?(input|output) \d+ \\(\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class Comparison:
    verdict: str  #: equal, differs, or unknown when the time was up
    cycles: int  #: of the run found in which an output differs, or until the proof closed


def compare(model: Model, mutant: Mutant, seconds: int) -> Comparison:
    both = _circuit(model)
    chosen = {both.names[f"{side}[{bit}]"]: number >> bit & 1 for bit in range(SELECT_BITS)
              for side, number in (("no_mutant", 0), (SELECT, mutant.number))}
    # What the mutant does not reach is the same in both, and one. Most are the same machine whatever it holds.
    if _proved(both.reduced(chosen, pairs(both), free=True), min(seconds, _FREE_S)).verdict == "equal":
        return Comparison("equal", 0)
    circuit = both.reduced(chosen, pairs(both))
    found = _proved(circuit, seconds)
    if found.verdict == "unknown":
        with tempfile.TemporaryDirectory() as folder:
            if never(with_guards(circuit), Path(folder)):
                return replace(found, verdict="equal")
    return found


def _proved(circuit: Circuit, seconds: int) -> Comparison:
    """Say whether the first output is ever 1."""
    if circuit.outputs[0] == 0:
        return Comparison("equal", 0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "both.aig").write_bytes(circuit.write())
        (folder / "any.il").write_text(ANY)
        (folder / "prove.abc").write_text(_PROVE.format(seconds=seconds))
        try:
            run_yosys("read_rtlil any.il\nabc -script prove.abc\n", folder, MERGE_S + seconds)
        except OutOfTime:
            return Comparison("unknown", 0)
        if Circuit.read((folder / "merged.aig").read_bytes()).outputs[0] == 0:
            return Comparison("equal", 0)
        word, cycles, *_ = (folder / "status.txt").read_text().split()
        return Comparison(_MEANING.get(word, "unknown"), int(cycles))


def _circuit(model: Model) -> Circuit:
    """Return two blocks with mutants beside each other; an input of each says which mutant it is."""
    mutated = model.folder / "mutated.il"
    script, both = _BOTH.format(block=model.block), _both(mutated.read_text(), model.ports)

    def make(folder: Path) -> None:
        shutil.copy(mutated, folder)
        (folder / "both.il").write_text(both)
        run_yosys(script, folder)

    folder = cached("both-" + digest(model.key, both, script), make)
    return _read(folder / "both.aig")


@lru_cache(maxsize=1)
def _read(path: Path) -> Circuit:
    return Circuit.read(path.read_bytes())


def _both(mutated: str, ports: PortMap) -> str:
    """Write a module with the block and a mutant of it, which are the same netlist, so that the same becomes of both.

    In the first cycle both are reset; `differ` counts from the second.
    """
    m = Module()
    differ, reset, none, number = Signal(), Signal(), Signal(SELECT_BITS), Signal(SELECT_BITS)
    sides = {"original": {"i_" + SELECT: none}, "mutated": {"i_" + SELECT: number}}
    outside = {"no_mutant": (none, PortDirection.Input), SELECT: (number, PortDirection.Input)}
    outputs = []
    for width, direction, name in PORT.findall(mutated):
        if name == SELECT:
            continue
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
            for text, side in sides.items():
                side["o_" + name] = Signal(int(width or 1), name=f"{text}.{name}")
    for name, side in sides.items():
        m.submodules[name] = Instance("mutated", **side)
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
