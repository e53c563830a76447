"""What a run says of its GPUs and switches before they are made: plain records, without compiled code."""

from typing import NamedTuple


class Condition(NamedTuple):
    """Condition of one GPU's compute units, where they are not the machine's."""

    working_units: int  # the others never get a workgroup
    clock_share: float  # of the machine's clock, for the units, their ports and the cache


class CopyTarget(NamedTuple):
    """A GPU to which a packet for a group is copied, and what it says there in addition."""

    device: int
    address_offset: int
    id_offset: int
