"""Collectives by commands in memory on the RTL, every GPU with its own, with real numbers.

Every GPU has buffers in memory; a producer stores what is sent, or adds it to memory where a collective adds; then
copies move it (`copies.py`). In the end every word of every GPU is compared with numpy's (`copy_ledger.py`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import NamedTuple

import numpy as np

from t3sim.base.errors import BadInput
from t3sim.base.line import LINE_BYTES
from t3sim.cosim.driver.driver import Driver, Write
from t3sim.cosim.gpu import gpu_design, model_ports
from t3sim.gpu.agents.copy_queue import (
    CHAIN,
    FIRST_WAVE_FLAG,
    FLAGS,
    HOST_OR_GPU,
    MOST_WAVES,
    POLL,
    START_FLAG,
    TRACKER,
    CopyPlan,
    QueuePorts,
    make_copy_queue,
)
from t3sim.gpu.engine.hardware import make_hardware
from t3sim.gpu.fabric import memory
from t3sim.machine import Machine
from t3sim.machine.topologies import fully_connected
from t3sim.rtl.queue_commands import ADD, COPY, SIGNAL, Command
from t3sim.rtl.queue_commands import POLL as POLLS
from t3sim.rtlsim.port_map import PortMap
from t3sim.runs import build
from t3sim.runs.copies import COLLECTIVES, VARIANTS, Copied, plan_exchange
from t3sim.runs.copy_ledger import CopyLedger
from t3sim.runs.failure import SimulationError
from t3sim.runs.programmed import ProgrammedGpus

INITIATORS = ("host", "gpu", "poll", "chain", "tracker")
_ROW_BYTES = 256
_LARGEST_BLOCK = 32 * 1024  #: of one command; its bytes must fit into the Tracker's counter
_MOST_COMMANDS = 4096
_ALIGN = 1 << 20
_RING, _FLAGS = 1 << 33, 1 << 34  #: addresses
#: What a Tracker may start, with copies by variants: of what is read once, once.
BY_TRACKER = {"b2b": ("a2a", "rs"), "bcst": ("ag",), "swap": ()}
_STARTS = {"host": HOST_OR_GPU, "gpu": HOST_OR_GPU, "poll": POLL, "chain": CHAIN, "tracker": TRACKER}


class ProducerWaves(NamedTuple):
    """Waves in which a producer stores its blocks."""

    blocks: int | None = None  #: of each, which a flag of a chain releases; as few as flags allow if not given
    reverse: bool = False  #: stored last to first, while commands are in their order


@dataclass(frozen=True)
class QueuedRun:
    """A collective through the RTL. That it is here means that every bit of every GPU is right. Times in ns."""

    exchange_ns: float  #: from the producer's last store in memory to the last copied line in memory, the slowest GPU
    whole_ns: float  #: from the producer's start to the same
    signalled_ns: float  #: from the producer's last store to the last peer's signal; 0 without signals
    commands: int  #: of all GPUs, signals and polls included; of triggers with the Tracker
    copies: int  #: commands of copies; a broadcast is one
    polls: int
    signals: int
    lines: int  #: read for DMA


def chunk_bytes(size_bytes: int, gpus: int) -> int:
    """Return the bytes that each pair of GPUs exchanges. Raises BadInput."""
    chunk = size_bytes // gpus
    block = min(chunk, _LARGEST_BLOCK)
    if size_bytes % gpus or chunk < _ROW_BYTES or chunk % _ROW_BYTES or chunk % block:
        raise BadInput(f"sizes: {size_bytes} bytes on {gpus} GPUs: chunks of {_ROW_BYTES} bytes to "
                       f"{_LARGEST_BLOCK // 1024} KB by {_ROW_BYTES}, or multiples of {_LARGEST_BLOCK // 1024} KB, "
                       "are needed")
    return chunk


def run_queued(machine: Machine, collective: str, gpus: int, size_bytes: int,
               initiator: str = "host", seed: int = 0, variant: str = "b2b",
               waves: ProducerWaves = ProducerWaves()) -> QueuedRun:
    """Run a collective in which each pair of GPUs exchanges `size_bytes`/gpus, all links there are between any two.

    `machine`, of level `QUEUE`, says what a host and a kernel take to start copies. `variant`: of `VARIANTS`; what a
    Tracker starts is broadcast to all peers at once. Raises BadInput and SimulationError.
    """
    check_asked(machine, collective, gpus, size_bytes, initiator, variant, waves)
    run = _Run(machine, collective, gpus, size_bytes, initiator, seed, variant, waves)
    try:
        run.run()
        return run.result()
    finally:
        run.close()


def check_asked(machine: Machine, collective: str, gpus: int, size_bytes: int, initiator: str,
                variant: str = "b2b", waves: ProducerWaves = ProducerWaves()) -> None:
    """Check what is asked of `run_queued`. Raises BadInput."""
    for name, value, allowed in (("collective", collective, tuple(COLLECTIVES)),
                                 ("initiator", initiator, INITIATORS)):
        if value not in allowed:
            raise BadInput(f"{name} = {value[:40]!r} is unknown on the cycle level: allowed are {', '.join(allowed)}")
    if collective not in VARIANTS.get(variant, ()):
        possible = (name for name, of in VARIANTS.items() if collective in of)
        raise BadInput(f"variant = {variant[:40]!r} is not possible for {collective} on the cycle level: allowed are "
                       f"{', '.join(possible)}")
    if initiator == "tracker" and collective not in BY_TRACKER[variant]:
        why = "each copy of a swap waits for the other GPU's" if variant == "swap" else (
            "a tile is sent once") if collective in ("ag", "a2a", "rs") else (
            "what comes from peers is counted in `t3 run` only, whose rings and layer.operator = gemm-ar a Tracker "
            "starts")
        allowed = ", ".join(f"{one} by {name}" for name, of in BY_TRACKER.items() for one in of)
        raise BadInput(f"initiator = tracker is not possible for {collective} by {variant} on the cycle level: {why}; "
                       f"allowed are {allowed}")
    regions = 2 if collective == "ar" else 1  # to each peer: one that is added there, one that is copied
    most = min((machine.dma.regions - 1) // regions + 1, 16)
    if not 2 <= gpus <= most:
        raise BadInput(f"gpus = {gpus} is not possible on the cycle level: 2 to {most} are allowed, as many as [dma] "
                       "regions of the machine has destinations")
    chunk = chunk_bytes(size_bytes, gpus)
    produced = plan_exchange(collective, gpus, chunk, variant == "swap").produced[0]
    _blocks_of_a_wave(len(produced) * (chunk // min(chunk, _LARGEST_BLOCK)), waves)


def _blocks_of_a_wave(blocks: int, waves: ProducerWaves) -> int:
    """Return how many of a GPU's blocks are a wave. Raises BadInput."""
    possible = sorted(blocks // count for count in range(1, MOST_WAVES + 1) if not blocks % count)
    wave = possible[0] if waves.blocks is None else waves.blocks
    if wave not in possible:
        raise BadInput(f"wave = {wave} is not possible: {', '.join(map(str, possible))} of the {blocks} blocks that "
                       f"each GPU stores, which at most {MOST_WAVES} flags release")
    return wave


def _chain(following: Mapping[int, int], region: int) -> list[int]:
    """Return a region and those under which what is read of it leaves, too, one after the other."""
    return [region, *_chain(following, following[region])] if region in following else [region]


class _Run(ProgrammedGpus):
    """The GPUs, programmed, and what is compared in the end."""

    def __init__(self, machine: Machine, collective: str, gpus: int, size_bytes: int, initiator: str, seed: int,
                 variant: str = "b2b", waves: ProducerWaves = ProducerWaves()) -> None:
        machine = machine.changed(dma={"copies": machine.dma.routes})
        chunk = chunk_bytes(size_bytes, gpus)
        block = min(chunk, _LARGEST_BLOCK)
        self._machine, self._gpus, self._initiator, self._block = machine, gpus, initiator, block
        self._exchange = exchange = plan_exchange(collective, gpus, chunk, variant == "swap")
        self._at_once = 1 if variant != "bcst" else gpus - 1 if initiator == "tracker" else 2
        #: Of each GPU, by peer and whether memory adds there.
        self._regions = [{} for _ in range(gpus)]
        for gpu, one in exchange.copies():
            self._regions[gpu].setdefault((one.peer, one.adds), len(self._regions[gpu]) + 1)
        stride = -(-exchange.size_bytes // _ALIGN) * _ALIGN + _ALIGN
        self._base = np.array([_ALIGN + gpu * stride for gpu in range(gpus)])
        self._blocks = [self._produced(gpu) for gpu in range(gpus)]
        blocks = len(self._blocks[0])
        self._wave = wave = _blocks_of_a_wave(blocks, waves)
        lines = [self._commands(gpu) for gpu in range(gpus)]
        self._program_lines = lines
        order = list(range(blocks // wave))[::-1 if waves.reverse else 1]
        self._flags = [FIRST_WAVE_FLAG + one for one in order]
        self._blocks = [[block for one in order for block in blocks[one * wave:(one + 1) * wave]]
                        for blocks in self._blocks]
        places = 1 << max(1, (max(map(len, lines)) - 1).bit_length())
        if places > _MOST_COMMANDS:
            raise BadInput(f"sizes: {max(map(len, lines))} commands for one queue: at most {_MOST_COMMANDS} are "
                           "allowed")
        geometry = machine.geometry()
        # One top for all sizes up to 64 commands: each other one is compiled anew.
        geometry = replace(geometry, dma=replace(geometry.dma, queue_commands=max(64, places)))
        design = gpu_design(geometry)
        backends = [design.simulator() for _ in range(gpus)]
        ports, doorbells = backends[0].ports, [Driver(geometry).doorbell(len(own))[0] for own in lines]
        hardware, _ = make_hardware(backends, model_ports(ports, geometry), self._requests(ports))
        agent = make_copy_queue(_queue_ports(ports), self._plan(ports, doorbells), geometry.channel.channels)
        network = build.network_of(machine, fully_connected(gpus), {})
        sim = build.machine_state(machine, agent, network, [(gpu + 1) % gpus for gpu in range(gpus)])  # type: ignore
        for gpu, regions in enumerate(self._regions):
            peers, following = {region: peer for (peer, _), region in regions.items()}, self._following(gpu)
            for region in peers:
                for copy, one in enumerate(_chain(following, region)):
                    sim.mem.region_ports[gpu, region, copy] = network.next_port[gpu, peers[one]]
            sim.control.picks_ports[gpu] = gpus > 2
        super().__init__(sim._replace(hardware=hardware, hardware_stream=memory.EXCHANGE), geometry, backends,
                         range(gpus))
        self.reset()
        self.restart(self._settings, at_rest=())
        if initiator in ("poll", "chain"):
            for driver, master, own in zip(self.drivers, self.masters, lines):
                self.write(master, driver.doorbell(len(own)))
        region = np.zeros((gpus, gpus, 2), np.int64)
        for gpu in range(gpus):
            for first, *others in self._rows(gpu):
                for one in (first, *others):
                    region[gpu, one.peer, int(one.adds)] = self._region(gpu, first)  # under which it is read
        self.ledger = CopyLedger(exchange, self._base, region, max(map(len, self._regions)) + 1, seed)
        self.observers.append(self.ledger)

    def _commands(self, gpu: int) -> list[Command]:
        """Return the lines of a GPU's queue: a poll first if it is prelaunched, then stage after stage."""
        if self._initiator == "tracker":
            return []
        lines = [_flag_command(POLLS, gpu, START_FLAG)] * (self._initiator == "poll")
        base, polled = int(self._base[gpu]), 0
        wave_of = {address - base: place // self._wave for place, (address, _) in enumerate(self._blocks[gpu])}

        def stored(source: int) -> list[Command]:
            """Return a chain's polls for the waves up to that in which the GPU stores a block, those left to poll."""
            nonlocal polled
            first, wave = polled, wave_of.get(source, -1) if self._initiator == "chain" else -1
            polled = max(polled, wave + 1)
            return [_flag_command(POLLS, gpu, FIRST_WAVE_FLAG + one) for one in range(first, polled)]
        for stage in self._exchange.stages[gpu]:
            lines += [_flag_command(POLLS, gpu, flag, value) for flag, value in stage.waits]
            for row in self._in_rows(stage.copies):
                for at in self._parts():
                    lines += [*stored(row[0].source + at),
                              Command(0, COPY, row[0].source + at, self._region(gpu, row[0]))]
            for chunk in stage.stored:
                lines += [poll for at in self._parts() for poll in stored(chunk + at)]
            lines += [_flag_command(ADD if adds else SIGNAL, peer, flag) for peer, flag, adds in stage.signals]
        return lines

    def _region(self, gpu: int, one: Copied) -> int:
        return self._regions[gpu][one.peer, one.adds]

    def _in_rows(self, copies: Sequence[Copied]) -> list[tuple[Copied, ...]]:
        """Group copies: those of one source are made together, as many as may be."""
        return [tuple(of[first:first + self._at_once]) for _, same in groupby(copies, lambda one: one.source)
                for of in [list(same)] for first in range(0, len(of), self._at_once)]

    def _rows(self, gpu: int) -> list[tuple[Copied, ...]]:
        return [row for stage in self._exchange.stages[gpu] for row in self._in_rows(stage.copies)]

    def _following(self, gpu: int) -> dict[int, int]:
        """Return the region of which a copy is made, too, by region."""
        return {self._region(gpu, one): self._region(gpu, following)
                for row in self._rows(gpu) for one, following in pairwise(row)}

    def _parts(self) -> range:
        """Return the blocks of a chunk."""
        return range(0, self._exchange.chunk_bytes, self._block)

    def _produced(self, gpu: int) -> list[tuple[int, int]]:
        """Return the blocks that a producer stores, each once: address and region.

        The region is the one under which the Tracker counts it, if its copies go anywhere.
        """
        goes = {one.source: self._regions[gpu][one.peer, one.adds]
                for one in reversed(self._exchange.stages[gpu][0].copies)}
        first = [chunk * self._exchange.chunk_bytes for chunk in self._exchange.produced[gpu]]
        return [(int(self._base[gpu]) + one + at, goes.get(one, 0)) for one in first for at in self._parts()]

    def _requests(self, ports: PortMap) -> np.ndarray:
        """Make the requests for the dispatch window: with the Tracker an id for each block."""
        if self._initiator != "tracker":
            return np.zeros((self._gpus, 0), np.int64)
        fields = ports.port("dispatch.payload").fields
        requests = []
        for blocks in self._blocks:
            requests.append([])
            for number, (_, region) in enumerate(blocks):
                values = {"id": number, "tiles": 1, "opens": 1, "starts": 1, "region": region, "last_region": region}
                if not region:  # it stays here, and is not tracked
                    values = {"starts": 1}
                requests[-1].append(sum(value << fields[name].lsb for name, value in values.items()))
        return np.array(requests, np.int64)

    def _plan(self, ports: PortMap, doorbells: Sequence[Write]) -> CopyPlan:
        gpus, machine = self._gpus, self._machine
        clock = machine.memory_clock_ghz
        fields = ports.port("queue_lines.payload").fields
        commands = np.zeros((gpus, max(1, *map(len, self._program_lines)), 2), np.int64)
        for gpu, lines in enumerate(self._program_lines):
            for number, line in enumerate(lines):
                values = line._asdict()
                if line.op == COPY:
                    values["address"] += int(self._base[gpu])
                packed = sum(value << fields[name].lsb for name, value in values.items())
                commands[gpu, number] = np.array([packed & (1 << 64) - 1, packed >> 64], np.uint64).view(np.int64)
        counts = [len(lines) for lines in self._program_lines]
        costs = {"host": [(count * machine.host.command_ns + machine.host.doorbell_ns) * (gpu + 1)
                          for gpu, count in enumerate(counts)],
                 "gpu": [count * machine.gpu.command_ns + machine.gpu.doorbell_ns for count in counts],
                 "poll": [machine.host.trigger_ns * (gpu + 1) for gpu in range(gpus)], "chain": [0.0] * gpus,
                 "tracker": [0.0] * gpus}
        arriving, signals = np.zeros(gpus, np.int64), np.zeros(gpus, np.int64)
        for _, one in self._exchange.copies():
            arriving[one.peer] += self._exchange.chunk_bytes
        for lines in self._program_lines:
            for line in lines:
                if line.op in (SIGNAL, ADD):
                    signals[(line.address - _FLAGS) // LINE_BYTES // FLAGS] += 1
        return CopyPlan(
            initiator=_STARTS[self._initiator],
            blocks=np.array([[address for address, _ in blocks] for blocks in self._blocks], np.int64),
            regions=np.array([[region for _, region in blocks] for blocks in self._blocks], np.int64),
            adds=self._exchange.adds,
            block_bytes=self._block, commands=commands, ring=_RING, flags=_FLAGS, doorbell=doorbells[0].offset,
            doorbell_value=np.array([write.value for write in doorbells], np.int64),
            start_cycles=np.array([round(ns * clock) for ns in costs[self._initiator]], np.int64),
            arriving=arriving, signals=signals, wave_blocks=self._wave,
            waves=np.array([self._flags] * gpus, np.int64))

    def _settings(self, place: int) -> list[Write]:
        driver = self.drivers[place]
        return (driver.open_memory(0, base=0, limit=_FLAGS * 2) + driver.plain_arrivals([0])
                + self._mappings(place, driver) + self._policy(driver) + driver.window(1)
                + driver.command_queue(_RING, (_FLAGS, 2 * _FLAGS)))

    def _policy(self, driver: Driver) -> list[Write]:
        """Set the arbiters by the machine's limits, where it says some."""
        arbiter = self._machine.arbiter
        limit = arbiter.starvation_limit_cycles
        threshold = None if arbiter.threshold == "none" else arbiter.threshold
        return driver.policy("mca", threshold, "auto" if limit == "derived" else limit or None)

    def _mappings(self, gpu: int, driver: Driver) -> list[Write]:
        """Map a GPU's regions, those with the most destinations first: the others' routes are among theirs."""
        base, following = int(self._base[gpu]), self._following(gpu)
        copies = {self._region(gpu, copy): copy for owner, copy in self._exchange.copies() if owner == gpu}
        writes = []
        for region in sorted(copies, key=lambda region: len(_chain(following, region)), reverse=True):
            to = [(copies[one].peer, int(self._base[copies[one].peer]) + copies[one].to - base - copies[one].source)
                  for one in _chain(following, region)]
            writes += driver.copy_map(
                region, base=base, limit=base + self._exchange.size_bytes, row_bytes=_ROW_BYTES,
                columns=self._block // _ROW_BYTES, to=to, adds=copies[region].adds)
        return writes

    def check(self) -> None:
        """Check all words, and how many copies the hardware made. Raises SimulationError."""
        super().check()
        copies, total = self._copies, self._counted
        if (total["commands"], total["lines"]) != (copies, copies * self._block // LINE_BYTES):
            raise SimulationError(f"{total['commands']} copies of {total['lines']} lines were made instead of {copies}")

    @property
    def _copies(self) -> int:
        return len(self._parts()) * sum(len(self._rows(gpu)) for gpu in range(self._gpus))

    @property
    def _counted(self) -> dict[str, int]:
        counted = [self.counters(gpu) for gpu in range(self._gpus)]
        return {name: sum(one[name] for one in counted) for name in ("commands", "lines")}

    def result(self) -> QueuedRun:
        """Return what a run that has ended took."""
        state, ns = self.sim.kernel.state, 1 / self._machine.memory_clock_ghz  # type: ignore
        end, copies, total = state.arrived.max(), self._copies, self._counted
        commands = [line for lines in self._program_lines for line in lines]
        return QueuedRun(
            exchange_ns=float((end - state.produced.max()) * ns), whole_ns=float(end * ns),
            signalled_ns=float(max(0, state.signalled.max() - state.produced.max()) * ns),
            commands=len(commands) or copies, copies=copies, polls=sum(line.op == POLLS for line in commands),
            signals=sum(line.op in (SIGNAL, ADD) for line in commands), lines=total["lines"])


def _flag_command(op: int, gpu: int, flag: int, value: int = 1) -> Command:
    """Make a poll or a signal of one of a GPU's flags."""
    return Command(value, op, _FLAGS + (gpu * FLAGS + flag) * LINE_BYTES)


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
        write_value_lsb=write["value"].lsb, write_adds_lsb=write["adds"].lsb, pready=at("apb.pready"))
