"""Cycle-exact model of the memory channel's arbiter (T3 paper, section 4.5)."""

from typing import NamedTuple

from t3sim.rtl.arbiter import OVERTAKEN_AT, POLICIES, View


class Decision(NamedTuple):
    """Decision of the arbiter in one cycle."""

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
    """

    def __init__(self) -> None:
        self.elapsed = 0  #: cycles since communication last went, at most the starvation limit
        self.overtakes = 0  #: grants to compute that communication could have had; at most, until it has caught up
        self.last = "communication"

    def step(self, inputs: Inputs) -> Decision:
        starved = inputs.starvation_limit > 0 and self.elapsed >= inputs.starvation_limit
        overtaken = self.overtakes == OVERTAKEN_AT
        winner = None
        if inputs.ready and (inputs.compute_valid or inputs.communication_valid):
            decide = list(POLICIES.values())[inputs.policy if inputs.policy < len(POLICIES) else 0].decide
            winner, _ = decide(View(inputs.compute_valid, inputs.communication_valid, self.last == "communication",
                                    inputs.occupancy, inputs.threshold, inputs.ring_late or overtaken,
                                    starved, inputs.drain))
        if winner is not None:
            self.last = winner
        if winner == "communication":
            self.elapsed = 0
        elif self.elapsed < inputs.starvation_limit:
            self.elapsed += 1
        if not inputs.communication_waiting or (winner == "communication" and not overtaken):
            self.overtakes = 0
        elif winner == "compute" and inputs.communication_valid and not overtaken:
            self.overtakes += 1
        return Decision(int(winner == "compute"), int(winner == "communication"), int(starved))
