"""Collectives in a switch that adds and copies (T3 paper, section 7.4): direct ones, of which it carries less.

The parts of a sum that come from other ranks leave the switch as one, and what goes to all others enters it once.
"""

from dataclasses import replace

from t3sim.collectives import direct
from t3sim.collectives.program import Program
from t3sim.machine.topologies import Alike


def reduce_scatter(ranks: int, alike: Alike | None = None) -> Program:
    """Build the reduce-scatter: the switch sums the others' parts of chunk c, and rank c adds the sum to its own."""
    return replace(direct.reduce_scatter(ranks, alike), in_switch=True)


def all_gather(ranks: int, alike: Alike | None = None) -> Program:
    """Build the all-gather: rank c sends chunk c once, and the switch copies it to everybody else."""
    return replace(direct.all_gather(ranks, alike), in_switch=True)
