"""`t3 compare`: what moved between two campaigns of `t3 reproduce`."""

from pathlib import Path
from typing import Annotated

import typer

from t3sim.base.errors import Failure

_SHOWN = 40


def compare(
    before: Annotated[Path, typer.Argument(metavar="BEFORE", help="An --out folder of `t3 reproduce`.")],
    after: Annotated[Path, typer.Argument(metavar="AFTER", help="Another --out folder.")],
) -> None:
    """Compare the results of two campaigns bit for bit; exit code 1 if any value differs."""
    from t3sim.papers.compare import compare_results, count_values, load_results

    old, new = load_results(before), load_results(after)
    moved = compare_results(old, new)
    for one in moved[:_SHOWN]:
        relative = "" if one.relative is None else f" ({one.relative:+.4%})"
        print(f"{one.where}: {one.before} -> {one.after}{relative}")
    if len(moved) > _SHOWN:
        print(f"... and {len(moved) - _SHOWN} more")
    if moved:
        raise Failure(f"{len(moved)} of {count_values(old)} values differ between {before} and {after}")
    print(f"equal: all {count_values(old)} values")
