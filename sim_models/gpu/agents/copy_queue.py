"""Surroundings of a queue of DMA commands: a producer of what is copied, memory that commands and flags lie in, a host.

The producer stores its blocks line by line. When DRAM has performed the last of them, the host (or the GPU itself)
writes a doorbell, or a flag that the queue polls, after the time that this takes it. A producer that releases a chain
sets a flag for each wave of blocks as soon as DRAM has performed the wave's stores. Commands and flags are read
through the same memory channels as everything else. A signal to a peer goes over the link after the data; it is seen
there when DRAM has performed it and whatever was under way to memory when it came, as posted writes are.
"""

from typing import NamedTuple

import numpy as np

from t3sim.base.compiled.jit import compiled, inlined
from t3sim.base.compiled.words import words_at
from t3sim.base.line import LINE_BYTES
from t3sim.gpu.engine.hardware import Hardware, may_start, nothing_to_start
from t3sim.gpu.fabric import bits, memory, queues
from t3sim.gpu.fabric import network as links
from t3sim.gpu.fabric.memory_map import channel_of
from t3sim.gpu.state import Sim

#: What starts the copies: a doorbell, a flag that is polled, the Tracker, a flag of the producer for each wave.
HOST_OR_GPU, POLL, TRACKER, CHAIN = range(4)
FLAG_BYTES = 4
FLAGS = 64  #: of each GPU, a line each; the first starts its copies
START_FLAG = 0
MOST_WAVES = 32
FIRST_WAVE_FLAG = FLAGS - MOST_WAVES
_PER_CYCLE = 4  #: lines that the producer stores in a cycle
_NEVER = 1 << 62
IDLE, WANTED, THERE = range(3)  #: of a line that the queue reads
SETUP, ACCESS, END, RESTS = range(4)  #: of a bus transfer


class QueuePorts(NamedTuple):
    """Word offsets of the queue's and the bus' ports."""

    reads_ready: int
    lines_valid: int
    lines: int
    writes_ready: int
    paddr: int
    psel: int
    penable: int
    pwrite: int
    pwdata: int
    reads_valid: int  # outputs from here on
    reads: int
    lines_ready: int
    writes_valid: int
    write_address: int  # an address fits into the first word
    write_value: int
    write_value_lsb: int
    write_adds_lsb: int
    pready: int


class CopyPlan(NamedTuple):
    """Plan of a run; constant."""

    initiator: int
    blocks: np.ndarray  # int64 [device, block]: address of what the producer stores, in its order
    regions: np.ndarray  # int64 [device, block]
    adds: bool  #: the producer adds to memory what it stores
    block_bytes: int
    commands: np.ndarray  # int64 [device, command, 2]: lines of the ring
    ring: int  #: address
    flags: int  #: address of device 0's flags; the next device's follow
    doorbell: int  #: register
    doorbell_value: np.ndarray  # int64 [device]
    start_cycles: np.ndarray  # int64 [device]: from the producer's end to the doorbell's write, or the flag's
    arriving: np.ndarray  # int64 [device]: bytes
    signals: np.ndarray  # int64 [device]: flags that peers set
    wave_blocks: int  #: of a chain: blocks that a flag releases
    waves: np.ndarray  # int64 [device, wave]: the flag that each wave sets, in the producer's order


class CopyState(NamedTuple):
    """The state of each device."""

    begun: np.ndarray  # int64: blocks that the producer has begun
    line: np.ndarray  # int64: next line of the block
    produced: np.ndarray  # int64: cycle in which the last store was performed
    arrived: np.ndarray  # int64: cycle in which the last line from a peer was performed
    signalled: np.ndarray  # int64: cycle in which the last flag was seen
    signals: np.ndarray  # int64: flags of peers that are seen
    started: np.ndarray  # int64: cycle of the doorbell's write, or the flag's
    released: np.ndarray  # int64: waves whose flag is written
    bus: np.ndarray  # int64: SETUP ...
    read: np.ndarray  # int64: IDLE ...
    address: np.ndarray  # int64: that is read
    words: np.ndarray  # int64 [device, flag]: what memory holds
    coming: np.ndarray  # int64 [device, flag]: value on its way; of an addition, which each time is the same
    under_way: np.ndarray  # int64 [device, flag, channel]: something older may be on its way to memory
    adding: np.ndarray  # int64 [device, flag]: the value is added
    unseen: np.ndarray  # int64 [device, flag]: how often DRAM has performed it


class CopyQueue(NamedTuple):
    """An agent (gpu/engine/agents.py)."""

    ports: QueuePorts
    plan: CopyPlan
    state: CopyState

    @property
    def shape(self) -> tuple[int, int]:
        """Devices, and places of each whose loads may wait at its cache."""
        return len(self.plan.blocks), 1

    def cycle(self, sim: Sim, hardware: Hardware | None, device: int, now: int) -> None:
        produce(self.plan, self.state, sim, hardware, device, now)
        see_flags(self.plan, self.state, sim, device, now)
        serve_queue(self, sim, hardware, device, now)
        start_copies(self, sim, hardware, device, now)

    def returned(self, sim: Sim, device: int, tag: int, now: int) -> None:
        self.state.read[device] = THERE

    def done(self, sim: Sim, device: int) -> bool:
        state, plan = self.state, self.plan
        return state.arrived[device] < _NEVER and state.signals[device] == plan.signals[device]

    def progress(self, device: int) -> int:
        state = self.state
        return state.begun[device] + state.line[device] + state.signals[device]


def make_copy_queue(ports: QueuePorts, plan: CopyPlan, channels: int) -> CopyQueue:
    """Make the state before anything is stored."""
    devices = len(plan.blocks)

    def each(*more: int) -> np.ndarray:
        return np.zeros((devices, *more), np.int64)

    def never() -> np.ndarray:
        return np.full(devices, _NEVER)
    return CopyQueue(ports, plan, CopyState(
        begun=each(), line=np.full(devices, plan.block_bytes // LINE_BYTES), produced=never(), arrived=never(),
        signalled=each(), signals=each(), started=never(), released=each(), bus=each(), read=each(), address=each(),
        words=each(FLAGS), coming=each(FLAGS), under_way=each(FLAGS, channels), adding=each(FLAGS),
        unseen=each(FLAGS)))


@inlined
def wave_waits(plan: CopyPlan, state: CopyState, device: int) -> bool:
    """Say whether a chain's producer has begun all blocks of a wave whose flag is not written."""
    return (plan.initiator == CHAIN and state.released[device] < plan.waves.shape[1]
            and state.begun[device] == (state.released[device] + 1) * plan.wave_blocks)


@compiled
def produce(plan: CopyPlan, state: CopyState, sim: Sim, hardware: Hardware, device: int, now: int) -> None:
    """Store the next lines; with the Tracker, those of a block that the dispatch window has let in."""
    for _ in range(_PER_CYCLE):
        if state.line[device] * LINE_BYTES == plan.block_bytes:
            if plan.initiator == TRACKER:
                if state.begun[device] == plan.blocks.shape[1]:
                    nothing_to_start(hardware, device)
                    break
                if not may_start(hardware, device):
                    break
            elif state.begun[device] == plan.blocks.shape[1] or wave_waits(plan, state, device):
                break
            state.begun[device] += 1
            state.line[device] = 0
            if plan.initiator == TRACKER:
                break  # a grant is of one block: what is next is not asked in the same cycle
        elif plan.initiator == TRACKER:
            nothing_to_start(hardware, device)
        block = state.begun[device] - 1
        address = plan.blocks[device, block] + state.line[device] * LINE_BYTES
        row = device * sim.m.channels + channel_of(address, sim.m)
        if queues.room(sim.compute, row) < 1:
            break
        region = plan.regions[device, block] if plan.initiator == TRACKER else 0
        op = bits.UPDATE if plan.adds else bits.STORE
        lo, hi = bits.pack(sim.b, address, LINE_BYTES, op, bits.LOCAL, region, 0, block)
        queues.push(sim.compute, row, lo, hi, queues.tag_of(memory.COMPUTE, 0))
        state.line[device] += 1
    if state.produced[device] == _NEVER and (
            sim.mem.total_bytes[device, 2 * memory.COMPUTE + 1] == plan.blocks.shape[1] * plan.block_bytes):
        state.produced[device] = now
    if state.arrived[device] == _NEVER and (
            sim.mem.total_bytes[device, 2 * memory.EXCHANGE + 1] == plan.arriving[device]):
        state.arrived[device] = now


@compiled
def see_flags(plan: CopyPlan, state: CopyState, sim: Sim, device: int, now: int) -> None:
    """Let flags that DRAM performs be seen once what was under way to memory before them is there."""
    first = plan.flags + device * FLAGS * LINE_BYTES
    for c in range(sim.m.channels):
        row = device * sim.m.channels + c
        if sim.mem.retired[row] and bits.get(sim.mem.retired_lo[row], sim.mem.retired_hi[row], sim.b.op,
                                             2) == bits.STORE:
            flag = (bits.address_of(sim.mem.retired_lo[row], sim.b) - first) // LINE_BYTES
            if 0 <= flag < FLAGS:
                state.unseen[device, flag] += 1
                for other in range(sim.m.channels):
                    state.under_way[device, flag, other] = 1
    for flag in range(FLAGS):
        if state.unseen[device, flag]:
            waits = False
            for c in range(sim.m.channels):
                row = device * sim.m.channels + c
                if not (sim.inbound.count[row] or sim.mem.inbound_tags.count[row]
                        or sim.mem.free_count[row] < sim.mem.free.shape[1]):
                    state.under_way[device, flag, c] = 0
                waits = waits or state.under_way[device, flag, c] != 0
            if not waits:
                times = state.unseen[device, flag]
                state.unseen[device, flag] = 0
                if state.adding[device, flag]:
                    state.words[device, flag] += times * state.coming[device, flag]
                else:
                    state.words[device, flag] = state.coming[device, flag]
                if START_FLAG < flag < FIRST_WAVE_FLAG:
                    state.signals[device] += times
                    state.signalled[device] = now


@inlined
def _store_flag(plan: CopyPlan, state: CopyState, sim: Sim, owner: int, flag: int, value: int, adds: int) -> int:
    """Return the address of a flag that is written, or to which is added; its value is kept beside the request."""
    state.coming[owner, flag], state.adding[owner, flag] = value, adds
    return plan.flags + (owner * FLAGS + flag) * LINE_BYTES


@compiled
def serve_queue(agent: CopyQueue, sim: Sim, hardware: Hardware, device: int, now: int) -> None:
    """Serve the queue's reads through the memory channels, and its writes to flags, here or at a peer."""
    ports, plan, state = agent.ports, agent.plan, agent.state
    inputs, outputs = words_at(hardware.inputs[device]), words_at(hardware.outputs[device])
    inputs[ports.reads_ready] = 0
    if state.read[device] == IDLE and outputs[ports.reads_valid]:
        address = outputs[ports.reads]
        row = device * sim.m.channels + channel_of(address, sim.m)
        if queues.room(sim.compute, row) >= 1:
            lo, hi = bits.pack(sim.b, address, LINE_BYTES, bits.READ, bits.LOCAL, 0, 0, 0)
            queues.push(sim.compute, row, lo, hi, queues.tag_of(memory.OTHER, 0))
            state.address[device], state.read[device] = address, WANTED
            inputs[ports.reads_ready] = 1
    inputs[ports.lines_valid] = 0
    if state.read[device] == THERE and outputs[ports.lines_ready]:
        inputs[ports.lines_valid] = 1
        flag = (state.address[device] - plan.flags) // LINE_BYTES - device * FLAGS
        if 0 <= flag < FLAGS:
            inputs[ports.lines] = state.words[device, flag]
        else:
            command = (state.address[device] - plan.ring) // LINE_BYTES
            inputs[ports.lines] = plan.commands[device, command, 0]
            inputs[ports.lines + 1] = plan.commands[device, command, 1]
        state.read[device] = IDLE
    inputs[ports.writes_ready] = 0
    if outputs[ports.writes_valid]:
        number = (outputs[ports.write_address] & ((1 << sim.b.address_bits) - 1)) - plan.flags
        owner, flag = number // LINE_BYTES // FLAGS, number // LINE_BYTES % FLAGS
        value = bits.get(outputs[ports.write_address], outputs[ports.write_address + 1], ports.write_value_lsb, 32)
        adds = bits.get(outputs[ports.write_address], outputs[ports.write_address + 1], ports.write_adds_lsb, 1)
        address = plan.flags + number
        lo, hi = bits.pack(sim.b, address, FLAG_BYTES, bits.STORE, bits.DMA, 0, 0, 0)
        port = links.port_to(sim.network, device, owner)
        if links.can_send(sim.network, port, now):
            inputs[ports.writes_ready] = 1
            _store_flag(plan, state, sim, owner, flag, value, adds)
            links.send(sim.network, port, now, FLAG_BYTES, 0, lo, links.bound_for(hi, owner, sim.b),
                       queues.tag_of(memory.OTHER, device))


@compiled
def set_own_flag(plan: CopyPlan, state: CopyState, sim: Sim, device: int, flag: int) -> bool:
    """Store a flag in the GPU's own memory, if there is room for it."""
    address = _store_flag(plan, state, sim, device, flag, 1, 0)
    row = device * sim.m.channels + channel_of(address, sim.m)
    if queues.room(sim.inbound, row) < 1:
        return False
    lo, hi = bits.pack(sim.b, address, FLAG_BYTES, bits.STORE, bits.DMA, 0, 0, 0)
    queues.push(sim.inbound, row, lo, hi, queues.tag_of(memory.OTHER, device))
    return True


@compiled
def release_wave(plan: CopyPlan, state: CopyState, sim: Sim, device: int) -> None:
    """Write the flag of a wave all of whose stores DRAM has performed."""
    stored = state.begun[device] * plan.block_bytes
    if (state.line[device] * LINE_BYTES == plan.block_bytes and wave_waits(plan, state, device)
            and sim.mem.total_bytes[device, 2 * memory.COMPUTE + 1] == stored):
        if set_own_flag(plan, state, sim, device, plan.waves[device, state.released[device]]):
            state.released[device] += 1


@compiled
def start_copies(agent: CopyQueue, sim: Sim, hardware: Hardware, device: int, now: int) -> None:
    """Write the doorbell over the bus, or the flag that starts the copies."""
    ports, plan, state = agent.ports, agent.plan, agent.state
    if plan.initiator == CHAIN:
        release_wave(plan, state, sim, device)
        return
    if plan.initiator == TRACKER or now < state.produced[device] + plan.start_cycles[device]:
        return
    if plan.initiator == POLL:
        if state.started[device] == _NEVER and set_own_flag(plan, state, sim, device, START_FLAG):
            state.started[device] = now
        return
    inputs, outputs = words_at(hardware.inputs[device]), words_at(hardware.outputs[device])
    phase = state.bus[device]
    if phase == SETUP:
        inputs[ports.paddr], inputs[ports.pwdata] = plan.doorbell, plan.doorbell_value[device]
        inputs[ports.psel], inputs[ports.penable], inputs[ports.pwrite] = 1, 0, 1
        state.started[device], state.bus[device] = now, ACCESS
    elif phase == ACCESS:
        inputs[ports.penable] = 1
        state.bus[device] = END
    elif phase == END and outputs[ports.pready]:  # the transfer ends in the cycle that shows it
        state.bus[device] = RESTS
    elif phase == RESTS:
        inputs[ports.psel], inputs[ports.penable] = 0, 0
