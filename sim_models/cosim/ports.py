"""Places of the RTL's ports in its input and output words."""

from typing import NamedTuple

import numpy as np

NONE = -1  #: of a port that this geometry has not
KERNEL = 1  #: number of the kernel that GPUs run


class Ports(NamedTuple):
    """Word offsets of the RTL's ports in its input and output arrays; arrays are per channel or per lane."""

    compute_valid: np.ndarray
    compute: np.ndarray
    inbound_valid: np.ndarray
    inbound: np.ndarray
    dram_ready: np.ndarray
    occupancy: np.ndarray
    retirement: np.ndarray  # valid is bit 0, bucket above
    outbound_valid: np.ndarray
    outbound: np.ndarray
    packet_ready: np.ndarray
    dispatch_valid: int
    dispatch: int
    start: int
    ask_valid: int  # with a ready table, else NONE
    ask: int
    head_ready: int
    heard_valid: int
    heard: int
    event_ready: int
    producer_active: int
    compute_ready: np.ndarray  # outputs from here on
    inbound_ready: np.ndarray
    dram_valid: np.ndarray
    dram: np.ndarray
    outbound_ready: np.ndarray
    packet_valid: np.ndarray
    packet: np.ndarray
    dispatch_ready: int
    ask_ready: int
    grant: int  # valid is bit 0, id above
    blocked: int
    head: int
    peer_head: np.ndarray  # per peer, as far as it is known here
    head_valid: int
    head_packet: int
    event_valid: int
    event: int
    event_wf_lsb: int
    event_wg_lsb: int
    refused: int  # a bit per channel, 64 to a word: what it took in the cycle before was refused


class SwitchPorts(NamedTuple):
    """First words of the RTL's ports, [GPU], and lowest bits of what lies in them."""

    arriving: np.ndarray
    words: int  # of one of those
    leaving: np.ndarray
    returned: np.ndarray
    taken: np.ndarray
    happened: np.ndarray
    holds: np.ndarray
    request: int  # in `arriving`; `valid` is the lowest bit of both
    epoch: int
    dtype: int
    parts: int
    column: int
    to: int
    whole: int  # in `leaving`: the request
    data: int  # in `leaving`: the column
    source: int  # in `happened`
    source_bits: int
    address: int
