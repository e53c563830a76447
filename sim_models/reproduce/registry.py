"""The figures and tables that can be reproduced, in the order of the report."""

import re

from sim_models.errors import BadInput
from sim_models.reproduce.figure import Figure
from sim_models.reproduce.figure06 import FIGURE06
from sim_models.reproduce.figure14 import FIGURE14
from sim_models.reproduce.figure15_16 import FIGURE15, FIGURE16
from sim_models.reproduce.figure17 import FIGURE17
from sim_models.reproduce.figure18 import FIGURE18
from sim_models.reproduce.figure20 import FIGURE20
from sim_models.reproduce.sensitivity import SENSITIVITY
from sim_models.reproduce.table_hbm import TABLE_HBM
from sim_models.reproduce.table_tp32 import TABLE_TP32
from sim_models.reproduce.thresholds import THRESHOLDS

FIGURES: dict[str, Figure] = {figure.name: figure for figure in (
    FIGURE06, FIGURE14, FIGURE15, FIGURE16, FIGURE17, FIGURE18, TABLE_TP32, FIGURE20, THRESHOLDS, SENSITIVITY,
    TABLE_HBM)}


def chosen(only: str | None) -> list[Figure]:
    """Figures by name, all of them without names, in the report's order. Raises `BadInput`."""
    if only is None:
        return list(FIGURES.values())
    names = {re.sub(r"(?<=^figure)0+", "", name.strip()) for name in only.split(",")}
    for name in sorted(names):
        if name not in FIGURES:
            raise BadInput(f"--only {name!r} is unknown: allowed are {', '.join(FIGURES)}")
    return [figure for name, figure in FIGURES.items() if name in names]
