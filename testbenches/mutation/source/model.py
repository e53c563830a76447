"""All mistakes in a block's source in one model."""

import ast
import inspect
import json
import subprocess
import sys
from dataclasses import asdict
from functools import cache
from pathlib import Path

from amaranth.back import rtlil
from amaranth.hdl import Fragment

import t3sim.rtl.blocks
from t3sim.base.cache import cached, digest
from t3sim.base.errors import Failure
from t3sim.cosim.testbench import block_verilog, design_under_test
from t3sim.cosim.yosys import run_yosys, version
from t3sim.rtl.blocks import BLOCKS
from t3sim.rtl.geometry import Geometry
from t3sim.rtlsim.signature import signature_ports
from t3sim.testbenches.mutation.model import Model, Mutant, keep_apart, source_line

ROOT = Path(__file__).resolve().parents[3]
_HERE = Path(__file__).parent
#: Sizes and layouts.
_NO_HARDWARE = {"geometry", "layouts", "registers", "control/apb", "blocks", "check_bits"}
_SCRIPT = """\
read_rtlil {file}
hierarchy -top {block}
proc
{keep}
flatten
opt_expr
opt_clean
{verilog}
{apart}
write_rtlil {result}
"""


def make_source_model(block: str, geometry: Geometry, count: int, seed: int, only: str = "") -> Model:
    """Make a model of `count` mistakes, or as many as there are.

    They are drawn evenly over those in the files of this block whose words match `only`.
    """
    component = design_under_test(block, geometry)
    fragment = Fragment.get(component, None)
    design, _ = rtlil.convert_fragment(fragment, signature_ports(component), block)
    keep, apart = keep_apart(block, design, fragment)
    verilog, ports = block_verilog(block, geometry)
    files = files_of(block)
    job = json.dumps({"block": block, "geometry": asdict(geometry), "files": files, "count": count, "seed": seed,
                      "only": only, "clocked": ports.clock is not None})
    key = digest(design, job, _SCRIPT, version("yosys"), *((ROOT / file).read_text() for file in files),
                 *(path.read_text() for path in sorted(_HERE.glob("*.py"))))

    def script(name: str, result: str, verilog: str) -> str:
        return _SCRIPT.format(file=name, block=block, keep=keep, apart=apart, verilog=verilog, result=result)

    def make(folder: Path) -> None:
        (folder / "design.il").write_text(design)
        (folder / "job.json").write_text(job)
        done = subprocess.run([sys.executable, "-m", "t3sim.testbenches.mutation.source.build", "job.json", "."],
                              cwd=folder, env={}, capture_output=True, text=True)
        if done.returncode:
            raise Failure(f"{block} cannot be elaborated with mistakes:\n{done.stderr}")
        run_yosys(script("design.il", "original.il", ""), folder)
        run_yosys(script("changed.il", "mutated.il", "write_verilog -noattr mutated.v"), folder)

    folder = cached(f"mistakes-{key}", make)
    mutants = tuple(
        Mutant(number, change["what"], "", "", change["file"], change["line"],
               source_line(change["file"], change["line"]), change["column"])
        for number, change in enumerate(json.loads((folder / "changes.json").read_text())["chosen"], start=1))
    if not mutants:
        raise Failure(f"the words of no mistake of {block} match {only!r}")
    return Model(block, key, (folder / "mutated.v").read_text(), ports, mutants, folder)


@cache
def files_of(block: str) -> tuple[str, ...]:
    """Return the block's own file and those that it is the first to import, other blocks' aside."""
    own = {name: _file(name) for name in BLOCKS}
    taken: set[Path] = {*own.values(), *(ROOT / "rtl" / f"{name}.py" for name in _NO_HARDWARE)}
    found: list[Path] = []
    for name in BLOCKS:
        found, waiting = [], [own[name]]
        while waiting:
            file = waiting.pop(0)
            found.append(file)
            for imported in _imports(file):
                if imported not in taken:
                    taken.add(imported)
                    waiting.append(imported)
        if name == block:
            break
    return tuple(file.relative_to(ROOT).as_posix() for file in found)


def _file(block: str) -> Path:
    made = BLOCKS[block]
    if not isinstance(made, type):  # a function: of the class that it names
        made = next(getattr(t3sim.rtl.blocks, name) for name in made.__code__.co_names if isinstance(
            getattr(t3sim.rtl.blocks, name, None), type))
    return Path(inspect.getfile(made))


def _imports(file: Path) -> list[Path]:
    """Return the files of `rtl/` that a file imports."""
    found = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith("t3sim.rtl."):
            base = (ROOT / "rtl").joinpath(*node.module.split(".")[2:])
            names = [base, *(base / alias.name for alias in node.names)]
            found += [path for name in names if (path := name.with_suffix(".py")).exists()]
    return found
