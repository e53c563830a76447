"""Line and branch coverage of the Python by folder, from coverage.py's JSON: the second half of `make coverage`."""

import json
import sys
from collections import Counter, defaultdict
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

_COUNTS = ("num_statements", "covered_lines", "num_branches", "covered_branches", "excluded_lines")


def by_folder(report: dict) -> dict[str, Counter[str]]:
    """Sum coverage.py's counts over the files of each folder."""
    sums: dict[str, Counter[str]] = defaultdict(Counter)
    for path, told in report["files"].items():
        sums[str(Path(path).parent)].update({name: told["summary"][name] for name in _COUNTS})
    return dict(sorted(sums.items()))


def main(arguments: list[str]) -> int:
    folders = by_folder(json.loads(Path(arguments[0]).read_text(encoding="utf-8")))
    total = sum(folders.values(), Counter())
    table = Table(title="Python coverage", title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("folder")
    for heading in ("lines", "reached", "branches", "reached", "compiled lines"):
        table.add_column(heading, justify="right")
    for folder, counts in (*folders.items(), ("all", total)):
        table.add_row(folder, str(counts["num_statements"]), _share(counts, "covered_lines", "num_statements"),
                      str(counts["num_branches"]), _share(counts, "covered_branches", "num_branches"),
                      str(counts["excluded_lines"]))
    Console().print(table)
    print("compiled lines: of functions that run as machine code; they are not traced, and not counted as lines")
    return 0


def _share(counts: Counter[str], part: str, whole: str) -> str:
    return f"{counts[part] / counts[whole]:.1%}" if counts[whole] else "-"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
