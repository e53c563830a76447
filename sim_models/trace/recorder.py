"""The recorder's buffer, its filters, and what it saw last.

It looks at the models, at the ports and at the traced RTL's inner signals and changes nothing, so a recorded run gives
the results of any other.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from t3sim.base.compiled.by_reference import by_reference
from t3sim.base.compiled.jit import compiled, inlined
from t3sim.base.line import LINE_BYTES
from t3sim.cosim.traced import Probes
from t3sim.gpu.engine.state import Sim
from t3sim.gpu.fabric import bits
from t3sim.gpu.fabric.network import Network
from t3sim.trace.schema import EVENT, NO_WAVEFRONT, Kind

if TYPE_CHECKING:
    from t3sim.gpu.fabric.bits import RequestBits

CAPACITY = 1 << 18  #: events between two looks of Python's
PACKET = int(Kind.PACKET)


class Recorder(NamedTuple):
    """Buffer, filters and what was seen last."""

    events: np.ndarray  # EVENT[CAPACITY]
    count: np.ndarray  # int64 [2]: events in the buffer; events that a full buffer has cost (none, by construction)
    kinds: np.ndarray  # bool [256]
    channels: np.ndarray  # bool [channel]
    wgs: np.ndarray  # bool [name of a tile]
    packet_wgs: np.ndarray  # bool [a tile's id at the destination]
    lines: np.ndarray  # bool [device, line]: that the chosen workgroups of a collective alone read or store
    all_wgs: bool
    names: np.ndarray  # int64 [device, group of its kernel]: the tile of its (first) workgroup
    parts: np.ndarray  # int64 [device, group of its kernel]: which part of that tile, -1: all of it
    peers: np.ndarray  # int64 [device]: to which it sends
    units_send: bool  # stores for peers leave from the compute units, past the RTL
    asking: np.ndarray  # int64 [device]: group of the kernel whose workgroup asks to start
    probes: Probes
    state: np.ndarray  # int64 [device, unit]: compute units
    wg: np.ndarray
    called: np.ndarray  # int64 [device, unit]: name of its workgroup
    flight_head: np.ndarray  # int64 [port]: packets that were taken from its link
    flight_tail: np.ndarray  # int64 [port]: packets that were sent over its link
    backlog: np.ndarray  # int64 [port]: cycles until the next packet is on its link
    port_to: np.ndarray  # int64 [device, destination]: the port of what leaves for it
    planes: int  # as in `Network`
    decision: np.ndarray  # int64 [row]
    blocked: np.ndarray  # int64 [device]
    late: np.ndarray  # int64 [device]
    merged: np.ndarray  # int64 [device]: events of the switch's table that were seen
    open_banks: np.ndarray  # int64 [row]
    refreshes: np.ndarray  # int64 [row]


class Chosen(NamedTuple):
    """Choice of what to record, None for all; fields as in `Recorder`."""

    kinds: Collection[Kind] | None = None
    channels: Collection[int] | None = None
    wgs: Collection[int] | None = None
    packet_wgs: Collection[int] | None = None
    lines: np.ndarray | None = None


class Workgroups(NamedTuple):
    """Fields as in `Recorder`; `count`: how many names there are, at least as many as `names` has."""

    names: np.ndarray
    parts: np.ndarray
    peers: np.ndarray
    units_send: bool = False
    count: int = 0


def make_recorder(fields: bits.RequestBits, channels: int, units: int, probes: Probes, workgroups: Workgroups,
                  chosen: Chosen = Chosen(), network: Network | None = None) -> Recorder:
    """Make a recorder of as many devices as `workgroups` has rows, of this many channels and units each.

    `network`: the links, None: there is but one.
    """
    devices, ports = len(workgroups.names), 1 if network is None else len(network.taken)
    rows, ids = devices * channels, max(1 << fields.wg_bits, int(workgroups.names.max()) + 1, workgroups.count)

    def mask(wanted: Collection[int] | None, size: int) -> np.ndarray:
        found = np.full(size, wanted is None)
        if wanted is not None:
            found[list(wanted)] = True
        return found
    return Recorder(
        np.zeros(CAPACITY, EVENT), np.zeros(2, np.int64), mask(chosen.kinds, 256), mask(chosen.channels, channels),
        mask(chosen.wgs, ids), mask(chosen.packet_wgs, ids),
        np.zeros((devices, 0), bool) if chosen.lines is None else chosen.lines, chosen.wgs is None, *workgroups[:-1],
        np.zeros(devices, np.int64), probes,
        np.zeros((devices, units), np.int64), np.full((devices, units), -1, np.int64),
        np.full((devices, units), -1, np.int64), np.zeros(ports, np.int64),
        np.zeros(ports, np.int64), np.zeros(ports, np.int64),
        np.zeros((devices, 1 << fields.device_bits), np.int64) if network is None else network.next_port[:devices],
        1 if network is None else network.planes,
        np.full(rows, -1, np.int64),
        np.zeros(devices, np.int64), np.zeros(devices, np.int64), np.zeros(devices, np.int64),
        np.zeros(rows, np.int64), np.zeros(rows, np.int64))


def look(sim: Sim, r: Recorder) -> None:
    """Remember the models' state, so that the first recorded cycle shows changes only, and what each busy unit does."""
    units = sim.kernel.state
    r.state[:], r.wg[:] = np.where(units.wg >= 0, -1, units.state), units.wg
    for d, u in np.argwhere(units.wg >= 0):
        r.called[d, u] = r.names[d, units.group[d, u] - sim.kernel.work.first_group[d]] + units.member[d, u]
    r.flight_head[:], r.flight_tail[:] = sim.network.flight.head, sim.network.flight.tail
    r.open_banks[:], r.refreshes[:] = sim.hbm.channels["open"], sim.hbm.channels["refreshes"]
    r.decision[:], r.blocked[:], r.late[:] = -1, 0, 0
    r.merged[:] = sim.hardware.switch.happened if sim.hardware is not None and len(sim.hardware.switch.happened) else 0


@inlined
def put(r: Recorder, kind: int, now: int, device: int, unit: int, wg: int, wf: int, region: int, source: int, op: int,
        stream: int, reason: int, address: int, amount: int, a: int, b: int, c: int, flags: int) -> None:
    at = r.count[0]
    if at < len(r.events):
        e = r.events[at]
        e.cycle = now
        e.address = np.uint64(address)
        e.wg = wg
        e.amount = amount
        e.a = a
        e.b = b
        e.c = c
        e.flags = flags
        e.unit = unit
        e.kind = kind
        e.device = device
        e.wf = wf
        e.region = region
        e.source = source
        e.op = op
        e.stream = stream
        e.reason = reason
        r.count[0] = at + 1
    else:
        r.count[1] += 1


@inlined
def wanted(r: Recorder, kind: int, wg: int) -> bool:
    return r.kinds[kind] and (r.all_wgs or (wg >= 0 and r.wgs[wg]))


@inlined
def is_chosen(r: Recorder, kind: int, device: int, to: int, wg: int, address: int) -> bool:
    """Return whether a request is of a chosen workgroup; `to`: of a packet, the device where its address is."""
    if wg >= 0:
        return r.packet_wgs[wg] if kind == PACKET else r.wgs[wg]
    line, at = address // LINE_BYTES, min(to, len(r.lines) - 1) if kind == PACKET else device
    return line < r.lines.shape[1] and r.lines[at, line]


@compiled
def put_request(fields: "RequestBits", r: Recorder, kind: int, now: int, device: int, unit: int, lo: int, hi: int,
                stream: int, reason: int, a: int, at_b: int, c: int, flags: int) -> None:
    """Put an event about a request; ordinary accesses have no workgroup."""
    r = by_reference(r)
    region = bits.get(lo, hi, fields.region, fields.region_bits)
    wg = bits.get(lo, hi, fields.wg, fields.wg_bits) if region else np.int64(-1)
    if not r.all_wgs and not is_chosen(r, kind, device, a, wg, bits.address_of(lo, fields)):
        return
    wf = bits.get(lo, hi, fields.wf, fields.wf_bits) if region else np.int64(NO_WAVEFRONT)
    put(r, kind, now, device, unit, wg, wf, region, bits.get(lo, hi, fields.source, 2), bits.get(lo, hi, fields.op, 2),
        stream, reason, bits.address_of(lo, fields), bits.get(lo, hi, fields.bytes, fields.op - fields.bytes), a,
        at_b, c, flags)
