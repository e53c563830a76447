"""Area and speed by commit as a table in Markdown, newest first: `python scripts/history.py [FILE] [--last N]`."""

import argparse
import sys
from pathlib import Path

from t3sim.area.history import SPEED, read
from t3sim.base.errors import BadInput

#: Of a block, as far as an entry has it.
FIGURES = {"gate_equivalents": "gate equivalents", "logic_depth": "gate delays", "fmax_mhz": "MHz on an FPGA"}


def table(entries: list[dict], last: int) -> str:
    """Return a row for each of the last entries: speed and host, and the figures of every block that the newest has."""
    if not entries:
        return "no entry recorded yet"
    shown = [(block, figure) for block in entries[-1]["blocks"] for figure in FIGURES]
    heads = ["commit", "cycles/s", "host", *(f"{block}, {FIGURES[figure]}" for block, figure in shown)]
    rows = [[entry["commit"], f"{entry[SPEED]:,}" if SPEED in entry else "–", entry.get("host", "–"), *(
        f"{value:,}" if (value := entry["blocks"].get(block, {}).get(figure)) is not None else "–"
        for block, figure in shown)] for entry in entries[:-last - 1:-1]]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, ["---"] * len(heads), *rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", nargs="?", type=Path, help="docs/history.jsonl if not given")
    parser.add_argument("--last", type=int, default=20, metavar="N", help="entries shown; 20 if not given")
    given = parser.parse_args()
    if given.last < 1:
        sys.exit(f"--last {given.last}: at least 1 is needed")
    try:
        print(table(read(given.file), given.last))
    except BadInput as error:
        sys.exit(f"{error}")


if __name__ == "__main__":
    main()
