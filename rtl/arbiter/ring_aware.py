"""Arbitration by who is late, the GEMM or communication: that of "T3-MCA+"."""

from . import mca
from .policy import ALONE, COMMUNICATION, COMPUTE, THRESHOLD_NONE, Decision, Policy, Reason, View

_LATE = Reason("communication is behind the GEMM: the streams take turns",
               loser="communication is behind the GEMM: the streams take turns, and this one went last")


def grants(view: View):
    allowed = view.ring_late | (view.threshold == THRESHOLD_NONE) | (view.occupancy < view.threshold)
    first = view.starved | view.drain | (view.ring_late & ~view.last_communication)
    communication = view.communication_valid & (first | (~view.compute_valid & allowed))
    return view.compute_valid & ~communication, communication


def decide(view: View) -> Decision:
    if not view.ring_late or (view.communication_valid and (view.starved or view.drain)):
        return mca.decide(view)
    if view.compute_valid and view.communication_valid:
        return (COMPUTE if view.last_communication else COMMUNICATION), _LATE
    return (COMPUTE if view.compute_valid else COMMUNICATION), ALONE


RING_AWARE = Policy(
    code=3, name="ring_aware", title="ring-aware",
    description="Turns while communication is behind the GEMM, MCA while it is not: of the two the one that is behind "
                "decides when the fused kernel ends, so it must not wait for the other.",
    goes_by=(*mca.MCA.goes_by, "ring_late", "last_communication"), reasons=(*mca.MCA.reasons, _LATE),
    grants=grants, decide=decide, in_time=mca.MCA.name)
