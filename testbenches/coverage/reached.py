"""Runs the testbenches and reports which coverage points they reached: `make coverage` calls this."""

import json
import os
import re
import shutil
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

from rich import box
from rich.console import Console
from rich.table import Table

from t3sim.base.errors import Failure
from t3sim.cosim.testbench import Testbench, block_verilog, run_testbench
from t3sim.rtl.geometry import Geometry
from t3sim.rtlsim.port_map import Port, PortMap
from t3sim.testbenches.command_line import block_parser, chosen_blocks
from t3sim.testbenches.coverage.cross import FOLDER, Cross, Point, merge
from t3sim.testbenches.coverage.points import INSIDE, crosses
from t3sim.testbenches.geometries import GEOMETRIES

ROOT = Path(__file__).resolve().parents[2]
REPORT = ROOT / "build" / "reports" / "coverage.json"
_RUNS = ROOT / "build" / "coverage"


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit code: 0 if every point was reached."""
    blocks = list(dict.fromkeys(cross.block for cross in crosses(GEOMETRIES["small"])))
    parser = block_parser("t3sim.testbenches.coverage.reached", __doc__, blocks, REPORT)
    parser.add_argument("--seed", type=int, default=1, help="of the random stimulus (1)")
    parser.add_argument("--length", type=int, default=3, help="multiplies the rounds of random traffic (3)")
    parser.add_argument("--geometry", choices=GEOMETRIES, default="small")
    options = parser.parse_args(arguments)
    wanted = chosen_blocks(parser, options, blocks, "no point of")
    if options.length < 1:
        parser.error("--length must be at least 1")
    geometry = GEOMETRIES[options.geometry]
    chosen = [cross for cross in crosses(geometry) if cross.block in wanted]
    counts = _RUNS / "counts"
    shutil.rmtree(counts, ignore_errors=True)
    counts.mkdir(parents=True)
    failed = False
    for block in dict.fromkeys(cross.block for cross in chosen):
        try:
            with patch.dict(os.environ, {FOLDER: str(counts)}):  # for the testbench, and for no later one
                run_testbench(Testbench(block, geometry, options.seed, length=options.length), _RUNS / block,
                              design=_with_inside(block, geometry))
        except Failure as failure:
            print(f"{block}: {failure}", file=sys.stderr)
            failed = True
    merged = merge(counts)
    results = [(cross, merged.get((cross.block, cross.name), Counter())) for cross in chosen]
    missing = _print(results, options.geometry)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps({
        "geometry": options.geometry, "seed": options.seed, "length": options.length, "crosses": [{
            "block": cross.block, "name": cross.name, "axes": list(cross.axes),
            "points": [[*point, reached[point]] for point in cross.points()]} for cross, reached in results]}, indent=1)
        + "\n", encoding="utf-8")
    total = sum(len(cross.points()) for cross, _ in results)
    print(f"{total - missing} of {total} points reached; written to {options.json}")
    return 1 if missing or failed else 0


def _with_inside(block: str, geometry: Geometry) -> tuple[str, PortMap]:
    """Write the block's Verilog, with the signals inside that its crosses read as ports of the testbench."""
    text, ports = block_verilog(block, geometry)
    body = text[text.index(f"\nmodule {block}("):]
    seen = {}
    for name, like in INSIDE.get(block, {}).items():
        found = re.search(rf"^\s*(?:wire|reg)\s+(?:\[(\d+):0\]\s+)?{name}\s*(?:;|=)", body, re.MULTILINE)
        if not found:
            raise Failure(f"the Verilog of {block} has no signal {name}")
        seen[name] = Port(name, name, int(found[1] or 0) + 1, 0, ports.port(like).fields if like else {})
    return text, replace(ports, outputs=ports.outputs | seen)


def _print(results: list[tuple[Cross, Counter[Point]]], geometry: str) -> int:
    """Print the results; return the number of points that were not reached."""
    console = Console()
    table = Table(title=f"Functional coverage (geometry {geometry!r})", title_justify="left", box=box.SIMPLE_HEAD)
    for heading in ("block", "points"):
        table.add_column(heading)
    for heading in ("reached", "of", "impossible"):
        table.add_column(heading, justify="right")
    total = 0
    for cross, reached in results:
        points = cross.points()
        missing = [point for point in points if not reached[point]]
        total += len(missing)
        everything = 1
        for values in cross.axes.values():
            everything *= len(values)
        table.add_row(cross.block, cross.name, str(len(points) - len(missing)), str(len(points)),
                      str(everything - len(points)))
    console.print(table)
    for cross, reached in results:
        for point in cross.points():
            if not reached[point]:
                told = ", ".join(f"{axis}: {value}" for axis, value in zip(cross.axes, point))
                console.print(f"not reached: {cross.block}, {cross.name}: {told}", highlight=False, markup=False,
                              soft_wrap=True)
    return total


if __name__ == "__main__":
    sys.exit(main())
