"""The table of arbitration policies: names, codes, and the width of the policy register."""

from collections.abc import Sequence

from .compute_first import COMPUTE_FIRST
from .mca import MCA
from .policy import Policy
from .ring_aware import RING_AWARE
from .round_robin import ROUND_ROBIN

_MOST = 16  #: the register POLICY has four bits for the code


def table(policies: Sequence[Policy]) -> dict[str, Policy]:
    """Return the policies by name. Raises ValueError if codes do not count from 0, or if a name is used twice."""
    for code, policy in enumerate(policies):
        if policy.code != code:
            raise ValueError(f"policy {policy.name!r} has code {policy.code}: at its place it needs {code}")
    found = {policy.name: policy for policy in policies}
    if len(found) < len(policies) or len(policies) > _MOST:
        raise ValueError(f"{len(policies)} policies of {len(found)} names: allowed are {_MOST}, all different")
    return found


#: A new policy is a file in this folder and an entry here.
POLICIES = table((
    ROUND_ROBIN,
    COMPUTE_FIRST,
    MCA,
    RING_AWARE,
))
POLICY_BITS = max(1, (len(POLICIES) - 1).bit_length())
