"""Choices of a run of techniques besides workload and machine."""

from dataclasses import dataclass

from t3sim.mechanisms.decomposed import COMMUNICATION_UNITS
from t3sim.mechanisms.exchange import REDUCED, Exchange
from t3sim.mechanisms.flux import FluxOptions
from t3sim.runs.skew import Skew


@dataclass(frozen=True)
class Choices:
    """Choices that all techniques of a run share."""

    policy: str | None = None  #: the arbiters' in technique t3, None: the technique's own
    exchange: Exchange = REDUCED  #: what fused techniques fuse the GEMM with
    skew: Skew | None = None  #: what tells GPUs apart, each with its own RTL; None: one GPU stands for all
    communication_units: int = COMMUNICATION_UNITS  #: compute units that the kernels of `decomposed` have
    flux: tuple[FluxOptions, ...] = (FluxOptions(),)  #: of which technique `flux` takes the fastest
