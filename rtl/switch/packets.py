"""The structs between a switch's blocks and on its links.

Every function takes the geometry and returns an `amaranth.lib.data.StructLayout`.
"""

from amaranth.lib import data, enum

from t3sim.rtl.channel.nmc_alu import AluDtype
from t3sim.rtl.geometry import Geometry, bits_for
from t3sim.rtl.layouts import request
from t3sim.rtl.order import follows
from t3sim.rtl.registers import EPOCH_BITS


class Why(enum.Enum, shape=2):
    """Why a packet leaves a merge table."""

    WHOLE = 0  #: it has all parts of its sum
    EVICTED = 1  #: its place was needed for another sum
    EXPIRED = 2  #: no part arrived for long, or its kernel is over


def sum_about(geometry: Geometry) -> data.StructLayout:
    """Lay out the metadata of a sum's last part, for the receiver's Tracker."""
    return data.StructLayout({name: shape for name, shape in request(geometry).members.items()
                              if name not in ("address", "bytes", "op", "more")})


def is_over(epoch, oldest):
    """Return whether a kernel is over, or none, when `oldest` is the first one that is not over."""
    return (epoch == 0) | ((epoch != oldest) & ~follows(epoch, oldest))


def switch_packet(geometry: Geometry) -> data.StructLayout:
    """Lay out a packet between GPUs and a switch, with its data.

    An UPDATE has bytes of one line. If requests have `more`, it equals `parts` - 1 in packets that leave, and has no
    meaning before.
    """
    return data.StructLayout({
        "request": request(geometry),
        "epoch": EPOCH_BITS,
        "dtype": AluDtype,  # of the elements of an UPDATE
        "parts": geometry.switch.part_bits,  # of an UPDATE: GPUs' parts in it; 1 as a GPU sends it
        "column": 8 * geometry.switch.packet_bytes,  # data, lowest address in the lowest bits
    })


def part_about(geometry: Geometry) -> data.StructLayout:
    return data.StructLayout({name: shape for name, shape in switch_packet(geometry).members.items()
                              if name != "column"})


def bound_packet(geometry: Geometry) -> data.StructLayout:
    """Lay out a packet on its way to a switch, with a mask of destination ports."""
    return data.StructLayout({"packet": switch_packet(geometry), "to": geometry.switch.ports})


def merged_packet(geometry: Geometry) -> data.StructLayout:
    return data.StructLayout({"packet": switch_packet(geometry), "why": Why,
                              "sources": geometry.switch.ports})  # of its parts


def merge_event(geometry: Geometry) -> data.StructLayout:
    """Lay out the events of a merge table in a cycle: at most one of the first six."""
    return data.StructLayout({
        "begins": 1,  # a part begins a sum that is kept
        "joins": 1,  # a part is added to a sum that lacks others
        "completes": 1,  # a part is the last of its sum, or the only one
        "refuses": 1,  # a part is dropped: its source has one in the sum, or it is not one that a GPU sends
        "evicts": 1,  # a sum leaves to make room for a waiting part
        "expires": 1,  # an overdue sum leaves, or its kernel is over
        "repeats": 1,  # with `refuses`: the source has a part in the sum
        "source": bits_for(geometry.switch.ports),  # of the part
        "address": geometry.tracker.address_bits,  # of the part, or of the sum that leaves
    })


class SwitchError(enum.Enum, shape=4):
    """Errors of a switch. Of several in one cycle the first in this list is kept, at the lowest port."""

    NONE = 0
    OVERRUN = 1  #: a packet arrived without a credit and is lost
    NOWHERE = 2  #: a packet was for no port and is dropped
    REFUSED = 3  #: a part is not one GPU's, has no bytes or exceeds its line; it is dropped
    REPEATED = 4  #: a source's second part of a sum; it is dropped
    STALE = 5  #: a packet of a kernel that is over, or of none, was dropped
    EXCESS = 6  #: more credits returned than were spent
    SETTING = 7  #: a register was written with an illegal value and keeps its old one


def switch_error(geometry: Geometry) -> data.StructLayout:
    return data.StructLayout({
        "code": SwitchError,
        "port": bits_for(geometry.switch.ports),  # of OVERRUN and NOWHERE the sender's, else the output's
        "source": bits_for(geometry.switch.ports),  # of the packet; 0 if unknown
        "epoch": EPOCH_BITS,  # of its kernel; 0 if unknown
        "address": geometry.tracker.address_bits,  # the packet's; of SETTING the register's
    })
