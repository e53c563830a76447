"""The recorder's buffer, its filters, and what it saw last.

It looks at the models, at the ports and at the traced RTL's inner signals and changes nothing, so a recorded run gives
the results of any other.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from t3sim.base.compiled.by_reference import by_reference
from t3sim.base.compiled.jit import compiled, inlined
from t3sim.base.errors import BadInput
from t3sim.base.line import LINE_BYTES
from t3sim.cosim.traced import Probes
from t3sim.gpu.fabric import bits
from t3sim.gpu.fabric.state import Network
from t3sim.gpu.state import Sim
from t3sim.trace.schema import EVENT, NO_STREAM, NO_WAVEFRONT, Kind

CAPACITY = 1 << 18  #: events between two looks of Python's; the buffer has one more, which nobody reads
PACKET = int(Kind.PACKET)


class Recorder(NamedTuple):
    """Buffer, filters and what was seen last."""

    events: np.ndarray  # EVENT[CAPACITY + 1]
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


@dataclass(frozen=True)
class Filter:
    """Choice of what is recorded; None: all."""

    first: int = 0  #: cycles
    end: int | None = None
    kinds: frozenset[Kind] | None = None
    channels: frozenset[int] | None = None
    wgs: frozenset[int] | None = None
    limit: int = 5_000_000  #: events

    def check(self, channels: int, names: int) -> None:
        if self.end is not None and self.end <= self.first:
            raise BadInput(f"a window until cycle {self.end} is not after its first, {self.first}")
        for what, chosen, size in (("channel", self.channels, channels), ("workgroup", self.wgs, names)):
            for value in sorted(chosen or ()):
                if not 0 <= value < size:
                    raise BadInput(f"{what} {value} does not exist: this run has 0 to {size - 1}")

    def to_json(self) -> dict:
        return {
            "kinds": sorted(kind.name.lower() for kind in self.kinds) if self.kinds is not None else None,
            "channels": sorted(self.channels) if self.channels is not None else None,
            "wgs": sorted(self.wgs) if self.wgs is not None else None,
        }


class Subject(NamedTuple):
    """What a recorder must know of its run. Fields as in `Recorder`, where nothing else is said."""

    names: np.ndarray
    parts: np.ndarray
    peers: np.ndarray
    units_send: bool = False
    count: int = 0  #: how many names there are, at least as many as `names` has
    packet_wgs: Collection[int] | None = None  #: None: all
    lines: np.ndarray | None = None
    senders: Sequence[np.ndarray] = ()  #: each device's names of tiles whose stores leave for a peer: `senders`


def make_recorder(fields: bits.RequestBits, channels: int, units: int, probes: Probes, subject: Subject,
                  selection: Filter = Filter(), network: Network | None = None) -> Recorder:
    """Make a recorder of as many devices as the subject's names have rows, of this many channels and units each.

    `network`: the links, None: there is but one.
    """
    devices, ports = len(subject.names), 1 if network is None else len(network.taken)
    rows, ids = devices * channels, max(1 << fields.wg_bits, int(subject.names.max()) + 1, subject.count)

    def mask(chosen: Collection[int] | None, size: int) -> np.ndarray:
        is_chosen = np.full(size, chosen is None)
        if chosen is not None:
            is_chosen[list(chosen)] = True
        return is_chosen

    def zeros(*shape: int) -> np.ndarray:
        return np.zeros(shape, np.int64)
    return Recorder(
        events=np.zeros(CAPACITY + 1, EVENT), count=zeros(2), kinds=mask(selection.kinds, 256),
        channels=mask(selection.channels, channels), wgs=mask(selection.wgs, ids),
        packet_wgs=mask(subject.packet_wgs, ids),
        lines=np.zeros((devices, 0), bool) if subject.lines is None else subject.lines, all_wgs=selection.wgs is None,
        names=subject.names, parts=subject.parts, peers=subject.peers, units_send=subject.units_send,
        asking=zeros(devices), probes=probes, state=zeros(devices, units), wg=zeros(devices, units) - 1,
        called=zeros(devices, units) - 1, flight_head=zeros(ports), flight_tail=zeros(ports), backlog=zeros(ports),
        port_to=zeros(devices, 1 << fields.device_bits) if network is None else network.next_port[:devices],
        planes=1 if network is None else network.planes, decision=zeros(rows) - 1, blocked=zeros(devices),
        late=zeros(devices), merged=zeros(devices), open_banks=zeros(rows), refreshes=zeros(rows))


def look(sim: Sim, r: Recorder) -> None:
    """Remember the models' state, so that the first recorded cycle shows changes only, and what each busy unit does."""
    units = sim.kernel.state
    r.state[:], r.wg[:] = np.where(units.wg >= 0, -1, units.state), units.wg
    for d, u in np.argwhere(units.wg >= 0):
        r.called[d, u] = r.names[d, units.group[d, u] - sim.kernel.work.first_group[d]] + units.member[d, u]
    r.flight_head[:], r.flight_tail[:] = sim.network.flight.head, sim.network.flight.tail
    r.open_banks[:], r.refreshes[:] = sim.mem.hbm.channels["open"], sim.mem.hbm.channels["refreshes"]
    r.decision[:], r.blocked[:], r.late[:] = -1, 0, 0
    r.merged[:] = sim.hardware.switch.happened if sim.hardware is not None and len(sim.hardware.switch.happened) else 0


@inlined
def new_event(r: Recorder, kind: int, now: int, device: int, unit: int) -> np.record:
    """Take the next event of the buffer, whose other fields are unused until the caller sets them."""
    at = r.count[0]
    if at < CAPACITY:
        r.count[0] = at + 1
    else:
        r.count[1] += 1
    e = r.events[at]
    e.cycle, e.kind, e.device, e.unit = now, kind, device, unit
    e.wg = e.a = e.b = e.c = -1
    e.wf, e.stream = NO_WAVEFRONT, NO_STREAM
    e.address = e.amount = e.region = e.source = e.op = e.flags = e.reason = 0
    return e


@inlined
def is_selected(r: Recorder, kind: int, wg: int) -> bool:
    return r.kinds[kind] and (r.all_wgs or (wg >= 0 and r.wgs[wg]))


@inlined
def is_line_chosen(r: Recorder, device: int, address: int) -> bool:
    line = address // LINE_BYTES
    return line < r.lines.shape[1] and r.lines[device, line]


@compiled
def request_event(fields: bits.RequestBits, r: Recorder, kind: int, now: int, device: int, unit: int, lo: int,
                  hi: int) -> np.record:
    """Take the next event, about a request; if that is of no chosen workgroup, one that nobody reads."""
    r = by_reference(r)
    wg = workgroup_of(fields, lo, hi)
    if not r.all_wgs and not (r.wgs[wg] if wg >= 0 else is_line_chosen(r, device, bits.address_of(lo, fields))):
        return r.events[CAPACITY]
    e = new_event(r, kind, now, device, unit)
    put_request(fields, e, wg, lo, hi)
    return e


@compiled
def packet_event(fields: bits.RequestBits, r: Recorder, now: int, device: int, unit: int, lo: int, hi: int,
                 to: int) -> np.record:
    """Take the next event as `request_event` does, about a packet: its ids and address are those of device `to`."""
    r = by_reference(r)
    wg = workgroup_of(fields, lo, hi)
    if not r.all_wgs and not (r.packet_wgs[wg] if wg >= 0 else is_line_chosen(
            r, min(to, len(r.lines) - 1), bits.address_of(lo, fields))):
        return r.events[CAPACITY]
    e = new_event(r, PACKET, now, device, unit)
    put_request(fields, e, wg, lo, hi)
    e.a = to
    return e


@inlined
def workgroup_of(fields: bits.RequestBits, lo: int, hi: int) -> int:
    """Return a request's workgroup; an ordinary access has no region, and -1."""
    has_one = bits.get(lo, hi, fields.region, fields.region_bits) != 0
    return bits.get(lo, hi, fields.wg, fields.wg_bits) if has_one else np.int64(-1)


@inlined
def put_request(fields: bits.RequestBits, e: np.record, wg: int, lo: int, hi: int) -> None:
    e.wg = wg
    if wg >= 0:
        e.wf = bits.get(lo, hi, fields.wf, fields.wf_bits)
        e.region = bits.get(lo, hi, fields.region, fields.region_bits)
    e.source = bits.get(lo, hi, fields.source, 2)
    e.op = bits.get(lo, hi, fields.op, 2)
    e.address = bits.address_of(lo, fields)
    e.amount = bits.get(lo, hi, fields.bytes, fields.op - fields.bytes)
