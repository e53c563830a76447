"""The switch's RTL next to the models, which move packets from links into its ports and from its ports onto links.

Links and credits are models: a packet without credit waits at its link's end, where a GPU would keep it, and a freed
place is known at once. The switch's clock is as many times the memory's as its links need.

Each of several parallel switches has its own RTL. It sees line numbers without the bits that select the switch.

In a run on real numbers the packets of sums carry their data, otherwise zeros. In other packets the switch does not
use the data; their place has the packet's tag and destination.
"""

from typing import NamedTuple

import numpy as np

from t3sim.base.compiled.jit import compiled, inlined
from t3sim.base.compiled.words import words_at
from t3sim.base.line import LINE_BYTES, LINE_SHIFT
from t3sim.cosim.ports import KERNEL, SwitchPorts
from t3sim.gpu.fabric import bits, queues
from t3sim.gpu.fabric import network as links
from t3sim.gpu.fabric.switch import NOBODY, line_at
from t3sim.gpu.state import Sim

WORDS = LINE_BYTES // 8  #: of a packet's data
BEGINS, JOINS, COMPLETES, REFUSES, EVICTS, EXPIRES = range(6)  #: bits of `merge_event`, the first of them
_TAKEN = 1 << BEGINS | 1 << JOINS | 1 << COMPLETES


class SwitchNumbers(NamedTuple):
    """Data of the GPUs' packets, as in `runs.data_mode.Ledger`; no GPUs: a run without numbers."""

    sent: np.ndarray  # uint32 [gpu and part of K, element]
    fetched: np.ndarray  # uint32 [gpu, element]
    parts: int
    shift: int  # log2 of an element's bytes
    columns: np.ndarray  # int64 [packet, word]: data of packets with sums that have left the switch
    dtype: int  # of `nmc_alu.AluDtype`
    base: np.ndarray  # int64 [gpu]: address of element 0


NO_NUMBERS = SwitchNumbers(np.zeros((0, 0), np.uint32), np.zeros((0, 0), np.uint32), 1, 1,
                           np.zeros((0, WORDS), np.int64), 0,
                     np.zeros(0, np.int64))


class SwitchHardware(NamedTuple):
    """One instance of the RTL, or none; [GPU] unless said otherwise."""

    ports: SwitchPorts
    handle: np.ndarray  # int64 [plane]; [0]: there is none
    inputs: np.ndarray  # int64 [plane]: address of its input words
    outputs: np.ndarray
    steps: int  # clock edges in a memory cycle
    link_in: np.ndarray  # int64: port of the first link from a GPU
    link_out: np.ndarray  # int64: port of the first link to it
    credits: np.ndarray  # int64 [GPU, plane]: packets that its port has room for
    owed: np.ndarray  # int64 [GPU, plane]: credits that the GPU's end has not given back
    leaving: queues.TimedQueue  # what waits for its link [GPU and plane]
    #: int64 [GPU, event, 2]: a word of `happened` with the address in memory, and how many parts of its line have come
    events: np.ndarray
    happened: np.ndarray  # int64: events so far
    sums: np.ndarray  # int64 [1]: packets with sums that have left
    numbers: SwitchNumbers


def no_switch() -> SwitchHardware:
    none = np.zeros(0, np.int64)
    ports = SwitchPorts(none, 0, none, none, none, none, none, *(0,) * 11)
    pairs = np.zeros((0, 1), np.int64)
    return SwitchHardware(ports, none, none, none, 0, none, none, pairs, pairs, queues.timed_queue(1, 2),
                          np.zeros((0, 1, 2), np.int64), none, np.zeros(1, np.int64), NO_NUMBERS)


@inlined
def deposit(words: np.ndarray, first: int, lsb: int, value: int) -> None:
    """Put 64 bits into words that are zeros there."""
    at, shift = first + (lsb >> 6), lsb & 63
    words[at] |= value << shift
    if shift > 0:
        words[at + 1] |= (value >> (64 - shift)) & ((1 << shift) - 1)


@inlined
def extract(words: np.ndarray, first: int, lsb: int) -> int:
    """Return 64 bits of words."""
    at, shift = first + (lsb >> 6), lsb & 63
    if shift == 0:
        return words[at]
    return ((words[at] >> shift) & ((1 << (64 - shift)) - 1)) | (words[at + 1] << (64 - shift))


@compiled
def run_switch(hardware: SwitchHardware, step: object, sim: Sim, node: int, now: int) -> None:
    """Let the RTL of the switches at a node take its clock edges of a memory cycle."""
    ports, planes = hardware.ports, len(hardware.handle)
    for plane in range(planes):
        inputs, outputs = words_at(hardware.inputs[plane]), words_at(hardware.outputs[plane])
        for _ in range(hardware.steps):
            for gpu in range(len(ports.arriving)):
                _arrive(hardware, sim, inputs, gpu, plane, now)
                inputs[ports.taken[gpu]] = hardware.owed[gpu, plane] > 0
                hardware.owed[gpu, plane] -= hardware.owed[gpu, plane] > 0
            step(hardware.handle[plane])  # pyright: ignore
            for gpu in range(len(ports.arriving)):
                hardware.credits[gpu, plane] += outputs[ports.returned[gpu]] & 1
                held = outputs[ports.holds[gpu]]
                sim.switch.held_lines[gpu, plane] = held
                sim.switch.most_held[gpu, plane] = max(sim.switch.most_held[gpu, plane], held)
                _note(hardware, sim, outputs[ports.happened[gpu]], gpu, plane)
                if outputs[ports.leaving[gpu]] & 1:
                    _leave(hardware, sim, outputs, gpu, plane, now)
    queue = hardware.leaving
    for gpu in range(len(ports.arriving)):
        for plane in range(planes):
            row, port = gpu * planes + plane, hardware.link_out[gpu] + plane
            while queue.count[row] > 0 and links.can_send(sim.network, port, now):
                at = queue.head[row]
                lo, hi = queue.lo[row, at], queue.hi[row, at]
                size = bits.get(lo, hi, sim.b.bytes, sim.b.op - sim.b.bytes)
                links.send(sim.network, port, now, size, 0, lo, hi, queue.tag[row, at])
                queues.pop_timed(queue, row)
                hardware.owed[gpu, plane] += 1


@inlined
def own_address(address: int, planes: int) -> int:
    """Return the address by which one of some switches knows a byte."""
    return (address // (planes << LINE_SHIFT) << LINE_SHIFT) + address % LINE_BYTES


@inlined
def address_at(own: int, plane: int, planes: int) -> int:
    """Return a byte's address in memory from that by which a switch knows it."""
    return ((own >> LINE_SHIFT) * planes + plane << LINE_SHIFT) + own % LINE_BYTES


@inlined
def _arrive(hardware: SwitchHardware, sim: Sim, inputs: np.ndarray, gpu: int, plane: int, now: int) -> None:
    """Offer a packet to the RTL that a GPU's link has brought."""
    ports, flight, link, b = hardware.ports, sim.network.flight, hardware.link_in[gpu] + plane, sim.b
    first = ports.arriving[gpu]
    inputs[first] = 0
    if hardware.credits[gpu, plane] == 0 or not queues.arrives(flight, link, now):
        return
    for word in range(1, ports.words):
        inputs[first + word] = 0
    at = queues.head_of(flight, link)
    lo, hi, tag = flight.lo[link, at], flight.hi[link, at], flight.tag[link, at]
    destination, gpus = links.destination_of(hi, b), len(ports.arriving)
    inputs[first] = 1
    own = own_address(bits.address_of(lo, b), len(hardware.handle))
    deposit(inputs, first, ports.request, bits.put(lo, hi, 0, b.address_bits, own)[0])
    deposit(inputs, first, ports.request + 64, bits.request_of(hi, b))
    mask = 0
    if destination < gpus:
        mask = 1 << destination
    else:
        source, group = queues.sender_of(queues.number_of(tag)), destination - gpus
        for copy in range(sim.switch.copy_to.shape[2]):
            if sim.switch.copy_to[source, group, copy] != NOBODY:
                mask |= 1 << sim.switch.copy_to[source, group, copy]
    deposit(inputs, first, ports.to, mask)
    deposit(inputs, first, ports.epoch, KERNEL)
    if bits.get(lo, hi, b.op, 2) == bits.UPDATE:
        deposit(inputs, first, ports.dtype, hardware.numbers.dtype)
        deposit(inputs, first, ports.parts, 1)
        _load(hardware, sim, inputs, destination, lo, hi, tag)
    else:
        deposit(inputs, first, ports.column, tag)
        deposit(inputs, first, ports.column + 64, destination)
    hardware.credits[gpu, plane] -= 1
    sim.network.taken[link] += 1
    queues.take(flight, link, now)


@inlined
def _load(hardware: SwitchHardware, sim: Sim, inputs: np.ndarray, to: int, lo: int, hi: int, tag: int) -> None:
    """Give a part its data, if the run has any."""
    numbers, number = hardware.numbers, queues.number_of(tag)
    if len(numbers.sent) == 0:
        return
    sender = queues.sender_of(number)
    at = (bits.address_of(lo, sim.b) - numbers.base[to]) >> numbers.shift
    count = bits.get(lo, hi, sim.b.bytes, sim.b.op - sim.b.bytes) >> numbers.shift
    from_memory = bits.get(lo, hi, sim.b.source, 2) == bits.DMA
    whose = sender * numbers.parts + queues.part_sent(number)
    first, column, per_word = hardware.ports.arriving[sender], hardware.ports.column, 8 >> numbers.shift
    for word in range(WORDS):
        value = np.int64(0)
        for e in range(per_word):
            i = word * per_word + e
            if i < count:
                one = numbers.fetched[sender, at + i] if from_memory else numbers.sent[whose, at + i]
                value |= np.int64(one) << ((8 << numbers.shift) * e)
        deposit(inputs, first, column + 64 * word, value)


@inlined
def _note(hardware: SwitchHardware, sim: Sim, word: int, gpu: int, plane: int) -> None:
    """Record the actions of a port's table, and the order of its additions."""
    if word & ((1 << (EXPIRES + 1)) - 1) == 0:
        return
    switch, ports, b = sim.switch, hardware.ports, sim.b
    own = bits.get(word, np.int64(0), ports.address, b.address_bits)
    address = address_at(own, plane, len(hardware.handle))
    line = line_at(switch, gpu, address)
    if word & _TAKEN:
        turn = np.int64(switch.parts_taken[gpu, line])
        if turn < switch.order.shape[2]:
            switch.order[gpu, line, turn] = bits.get(word, np.int64(0), ports.source, ports.source_bits)
        switch.parts_taken[gpu, line] = turn + 1
    at = hardware.happened[gpu] & (hardware.events.shape[1] - 1)
    hardware.events[gpu, at, 0] = bits.put(word, np.int64(0), ports.address, b.address_bits, address)[0]
    hardware.events[gpu, at, 1] = switch.parts_taken[gpu, line]
    hardware.happened[gpu] += 1


@inlined
def _leave(hardware: SwitchHardware, sim: Sim, outputs: np.ndarray, gpu: int, plane: int, now: int) -> None:
    """Queue a packet that leaves the RTL for its GPU's link."""
    ports, b, planes = hardware.ports, sim.b, len(hardware.handle)
    first = ports.leaving[gpu]
    lo = extract(outputs, first, ports.whole)
    hi = bits.request_of(extract(outputs, first, ports.whole + 64), b)
    lo, hi = bits.put(lo, hi, 0, b.address_bits, address_at(bits.address_of(lo, b), plane, planes))
    if bits.get(lo, hi, b.op, 2) == bits.UPDATE:
        number = hardware.sums[0]
        hardware.sums[0] += 1
        if len(hardware.numbers.sent):
            for word in range(WORDS):
                hardware.numbers.columns[number, word] = extract(outputs, first, ports.data + 64 * word)
        tag = queues.tag_of(sim.hardware_stream, number)
    else:
        tag, destination = extract(outputs, first, ports.data), extract(outputs, first, ports.data + 64)
        if destination >= len(ports.arriving):
            lo, hi = _copy(sim, gpu, destination - len(ports.arriving), lo, hi, tag)
    queues.push_at(hardware.leaving, gpu * planes + plane, now, lo, links.bound_for(hi, gpu, b), tag)


@inlined
def _copy(sim: Sim, gpu: int, group: int, lo: int, hi: int, tag: int) -> tuple[int, int]:
    """Return a group's packet with the id and address that it has at one of the GPUs."""
    switch, b, source = sim.switch, sim.b, queues.sender_of(queues.number_of(tag))
    for copy in range(switch.copy_to.shape[2]):
        if switch.copy_to[source, group, copy] == gpu:
            wg = bits.get(lo, hi, b.wg, b.wg_bits) + switch.id_offset[source, group, copy]
            lo, hi = bits.put(lo, hi, b.wg, b.wg_bits, wg)
            address = bits.address_of(lo, b) + switch.address_offset[source, group, copy]
            return bits.put(lo, hi, 0, b.address_bits, address)
    return lo, hi
