"""Why an arbiter decided as it did: its policy's own account, applied to what the arbiter saw."""

from functools import cache

import numpy as np

from t3sim.rtl.arbiter import COMMUNICATION, COMPUTE, View
from t3sim.trace.schema import POLICY_REASONS, Kind, Reason, conditions, policy_of

_REASON_CODES = {entry: code for code, entry in POLICY_REASONS.items()}
_OCCUPANCY_AT, _THRESHOLD_AT = 32, 40  #: beside the flags in a key; both have 8 bits


def give_reasons(events: np.ndarray) -> None:
    """Replace `Reason.DECIDED` in EVENT[n] by what the policy says, in place."""
    decided = np.flatnonzero((events["kind"] == Kind.DECIDE) & (events["reason"] == Reason.DECIDED))
    if not len(decided):
        return
    mine = events[decided]
    keys = (mine["flags"].astype(np.int64) | mine["a"].astype(np.int64) << _OCCUPANCY_AT
            | mine["b"].astype(np.int64) << _THRESHOLD_AT)
    different, which = np.unique(keys, return_inverse=True)
    events["reason"][decided] = np.array([_reason(key) for key in different.tolist()], np.uint8)[which]


@cache
def _reason(key: int) -> int:
    """Return the code of the policy's reason; WRONG if by its policy the arbiter should have decided otherwise."""
    flags, occupancy, threshold = key & (1 << _OCCUPANCY_AT) - 1, key >> _OCCUPANCY_AT & 255, key >> _THRESHOLD_AT
    saw, policy = conditions(flags), policy_of(flags)
    granted = COMPUTE if saw["grant_compute"] else COMMUNICATION if saw["grant_communication"] else None
    expected, reason = policy.decide(View(
        saw["compute_able"], saw["communication_able"], saw["last_communication"], occupancy, threshold,
        saw["ring_late"], saw["starved"], saw["drain"]))
    return _REASON_CODES[policy.code, reason] if granted == expected else Reason.WRONG
