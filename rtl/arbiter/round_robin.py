"""Round robin: the arbitration of "T3" without MCA."""

from t3sim.rtl.arbiter.policy import ALONE, COMMUNICATION, COMPUTE, Decision, Policy, Reason, View

_TURN = Reason("round robin: the other stream went last", loser="round robin: this stream went last")


def grants(view: View):
    return (view.compute_valid & (view.last_communication | ~view.communication_valid),
            view.communication_valid & ~(view.last_communication & view.compute_valid))


def decide(view: View) -> Decision:
    if view.compute_valid and view.communication_valid:
        return (COMPUTE if view.last_communication else COMMUNICATION), _TURN
    return (COMPUTE if view.compute_valid else COMMUNICATION), ALONE


ROUND_ROBIN = Policy(
    code=0, name="round_robin", title="round robin",
    description="The streams alternate; if one is empty the other has the channel (T3 paper, section 4.5).",
    goes_by=("last_communication",), reasons=(ALONE, _TURN), grants=grants, decide=decide)
