"""Arbitration policies: what one sees, what it grants in hardware and why, and what it is called."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

THRESHOLD_BITS = 7  #: entries of the DRAM queue
THRESHOLD_NONE = 127  #: communication is never held back by the occupancy
#: Compute requests that may go before communication in a channel until communication is late there: beyond the 3,033
#: that a GEMM itself lets wait at most (T-NLG FC-2, TP 8), so that it tells other kernels' traffic from the GEMM's.
OVERTAKEN_AT = 3072

COMPUTE, COMMUNICATION = "compute", "communication"


class View(NamedTuple):
    """View of a policy in a cycle: Amaranth values in hardware, whole numbers in the model.

    It sees a request only in cycles in which it could be taken, so whatever it grants happens, provided that the
    arbiter is set to this policy.
    """

    compute_valid: Any  #: compute has a request that can be taken now
    communication_valid: Any  #: communication has a request that can be taken now
    last_communication: Any  #: the arbiter's last grant, under whichever policy, went to communication
    occupancy: Any  #: entries of the DRAM queue in use, the request on its way there included
    threshold: Any  #: entries of the DRAM queue; `THRESHOLD_NONE` is no limit
    ring_late: Any  #: communication is behind: the ring behind the GEMM, or compute has overtaken it in this channel
    starved: Any  #: communication last went the starvation limit ago, or before
    drain: Any  #: the producer kernel has ended


@dataclass(frozen=True)
class Reason:
    """Why a stream was granted, or why none was."""

    text: str
    loser: str = ""  #: why the other stream was not, where that takes other words


ALONE = Reason("the other side has no request that can go")
COMPUTE_FIRST = Reason("compute goes first")
DRAIN = Reason("the producer has ended: communication goes first")
Decision = tuple[str | None, Reason]  #: `COMPUTE`, `COMMUNICATION` or None: nothing is granted; and why


@dataclass(frozen=True)
class Policy:
    """One way to share a channel between the compute and the communication stream (T3 paper, section 4.5).

    `grants` and `decide` say the same twice, once in gates and once in plain Python; every test of the arbiter compares
    the two. Both are functions of the view alone.
    """

    code: int  #: value of the policy register
    name: str
    title: str  #: for people
    description: str
    goes_by: tuple[str, ...]  #: members of `View`, besides the requests, that can change its decision
    reasons: tuple[Reason, ...]  #: all that `decide` gives
    grants: Callable[[View], tuple[Any, Any]]  #: hardware: (grant compute, grant communication), at most one of them
    decide: Callable[[View], Decision]  #: model; called when at least one stream has a request that can be taken
    in_drain: str = ""  #: the name of the policy that grants the same once the producer has ended, if there is one

    def __post_init__(self) -> None:
        unknown = set(self.goes_by) - set(View._fields)
        if unknown:
            raise ValueError(f"policy {self.name!r} goes by {sorted(unknown)[0]!r}, which a policy does not see: "
                             f"allowed are {', '.join(View._fields)}")

    @property
    def has_threshold(self) -> bool:
        """Say whether the occupancy threshold can hold communication back."""
        return "threshold" in self.goes_by

    @property
    def ends_starvation(self) -> bool:
        """Say whether communication that last went the starvation limit ago has priority."""
        return "starved" in self.goes_by
