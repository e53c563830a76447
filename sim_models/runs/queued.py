"""Collectives by commands in memory on the RTL, every GPU with its own, with real numbers.

Every GPU has a send buffer and a receive buffer, both of random bits; a producer stores the send buffer, then copies
move it. A line that DRAM reads for DMA takes what memory holds at that moment, a line that arrives puts it into memory
when DRAM performs it. In the end each word of every receive buffer is compared with numpy's, and was written once.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ..agents.copy_queue import FLAGS, HOST_OR_GPU, POLL, START_FLAG, TRACKER, Plan, QueuePorts, make_copy_queue
from ..compiled.jit import compiled
from ..cosim.gpu import compiled_gpu, gpu_library, model_ports
from ..cosim.ports import PortMap
from ..driver.apb import ApbMaster
from ..driver.driver import Driver
from ..engine.end import DONE, IDLE_LIMIT, RUNNING
from ..engine.hardware import make_hardware
from ..engine.loop import Lockstep
from ..engine.observers import Observer
from ..errors import BadInput
from ..fabric import bits, memory
from ..fabric.queues import number_of, stream_of
from ..flow.node import Node
from ..line import LINE_BYTES
from ..machine import Machine
from ..reference.command_queue import COPY, SIGNAL, Command
from ..reference.command_queue import POLL as POLLS
from ..topologies import fully_connected
from . import build
from .failure import SimulationError

COLLECTIVES = {"ag": "all-gather", "ag-ring": "all-gather around a ring", "a2a": "all-to-all"}
INITIATORS = ("host", "gpu", "poll", "tracker")
_ROW_BYTES = 256
_LARGEST_BLOCK = 32 * 1024  #: of one command; its bytes must fit into the Tracker's counter
_MOST_COMMANDS = 4096
_ALIGN = 1 << 20
_RING, _FLAGS = 1 << 33, 1 << 34  #: addresses
_WORD = 8
_STARTS = {"host": HOST_OR_GPU, "gpu": HOST_OR_GPU, "poll": POLL, "tracker": TRACKER}
_PATIENCE_CYCLES = 1_000_000
_BATCH_CYCLES = 20_000


class Copied(NamedTuple):
    """A copy of a block: what a command, or a trigger, asks for."""

    source: int  #: byte of the GPU's buffers
    peer: int
    to: int  #: byte of the peer's buffers
    after: int  #: of its GPU's signals from peers; 0: it waits for none


@dataclass(frozen=True)
class QueuedRun:
    """A collective through the RTL. That it is here means that every bit of every GPU is right. Times in ns."""

    exchange_ns: float  #: from the producer's last store in memory to the last copied line in memory, the slowest GPU
    whole_ns: float  #: from the producer's start to the same
    signalled_ns: float  #: from the producer's last store to the last peer's signal; 0 without signals
    commands: int  #: of all GPUs, signals and polls included; of triggers with the Tracker
    copies: int
    polls: int
    signals: int
    lines: int  #: read for DMA


class Ledger(NamedTuple):
    """Words of every GPU's buffers, [device, word]."""

    produced: np.ndarray  # int64: what the producer stores
    memory: np.ndarray  # int64
    found: np.ndarray  # int64 [device, region, word]: what a read for a region found
    tally: np.ndarray  # uint8: how often a peer's copy wrote the word
    base: np.ndarray  # int64 [device]
    shift: np.ndarray  # int64 [source, destination]: words from the source's word to the destination's
    region: np.ndarray  # int64 [source, destination]
    outside: np.ndarray  # int64 [device]: accesses to what is no buffer

    def before_edge(self, sim, kernel, hardware, device, now):
        account(self, sim, device)

    def after_edge(self, sim, kernel, hardware, device, now):
        pass


@compiled
def account(data, sim, d):
    """Do to the numbers what DRAM performed for a device in this cycle."""
    for c in range(sim.m.channels):
        row = d * sim.m.channels + c
        if not sim.mem.retired[row] or stream_of(sim.mem.retired_tag[row]) == memory.ALL_GATHER:
            continue  # commands and flags
        lo, hi = sim.mem.retired_lo[row], sim.mem.retired_hi[row]
        source, read = bits.get(lo, hi, sim.b.source, 2), bits.get(lo, hi, sim.b.op, 2) == bits.READ
        first = (bits.address_of(lo, sim.b) - data.base[d]) // _WORD
        count = bits.get(lo, hi, sim.b.bytes, sim.b.op - sim.b.bytes) // _WORD
        if first < 0 or first + count > data.memory.shape[1]:
            data.outside[d] += 1
            continue
        if read:
            region = bits.get(lo, hi, sim.b.region, sim.b.region_bits)
            for word in range(first, first + count):
                data.found[d, region, word] = data.memory[d, word]
        elif source == bits.LOCAL:
            for word in range(first, first + count):
                data.memory[d, word] = data.produced[d, word]
        else:
            sender = number_of(sim.mem.retired_tag[row])
            for word in range(first, first + count):
                data.memory[d, word] = data.found[sender, data.region[sender, d], word - data.shift[sender, d]]
                data.tally[d, word] += np.uint8(1)


class CopyLedger(Observer):
    """Real numbers behind a run."""

    def __init__(self, data: Ledger, expected: np.ndarray, written: np.ndarray) -> None:
        self.data, self._expected, self._written = data, expected, written

    def before(self, now: int, end: int) -> tuple[Ledger, int]:
        return self.data, end

    def check(self) -> None:
        """Compare every word. Raises SimulationError."""
        data = self.data
        if data.outside.any():
            raise SimulationError(f"device {int(np.argmax(data.outside))}: an access outside of the buffers")
        for d, word in np.argwhere(data.tally != self._written)[:1]:
            raise SimulationError(f"device {d}: bytes from {word * _WORD} on were copied there {data.tally[d, word]} "
                                  f"times instead of {self._written[d, word]}")
        wrong = np.argwhere(data.memory != self._expected)
        for d, word in wrong[:1]:
            raise SimulationError(f"device {d}: bytes from {word * _WORD} on are {data.memory[d, word]:#x} instead of "
                                  f"{self._expected[d, word]:#x} ({len(wrong)} such words)")


def chunk_bytes(size_bytes: int, gpus: int) -> int:
    """Bytes that each pair of GPUs exchanges. Raises BadInput."""
    chunk = size_bytes // gpus
    block = min(chunk, _LARGEST_BLOCK)
    if size_bytes % gpus or chunk < _ROW_BYTES or chunk % _ROW_BYTES or chunk % block:
        raise BadInput(f"--sizes: {size_bytes} bytes on {gpus} GPUs: chunks of {_ROW_BYTES} bytes to "
                       f"{_LARGEST_BLOCK // 1024} KB by {_ROW_BYTES}, or multiples of {_LARGEST_BLOCK // 1024} KB, "
                       "are needed")
    return chunk


def plan_copies(collective: str, gpus: int, chunk: int) -> list[list[Copied]]:
    """Return each GPU's copies of whole chunks, in their order. The receive buffer lies behind the send buffer, except
    that an all-gather around a ring sends from where it receives."""
    sends = gpus * chunk if collective == "a2a" else chunk
    hops = range(1, gpus)
    if collective == "a2a":
        return [[Copied((gpu + hop) % gpus * chunk, (gpu + hop) % gpus, sends + gpu * chunk, 0) for hop in hops]
                for gpu in range(gpus)]
    if collective == "ag":
        return [[Copied(0, (gpu + hop) % gpus, sends + gpu * chunk, 0) for hop in hops] for gpu in range(gpus)]
    return [[Copied((gpu - step) % gpus * chunk, (gpu + 1) % gpus, (gpu - step) % gpus * chunk, step)
             for step in range(gpus - 1)] for gpu in range(gpus)]


def run_queued(machine: Machine, node: Node, collective: str, gpus: int, size_bytes: int, initiator: str = "host",
               seed: int = 0) -> QueuedRun:
    """Run a collective in which each pair of GPUs exchanges `size_bytes`/gpus, all links there are between any two.

    `node`: what a host and a kernel take to start copies. Raises BadInput and SimulationError.
    """
    check_asked(machine, collective, gpus, size_bytes, initiator)
    run = _Run(machine, node, (collective, gpus, size_bytes), initiator, seed)
    try:
        return run.run()
    finally:
        run.close()


def check_asked(machine: Machine, collective: str, gpus: int, size_bytes: int, initiator: str) -> None:
    """Check what is asked of `run_queued`. Raises BadInput."""
    for name, value, allowed in (("--collective", collective, tuple(COLLECTIVES)),
                                 ("--initiator", initiator, INITIATORS)):
        if value not in allowed:
            raise BadInput(f"{name} {value[:40]!r} is unknown on the cycle level: allowed are {', '.join(allowed)}")
    if initiator == "tracker" and collective != "a2a":
        raise BadInput(f"--initiator tracker is not possible for {collective} on the cycle level: a region of tracked "
                       "tiles has one destination; a2a is allowed")
    most = min(machine.dma.regions - 1, 16)
    if not 2 <= gpus <= most:
        raise BadInput(f"--gpus {gpus} is not possible on the cycle level: 2 to {most} are allowed, as many as "
                       "[dma] regions of the machine has destinations")
    chunk_bytes(size_bytes, gpus)


class _Run(Lockstep):
    """The GPUs, programmed, and what is compared in the end."""

    def __init__(self, machine: Machine, node: Node, what: tuple[str, int, int], initiator: str, seed: int) -> None:
        collective, gpus, size_bytes = what
        chunk = chunk_bytes(size_bytes, gpus)
        block = min(chunk, _LARGEST_BLOCK)
        self._machine, self._gpus, self._initiator, self._block, self._chunk = machine, gpus, initiator, block, chunk
        self._copies = [[Copied(one.source + at, one.peer, one.to + at, one.after) for one in of_gpu
                         for at in range(0, chunk, block)] for of_gpu in plan_copies(collective, gpus, chunk)]
        lines = [self._commands(gpu, chunk // block) for gpu in range(gpus)]
        self._program_lines = lines
        places = 1 << max(1, (max(map(len, lines)) - 1).bit_length())
        if places > _MOST_COMMANDS:
            raise BadInput(f"--sizes: {max(map(len, lines))} commands for one queue: at most {_MOST_COMMANDS} are "
                           "allowed")
        geometry = machine.geometry()
        # One top for all sizes up to 64 commands: each other one is compiled anew.
        self.geometry = geometry = replace(geometry, dma=replace(geometry.dma, queue_commands=max(64, places)))
        self.driver = Driver(geometry)
        sends = (gpus if collective in ("a2a", "ag-ring") else 1) * chunk
        size = sends if collective == "ag-ring" else sends + gpus * chunk
        stride = -(-size // _ALIGN) * _ALIGN + _ALIGN
        self._base = np.array([_ALIGN + gpu * stride for gpu in range(gpus)])
        self._size = size
        self._make_blocks(collective)
        library = gpu_library(geometry)
        self.backends = [compiled_gpu(library) for _ in range(gpus)]
        self._region = np.array([[(to - gpu) % gpus for to in range(gpus)] for gpu in range(gpus)])
        hardware, _ = make_hardware(self.backends, model_ports(self.backends[0].ports, geometry), self._requests())
        agent = make_copy_queue(_queue_ports(self.backends[0].ports), self._plan(node), geometry.channel.channels)
        network = build.network_of(machine, fully_connected(gpus), {})
        sim = build.machine_state(machine, agent, network, [(gpu + 1) % gpus for gpu in range(gpus)])  # type: ignore
        for gpu in range(gpus):
            for peer in range(gpus):
                if peer != gpu:
                    sim.control.region_port[gpu, self._region[gpu, peer]] = network.next_port[gpu, peer]
            sim.control.picks_ports[gpu] = gpus > 2
        super().__init__(sim._replace(hardware=hardware, hardware_stream=memory.REDUCE_SCATTER))
        self.masters = [ApbMaster(backend) for backend in self.backends]
        self._program()
        self.ledger = self._make_ledger(seed)
        self.observers.append(self.ledger)

    def _commands(self, gpu: int, per_signal: int) -> list[Command]:
        """Lines of a GPU's queue: a poll first if it is prelaunched, a signal behind the last copy to each peer."""
        if self._initiator == "tracker":
            return []
        base = _FLAGS + FLAGS * LINE_BYTES * np.arange(self._gpus)
        lines = [Command(1, POLLS, int(base[gpu]) + START_FLAG * LINE_BYTES, 0, 0, 0)] * (self._initiator == "poll")
        region = [(peer - gpu) % self._gpus for peer in range(self._gpus)]
        for first in range(0, len(self._copies[gpu]), per_signal):
            whole = self._copies[gpu][first:first + per_signal]
            if whole[0].after:
                lines.append(Command(1, POLLS, int(base[gpu]) + whole[0].after * LINE_BYTES, 0, 0, 0))
            lines += [Command(0, COPY, one.source, region[one.peer], 0, 0)
                      for one in whole]
            flag = first // per_signal + 1
            if any(one.after for one in self._copies[gpu]):  # a ring: the next hop waits for this one
                lines.append(Command(1, SIGNAL, int(base[whole[0].peer]) + flag * LINE_BYTES, 0, 0, 0))
        if not any(one.after for one in self._copies[gpu]):  # signals wait for all copies: they go last
            lines += [Command(1, SIGNAL, int(base[peer]) + (1 + gpu) * LINE_BYTES, 0, 0, 0)
                      for peer in range(self._gpus) if peer != gpu]
        return lines

    def _make_blocks(self, collective: str) -> None:
        """What each producer stores: what it sends of its own, each block once."""
        self._blocks = []
        for of_gpu in self._copies:
            own = [one for one in of_gpu if not one.after]
            if collective == "ag":
                own = own[:self._chunk // self._block]
            self._blocks.append(own)

    def _requests(self) -> np.ndarray:
        """For the dispatch window: with the Tracker an id for each block."""
        if self._initiator != "tracker":
            return np.zeros((self._gpus, 0), np.int64)
        fields = self.backends[0].ports.port("dispatch.payload").fields
        requests = []
        for gpu, blocks in enumerate(self._blocks):
            requests.append([])
            for number, one in enumerate(blocks):
                region = int(self._region[gpu, one.peer])
                values = {"id": number, "tiles": 1, "opens": 1, "starts": 1, "region": region, "last_region": region}
                requests[-1].append(sum(value << fields[name].lsb for name, value in values.items()))
        return np.array(requests, np.int64)

    def _plan(self, node: Node) -> Plan:
        gpus, clock = self._gpus, self._machine.memory_clock_ghz
        fields = self.backends[0].ports.port("queue_lines.payload").fields
        commands = np.zeros((gpus, max(1, *map(len, self._program_lines)), 2), np.int64)
        for gpu, lines in enumerate(self._program_lines):
            for number, line in enumerate(lines):
                values = line._asdict()
                if line.op == COPY:
                    values["address"] += int(self._base[gpu])
                packed = sum(value << fields[name].lsb for name, value in values.items())
                commands[gpu, number] = np.array([packed & (1 << 64) - 1, packed >> 64], np.uint64).view(np.int64)
        counts = [len(lines) for lines in self._program_lines]
        costs = {"host": [(count * node.host.command_ns + node.host.doorbell_ns) * (gpu + 1)
                          for gpu, count in enumerate(counts)],
                 "gpu": [count * node.gpu.command_ns + node.gpu.doorbell_ns for count in counts],
                 "poll": [node.host.trigger_ns * (gpu + 1) for gpu in range(gpus)], "tracker": [0.0] * gpus}
        doorbells = [self.driver.doorbell(count)[0] for count in counts]
        arriving, signals = np.zeros(gpus, np.int64), np.zeros(gpus, np.int64)
        for of_gpu, lines in zip(self._copies, self._program_lines):
            for one in of_gpu:
                arriving[one.peer] += self._block
            for line in lines:
                if line.op == SIGNAL:
                    signals[(line.address - _FLAGS) // LINE_BYTES // FLAGS] += 1
        return Plan(
            initiator=_STARTS[self._initiator],
            blocks=np.array([[one.source + int(base) for one in blocks]
                             for base, blocks in zip(self._base, self._blocks)], np.int64),
            regions=np.array([[self._region[gpu, one.peer] for one in blocks]
                              for gpu, blocks in enumerate(self._blocks)], np.int64),
            block_bytes=self._block, commands=commands, ring=_RING, flags=_FLAGS, doorbell=doorbells[0].offset,
            doorbell_value=np.array([write.value for write in doorbells], np.int64),
            start_cycles=np.array([round(ns * clock) for ns in costs[self._initiator]], np.int64),
            arriving=arriving, signals=signals)

    def _program(self) -> None:
        """What a driver does before the kernel starts; with a poll, the doorbell too."""
        for master in self.masters:
            self.driver.check_identity(master.read)
            self._write(master, self.driver.soft_reset(quiet_cycles=1))
        self._wait(lambda status: "reset_done" in status)
        for gpu, master in enumerate(self.masters):
            base, writes = int(self._base[gpu]), self.driver.open_memory(0, base=0, limit=_FLAGS * 2)
            writes += self.driver.plain_arrivals([0])
            for one in {copy.peer: copy for copy in self._copies[gpu]}.values():
                writes += self.driver.copy_map(
                    int(self._region[gpu, one.peer]), base=base, limit=base + self._size, device=one.peer,
                    row_bytes=_ROW_BYTES, columns=self._block // _ROW_BYTES,
                    address_offset=int(self._base[one.peer]) + one.to - base - one.source)
            writes += self.driver.policy("mca") + self.driver.window(1) + self.driver.command_queue(_RING)
            self._write(master, writes + self.driver.clear_error() + self.driver.clear_counters()
                        + self.driver.restart())
        self._wait(lambda status: not status & {"resetting", "reset_done"})
        for gpu, master in enumerate(self.masters if self._initiator == "poll" else []):
            self._write(master, self.driver.doorbell(len(self._program_lines[gpu])))

    @staticmethod
    def _write(master: ApbMaster, writes) -> None:
        for offset, value in writes:
            master.write(offset, value)

    def _wait(self, done) -> None:
        for master in self.masters:
            first = master.cycles
            while not done(self.driver.status(master.read)):
                if master.cycles - first > _PATIENCE_CYCLES:
                    raise SimulationError(f"a reset is not over after {_PATIENCE_CYCLES} cycles")

    def _make_ledger(self, seed: int) -> CopyLedger:
        gpus, words = self._gpus, self._size // _WORD
        random = np.random.default_rng(seed)
        produced, held = random.integers(-(1 << 63), (1 << 63) - 1, (2, gpus, words), np.int64, endpoint=True)
        expected, written = held.copy(), np.zeros((gpus, words), np.uint8)
        shift = np.zeros((gpus, gpus), np.int64)
        for gpu, blocks in enumerate(self._blocks):
            for one in blocks:
                at = slice(one.source // _WORD, (one.source + self._block) // _WORD)
                expected[gpu, at] = produced[gpu, at]
        # In the order of a ring's steps, each copy finds what the step before has brought.
        for number in range(max(map(len, self._copies))):
            for gpu, of_gpu in enumerate(self._copies):
                one = of_gpu[number]
                source = slice(one.source // _WORD, (one.source + self._block) // _WORD)
                to = slice(one.to // _WORD, (one.to + self._block) // _WORD)
                expected[one.peer, to] = expected[gpu, source]
                written[one.peer, to] += 1
                shift[gpu, one.peer] = (one.to - one.source) // _WORD
        return CopyLedger(Ledger(
            produced, held, np.zeros((gpus, gpus, words), np.int64), np.zeros((gpus, words), np.uint8), self._base,
            shift, self._region, np.zeros(gpus, np.int64)), expected, written)

    def run(self) -> QueuedRun:
        """Run it to its end and compare. Raises SimulationError."""
        while (reached := self.advance(_BATCH_CYCLES)) == RUNNING:
            self._raise_errors()
        self._raise_errors()
        if reached != DONE:
            raise SimulationError(f"nothing moved for {IDLE_LIMIT} cycles")
        self.ledger.check()
        state, ns = self.sim.kernel.state, 1 / self._machine.memory_clock_ghz  # type: ignore
        end, counted = state.arrived.max(), [self._counters(master) for master in self.masters]
        commands = [line for lines in self._program_lines for line in lines]
        copies = sum(map(len, self._copies))
        total = {name: sum(one[name] for one in counted) for name in ("commands", "lines")}
        if (total["commands"], total["lines"]) != (copies, copies * self._block // LINE_BYTES):
            raise SimulationError(f"{total['commands']} copies of {total['lines']} lines were made instead of {copies}")
        return QueuedRun(
            exchange_ns=float((end - state.produced.max()) * ns), whole_ns=float(end * ns),
            signalled_ns=float(max(0, state.signalled.max() - state.produced.max()) * ns),
            commands=len(commands) or copies, copies=copies, polls=sum(line.op == POLLS for line in commands),
            signals=sum(line.op == SIGNAL for line in commands), lines=total["lines"])

    def _counters(self, master: ApbMaster) -> dict[str, int]:
        return {name: master.read(self.driver.registers[f"COUNT_{name.upper()}"].offset)
                for name in ("commands", "lines")}

    def _raise_errors(self) -> None:
        for gpu, (backend, master) in enumerate(zip(self.backends, self.masters)):
            if backend.outputs[backend.ports.outputs["irq"].offset]:
                raise SimulationError(f"device {gpu}: the hardware reports {self.driver.first_error(master.read)}")

    def close(self) -> None:
        """Free the hardware."""
        for backend in self.backends:
            backend.close()


def _queue_ports(ports: PortMap) -> QueuePorts:
    def at(name: str) -> int:
        return ports.port(name).offset
    write = ports.port("queue_writes.payload").fields
    return QueuePorts(
        reads_ready=at("queue_reads.ready"), lines_valid=at("queue_lines.valid"), lines=at("queue_lines.payload"),
        writes_ready=at("queue_writes.ready"), paddr=at("apb.paddr"), psel=at("apb.psel"), penable=at("apb.penable"),
        pwrite=at("apb.pwrite"), pwdata=at("apb.pwdata"), reads_valid=at("queue_reads.valid"),
        reads=at("queue_reads.payload"), lines_ready=at("queue_lines.ready"), writes_valid=at("queue_writes.valid"),
        write_address=at("queue_writes.payload"), write_value=at("queue_writes.payload"),
        write_value_lsb=write["value"].lsb, pready=at("apb.pready"))
