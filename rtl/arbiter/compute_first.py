"""Strict priority for compute."""

from t3sim.rtl.arbiter.policy import ALONE, COMMUNICATION, COMPUTE, Decision, Policy, View
from t3sim.rtl.arbiter.policy import COMPUTE_FIRST as FIRST


def grants(view: View):
    return view.compute_valid, view.communication_valid & ~view.compute_valid


def decide(view: View) -> Decision:
    if view.compute_valid:
        return COMPUTE, FIRST if view.communication_valid else ALONE
    return COMMUNICATION, ALONE


COMPUTE_FIRST = Policy(
    code=1, name="compute_first", title="compute first",
    description="Communication goes only when compute is empty: the paper's \"insufficient\" alternative (T3 paper, "
                "section 4.5).",
    goes_by=(), reasons=(ALONE, FIRST), grants=grants, decide=decide)
