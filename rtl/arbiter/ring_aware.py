"""Arbitration by whether the ring is behind the GEMM: "T3-MCA+"."""

from t3sim.rtl.arbiter.policy import ALONE, COMMUNICATION, COMPUTE, COMPUTE_FIRST, DRAIN, Decision, Policy, Reason, View

_LATE = Reason("communication is behind the GEMM: the streams take turns",
               loser="communication is behind the GEMM: the streams take turns, and this one went last")


def grants(view: View):
    first = view.drain | (view.ring_late & ~view.last_communication)
    communication = view.communication_valid & (first | ~view.compute_valid)
    return view.compute_valid & ~communication, communication


def decide(view: View) -> Decision:
    if not (view.compute_valid and view.communication_valid):
        return (COMPUTE if view.compute_valid else COMMUNICATION), ALONE
    if view.drain:
        return COMMUNICATION, DRAIN
    if view.ring_late:
        return (COMPUTE if view.last_communication else COMMUNICATION), _LATE
    return COMPUTE, COMPUTE_FIRST


RING_AWARE = Policy(
    code=3, name="ring_aware", title="ring-aware",
    description="Compute first while communication keeps up with the GEMM, turns while it is behind, communication "
                "first when the producer has ended: of the two the one that is behind decides when the fused kernel "
                "ends, so it must not wait for the other. Behind is also what compute, of whichever kernel, has "
                "overtaken in the channel 3,072 times. It has neither threshold nor limit.",
    goes_by=("last_communication", "ring_late", "drain"), reasons=(ALONE, DRAIN, _LATE, COMPUTE_FIRST),
    grants=grants, decide=decide, in_drain="mca")
