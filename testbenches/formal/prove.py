"""Runs the proofs: `python -m t3sim.testbenches.formal.prove tracker`; `make formal` calls this."""

import json
import sys
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from t3sim.base.errors import Failure
from t3sim.testbenches.command_line import block_parser, chosen_blocks
from t3sim.testbenches.formal.campaign import PROPERTIES, prove
from t3sim.testbenches.formal.solver import ENGINE

REPORT = Path(__file__).resolve().parents[2] / "build" / "reports" / "formal.json"


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit code: 0 if every property holds and every broken design was caught."""
    blocks = list(dict.fromkeys(item.block for item in PROPERTIES))
    parser = block_parser("t3sim.testbenches.formal.prove", __doc__, blocks, REPORT)
    parser.add_argument("--property", help="only properties with this in their name")
    options = parser.parse_args(arguments)
    wanted = chosen_blocks(parser, options, blocks, "no proof about")
    chosen = [item for item in PROPERTIES if item.block in wanted
              and (options.property or "") in item.name]
    if not chosen:
        parser.error(f"no property has {options.property!r} in its name")

    console = Console()
    results = []
    for item in chosen:
        with console.status(f"{item.block}: {item.name}"):
            try:
                results.append(prove(item))
            except Failure as failure:
                console.print(f"{item.block}: {item.name}: {failure}", style="red")
                return 1
        told = results[-1]
        caught = sum(broken["caught"] for broken in told["broken"])
        console.print(f"{item.block}: {item.name}: " + (
            f"holds ({told['seconds']:.1f} s), fails on {caught} of {len(told['broken'])} broken designs" if told["ok"]
            else f"[red]FAILED[/red]: {told['why']}"), highlight=False, soft_wrap=True)
    console.print(_table(results))
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps({"properties": results}, indent=1) + "\n", encoding="utf-8")
    failed = sum(not told["ok"] for told in results)
    console.print(f"{len(results) - failed} of {len(results)} properties proved, "
                  f"{sum(len(told['broken']) for told in results)} broken designs; written to {options.json}",
                  highlight=False)
    return 1 if failed else 0


def _table(results: list[dict]) -> Table:
    table = Table(title=f"Formal ({ENGINE})", title_justify="left", box=box.SIMPLE_HEAD)
    for heading in ("block", "property, and what it must catch", "geometry", "holds for"):
        table.add_column(heading)
    table.add_column("s", justify="right")
    for told in results:
        length = f"{told['depth']} cycles" if told["bounded"] else f"any run (k={told['depth']})"
        table.add_row(told["block"], told["property"], told["geometry"],
                      length if told["verdict"] == "pass" else told["verdict"].upper(), f"{told['seconds']:.1f}")
        for broken in told["broken"]:
            table.add_row("", f"  fails on: {broken['what']}", broken["geometry"], "yes" if broken["caught"] else "NO",
                          f"{broken['seconds']:.1f}")
    return table


if __name__ == "__main__":
    sys.exit(main())
