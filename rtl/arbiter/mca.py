"""Communication-aware arbitration: "T3-MCA"."""

from t3sim.rtl.arbiter.policy import (
    ALONE,
    COMMUNICATION,
    COMPUTE,
    DRAIN,
    THRESHOLD_NONE,
    Decision,
    Policy,
    Reason,
    View,
)

_STARVED = Reason("communication last went the starvation limit ago")
_COMPUTE_FIRST = Reason("compute goes first",
                        loser="compute goes first while communication is not starved and the producer runs")
_NO_THRESHOLD = Reason("compute is empty and no threshold is set")
_BELOW = Reason("compute is empty and the DRAM queue is below the threshold")
_OCCUPANCY = Reason("the DRAM queue is not below the threshold")


def grants(view: View):
    below = (view.threshold == THRESHOLD_NONE) | (view.occupancy < view.threshold)
    communication = view.communication_valid & (view.starved | view.drain | (~view.compute_valid & below))
    return view.compute_valid & ~communication, communication


def decide(view: View) -> Decision:
    if view.communication_valid and view.starved:
        return COMMUNICATION, _STARVED
    if view.communication_valid and view.drain:
        return COMMUNICATION, DRAIN
    if view.compute_valid:
        return COMPUTE, _COMPUTE_FIRST if view.communication_valid else ALONE
    if view.threshold == THRESHOLD_NONE:
        return COMMUNICATION, _NO_THRESHOLD
    if view.occupancy < view.threshold:
        return COMMUNICATION, _BELOW
    return None, _OCCUPANCY


MCA = Policy(
    code=2, name="mca", title="MCA",
    description="Compute first; communication if compute is empty and the DRAM queue is below the threshold. When "
                "communication is starved, or when the producer has ended, it has priority and the threshold does not "
                "count (T3 paper, section 4.5).",
    goes_by=("occupancy", "threshold", "starved", "drain"),
    reasons=(ALONE, _STARVED, DRAIN, _COMPUTE_FIRST, _NO_THRESHOLD, _BELOW, _OCCUPANCY), grants=grants, decide=decide)
