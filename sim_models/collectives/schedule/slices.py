"""Cut a schedule into slices so that the Tracker's window holds all ids in flight."""

from dataclasses import replace

from t3sim.collectives.schedule.schedule import Schedule


def sliced_schedule(schedule: Schedule, window: int, workgroups_at_once: int) -> Schedule:
    """Cut a schedule into the fewest slices such that slack and 1.5 stages of workgroups fit into the window.

    `window`: ids that the window holds; `workgroups_at_once`: of a GPU. A tile from a neighbour waits until this GPU
    has computed its own part, and the workgroups in flight need room in addition. Half a stage more lets early compute
    units run ahead of late ones. A GPU whose own chunk is the ragged one may have more slack than that, but less than
    the window. If no number of slices fits, each slice of a chunk keeps at least 2 tiles. Raises ScheduleError and
    TilingError.
    """
    room = slack_room(window, workgroups_at_once)
    while True:
        slices = schedule.policy.slices + 1
        fits = schedule.slack_of(0) <= room and schedule.slack < window
        if fits or schedule.tiling.tiles < 2 * schedule.program.chunks * slices:
            return schedule
        schedule = replace(schedule, policy=replace(schedule.policy, slices=slices))


def slack_room(window: float, workgroups_at_once: int) -> float:
    """Return the ids that a window has for slack beside 1.5 stages of workgroups, or half of it if it has none."""
    room = window - workgroups_at_once - workgroups_at_once // 2
    return room if room >= 1 else max(1, window // 2)
