"""The structs that cross borders in a switch and on its links.

Every function takes the geometry and returns an `amaranth.lib.data.StructLayout`.
"""

from amaranth.lib import data, enum

from t3sim.rtl.channel.nmc_alu import AluDtype
from t3sim.rtl.geometry import Geometry, bits_for
from t3sim.rtl.layouts import request
from t3sim.rtl.order import follows
from t3sim.rtl.registers import EPOCH_BITS


class Why(enum.Enum, shape=2):
    """Reason for which a packet leaves a merge table."""

    WHOLE = 0  #: all parts of its sum are in it
    EVICTED = 1  #: its place was needed for another sum
    EXPIRED = 2  #: no part came for long, or its kernel is over


def sum_about(geometry: Geometry) -> data.StructLayout:
    """Lay out what a merge table keeps of a sum's last part for the Tracker that it goes to."""
    return data.StructLayout({name: shape for name, shape in request(geometry).members.items()
                              if name not in ("address", "bytes", "op", "more")})


def is_over(epoch, oldest):
    """Return whether a kernel is over when `oldest` is the first one that is not, or is none."""
    return (epoch == 0) | ((epoch != oldest) & ~follows(epoch, oldest))


def switch_packet(geometry: Geometry) -> data.StructLayout:
    """Lay out a packet between GPUs and a switch, with its data.

    What is to be added is an UPDATE of bytes that lie in one line. A request that says how many parts it has (`more`)
    says the same as `parts` when it leaves, and nothing before.
    """
    return data.StructLayout({
        "request": request(geometry),
        "epoch": EPOCH_BITS,  # number of the sender's kernel
        "dtype": AluDtype,  # of the elements of an UPDATE
        "parts": geometry.switch.part_bits,  # of an UPDATE: GPUs' parts that are in it, 1 as a GPU sends it
        "column": 8 * geometry.switch.packet_bytes,  # the data, lowest address in the lowest bits
    })


def part_about(geometry: Geometry) -> data.StructLayout:
    """Lay out all of a packet but its data."""
    return data.StructLayout({name: shape for name, shape in switch_packet(geometry).members.items()
                              if name != "column"})


def bound_packet(geometry: Geometry) -> data.StructLayout:
    """Lay out a packet on its way to a switch: `to` has a bit for each port that it is for."""
    return data.StructLayout({"packet": switch_packet(geometry), "to": geometry.switch.ports})


def merged_packet(geometry: Geometry) -> data.StructLayout:
    """Lay out what leaves a merge table."""
    return data.StructLayout({"packet": switch_packet(geometry), "why": Why,
                              "sources": geometry.switch.ports})  # whose parts are in it


def merge_event(geometry: Geometry) -> data.StructLayout:
    """Lay out what a merge table does in a cycle: at most one of the first six."""
    return data.StructLayout({
        "begins": 1,  # a part is the first of a sum that is kept
        "joins": 1,  # a part is added to a sum, which lacks others
        "completes": 1,  # a part is the last of its sum, or all of it
        "refuses": 1,  # a part goes nowhere: its source has one in the sum, or it is none that a GPU sends
        "evicts": 1,  # a sum makes room for a part, which waits for it
        "expires": 1,  # a sum leaves because no part has come for long, or its kernel is over
        "repeats": 1,  # with `refuses`: the source has a part in the sum
        "source": bits_for(geometry.switch.ports),  # of the part, in the first four
        "address": geometry.tracker.address_bits,  # of the part or, of `evicts` and `expires`, of the sum
    })


class SwitchError(enum.Enum, shape=4):
    """Errors of a switch. Of several in one cycle the first of these is kept, at the lowest port."""

    NONE = 0
    OVERRUN = 1  #: a packet came without a credit, and is lost
    NOWHERE = 2  #: a packet was for no port, and is gone
    REFUSED = 3  #: a part that is not one GPU's, has no bytes or leaves its line; it is gone
    REPEATED = 4  #: a second part of a source for a sum; it is gone
    STALE = 5  #: a packet of a kernel that is over, or of none, did not leave
    EXCESS = 6  #: more credits came back than were spent
    SETTING = 7  #: a register was written with what it cannot have; it keeps what it held


def switch_error(geometry: Geometry) -> data.StructLayout:
    """Lay out an error of a switch."""
    return data.StructLayout({
        "code": SwitchError,
        "port": bits_for(geometry.switch.ports),  # where: of the first two the sender's, else that of the way out
        "source": bits_for(geometry.switch.ports),  # whose packet; 0 if that is not known
        "epoch": EPOCH_BITS,  # of its kernel, in the same way
        "address": geometry.tracker.address_bits,  # the packet's; of SETTING the register's
    })
