"""Recorded ports through a mapped netlist: what each net does, and whether the netlist does what the RTL did."""

from typing import NamedTuple

import numpy as np
from numba import types

from t3sim.area.energy.circuit import READ, READ_AFTER_WRITE, WRITE, XOR, Circuit, Lowered
from t3sim.base.compiled.by_reference import intrinsic, lowest_bit
from t3sim.base.compiled.jit import compiled, inlined


class NetState(NamedTuple):
    """Words of a bit for each instance, and what was counted."""

    nets: np.ndarray  # int64 [net]
    next_q: np.ndarray  # int64 [flip-flop]
    port_words: np.ndarray  # int64 [instance, word]: of its recorded ports, as they were last
    expected_bits: np.ndarray  # int64 [bit of a recorded port]
    pins: np.ndarray  # int64 [pin of a memory]: of a read port its address as it was last, and the data that follow
    stale: np.ndarray  # int64 [port]: instances whose memory was written since they read it
    store: np.ndarray  # int64 [word of an instance's memories, instance]
    wave: np.ndarray  # int64 [net]: while changes go through the gates one by one
    toggles: np.ndarray  # int64 [net]
    sampled_toggles: np.ndarray  # int64 [net]: those of the cycles in which glitches were counted, too
    glitch_toggles: np.ndarray  # int64 [net]: the same cycles' with glitches, each operation taking the same time
    clocks: np.ndarray  # int64 [clock]: edges, of all instances
    accesses: np.ndarray  # int64 [port]
    fresh: np.ndarray  # int64 [port]: reads of another word, or of one that was written
    last_edges: np.ndarray  # int64 [clock + port]: those of the last cycle
    any_change: np.ndarray  # int64 [1]: whether the last edge changed anything


class RecordedPorts(NamedTuple):
    """Places of the recorded ports in a row, and the nets that they are."""

    first: np.ndarray  # int64 [instance]: word
    words: int
    drives: np.ndarray  # int64 [bit]: the net that it gives, or -1
    shows: np.ndarray  # int64 [bit]: the net that must be like it, or -1
    checked_bits: np.ndarray  # int64: those bits that must be like a net


@intrinsic
def ones(typing_context, word):
    """Count the bits of an int64 that are set."""
    def emit(context, builder, signature, arguments):
        return builder.ctpop(arguments[0])
    return (types.int64(types.int64), emit) if word == types.int64 else None


def fresh_state(lowered: Lowered, ports: RecordedPorts) -> NetState:
    """Return the state before the first cycle: all is 0 but what memories hold."""
    circuit, instances = lowered.circuit, len(ports.first)

    def zeros(*shape: int) -> np.ndarray:
        return np.zeros(shape, np.int64)

    nets = zeros(lowered.count)
    nets[1] = -1
    memory_ports, groups = len(circuit.ports), len(circuit.groups)
    return NetState(nets, zeros(len(circuit.q)), zeros(instances, ports.words), zeros(64 * ports.words),
                    zeros(len(circuit.pins)), np.full(memory_ports, -1, np.int64),
                    np.repeat(lowered.store[:, None], instances, axis=1), zeros(lowered.count),
                    *(zeros(lowered.count) for _ in range(3)), zeros(groups),
                    zeros(memory_ports), zeros(memory_ports), zeros(groups + memory_ports), np.ones(1, np.int64))


@compiled
def drive(p: "RecordedPorts", s: "NetState", row: np.ndarray) -> bool:
    """Set the nets that a row of recorded ports gives; return whether anything differs from the row before."""
    any_change = False
    for lane in range(len(p.first)):
        for word in range(p.words):
            differs = row[p.first[lane] + word] ^ s.port_words[lane, word]
            if differs == 0:
                continue
            any_change = True
            s.port_words[lane, word] ^= differs
            while differs != 0:
                bit = lowest_bit(differs)
                differs &= differs - 1
                net = p.drives[word * 64 + bit]
                if net >= 0:
                    s.nets[net] ^= np.int64(1) << lane
                    s.toggles[net] += 1
                else:
                    s.expected_bits[word * 64 + bit] ^= np.int64(1) << lane
    return any_change


@compiled
def settle(c: "Circuit", s: "NetState") -> None:
    """Evaluate the gates, and count which outputs differ from those of the cycle before."""
    nets, toggles = s.nets, s.toggles
    for run in range(len(c.runs)):
        if c.runs[run, 0] == XOR:
            for i in range(c.runs[run, 1], c.runs[run, 2]):
                y = c.y[i]
                value = nets[c.a[i]] ^ nets[c.b[i]] ^ c.invert_a[i] ^ c.invert_b[i] ^ c.invert_y[i]
                toggles[y] += ones(value ^ nets[y])
                nets[y] = value
        else:
            for i in range(c.runs[run, 1], c.runs[run, 2]):
                y = c.y[i]
                value = ((nets[c.a[i]] ^ c.invert_a[i]) & (nets[c.b[i]] ^ c.invert_b[i])) ^ c.invert_y[i]
                toggles[y] += ones(value ^ nets[y])
                nets[y] = value


@compiled
def ripple(c: "Circuit", s: "NetState", next_wave: np.ndarray) -> None:
    """Let the gates' outputs change step by step, each operation a step after its inputs, and count every change."""
    for net in range(len(s.nets)):
        s.wave[net] = s.nets[net]
    for _ in range(2 * len(c.runs)):
        is_still = True
        for run in range(len(c.runs)):
            for i in range(c.runs[run, 1], c.runs[run, 2]):
                a, b = s.wave[c.a[i]] ^ c.invert_a[i], s.wave[c.b[i]] ^ c.invert_b[i]
                next_wave[i] = (a ^ b if c.runs[run, 0] == XOR else a & b) ^ c.invert_y[i]
        for i in range(len(c.y)):
            changes = next_wave[i] ^ s.wave[c.y[i]]
            if changes != 0:
                s.glitch_toggles[c.y[i]] += ones(changes)
                s.wave[c.y[i]] = next_wave[i]
                is_still = False
        if is_still:
            return


@compiled
def settle_in_steps(c: "Circuit", s: "NetState", next_wave: np.ndarray) -> None:
    """Evaluate the gates as `settle` does, and count glitches beside."""
    ripple(c, s, next_wave)
    for net in range(len(s.nets)):
        s.sampled_toggles[net] -= s.toggles[net]
    settle(c, s)
    for net in range(len(s.nets)):
        s.sampled_toggles[net] += s.toggles[net]


@compiled
def differing_bit(p: "RecordedPorts", s: "NetState", live: int) -> int:
    """Return a bit of the recorded ports that a net differs from, in its lowest instance; -1: none."""
    for bit in p.checked_bits:
        if (s.nets[p.shows[bit]] ^ s.expected_bits[bit]) & live:
            return bit
    return -1


@compiled
def access(c: "Circuit", s: "NetState", port: int, kind: int, live: int) -> None:
    """Read or write a memory at a clock edge, if the port is of this kind."""
    if c.ports[port, 0] != kind:
        return
    memory, address_at, address_bits = c.ports[port, 1], c.ports[port, 2], c.ports[port, 3]
    data_at, width, enable_at = c.ports[port, 4], c.ports[port, 5], c.ports[port, 6]
    words, word_parts, base = c.memories[memory, 0], c.memories[memory, 1], c.memories[memory, 2]
    active = np.int64(0)
    for i in range(c.enables[port, 0], c.enables[port, 0] + c.enables[port, 1]):
        active |= s.nets[c.pins[i]]
    active &= live
    edge_index = len(c.groups) + port
    s.last_edges[edge_index] = ones(active)
    s.accesses[port] += s.last_edges[edge_index]
    if kind != WRITE:
        address_changes = s.stale[port]
        for i in range(address_at, address_at + address_bits):
            address_changes |= s.nets[c.pins[i]] ^ s.pins[i]
        s.stale[port] = address_changes & ~active
        active &= address_changes
        s.fresh[port] += ones(active)
        for i in range(address_at, address_at + address_bits):
            s.pins[i] = (s.pins[i] & ~active) | (s.nets[c.pins[i]] & active)
    elif active != 0:
        s.any_change[0] = 1
        for reader in range(len(c.ports)):
            if c.ports[reader, 1] == memory:
                s.stale[reader] |= active
    while active != 0:
        lane = lowest_bit(active)
        active &= active - 1
        word = np.int64(0)
        for i in range(address_bits):
            word |= (s.nets[c.pins[address_at + i]] >> lane & 1) << i
        if word >= words:
            continue
        for i in range(width):
            word_index, bit, pin = base + word * word_parts + i // 64, i % 64, data_at + i
            if kind != WRITE:
                s.pins[pin] = (s.pins[pin] & ~(np.int64(1) << lane)) | (s.store[word_index, lane] >> bit & 1) << lane
            elif s.nets[c.pins[enable_at + i]] >> lane & 1:
                s.store[word_index, lane] = (s.store[word_index, lane] & ~(np.int64(1) << bit)
                                             | (s.nets[c.pins[pin]] >> lane & 1) << bit)


@inlined
def take(s: "NetState", net: int, changes: int) -> None:
    """Let a net's value change in some instances."""
    if changes != 0:
        s.nets[net] ^= changes
        s.toggles[net] += ones(changes)
        s.any_change[0] = 1


@compiled
def clock_edge(c: "Circuit", s: "NetState", live: int) -> None:
    """Let flip-flops and memories take what stands before them."""
    s.any_change[0] = 0
    for group in range(len(c.groups)):
        enabled = s.nets[c.groups[group, 2]] & live
        s.last_edges[group] = ones(enabled)
        s.clocks[group] += s.last_edges[group]
        if enabled != 0:
            for i in range(c.groups[group, 0], c.groups[group, 1]):
                s.next_q[i] = (s.nets[c.q[i]] ^ s.nets[c.d[i]]) & enabled
    for kind in (READ, WRITE, READ_AFTER_WRITE):
        for port in range(len(c.ports)):
            access(c, s, port, kind, live)
    for group in range(len(c.groups)):
        if s.last_edges[group] != 0:
            for i in range(c.groups[group, 0], c.groups[group, 1]):
                take(s, c.q[i], s.next_q[i])
    for port in range(len(c.ports)):
        if c.ports[port, 0] != WRITE and s.last_edges[len(c.groups) + port] != 0:
            for pin in range(c.ports[port, 4], c.ports[port, 4] + c.ports[port, 5]):
                take(s, c.pins[pin], s.pins[pin] ^ s.nets[c.pins[pin]])


@compiled
def replay(c: "Circuit", p: "RecordedPorts", s: "NetState", rows: np.ndarray, live: int,
           next_wave: np.ndarray, sampled_cycles: int) -> tuple[int, int]:
    """Replay recorded cycles, the first `sampled_cycles` with glitches.

    Returns the first whose outputs differ from the recorded ones, and which bit; or -1, -1.

    A cycle in which nothing comes after one that changed nothing does what that did.
    """
    for cycle in range(len(rows)):
        any_change = drive(p, s, rows[cycle])
        if any_change or s.any_change[0] != 0:
            if cycle < sampled_cycles:
                settle_in_steps(c, s, next_wave)
            else:
                settle(c, s)
            bad_bit = differing_bit(p, s, live)
            if bad_bit >= 0:
                return cycle, bad_bit
            clock_edge(c, s, live)
        else:
            for group in range(len(c.groups)):
                s.clocks[group] += s.last_edges[group]
            for port in range(len(c.ports)):
                s.accesses[port] += s.last_edges[len(c.groups) + port]
    return -1, -1
