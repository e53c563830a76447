"""Commands of a queue in memory (DMA collectives paper, section 4.1). Plain facts for hardware, driver and models."""

from typing import NamedTuple

COPY = 0  #: send the block at `address` on the routes of `region`
POLL = 1  #: wait until memory holds `value` at `address`
SIGNAL = 2  #: write `value` to `address` when all earlier copies have left
TIMESTAMP = 3  #: like SIGNAL, but write the cycle counter
ADD = 4  #: like SIGNAL, but memory adds `value`


class Command(NamedTuple):
    """Fields of `t3sim.rtl.layouts.queue_command`."""

    value: int
    op: int
    address: int
    region: int = 0
    wf: int = 0
    wg: int = 0
