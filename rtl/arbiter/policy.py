"""What an arbitration policy sees and decides."""

from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..geometry import Geometry

THRESHOLD_BITS = 7  #: entries of the DRAM queue
THRESHOLD_NONE = 127  #: communication is never held back by the occupancy


class Policy(wiring.Component):
    """One way to share a channel between the compute and the communication stream (T3 paper, section 4.5).

    A policy is a function of the members below. It sees a request only in cycles in which it could be
    taken, so whatever it grants happens, provided that the arbiter is set to this policy.
    It grants at most one stream, and only one that requests.

    Members
    -------
    compute_valid, communication_valid : In(1)
        The stream has a request that can be taken now.
    last_communication : In(1)
        The arbiter's last grant, under whichever policy, went to communication.
    occupancy : In(occupancy_bits + 1)
        Entries of the DRAM queue in use, the request on its way there included.
    threshold : In(7)
        Entries; 127 is no limit.
    ring_late : In(1)
        The ring is behind the GEMM.
    starved : In(1)
        Communication has waited for the starvation limit.
    drain : In(1)
        The producer kernel has ended.
    grant_compute, grant_communication : Out(1)
    """

    def __init__(self, geometry: Geometry) -> None:
        super().__init__({
            "compute_valid": In(1),
            "communication_valid": In(1),
            "last_communication": In(1),
            "occupancy": In(geometry.channel.occupancy_bits + 1),
            "threshold": In(THRESHOLD_BITS),
            "ring_late": In(1),
            "starved": In(1),
            "drain": In(1),
            "grant_compute": Out(1),
            "grant_communication": Out(1),
        })
