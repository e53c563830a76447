"""Sums with the same bits in every run: sums of 2 terms, because IEEE addition commutes.

Memory (or a switch) adds more terms in the order of their arrival and rounds in between, so that the order changes the
last bits.
"""

from t3sim.collectives import Program
from t3sim.collectives.schedule.roles import Role, roles_of

FIXED_TERMS = 2  #: most terms of a sum that does not depend on their order


def most_terms(program: Program, parts: int = 1) -> int:
    """Return the terms of the largest sum of a program; up to `FIXED_TERMS` it is the same in every run.

    A GPU's memory sums its own part, or the `parts` of workgroups that share a tile, and arriving parts. A switch that
    adds sums the arriving parts, and memory adds their sum to the GPU's own.
    """
    def terms(role: Role) -> int:
        own_terms, arriving_terms = role.contributes * parts, len(role.fed_by)
        if program.in_switch and arriving_terms > 1:
            return arriving_terms
        return role.updates if role.tracked else own_terms + arriving_terms
    return max((terms(role) for roles in roles_of(program, parts=parts) for role in roles), default=1)
