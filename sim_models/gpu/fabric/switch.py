"""A switch that adds and copies (T3 paper, section 7.4), as NVLink SHARP does.

The parts of a line that GPUs send to one of them are added in the order in which they come; when all have, one line
goes on. Sums that have begun, or wait to leave, lie in a memory of each port; a part of another sum waits on its link
while that is full. Schedules keep it from ever being full (`schedule.sums`), because what waits there holds up parts
for which others wait. Of several switches side by side each has such ports, and lines take turns on them. A packet for
a group leaves through the port of each of its GPUs when all have room.
Source: Klenk et al., An In-Network Architecture for Accelerating Shared-Memory Multiprocessor Collectives (ISCA 2020).
"""

from typing import NamedTuple

import numpy as np

from t3sim.base.compiled.jit import compiled, inlined
from t3sim.base.line import LINE_BYTES, LINE_SHIFT, lines_of
from t3sim.gpu.fabric import bits, queues
from t3sim.gpu.fabric import network as links
from t3sim.gpu.fabric.bits import RequestBits
from t3sim.gpu.fabric.state import Network, SwitchState
from t3sim.gpu.setup import CopyTarget

NOBODY = -1


class SwitchShape(NamedTuple):
    """Switches side by side that are alike."""

    most_bytes: int  #: of sums at a port of one
    latency_cycles: int
    planes: int = 1


def make_switch(gpus: int, parts: int, bases: np.ndarray, size_bytes: int, shape: SwitchShape,
                sum_op: int = bits.UPDATE, groups: tuple[tuple[tuple[CopyTarget, ...], ...], ...] = ()) -> SwitchState:
    """Make a switch before the first packet.

    `bases`: of the simulated GPUs' arrays of `size_bytes`; `groups`: of each of them; the others as in `SwitchState`.
    """
    lines = lines_of(size_bytes) if parts else 1
    most = len(bases), max(1, *map(len, groups), 0), max([1, *(len(group) for of_gpu in groups for group in of_gpu)])
    copies = np.full((3, *most), 0)
    copies[0] = NOBODY
    for gpu, of_gpu in enumerate(groups):
        for number, group in enumerate(of_gpu):
            copies[:, gpu, number, :len(group)] = np.array(group).T
    most_lines, rows = shape.most_bytes // LINE_BYTES, (len(bases), shape.planes)
    return SwitchState(gpus, parts, most_lines, shape.latency_cycles, sum_op, np.array(bases, np.int64),
                       np.zeros((len(bases), lines), np.uint8), np.zeros((len(bases), lines, parts), np.uint8),
                       np.zeros(rows, np.int64), np.zeros(rows, np.int64),
                       queues.timed_queue(len(bases) * shape.planes, max(2, min(most_lines, lines))), *copies)


NO_SWITCH = make_switch(0, 0, np.zeros(1, np.int64), 0, SwitchShape(0, 0))


@inlined
def line_at(switch: SwitchState, gpu: int, address: int) -> int:
    """Return the number of the line at an address of a GPU."""
    return (address - switch.base[gpu]) >> LINE_SHIFT


@inlined
def works_on(switch: SwitchState, lo: int, hi: int, fields: RequestBits) -> bool:
    """Return whether a packet is one to add or to copy."""
    return switch.gpus > 0 and (links.destination_of(hi, fields) >= switch.gpus
                                or switch.parts > 0 and bits.get(lo, hi, fields.op, 2) == bits.UPDATE)


@compiled
def take(switch: SwitchState, network: Network, b: RequestBits, node: int, now: int, lo: int, hi: int,
         tag: int) -> bool:
    """Add a packet that has come to the switch, or copy it; False: there is no room for it now."""
    if links.destination_of(hi, b) >= switch.gpus:
        return send_copies(switch, network, b, node, now, lo, hi, tag)
    if network.mirrored:
        return add_mirrored(switch, network, b, now, lo, hi, tag)
    gpu = links.destination_of(hi, b) if len(switch.base) > 1 else 0
    plane = links.plane_of(network, lo, b)
    if begins(switch, gpu, lo, b) and switch.held_lines[gpu, plane] >= switch.most_lines:
        return False
    add(switch, network.planes, b, gpu, now, lo, hi, tag)
    return True


@inlined
def begins(switch: SwitchState, gpu: int, lo: int, fields: RequestBits) -> bool:
    """Return whether a part is the first of its sum."""
    return switch.parts_taken[gpu, line_at(switch, gpu, bits.address_of(lo, fields))] == 0


@inlined
def add(switch: SwitchState, planes: int, b: RequestBits, gpu: int, now: int, lo: int, hi: int, tag: int) -> None:
    """Add a part to its sum, for which there is room."""
    line = line_at(switch, gpu, bits.address_of(lo, b))
    taken, plane = np.int64(switch.parts_taken[gpu, line]), links.plane_at(bits.address_of(lo, b), planes)
    if taken == 0:
        switch.held_lines[gpu, plane] += 1
        switch.most_held[gpu, plane] = max(switch.most_held[gpu, plane], switch.held_lines[gpu, plane])
    switch.order[gpu, line, taken] = queues.sender_of(queues.number_of(tag))
    switch.parts_taken[gpu, line] = taken + 1
    if taken + 1 == switch.parts:
        whole_lo, whole_hi = bits.put(lo, hi, b.op, 2, switch.sum_op)
        whole_lo, whole_hi = bits.put(whole_lo, whole_hi, b.more, b.more_bits, switch.parts - 1)
        row, then = gpu * planes + plane, now + switch.latency_cycles
        queues.push_at(switch.sums, row, then, whole_lo, whole_hi, tag)


@inlined
def add_mirrored(switch: SwitchState, network: Network, b: RequestBits, now: int, lo: int, hi: int,
                 tag: int) -> bool:
    """Add this GPU's packet as the part that another GPU sends it at this moment; False: there is no room now."""
    begun = 0
    becomes, first, last = links.mirrored_lines(network.mirror, b, lo, hi)
    for target in range(first, last):
        _, new_lo, _ = links.mirrored_line(network.mirror, b, becomes, target, lo, hi)
        begun += begins(switch, 0, new_lo, b)
    if begun and switch.held_lines[0, 0] + begun > switch.most_lines:  # a mirrored GPU has one switch
        return False
    for target in range(first, last):
        _, new_lo, new_hi = links.mirrored_line(network.mirror, b, becomes, target, lo, hi)
        add(switch, network.planes, b, 0, now, new_lo, new_hi, tag)
    return True


@inlined
def send_copies(switch: SwitchState, network: Network, b: RequestBits, node: int, now: int, lo: int, hi: int,
                tag: int) -> bool:
    """Send a packet for a group to each of its GPUs; False: not all of their ports have room."""
    source = queues.number_of(tag)
    group = links.destination_of(hi, b) - switch.gpus
    copies = switch.copy_to.shape[2]
    for copy in range(copies):
        to = switch.copy_to[source, group, copy]
        if to != NOBODY and not links.can_send(network, links.port_for(network, node, to, lo, b), now):
            return False
    size = bits.get(lo, hi, b.bytes, b.op - b.bytes)
    for copy in range(copies):
        to = switch.copy_to[source, group, copy]
        if to == NOBODY:
            break
        wg = bits.get(lo, hi, b.wg, b.wg_bits) + switch.id_offset[source, group, copy]
        own_lo, own_hi = bits.put(lo, links.bound_for(bits.request_of(hi, b), to, b), b.wg, b.wg_bits, wg)
        address = bits.address_of(lo, b) + switch.address_offset[source, group, copy]
        own_lo, own_hi = bits.put(own_lo, own_hi, 0, b.address_bits, address)
        port = links.port_for(network, node, to, lo, b)
        if network.mirrored:
            links.send_mirrored(network, b, port, now, size, own_lo, own_hi, tag)
        else:
            links.send(network, port, now, size, 0, own_lo, own_hi, tag)
    return True


@compiled
def send_sums(switch: SwitchState, network: Network, b: RequestBits, node: int, now: int) -> None:
    """Send sums that are whole, as far as their ports have room."""
    if switch.parts == 0:
        return
    sums = switch.sums
    for row in range(len(sums.count)):
        gpu, plane = row // network.planes, row % network.planes
        while sums.count[row] > 0 and sums.time[row, sums.head[row]] <= now:
            port, at = links.port_to(network, node, gpu) + plane, sums.head[row]
            if not links.can_send(network, port, now):
                break
            lo, hi = sums.lo[row, at], sums.hi[row, at]
            links.send(network, port, now, bits.get(lo, hi, b.bytes, b.op - b.bytes), 0, lo, hi, sums.tag[row, at])
            queues.pop_timed(sums, row)
            switch.held_lines[gpu, plane] -= 1
