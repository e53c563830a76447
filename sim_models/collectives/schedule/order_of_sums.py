"""Which sums have the same bits in every run: a sum of two terms, as IEEE addition commutes.

Of more terms, memory (or a switch) adds each as it comes, and rounds in between: who is late changes the last bits.
"""

from t3sim.collectives import Program
from t3sim.collectives.schedule.roles import Role, roles_of

FIXED_TERMS = 2  #: of a sum that does not depend on which comes first


def most_terms(program: Program, parts: int = 1) -> int:
    """Return the terms of the largest sum of a program; up to `FIXED_TERMS` it is the same in every run.

    A GPU's memory sums its own part, or the `parts` of as many workgroups that make a tile together, and what arrives.
    A switch that adds sums what arrives, and memory adds that to the GPU's own.
    """
    def terms(role: Role) -> int:
        own, arriving = role.contributes * parts, len(role.fed_by)
        if program.in_switch and arriving > 1:
            return arriving
        return role.updates if role.tracked else own + arriving
    return max((terms(role) for roles in roles_of(program, parts=parts) for role in roles), default=1)
