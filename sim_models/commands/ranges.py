"""Ranges of answers that no measured row near them checks."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from t3sim.machine import Machine


def print_ranges(ranges: Mapping[str, dict[str, Any] | None], machine: "Machine", console: "Console",
                 title: str = "Not checked: no row within a factor of 2") -> None:
    """Print of each kind of answer within which factor of it nine of ten rows are, and of which machines they are.

    A machine of the user's with other constants than any of the package's has no ranges.
    """
    from t3sim.analytic.validation.nearby import has_own_constants
    from t3sim.base.console import NOTHING, print_table

    if has_own_constants(machine):
        console.print(f"Not checked: {', '.join(ranges) or 'times'}. Constants of {machine.name} are those of no "
                      "machine with measured rows, so the errors of such rows do not apply.\n", markup=False)
        return
    print_table(title, ("quantity", "90 % of rows\nof its kind within", "rows", "machines"),
                [(name, f"a factor of {one['factor']:.2f}", f"{one['rows']}", ", ".join(one["machines"])) if one
                 else (name, NOTHING, NOTHING, NOTHING) for name, one in ranges.items()], console)
