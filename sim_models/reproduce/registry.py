"""The figures and tables that can be reproduced, in the order of the report."""

import re

from sim_models.errors import BadInput, choices
from sim_models.reproduce.amped.case_studies import CASE_1, CASE_2, CASE_3
from sim_models.reproduce.amped.measured import MEGATRON, SINGLE_NODE
from sim_models.reproduce.amped.tables import TABLE_2, TABLE_3
from sim_models.reproduce.dma.figures import ALL_GATHER, ALL_TO_ALL, COPY
from sim_models.reproduce.figure import PAPERS, Figure
from sim_models.reproduce.figure04 import FIGURE04
from sim_models.reproduce.figure06 import FIGURE06
from sim_models.reproduce.figure14 import FIGURE14
from sim_models.reproduce.figure15_16 import FIGURE15, FIGURE16
from sim_models.reproduce.figure17 import FIGURE17
from sim_models.reproduce.figure18 import FIGURE18
from sim_models.reproduce.figure19 import FIGURE19
from sim_models.reproduce.figure20 import FIGURE20
from sim_models.reproduce.fused.dlrm import DLRM
from sim_models.reproduce.levels import LEVELS
from sim_models.reproduce.networks import NETWORKS
from sim_models.reproduce.sensitivity import SENSITIVITY
from sim_models.reproduce.table_hbm import TABLE_HBM
from sim_models.reproduce.table_tp32 import TABLE_TP32
from sim_models.reproduce.thresholds import THRESHOLDS

FIGURES: dict[str, Figure] = {figure.name: figure for figure in (
    FIGURE04, FIGURE06, FIGURE14, FIGURE15, FIGURE16, FIGURE17, FIGURE18, FIGURE19, TABLE_TP32, FIGURE20, THRESHOLDS,
    SENSITIVITY, TABLE_HBM, LEVELS,
    TABLE_2, TABLE_3, CASE_1, CASE_2, CASE_3, MEGATRON, SINGLE_NODE,
    COPY, ALL_GATHER, ALL_TO_ALL, DLRM, NETWORKS)}


def chosen(only: str | None, paper: str | None = None) -> list[Figure]:
    """Return figures by name, or all of a paper (T3's without one), in the report's order. Raises `BadInput`."""
    if paper is not None and paper not in (*PAPERS, "all"):
        raise BadInput(f"--paper {paper[:40]!r} is unknown: allowed are {', '.join(PAPERS)}, all")
    if only is None:
        return [figure for figure in FIGURES.values() if paper == "all" or figure.paper == (paper or "t3")]
    if paper is not None:
        raise BadInput(f"--paper {paper} does not go with --only {only[:40]}, which names figures of any paper")
    names = {re.sub(r"(?<=^figure)0+", "", name.strip()) for name in only.split(",")}
    for name in sorted(names):
        if name not in FIGURES:
            raise BadInput(f"--only {name!r} is unknown: allowed are {choices(name, FIGURES)}")
    return [figure for name, figure in FIGURES.items() if name in names]
