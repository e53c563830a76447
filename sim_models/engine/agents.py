"""Agent protocol: a kernel that runs on a GPU is to the loop a named tuple with these methods (see `by_type`)."""

from ..compiled.by_type import by_type


@by_type
def cycle(agent, sim, hardware, device, now):
    """Act in cycle `now`."""


@by_type
def returned(agent, sim, device, tag, now):
    """Take a read that came back; `tag` is what it was sent with."""


@by_type
def done(agent, sim, device):
    """Return whether the agent has done all that it was to do."""
    return True


@by_type
def progress(agent, device):
    """Return a number that changes as long as the agent gets on."""
    return 0
