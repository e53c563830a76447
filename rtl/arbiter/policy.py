"""An arbitration policy: its view, its grants in hardware, its reasons and its name."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

THRESHOLD_BITS = 7  #: entries of the DRAM queue
THRESHOLD_NONE = 127  #: the occupancy never holds communication back
#: Compute requests that overtake communication in a channel until communication is late there. A GEMM alone reaches at
#: most 3,033 (T-NLG FC-2, TP 8), so a larger number tells other kernels' traffic from the GEMM's.
OVERTAKEN_AT = 3072

COMPUTE, COMMUNICATION = "compute", "communication"


class View(NamedTuple):
    """A policy's inputs in a cycle: Amaranth values in hardware, integers in the model.

    A request is valid only in cycles in which it can be taken, so each grant is effective while this policy is
    selected.
    """

    compute_valid: Any  #: its request can be taken now
    communication_valid: Any  #: its request can be taken now
    last_communication: Any  #: the arbiter's last grant, under any policy, was communication
    occupancy: Any  #: entries of the DRAM queue in use, including the request on its way there
    threshold: Any  #: entries of the DRAM queue; `THRESHOLD_NONE` is no limit
    ring_late: Any  #: the ring is behind the GEMM, or compute has overtaken communication in this channel
    starved: Any  #: the last grant to communication is at least the starvation limit ago
    drain: Any  #: the producer kernel has ended


@dataclass(frozen=True)
class Reason:
    """Why a stream was granted, or why none was."""

    text: str
    loser: str = ""  #: why the other stream was not granted, if that needs other words


ALONE = Reason("the other side has no request that can go")
COMPUTE_FIRST = Reason("compute goes first")
DRAIN = Reason("the producer has ended: communication goes first")
Decision = tuple[str | None, Reason]  #: `COMPUTE`, `COMMUNICATION` or None for no grant; and why


@dataclass(frozen=True)
class Policy:
    """One way to share a channel between the compute and the communication stream (T3 paper, section 4.5).

    `grants` and `decide` are the same function of the view, in gates and in plain Python; every test of the arbiter
    compares them.
    """

    code: int  #: value of the policy register
    name: str
    title: str  #: shown to users
    description: str
    goes_by: tuple[str, ...]  #: members of `View`, except the requests, that can change its decision
    reasons: tuple[Reason, ...]  #: all that `decide` returns
    grants: Callable[[View], tuple[Any, Any]]  #: hardware: (grant compute, grant communication), at most one
    decide: Callable[[View], Decision]  #: model; called if at least one request can be taken
    in_drain: str = ""  #: name of a policy that grants the same once the producer has ended

    def __post_init__(self) -> None:
        unknown = set(self.goes_by) - set(View._fields)
        if unknown:
            raise ValueError(f"policy {self.name!r} goes by {sorted(unknown)[0]!r}, which a policy does not see: "
                             f"allowed are {', '.join(View._fields)}")

    @property
    def has_threshold(self) -> bool:
        """Return whether the occupancy threshold can hold communication back."""
        return "threshold" in self.goes_by

    @property
    def ends_starvation(self) -> bool:
        """Return whether starved communication has priority."""
        return "starved" in self.goes_by
