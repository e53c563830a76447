"""Cycle-exact model of the memory channel's arbiter (T3 paper, section 4.5)."""

from typing import NamedTuple

from t3sim.rtl.arbiter import POLICIES, View

WAITED_MAX = 65535


class Decision(NamedTuple):
    """What the arbiter does in one cycle."""

    grant_compute: int
    grant_communication: int
    starved: int


class Inputs(NamedTuple):
    """The inputs of an arbiter in a cycle, named like its ports."""

    policy: int
    threshold: int
    starvation_limit: int
    drain: int
    ring_late: int
    compute_valid: int
    communication_valid: int
    communication_waiting: int
    ready: int
    occupancy: int


class ArbiterModel:
    """Call `step` once per cycle with the inputs of that cycle; it returns the outputs of the same cycle.

    What a policy decides is in its record, in plain Python beside its gates; here is the state that they share.
    `burst`: requests that communication is owed when it is served (`ChannelGeometry.burst`).
    """

    def __init__(self, burst: int) -> None:
        self.waited = 0  #: cycles that communication has waited since its last grant
        self.last = "communication"
        self._burst, self._most_owed = burst, (1 << (2 * burst - 1).bit_length()) - 1
        self._period = self._debt = 0
        self._paying = False

    def step(self, inputs: Inputs) -> Decision:
        starved = inputs.starvation_limit > 0 and self.waited >= inputs.starvation_limit
        owed = self._debt >= self._burst or (self._paying and self._debt > 0)
        winner = None
        if inputs.ready and (inputs.compute_valid or inputs.communication_valid):
            decide = list(POLICIES.values())[inputs.policy if inputs.policy < len(POLICIES) else 0].decide
            winner, _ = decide(View(inputs.compute_valid, inputs.communication_valid, self.last == "communication",
                                    inputs.occupancy, inputs.threshold, inputs.ring_late, starved, owed, inputs.drain))
        if winner is not None:
            self.last = winner
        if winner == "communication":
            self.waited = 0
        elif inputs.communication_waiting:
            self.waited = min(self.waited + 1, WAITED_MAX)
        self._account(inputs, winner == "communication", owed)
        return Decision(int(winner == "compute"), int(winner == "communication"), int(starved))

    def _account(self, inputs: Inputs, served: bool, owed: bool) -> None:
        """Let the debt grow and shrink."""
        grows = False
        if inputs.communication_waiting:
            self._period += 1
            if self._period >= inputs.starvation_limit:
                self._period, grows = 0, inputs.starvation_limit > 0
        self._debt = min(max(self._debt + grows - served, 0), self._most_owed)
        self._paying = owed
