"""The figures and tables that can be reproduced, in the order of the report."""

from sim_models.errors import BadInput
from sim_models.reproduce.figure import Figure
from sim_models.reproduce.figure15_16 import FIGURE15, FIGURE16
from sim_models.reproduce.figure18 import FIGURE18

FIGURES: dict[str, Figure] = {figure.name: figure for figure in (FIGURE15, FIGURE16, FIGURE18)}


def chosen(only: str | None) -> list[Figure]:
    """Figures by name, all of them without names, in the report's order. Raises `BadInput`."""
    if only is None:
        return list(FIGURES.values())
    names = {name.strip() for name in only.split(",")}
    for name in sorted(names):
        if name not in FIGURES:
            raise BadInput(f"--only {name!r} is unknown: allowed are {', '.join(FIGURES)}")
    return [figure for name, figure in FIGURES.items() if name in names]
