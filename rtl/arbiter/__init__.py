"""Arbitration between the compute and the communication stream of a memory channel."""

from .arbiter import POLICIES, POLICY_BITS, STARVATION_BITS, Arbiter
from .compute_first import ComputeFirst
from .mca import Mca
from .policy import THRESHOLD_BITS, THRESHOLD_NONE, Policy
from .ring_aware import RingAware
from .round_robin import RoundRobin

__all__ = [
    "POLICIES", "POLICY_BITS", "STARVATION_BITS", "THRESHOLD_BITS", "THRESHOLD_NONE",
    "Arbiter", "ComputeFirst", "RingAware", "Mca", "Policy", "RoundRobin",
]
