"""Commands of a queue in memory (DMA collectives paper, section 4.1): plain facts for hardware, driver and models."""

from typing import NamedTuple

COPY = 0  #: the block at `address`, of `region`, to one GPU or, if that names another region, to several
POLL = 1  #: go on when memory holds `value` at `address`
SIGNAL = 2  #: write `value` to `address` when what was copied before has left
TIMESTAMP = 3  #: as SIGNAL, with the cycle counter
ADD = 4  #: as SIGNAL; memory adds `value` to what it holds


class Command(NamedTuple):
    """Fields of `t3sim.rtl.layouts.queue_command`."""

    value: int
    op: int
    address: int
    region: int = 0
    wf: int = 0
    wg: int = 0
