"""Compute first, with a debt to communication that is paid in bursts."""

from . import mca
from .policy import Decision, Policy, Reason, View

_OWED = Reason("communication is owed a burst",
               loser="communication is owed a burst: compute waits until it is paid")
_COMPUTE_FIRST = Reason("compute goes first",
                        loser="compute goes first while communication is owed no burst and the producer runs")
_WORDS = {mca.STARVED: _OWED, mca.COMPUTE_FIRST: _COMPUTE_FIRST}  # what MCA says of them


def grants(view: View):
    return mca.grants(view._replace(starved=view.owed))


def decide(view: View) -> Decision:
    granted, reason = mca.decide(view._replace(starved=view.owed))
    return granted, _WORDS.get(reason, reason)


DEBT = Policy(
    code=4, name="debt", title="debt",
    description="MCA, but communication that waits is owed a request for each starvation limit that passes, and is "
                "served when it is owed as many as half of the DRAM queue holds: the link's rate on average, and "
                "one turn of the DRAM's bus for many writes.",
    goes_by=("occupancy", "threshold", "owed", "drain"),
    reasons=tuple(_WORDS.get(reason, reason) for reason in mca.MCA.reasons), grants=grants, decide=decide)
