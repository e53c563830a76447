"""How many slices a schedule needs so that the Tracker's window holds what is under way."""

from dataclasses import replace

from ..collectives import Program
from ..operators.tiling import Tiling
from ..topologies import Topology
from .roles import Policy
from .schedule import Schedule


def sliced_schedule(tiling: Tiling, program: Program, topology: Topology, policy: Policy, window: int,
                    concurrent: int) -> Schedule:
    """Build the schedule with the fewest slices with which slack, one and a half stages and the window fit together.

    `window` and `concurrent`: ids that the window holds, workgroups that a device runs at once. A tile that a neighbour
    has sent waits until this device has made its own part; the workgroups in flight need room beside it. Half a stage
    more lets early compute units run ahead of late ones. A device whose own chunk is the ragged one may have more slack
    than that, but never as much as the window. If no number of slices fits, as many are made as leave two tiles for
    each. Raises ScheduleError and TilingError.
    """
    room = window - concurrent - concurrent // 2
    if room < 1:
        room = max(1, window // 2)
    while True:
        schedule = Schedule(tiling, program, topology, policy)
        fits = schedule.slack_of(0) <= room and schedule.slack < window
        if fits or tiling.tiles < 2 * program.chunks * (policy.slices + 1):
            return schedule
        policy = replace(policy, slices=policy.slices + 1)
