"""Runs the mutation campaign: `python -m t3sim.testbenches.mutation.mutate tracker --count 100`, or `make mutate`."""

import csv
import json
import sys
import time
from pathlib import Path

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from t3sim.base.errors import Failure
from t3sim.testbenches.command_line import block_parser, chosen_blocks
from t3sim.testbenches.geometries import GEOMETRIES
from t3sim.testbenches.mutation.campaign import CAUGHT, ROOT, ROWS, SOURCE_ROWS, Fate, fates, share

REPORT = ROOT / "build" / "reports" / "mutation.json"


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit code: 0 if each survivor is explained."""
    parser = block_parser("t3sim.testbenches.mutation.mutate", __doc__, ROWS, REPORT)
    parser.add_argument("--count", type=int, default=60, help="mutants per block (60)")
    parser.add_argument("--seed", type=int, default=1, help="which places are changed (1)")
    parser.add_argument("--source", action="store_true", help="mistakes in the source rather than in the netlist")
    parser.add_argument("--only", default="", metavar="WORDS",
                        help="mistakes in the source whose words match: 'reset|only'")
    parser.add_argument("--geometry", choices=GEOMETRIES, help="another than the row's own")
    parser.add_argument("--table", type=Path, metavar="FILE",
                        help="a CSV file with a row per block, whose rows of these blocks are written anew")
    options = parser.parse_args(arguments)
    blocks = chosen_blocks(parser, options, ROWS)
    rows = SOURCE_ROWS if options.source else ROWS
    if options.only and not options.source:
        parser.error("--only chooses among mistakes in the source: give --source, too")
    if not 1 <= options.count < 1 << 16:
        parser.error("--count must be from 1 to 65535")
    results, seconds = {}, {}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    start = time.monotonic()
    try:
        with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
            task = progress.add_task("", total=options.count * len(blocks))
            for index, block in enumerate(blocks):
                def step(what: str, done: int, mutants: int, block=block, index=index) -> None:
                    progress.update(task, description=f"{block}: {what}", completed=options.count * (
                        index + done / max(1, mutants)))

                begun = time.monotonic()
                results[block] = fates(block, options.count, options.seed, step, options.source, options.geometry,
                                       options.only)
                seconds[block] = time.monotonic() - begun
                console.print(_line(block, results[block], seconds[block]), highlight=False)
    except KeyboardInterrupt:
        console.print("interrupted; the same command goes on from here")
        return 130
    except Failure as failure:
        console.print(f"{block}: {failure}", style="red", highlight=False)
        return 1
    total_s = time.monotonic() - start
    _print(results, seconds, total_s)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps({
        "seed": options.seed, "of": "source" if options.source else "netlist", "only": options.only,
        "seconds": round(total_s, 1),
        "blocks": {block: {"geometry": options.geometry or rows[block][1]} | _counts(told) | {
            "share": share(told), "seconds": round(seconds[block], 1)} for block, told in results.items()},
        "mutants": [fate.to_json() for told in results.values() for fate in told]}, indent=1) + "\n", encoding="utf-8")
    if options.table:
        _keep(options.table, results, seconds)
    unexplained = [fate for told in results.values() for fate in told if fate.what == "survivor" and not fate.by]
    print(f"{sum(map(len, results.values()))} mutants in {total_s:.0f} s; written to {options.json}")
    if unexplained:
        print(f"{len(unexplained)} survivors without a word in testbenches/mutation/harmless.toml")
    return 1 if unexplained else 0


def _counts(told: list[Fate]) -> dict[str, int]:
    return {"mutants": len(told)} | {what: sum(fate.what == what for fate in told)
                                     for what in (*CAUGHT, "time", "equivalent")} | {
        "explained": sum(fate.what == "survivor" and bool(fate.by) for fate in told),
        "unexplained": sum(fate.what == "survivor" and not fate.by for fate in told)}


def _keep(path: Path, results: dict[str, list[Fate]], seconds: dict[str, float]) -> None:
    """Write the blocks' rows into a table of all blocks: what `docs/verification` shows."""
    rows = {}
    if path.exists():
        with path.open(encoding="utf-8", newline="") as file:
            rows = {row["block"]: row for row in csv.DictReader(file)}
    for block, told in results.items():
        counts = _counts(told)
        rows[block] = {"block": block, "tried": counts["mutants"], "caught": sum(counts[what] for what in CAUGHT),
                       "time": counts["time"], "equivalent": counts["equivalent"],
                       "survive": counts["explained"] + counts["unexplained"], "share": f"{100 * share(told):.3g} %",
                       "s": f"{seconds[block]:.0f}"}
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, ["block", "tried", "caught", "time", "equivalent", "survive", "share", "s"],
                               lineterminator="\n")
        table.writeheader()
        table.writerows(rows.values())


def _line(block: str, told: list[Fate], seconds: float) -> str:
    counts = _counts(told)
    caught = sum(counts[what] for what in CAUGHT)
    return (f"{block}: {caught} of {counts['mutants'] - counts['equivalent']} caught, "
            f"{counts['equivalent']} equivalent, {seconds:.0f} s")


def _print(results: dict[str, list[Fate]], seconds: dict[str, float], total_s: float) -> None:
    console = Console()
    if not console.is_terminal:
        console.width = 120  # a file's lines end nowhere
    table = Table(title="Mutation", title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("block", no_wrap=True)
    for heading in ("mutants", "tests", "unit", "proofs", "time", "equal", "explained", "left", "caught", "s"):
        table.add_column(heading, justify="right", no_wrap=True)
    for block, told in results.items():
        table.add_row(block, *(str(value) for value in _counts(told).values()), f"{share(told):.1%}",
                      f"{seconds[block]:.0f}")
    everything = [fate for told in results.values() for fate in told]
    table.add_section()
    table.add_row("all", *(str(value) for value in _counts(everything).values()), f"{share(everything):.1%}",
                  f"{total_s:.0f}")
    console.print(table)
    for fate in everything:
        told = {"survivor": ("survives", fate.by or "not explained"),
                "time": ("ended by time", f"{fate.by}: {fate.how}")}.get(fate.what)
        if told:
            mutant = fate.mutant
            console.print(f"{told[0]}: {fate.block} {mutant.place} (mutant {mutant.number})\n    {mutant.text}\n    "
                          + told[1], highlight=False, markup=False, soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
