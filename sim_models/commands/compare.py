"""`t3 compare`: what moved between two campaigns of `t3 reproduce`."""

from pathlib import Path
from typing import Annotated

import typer

from t3sim.base.errors import Failure

_SHOWN = 40


def compare(
    before: Annotated[Path, typer.Argument(metavar="BEFORE", help="Folder of `t3 reproduce --out`.")],
    after: Annotated[Path, typer.Argument(metavar="AFTER", help="Another one.")],
) -> None:
    """Compare the results of two campaigns bit for bit; exit code 1 if anything moved."""
    from t3sim.papers.compare import compare_results, count_values, load_results

    old, new = load_results(before), load_results(after)
    moved = compare_results(old, new)
    for one in moved[:_SHOWN]:
        relative = "" if one.relative is None else f" ({one.relative:+.4%})"
        print(f"{one.where}: {one.before} -> {one.after}{relative}")
    if len(moved) > _SHOWN:
        print(f"... and {len(moved) - _SHOWN} more")
    if moved:
        raise Failure(f"{len(moved)} of {count_values(old)} values moved between {before} and {after}")
    print(f"equal: all {count_values(old)} values")
