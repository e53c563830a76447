"""Facts of simulated GPUs, and records that a run gives them before they are made, without compiled code."""

from typing import NamedTuple

QUEUE_DEPTH = 64  #: requests that fit between a GPU and one memory channel, per stream
MISS_REGISTERS = 16384  #: of a GPU's cache
BLOCK_BYTES = 4096  #: that a copy engine moves at a time
#: What the workgroup in a place is doing.
STATES = ("idle", "blocked", "launch", "poll", "load", "compute", "store_memory", "store_link")
#: Under which time is accounted for: the last is of whatever a workgroup does that adds what came, but polling.
ACCOUNTS = (*STATES, "adding")


class Condition(NamedTuple):
    """Condition of one GPU's compute units, where they are not the machine's."""

    working_units: int  # the others never get a workgroup
    clock_share: float  # of the machine's clock, for the units, their ports and the cache


class CopyTarget(NamedTuple):
    """A GPU to which a packet for a group is copied, and what it says there in addition."""

    gpu: int
    address_offset: int
    id_offset: int
