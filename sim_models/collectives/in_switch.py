"""Direct collectives in a switch that adds and copies (T3 paper, section 7.4), which reduces the traffic on links.

The parts of a sum from other ranks leave the switch as one sum, and a chunk for all other ranks enters it once.
"""

from dataclasses import replace

from t3sim.collectives import direct
from t3sim.collectives.program import Program
from t3sim.machine.topologies import Alike


def reduce_scatter(ranks: int, alike: Alike | None = None) -> Program:
    """Build the reduce-scatter: the switch sums the other ranks' parts of chunk c, and rank c adds its own part."""
    return replace(direct.reduce_scatter(ranks, alike), in_switch=True)


def all_gather(ranks: int, alike: Alike | None = None) -> Program:
    """Build the all-gather: rank c sends chunk c once, and the switch copies it to all other ranks."""
    return replace(direct.all_gather(ranks, alike), in_switch=True)
