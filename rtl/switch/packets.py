"""The structs that cross borders in a switch and on its links.

Every function takes the geometry and returns an `amaranth.lib.data.StructLayout`.
"""

from amaranth.lib import data, enum

from ..channel.nmc_alu import AluDtype
from ..geometry import Geometry, bits_for
from ..layouts import request


class Why(enum.Enum, shape=2):
    """Reason for which a packet leaves a merge table."""

    WHOLE = 0  #: all parts of its sum are in it
    EVICTED = 1  #: its place was needed for another sum
    EXPIRED = 2  #: no part came for too long
    ALONE = 3  #: a part that its sum cannot take: it would have too many


def sum_about(geometry: Geometry) -> data.StructLayout:
    """Lay out what a merge table keeps of a sum's last part for the Tracker that it goes to."""
    return data.StructLayout({name: shape for name, shape in request(geometry).members.items()
                              if name not in ("address", "op", "more")})


def switch_packet(geometry: Geometry) -> data.StructLayout:
    """Lay out a packet between GPUs and a switch, with its data.

    What is to be added is an UPDATE; its address is the line's, of which the lowest bits do not count. A request that
    says how many parts it has (`more`) says the same as `parts` when it leaves, and nothing before.
    """
    return data.StructLayout({
        "request": request(geometry),
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
    return data.StructLayout({"packet": switch_packet(geometry), "why": Why})


def merge_event(geometry: Geometry) -> data.StructLayout:
    """Lay out what a merge table does in a cycle: at most one of the first six."""
    return data.StructLayout({
        "begins": 1,  # a part is the first of a sum that is kept
        "joins": 1,  # a part is added to a sum, which lacks others
        "completes": 1,  # a part is the last of its sum, or all of it
        "refuses": 1,  # a part goes on alone, for its sum would have too many, or it has none
        "evicts": 1,  # a sum makes room for a part, which waits for it
        "expires": 1,  # a sum leaves because no part has come for too long
        "source": bits_for(geometry.switch.ports),  # of the part, in the first four
        "address": geometry.tracker.address_bits,  # of the part's line or, of the last two, of the sum's
    })


class SwitchError(enum.Enum, shape=3):
    """Errors of a switch. Of several in one cycle the first of these is kept, at the lowest port."""

    NONE = 0
    OVERRUN = 1  #: a packet came without a credit, and is lost
    NOWHERE = 2  #: a packet was for no port, and is gone
    EXPIRED = 3  #: a sum left before it was whole, because no part came for too long
    REFUSED = 4  #: a part left alone, for its sum would have too many
    EXCESS = 5  #: more credits came back than were spent


def switch_error(geometry: Geometry) -> data.StructLayout:
    """Lay out the first error of a switch since its reset or `clear_error`."""
    return data.StructLayout({
        "code": SwitchError,
        "port": range(geometry.switch.ports),  # of the arrival; of EXPIRED and REFUSED that of the sum
        "address": geometry.tracker.address_bits,  # 0 if it has none
    })
