"""Arbitration between the compute and the communication stream of a memory channel.

Importing the package needs no Amaranth, because models, tools and documentation read the policies' names, inputs and
decisions. The hardware is `t3sim.rtl.arbiter.arbiter.Arbiter`.
"""

from t3sim.rtl.arbiter.policies import GROUP, INSTALLED, POLICIES, POLICY_BITS, points_of
from t3sim.rtl.arbiter.policy import (
    COMMUNICATION,
    COMPUTE,
    OVERTAKEN_AT,
    THRESHOLD_BITS,
    THRESHOLD_NONE,
    Policy,
    Reason,
    View,
)

__all__ = [
    "COMMUNICATION", "COMPUTE", "GROUP", "INSTALLED", "OVERTAKEN_AT", "POLICIES", "POLICY_BITS", "THRESHOLD_BITS",
    "THRESHOLD_NONE", "Policy", "Reason", "View", "points_of",
]
