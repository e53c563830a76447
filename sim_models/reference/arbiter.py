"""Cycle-exact model of the memory channel's arbiter (T3 paper, section 4.5)."""

from typing import NamedTuple

ROUND_ROBIN, COMPUTE_FIRST, MCA, RING_AWARE = range(4)
THRESHOLD_NONE = 127
WAITED_MAX = 65535


class Decision(NamedTuple):
    """What the arbiter does in one cycle."""

    grant_compute: int
    grant_communication: int
    starved: int


class ArbiterModel:
    """Call `step` once per cycle with the inputs of that cycle; it returns the outputs of the same cycle."""

    def __init__(self) -> None:
        self.waited = 0  #: cycles that communication has waited since its last grant
        self.last = "communication"

    def step(self, *, policy: int, threshold: int, starvation_limit: int, drain: int, ring_late: int,
             compute_valid: int, communication_valid: int, communication_waiting: int, ready: int,
             occupancy: int) -> Decision:
        starved = starvation_limit > 0 and self.waited >= starvation_limit
        winner = None
        if ready:
            winner = self._choose(policy, bool(compute_valid), bool(communication_valid), occupancy, threshold,
                                  starved, bool(drain), bool(ring_late))
        if winner is not None:
            self.last = winner
        if winner == "communication":
            self.waited = 0
        elif communication_waiting:
            self.waited = min(self.waited + 1, WAITED_MAX)
        return Decision(int(winner == "compute"), int(winner == "communication"), int(starved))

    def _choose(self, policy, compute, communication, occupancy, threshold, starved, drain, ring_late) -> str | None:
        if policy == RING_AWARE and not (ring_late and not starved and not drain):
            policy = MCA
        if policy == MCA:
            if communication and (starved or drain):
                return "communication"
            if compute:
                return "compute"
            if communication and (threshold == THRESHOLD_NONE or occupancy < threshold):
                return "communication"
            return None
        if compute and communication:
            if policy == COMPUTE_FIRST:
                return "compute"
            return "communication" if self.last == "compute" else "compute"
        if compute:
            return "compute"
        return "communication" if communication else None
