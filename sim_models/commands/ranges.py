"""Ranges of answers that no measured row near them checks."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


def print_ranges(ranges: Mapping[str, dict[str, Any] | None], console: "Console",
                 title: str = "Not checked: no row within a factor of two") -> None:
    """Print of each kind of answer within which factor of it nine of ten rows are, and of which machines they are."""
    from t3sim.base.console import NOTHING, print_table

    print_table(title, ("what", "nine of ten rows\nof its kind within", "rows", "of"),
                [(name, f"a factor of {one['factor']:.2f}", f"{one['rows']}", ", ".join(one["machines"])) if one
                 else (name, NOTHING, NOTHING, NOTHING) for name, one in ranges.items()], console)
