"""A command of a queue in memory, as software writes it."""

from enum import IntEnum
from typing import NamedTuple


class CommandOp(IntEnum):
    """What a command does, as `t3sim.rtl.layouts.QueueOp`."""

    COPY = 0
    POLL = 1
    SIGNAL = 2
    TIMESTAMP = 3
    ADD = 4


class Command(NamedTuple):
    """Fields of `t3sim.rtl.layouts.queue_command`."""

    value: int
    op: int  #: of `CommandOp`
    address: int
    region: int
    wf: int
    wg: int
