"""Number of slices that a schedule needs so that the Tracker's window holds what is under way."""

from dataclasses import replace

from t3sim.collectives.schedule.schedule import Schedule


def sliced_schedule(schedule: Schedule, window: int, concurrent: int) -> Schedule:
    """Cut a schedule into the fewest slices with which slack, one and a half stages and the window fit together.

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
        slices = schedule.policy.slices + 1
        fits = schedule.slack_of(0) <= room and schedule.slack < window
        if fits or schedule.tiling.tiles < 2 * schedule.program.chunks * slices:
            return schedule
        schedule = replace(schedule, policy=replace(schedule.policy, slices=slices))
