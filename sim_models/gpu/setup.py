"""Constants of simulated GPUs, and records from which a run builds them; imports no compiled code."""

from typing import NamedTuple

QUEUE_DEPTH = 64  #: requests that fit between a GPU and one memory channel, per stream
MISS_REGISTERS = 16384  #: of a GPU's cache
BLOCK_BYTES = 4096  #: that a copy engine moves at a time
#: States of a place's workgroup.
STATES = ("idle", "blocked", "launch", "poll", "load", "compute", "store_memory", "store_link")
#: States by which time is counted; the last is all time of workgroups that add arrived parts, except polling.
ACCOUNTS = (*STATES, "adding")


class Condition(NamedTuple):
    """Condition of one GPU's compute units, if they differ from the machine's."""

    working_units: int  # the others never get a workgroup
    clock_share: float  # of the machine's clock, for the units, their ports and the cache


class CopyTarget(NamedTuple):
    """A GPU to which a packet for a group is copied, and the offsets that the copy adds."""

    gpu: int
    address_offset: int
    id_offset: int
