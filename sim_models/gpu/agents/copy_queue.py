"""Surroundings of a queue of DMA commands: a producer of the copied data, memory with commands and flags, a host.

The producer stores its blocks line by line. When DRAM has performed the last of them, the host (or the GPU itself)
needs some time to write a doorbell, or a flag that the queue polls. A producer that releases a chain
sets a flag for each wave of blocks as soon as DRAM has performed the wave's stores. Commands and flags are read
through the same memory channels as everything else. A signal to a peer goes over the link after the data; like a
posted write, it is seen there when DRAM has performed it and all requests that were under way to memory before it.
"""

from typing import NamedTuple

import numpy as np

from t3sim.base.compiled.jit import compiled, inlined
from t3sim.base.compiled.words import words_at
from t3sim.base.line import LINE_BYTES
from t3sim.gpu.engine.hardware import Hardware, may_start, nothing_to_start
from t3sim.gpu.fabric import bits, memory, queues
from t3sim.gpu.fabric import network as links
from t3sim.gpu.fabric.bits import row_of
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
    blocks: np.ndarray  # int64 [gpu, block]: address of what the producer stores, in its order
    regions: np.ndarray  # int64 [gpu, block]
    adds: bool  #: the producer adds to memory what it stores
    block_bytes: int
    commands: np.ndarray  # int64 [gpu, command, 2]: lines of the ring
    ring: int  #: address
    flags: int  #: address of GPU 0's flags; the next GPU's follow
    doorbell: int  #: register
    doorbell_value: np.ndarray  # int64 [gpu]
    start_cycles: np.ndarray  # int64 [gpu]: from the producer's end to the doorbell's write, or the flag's
    arriving: np.ndarray  # int64 [gpu]: bytes
    signals: np.ndarray  # int64 [gpu]: flags that peers set
    wave_blocks: int  #: of a chain: blocks that a flag releases
    waves: np.ndarray  # int64 [gpu, wave]: the flag that each wave sets, in the producer's order


class CopyState(NamedTuple):
    """The state of each GPU."""

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
    words: np.ndarray  # int64 [gpu, flag]: what memory holds
    coming: np.ndarray  # int64 [gpu, flag]: value on its way; of an addition, which each time is the same
    under_way: np.ndarray  # int64 [gpu, flag, channel]: something older may be on its way to memory
    adding: np.ndarray  # int64 [gpu, flag]: the value is added
    unseen: np.ndarray  # int64 [gpu, flag]: how often DRAM has performed it


class CopyQueue(NamedTuple):
    """An agent (gpu/engine/agents.py)."""

    ports: QueuePorts
    plan: CopyPlan
    state: CopyState

    @property
    def shape(self) -> tuple[int, int]:
        """GPUs, and places of each whose loads may wait at its cache."""
        return len(self.plan.blocks), 1

    def cycle(self, sim: Sim, hardware: Hardware | None, gpu: int, now: int) -> None:
        produce(self.plan, self.state, sim, hardware, gpu, now)
        see_flags(self.plan, self.state, sim, gpu, now)
        serve_queue(self, sim, hardware, gpu, now)
        start_copies(self, sim, hardware, gpu, now)

    def returned(self, sim: Sim, gpu: int, tag: int, now: int) -> None:
        self.state.read[gpu] = THERE

    def done(self, sim: Sim, gpu: int) -> bool:
        state, plan = self.state, self.plan
        return state.arrived[gpu] < _NEVER and state.signals[gpu] == plan.signals[gpu]

    def progress(self, gpu: int) -> int:
        state = self.state
        return state.begun[gpu] + state.line[gpu] + state.signals[gpu]


def make_copy_queue(ports: QueuePorts, plan: CopyPlan, channels: int) -> CopyQueue:
    """Make the state before anything is stored."""
    gpus = len(plan.blocks)

    def each(*more: int) -> np.ndarray:
        return np.zeros((gpus, *more), np.int64)

    def never() -> np.ndarray:
        return np.full(gpus, _NEVER)
    return CopyQueue(ports, plan, CopyState(
        begun=each(), line=np.full(gpus, plan.block_bytes // LINE_BYTES), produced=never(), arrived=never(),
        signalled=each(), signals=each(), started=never(), released=each(), bus=each(), read=each(), address=each(),
        words=each(FLAGS), coming=each(FLAGS), under_way=each(FLAGS, channels), adding=each(FLAGS),
        unseen=each(FLAGS)))


@inlined
def wave_waits(plan: CopyPlan, state: CopyState, gpu: int) -> bool:
    """Say whether a chain's producer has begun all blocks of a wave whose flag is not written."""
    return (plan.initiator == CHAIN and state.released[gpu] < plan.waves.shape[1]
            and state.begun[gpu] == (state.released[gpu] + 1) * plan.wave_blocks)


@compiled
def produce(plan: CopyPlan, state: CopyState, sim: Sim, hardware: Hardware, gpu: int, now: int) -> None:
    """Store the next lines; with the Tracker, those of a block that the dispatch window has let in."""
    for _ in range(_PER_CYCLE):
        if state.line[gpu] * LINE_BYTES == plan.block_bytes:
            if plan.initiator == TRACKER:
                if state.begun[gpu] == plan.blocks.shape[1]:
                    nothing_to_start(hardware, gpu)
                    break
                if not may_start(hardware, gpu):
                    break
            elif state.begun[gpu] == plan.blocks.shape[1] or wave_waits(plan, state, gpu):
                break
            state.begun[gpu] += 1
            state.line[gpu] = 0
            if plan.initiator == TRACKER:
                break  # a grant is of one block: what is next is not asked in the same cycle
        elif plan.initiator == TRACKER:
            nothing_to_start(hardware, gpu)
        block = state.begun[gpu] - 1
        address = plan.blocks[gpu, block] + state.line[gpu] * LINE_BYTES
        row = row_of(address, sim.mem.m, gpu)
        if queues.room(sim.mem.compute, row) < 1:
            break
        region = plan.regions[gpu, block] if plan.initiator == TRACKER else 0
        op = bits.UPDATE if plan.adds else bits.STORE
        lo, hi = bits.pack(sim.b, address, LINE_BYTES, op, bits.LOCAL, region, 0, block)
        queues.push(sim.mem.compute, row, lo, hi, queues.tag_of(memory.COMPUTE, 0))
        state.line[gpu] += 1
    if state.produced[gpu] == _NEVER and (
            sim.mem.total_bytes[gpu, 2 * memory.COMPUTE + 1] == plan.blocks.shape[1] * plan.block_bytes):
        state.produced[gpu] = now
    if state.arrived[gpu] == _NEVER and (
            sim.mem.total_bytes[gpu, 2 * memory.EXCHANGE + 1] == plan.arriving[gpu]):
        state.arrived[gpu] = now


@compiled
def see_flags(plan: CopyPlan, state: CopyState, sim: Sim, gpu: int, now: int) -> None:
    """Make a flag visible when DRAM has performed it and all requests that were under way before it."""
    first = plan.flags + gpu * FLAGS * LINE_BYTES
    for c in range(sim.mem.m.channels):
        row = gpu * sim.mem.m.channels + c
        if sim.mem.retired[row] and bits.get(sim.mem.retired_lo[row], sim.mem.retired_hi[row], sim.b.op,
                                             2) == bits.STORE:
            flag = (bits.address_of(sim.mem.retired_lo[row], sim.b) - first) // LINE_BYTES
            if 0 <= flag < FLAGS:
                state.unseen[gpu, flag] += 1
                for other in range(sim.mem.m.channels):
                    state.under_way[gpu, flag, other] = 1
    for flag in range(FLAGS):
        if state.unseen[gpu, flag]:
            waits = False
            for c in range(sim.mem.m.channels):
                row = gpu * sim.mem.m.channels + c
                if not (sim.mem.inbound.count[row] or sim.mem.inbound_tags.count[row]
                        or sim.mem.free_count[row] < sim.mem.free.shape[1]):
                    state.under_way[gpu, flag, c] = 0
                waits = waits or state.under_way[gpu, flag, c] != 0
            if not waits:
                times = state.unseen[gpu, flag]
                state.unseen[gpu, flag] = 0
                if state.adding[gpu, flag]:
                    state.words[gpu, flag] += times * state.coming[gpu, flag]
                else:
                    state.words[gpu, flag] = state.coming[gpu, flag]
                if START_FLAG < flag < FIRST_WAVE_FLAG:
                    state.signals[gpu] += times
                    state.signalled[gpu] = now


@inlined
def _store_flag(plan: CopyPlan, state: CopyState, sim: Sim, owner: int, flag: int, value: int, adds: int) -> int:
    """Return the address of a flag to write or add to; its value is kept in `state`, not in the request."""
    state.coming[owner, flag], state.adding[owner, flag] = value, adds
    return plan.flags + (owner * FLAGS + flag) * LINE_BYTES


@compiled
def serve_queue(agent: CopyQueue, sim: Sim, hardware: Hardware, gpu: int, now: int) -> None:
    """Serve the queue's reads through the memory channels, and its writes to flags, here or at a peer."""
    ports, plan, state = agent.ports, agent.plan, agent.state
    inputs, outputs = words_at(hardware.inputs[gpu]), words_at(hardware.outputs[gpu])
    inputs[ports.reads_ready] = 0
    if state.read[gpu] == IDLE and outputs[ports.reads_valid]:
        address = outputs[ports.reads]
        row = row_of(address, sim.mem.m, gpu)
        if queues.room(sim.mem.compute, row) >= 1:
            lo, hi = bits.pack(sim.b, address, LINE_BYTES, bits.READ, bits.LOCAL, 0, 0, 0)
            queues.push(sim.mem.compute, row, lo, hi, queues.tag_of(memory.OTHER, 0))
            state.address[gpu], state.read[gpu] = address, WANTED
            inputs[ports.reads_ready] = 1
    inputs[ports.lines_valid] = 0
    if state.read[gpu] == THERE and outputs[ports.lines_ready]:
        inputs[ports.lines_valid] = 1
        flag = (state.address[gpu] - plan.flags) // LINE_BYTES - gpu * FLAGS
        if 0 <= flag < FLAGS:
            inputs[ports.lines] = state.words[gpu, flag]
        else:
            command = (state.address[gpu] - plan.ring) // LINE_BYTES
            inputs[ports.lines] = plan.commands[gpu, command, 0]
            inputs[ports.lines + 1] = plan.commands[gpu, command, 1]
        state.read[gpu] = IDLE
    inputs[ports.writes_ready] = 0
    if outputs[ports.writes_valid]:
        number = (outputs[ports.write_address] & ((1 << sim.b.address_bits) - 1)) - plan.flags
        owner, flag = number // LINE_BYTES // FLAGS, number // LINE_BYTES % FLAGS
        value = bits.get(outputs[ports.write_address], outputs[ports.write_address + 1], ports.write_value_lsb, 32)
        adds = bits.get(outputs[ports.write_address], outputs[ports.write_address + 1], ports.write_adds_lsb, 1)
        address = plan.flags + number
        lo, hi = bits.pack(sim.b, address, FLAG_BYTES, bits.STORE, bits.DMA, 0, 0, 0)
        port = links.port_to(sim.network, gpu, owner)
        if links.can_send(sim.network, port, now):
            inputs[ports.writes_ready] = 1
            _store_flag(plan, state, sim, owner, flag, value, adds)
            links.send(sim.network, port, now, FLAG_BYTES, 0, lo, links.bound_for(hi, owner, sim.b),
                       queues.tag_of(memory.OTHER, gpu))


@compiled
def set_own_flag(plan: CopyPlan, state: CopyState, sim: Sim, gpu: int, flag: int) -> bool:
    """Store a flag in the GPU's own memory, if there is room for it."""
    address = _store_flag(plan, state, sim, gpu, flag, 1, 0)
    row = row_of(address, sim.mem.m, gpu)
    if queues.room(sim.mem.inbound, row) < 1:
        return False
    lo, hi = bits.pack(sim.b, address, FLAG_BYTES, bits.STORE, bits.DMA, 0, 0, 0)
    queues.push(sim.mem.inbound, row, lo, hi, queues.tag_of(memory.OTHER, gpu))
    return True


@compiled
def release_wave(plan: CopyPlan, state: CopyState, sim: Sim, gpu: int) -> None:
    """Write the flag of a wave all of whose stores DRAM has performed."""
    stored = state.begun[gpu] * plan.block_bytes
    if (state.line[gpu] * LINE_BYTES == plan.block_bytes and wave_waits(plan, state, gpu)
            and sim.mem.total_bytes[gpu, 2 * memory.COMPUTE + 1] == stored):
        if set_own_flag(plan, state, sim, gpu, plan.waves[gpu, state.released[gpu]]):
            state.released[gpu] += 1


@compiled
def start_copies(agent: CopyQueue, sim: Sim, hardware: Hardware, gpu: int, now: int) -> None:
    """Write the doorbell over the bus, or the flag that starts the copies."""
    ports, plan, state = agent.ports, agent.plan, agent.state
    if plan.initiator == CHAIN:
        release_wave(plan, state, sim, gpu)
        return
    if plan.initiator == TRACKER or now < state.produced[gpu] + plan.start_cycles[gpu]:
        return
    if plan.initiator == POLL:
        if state.started[gpu] == _NEVER and set_own_flag(plan, state, sim, gpu, START_FLAG):
            state.started[gpu] = now
        return
    inputs, outputs = words_at(hardware.inputs[gpu]), words_at(hardware.outputs[gpu])
    phase = state.bus[gpu]
    if phase == SETUP:
        inputs[ports.paddr], inputs[ports.pwdata] = plan.doorbell, plan.doorbell_value[gpu]
        inputs[ports.psel], inputs[ports.penable], inputs[ports.pwrite] = 1, 0, 1
        state.started[gpu], state.bus[gpu] = now, ACCESS
    elif phase == ACCESS:
        inputs[ports.penable] = 1
        state.bus[gpu] = END
    elif phase == END and outputs[ports.pready]:  # the transfer ends in the cycle that shows it
        state.bus[gpu] = RESTS
    elif phase == RESTS:
        inputs[ports.psel], inputs[ports.penable] = 0, 0
