"""The table of arbitration policies: names, codes, and the width of the policy register."""

import re
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import EntryPoint, distributions, entry_points

from t3sim.rtl.arbiter.compute_first import COMPUTE_FIRST
from t3sim.rtl.arbiter.mca import MCA
from t3sim.rtl.arbiter.policy import Policy
from t3sim.rtl.arbiter.ring_aware import RING_AWARE
from t3sim.rtl.arbiter.round_robin import ROUND_ROBIN

_MOST = 16  #: the register POLICY has 4 bits for the code
GROUP = "t3sim.policies"  #: entry points of other distributions' policies


class EntryPointError(ValueError):
    """Another distribution's entry points cannot be read, or its policy cannot be loaded."""


def table(policies: Sequence[Policy]) -> dict[str, Policy]:
    """Return the policies by name. Raises ValueError if codes do not count from 0 or a name repeats."""
    for code, policy in enumerate(policies):
        if policy.code != code:
            raise ValueError(f"policy {policy.name!r} has code {policy.code}: at its place it needs {code}")
    found = {policy.name: policy for policy in policies}
    if len(found) < len(policies) or len(policies) > _MOST:
        raise ValueError(f"{len(policies)} policies of {len(found)} names: allowed are {_MOST}, all different")
    return found


#: A new policy is a file in this folder and an entry here.
_OWN = (
    ROUND_ROBIN,
    COMPUTE_FIRST,
    MCA,
    RING_AWARE,
)


def points_of(group: str) -> list[EntryPoint]:
    """List a group's entry points by name. Raises EntryPointError for an unreadable file or a malformed value."""
    try:
        found = sorted(entry_points(group=group))
    except Exception as error:
        for one in distributions():
            try:
                tuple(one.entry_points)
            except Exception:
                raise EntryPointError(f"{one.locate_file('')}: entry_points.txt of {one.name} cannot be read: "
                                      f"{type(error).__name__}") from None
        raise EntryPointError(f"entry points cannot be read: {type(error).__name__}") from None
    for point in found:
        if not re.fullmatch(r"\w+(\.\w+)*\s*:\s*[^\W\d]\w*", point.value):
            raise EntryPointError(f"entry point {point.name} of {group} = {point.value[:80]!r}: MODULE:NAME is needed")
    return found


def installed(own: Sequence[Policy]) -> tuple[Policy, ...]:
    """Load other distributions' policies, with codes in the order of their names. Raises EntryPointError."""
    found, taken = [], {policy.name for policy in own}
    for point in points_of(GROUP):
        if point.name in taken:
            continue
        try:
            policy = replace(point.load(), code=len(own) + len(found))
            if policy.name != point.name:
                raise ValueError(f"its name is {policy.name!r}")
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # also SystemExit
            try:
                said = f": {' '.join(str(error).split())[:200]}"
            except Exception:
                said = ""
            raise EntryPointError(f"entry point {point.name} of {GROUP} ({point.value}) is no policy: "
                                  f"{type(error).__name__}{said}") from None
        found.append(policy)
        taken.add(point.name)
    if len(own) + len(found) > _MOST:
        raise EntryPointError(f"{len(found)} policies of {GROUP} are too many: {_MOST - len(own)} are possible")
    return tuple(found)


INSTALLED = installed(_OWN)  #: also in hardware, so compiled designs depend on the set
POLICIES = table((*_OWN, *INSTALLED))
POLICY_BITS = max(1, (len(POLICIES) - 1).bit_length())
