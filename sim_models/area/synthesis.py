"""Map a module's Verilog to a netlist of library cells, flip-flops and memories."""

import json
import re
import shutil
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from t3sim.area.liberty import Library
from t3sim.base.cache import cached, digest
from t3sim.cosim import yosys

SMALL_WORDS = 8  #: a memory of fewer words is made of flip-flops, as no memory generator would make it
TARGET_GATE_DELAYS = 30  #: what the mapper sizes its gates for

#: Registers of as many bits with one enable get a gated clock, as in every flow for silicon, rather than a multiplexer
#: per bit. OSU018 has no clock gate (and its latch has no area), so a flip-flop and a NAND2 with inverter stand for it.
GATED_BITS = 8
CLOCK_GATE = "clock_gate"

#: How logic is mapped, the small first: Yosys's own script for the library, whose restructuring turns long carry trees
#: into chains, or ones that keep the trees. A block takes the first that meets the target.
_SIZED = "; dch -f; map -B 0.9 -D {target}; topo; buffer -c; topo; upsize; dnsize"
EFFORTS = {
    "area": "",
    "balanced": "strash; &get -n; &syn2; &put" + _SIZED,
    "speed": "strash; ifraig; scorr" + _SIZED,
}
SWEEPING = "speed"

#: Gate equivalents of the largest module for which the last effort is tried: it proves nets equal one by one, which
#: takes over four processor minutes where there are a quarter of a million, and one where there are half as many.
MOST_SWEPT = 200_000

_MODULE = re.compile(r"^module (\S+?) ?\(.*?^endmodule\n", re.MULTILINE | re.DOTALL)
_INSTANCE = re.compile(r"^  (\w+) (\\\S+ |\w+) \(\n", re.MULTILINE)


@dataclass(frozen=True)
class Netlist:
    """A module mapped to a library, flat but for `black_boxes`; Yosys's JSON of one module."""

    name: str
    module: dict
    library: Library

    @cached_property
    def cells(self) -> dict[str, int]:
        """Type: number, of everything in it."""
        counts: dict[str, int] = {}
        for cell in self.module["cells"].values():
            counts[cell["type"]] = counts.get(cell["type"], 0) + 1
        return counts

    @property
    def flip_flops(self) -> int:
        library_cells = self.library.cells
        return sum(count for name, count in self.cells.items() if name in library_cells and library_cells[name].clock)

    def gate_equivalents(self, flip_flops: bool = True) -> float:
        """Return the area of the mapped cells in NAND2 gates of the same library.

        Memories and black boxes count nothing.
        """
        library_cells = self.library.cells
        total = sum(library_cells[name].area * count for name, count in self.cells.items()
                    if name in library_cells and (flip_flops or not library_cells[name].clock))
        gate = self.library.flip_flop.area + self.library.nand2.area + self.library.inverter.area
        return (total + gate * self.clock_gates) / self.library.nand2.area

    @property
    def clock_gates(self) -> int:
        return self.cells.get(CLOCK_GATE, 0)


def modules(text: str) -> dict[str, str]:
    """Return name: text, of every module of a Verilog file."""
    return {match[1].lstrip("\\"): match[0] for match in _MODULE.finditer(text)}


def instances(text: str, texts: dict[str, str]) -> dict[str, str]:
    """Return name: module, of the instances in one module's text."""
    return {name.strip(" \\"): module for module, name in _INSTANCE.findall(text) if module in texts}


def with_children(texts: dict[str, str], name: str) -> str:
    """Return the text of a module and of all below it, each once."""
    names, pending = [], [name]
    while pending:
        module = pending.pop()
        if module not in names:
            names.append(module)
            pending += instances(texts[module], texts).values()
    return "\n".join(texts[module] for module in sorted(names))


def _mapping(library: Library, effort: str) -> tuple[str, dict[str, str]]:
    """Return the script's lines that map to the library, and the files that they need."""
    target = round(1000 * TARGET_GATE_DELAYS * library.gate_delay[0])
    commands = EFFORTS[effort].format(target=target)
    lines = ("dfflibmap -liberty library.lib\nopt_clean\n"
             f"abc -liberty library.lib -D {target} -constr abc.constr{' -script abc.script' if commands else ''}\n")
    return lines, {
        "abc.script": commands,
        "abc.constr": f"set_driving_cell {library.inverter.name}\n"
                      f"set_load {4 * next(iter(library.inverter.loads.values())):.4f} [all_outputs]\n",
        "library.lib": library.text,
    }


def synthesise(text: str, top: str, library: Library, black_boxes: tuple[str, ...] = (),
               effort: str = "area") -> Netlist:
    """Map `top` to the library; from the cache if nothing changed."""
    mapping, files = _mapping(library, effort)
    boxes = f"blackbox {' '.join(black_boxes)}\n" if black_boxes else ""
    # Initial values are dropped: silicon has none, what must start defined has a reset. `share` and `fsm` are Yosys's
    # default optimisations; memories are kept until they are known to be small.
    script = f"""read_verilog design.v
{boxes}hierarchy -top {top}
proc -norom
flatten
opt_expr
opt_clean
opt -nodffe -nosdff
fsm
opt -nosdff
wreduce
peepopt
opt_clean
alumacc
share
opt -nosdff
memory -nomap
opt_clean
select -set small t:$mem_v2 r:SIZE<{SMALL_WORDS} %i
memory_map @small
opt -fast -full -nosdff
opt -full -nosdff
techmap -map +/choices/sklansky.v
techmap
opt -fast -nosdff
setattr -unset init w:*
dfflegalize -cell $_DFF_P_ x -cell $_DFFE_PP_ x
clockgate -pos {CLOCK_GATE} enable:clock:gated -min_net_size {GATED_BITS}
dfflegalize -cell $_DFF_P_ x
{mapping}opt_clean -purge
write_json netlist.json
"""

    def make(folder: Path) -> None:
        work = folder / "work"
        work.mkdir()
        for name, content in {"design.v": text, **files}.items():
            (work / name).write_text(content)
        yosys.run_yosys(script, work)
        module = json.loads((work / "netlist.json").read_text())["modules"][top]
        for cell in module["cells"].values():
            cell.pop("attributes", None)
        (folder / "netlist.json").write_text(json.dumps(module))
        shutil.rmtree(work)

    key = digest(text, top, script, *files.values(), yosys.version("yosys"))
    entry = cached(f"netlist-{key}", make)
    return Netlist(top, json.loads((entry / "netlist.json").read_text()), library)
