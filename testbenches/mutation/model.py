"""All mutants of a block in one model: an input of the netlist says which of them it is, 0 for none."""

import re
from dataclasses import dataclass, replace
from pathlib import Path

from amaranth.back import rtlil
from amaranth.hdl import Fragment
from amaranth.lib import wiring

import t3sim.rtl.blocks
from t3sim.base.cache import cached, digest
from t3sim.cosim.testbench import block_verilog, design_under_test
from t3sim.cosim.yosys import run_yosys, version
from t3sim.rtl.geometry import Geometry
from t3sim.rtlsim.port_map import Port, PortMap
from t3sim.rtlsim.signature import signature_ports

SELECT = "mutant"  #: the input
SELECT_BITS = 16
_ROOT = Path(__file__).resolve().parents[2]

#: What a testbench flips bits with (`t3sim.cosim.flippable`) is no part of the block.
_LIST = """\
read_rtlil design.il
hierarchy -top {block}
proc
{keep}
flatten
opt_expr
opt_clean
write_rtlil netlist.il
select -set places {block}/c:* {block}/t:$meminit* %d {block}/i:flip_* %co* %d
mutate -list {count} -seed {seed} -module {block} -o places.txt @places
"""
_APPLY = """\
read_rtlil netlist.il
design -save unchanged
{apart}
write_rtlil original.il
design -load unchanged
script mutants.ys
write_verilog -noattr mutated.v
write_rtlil whole.il
{apart}
write_rtlil mutated.il
"""
_OPTION = re.compile(r"-(mode|cell|port|portbit|wire|wirebit|src) (\S+)")
_CLOCK = re.compile(r" -port \w*CLK ")
_PLACE = re.compile(r"(rtl/[\w/]+\.py):(\d+)")


@dataclass(frozen=True)
class Mutant:
    """One bit of one cell's port changed, or one mistake in the source."""

    number: int  #: value of the input that switches it on, from 1
    mode: str  #: inv, const0, const1, cnot0, cnot1: inverted, stuck, or inverted while another bit is 0 or 1; words
    signal: str  #: the named signal at that place, with the bit; empty if none is there
    port: str  #: the changed port of its cell, with the bit
    file: str  #: in the source; empty if the netlist does not say
    line: int
    text: str  #: of that line
    column: int = 0  #: of a mistake in the source

    @property
    def place(self) -> str:
        return " ".join(filter(None, (f"{self.file}:{self.line}", self.signal or self.port, self.mode)))


@dataclass(frozen=True)
class Model:
    """A block's netlist with its mutants.

    `folder` has it in RTLIL, too: `whole.il`. In `original.il` and `mutated.il` the blocks inside are cut out: their
    outputs are inputs, and their inputs outputs.
    """

    block: str
    key: str
    verilog: str
    ports: PortMap  #: of the unchanged block
    mutants: tuple[Mutant, ...]
    folder: Path

    @property
    def mutated_ports(self) -> PortMap:
        select = Port(SELECT, SELECT, SELECT_BITS, self.ports.input_words)
        return replace(self.ports, inputs=self.ports.inputs | {SELECT: select})


def blocks_inside(fragment: Fragment, path: tuple[str, ...]) -> list[str]:
    """Return the modules of the blocks that a block contains: each is mutated on its own, not here."""
    kinds = {found for found in vars(t3sim.rtl.blocks).values() if isinstance(found, type)
             and issubclass(found, wiring.Component)}
    found = []
    for index, (inner, name, _) in enumerate(fragment.subfragments):
        here = (*path, name or f"U${index}")
        if any(type(origin) in kinds for origin in inner.origins or ()):
            found.append(".".join(here))
        else:
            found += blocks_inside(inner, here)
    return found


def keep_apart(block: str, design: str, fragment: Fragment) -> tuple[str, str]:
    """Write commands for Yosys: that the blocks inside stay modules, and that they are cut out."""
    # A submodule with the name of a signal has a number behind its own.
    inside = [re.search(rf"^module \\({re.escape(name)}(?:\$\d+)?)$", design, re.MULTILINE)[1]
              for name in blocks_inside(fragment, (block,))]
    return ("\n".join(f"setattr -mod -set keep_hierarchy 1 {name}" for name in inside),
            f"expose -evert {block}/c:*\ndelete {' '.join(inside)}" if inside else "")


def make_model(block: str, geometry: Geometry, count: int, seed: int) -> Model:
    """Make a model of `count` mutants, or as many as there are.

    They are drawn evenly over the block's own lines, signals and cells.
    """
    component = design_under_test(block, geometry)
    fragment = Fragment.get(component, None)
    design, _ = rtlil.convert_fragment(fragment, signature_ports(component), block)
    keep, apart = keep_apart(block, design, fragment)
    prepare = _LIST.format(block=block, count=count, seed=seed, keep=keep)
    apply = _APPLY.format(apart=apart)
    key = digest(design, prepare, apply, _CLOCK.pattern, str(SELECT_BITS), version("yosys"))

    def make(folder: Path) -> None:
        (folder / "design.il").write_text(design)
        run_yosys(prepare, folder)
        # A register on another clock is no mistake that somebody makes in one clock domain.
        places = [line for line in (folder / "places.txt").read_text().splitlines()
                  if line.strip() and not _CLOCK.search(line)]
        (folder / "mutants.ys").write_text("".join(
            f"mutate -ctrl {SELECT} {SELECT_BITS} {number} {line.removeprefix('mutate ')}\n"
            for number, line in enumerate(places, start=1)))
        run_yosys(apply, folder)

    folder = cached(f"mutants-{key}", make)
    lines = (folder / "mutants.ys").read_text().splitlines()
    mutants = tuple(_mutant(number, line) for number, line in enumerate(lines, start=1))
    return Model(block, key, (folder / "mutated.v").read_text(), block_verilog(block, geometry)[1], mutants, folder)


def _mutant(number: int, command: str) -> Mutant:
    """Read a mutant from a line of Yosys.

    The line is like `mutate -ctrl mutant 16 7 -mode inv -module \\a -cell $1 -port \\Y -portbit 0 -wire \\w -wirebit 0
    -src rtl/a.py:5`.
    """
    found = dict(_OPTION.findall(command))
    wire = found.get("wire", "").removeprefix("\\")
    # The innermost line comes last; that of a library has no place in rtl/.
    places = _PLACE.findall(command)
    file, line = (places[-1][0], int(places[-1][1])) if places else ("", 0)
    return Mutant(number, found["mode"], f"{wire}[{found['wirebit']}]" if wire else "",
                  f"{found['port']}[{found['portbit']}]", file, line, source_line(file, line) if file else "")


def source_line(file: str, line: int) -> str:
    return (_ROOT / file).read_text(encoding="utf-8").splitlines()[line - 1].strip()
