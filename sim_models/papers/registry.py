"""The figures and tables that can be reproduced, in the order of the report."""

import re

from t3sim.base.errors import BadInput, choices
from t3sim.papers.amped.case_studies import CASE_1, CASE_2, CASE_3
from t3sim.papers.amped.measured import MEGATRON, SINGLE_NODE
from t3sim.papers.amped.tables import TABLE_2, TABLE_3
from t3sim.papers.arbiter import POLICIES, THRESHOLDS
from t3sim.papers.cais import NINE
from t3sim.papers.compute_units import FIGURE06, FIGURE20
from t3sim.papers.dma.figures import AFTER_GEMM, ALL_GATHER, ALL_TO_ALL, COPIES, COPY
from t3sim.papers.dma.misses import MISSES
from t3sim.papers.dma.power import POWER
from t3sim.papers.dma.trigger import TRIGGER
from t3sim.papers.event_level import CONTENTION, EVENT_LEVEL, NETWORKS
from t3sim.papers.exchanges import ALL_GATHER_GEMM, ALL_REDUCE, IN_SWITCH
from t3sim.papers.figure import PAPERS, Figure
from t3sim.papers.figure14 import FIGURE14
from t3sim.papers.figure17 import FIGURE17
from t3sim.papers.flux.choices import CHOICES
from t3sim.papers.flux.measured import ALL_REDUCES, GEMMS
from t3sim.papers.flux.operators import OVERLAP, SMALL, TWO_NODES
from t3sim.papers.fused.dlrm import DLRM
from t3sim.papers.fused.operators import OPERATORS, PROFILE
from t3sim.papers.iterations import FIGURE04, FIGURE19
from t3sim.papers.measured_gemms import H100_GEMMS, MI300X_GEMMS
from t3sim.papers.sensitivity import SENSITIVITY
from t3sim.papers.sublayers import FIGURE15, FIGURE16, FIGURE18, TABLE_TP32
from t3sim.papers.sums import COST, SUMS
from t3sim.papers.table_hbm import TABLE_HBM
from t3sim.papers.today.chains import CHAINS
from t3sim.papers.today.experts import EXPERTS
from t3sim.papers.today.experts_on_rtl import COMBINE, DISPATCH
from t3sim.papers.today.layers import LAYERS
from t3sim.papers.today.levels import LEVELS
from t3sim.papers.today.signals import SIGNALS

FIGURES: dict[str, Figure] = {figure.name: figure for figure in (
    FIGURE04, FIGURE06, FIGURE14, FIGURE15, FIGURE16, FIGURE17, FIGURE18, FIGURE19, TABLE_TP32, FIGURE20, THRESHOLDS,
    SENSITIVITY, TABLE_HBM, EVENT_LEVEL, CONTENTION,
    TABLE_2, TABLE_3, CASE_1, CASE_2, CASE_3, MEGATRON, SINGLE_NODE,
    COPY, ALL_GATHER, ALL_TO_ALL, POWER, AFTER_GEMM, COPIES, MISSES, TRIGGER, DLRM, NETWORKS,
    OPERATORS, PROFILE,
    OVERLAP, SMALL, TWO_NODES, CHOICES, GEMMS, ALL_REDUCES, ALL_REDUCE, ALL_GATHER_GEMM, IN_SWITCH, NINE,
    LAYERS, LEVELS, EXPERTS, DISPATCH, COMBINE, SIGNALS, CHAINS, H100_GEMMS, MI300X_GEMMS, POLICIES, SUMS, COST)}


def select_figures(only: str | None, paper: str | None = None) -> list[Figure]:
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
