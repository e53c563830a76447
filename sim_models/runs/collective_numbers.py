"""Real numbers of a collective by kernels on compute units: what is read, added up and stored, in every GPU's memory.

A line that DRAM reads gives what memory holds at that moment; a line that DRAM writes becomes the sum of what its
sender read for it. So a read that comes before what it needs, a line that is lost, comes twice or goes to the wrong
place leaves other bits. In the end each word that the collective has a goal for is compared with what its program says,
which is computed transfer by transfer, without passes or addresses.

Words have 64 bits, and sums are modulo 2^64. Around a switch that adds they are whole numbers in fp32, so small that
any sum of all GPUs' is exact: the order in which parts meet, and in how many packets they come, change no bit. The
switch's RTL adds what it is sent, and memory adds what comes out of it; its model's sums are made here.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from t3sim.base.compiled.jit import compiled
from t3sim.base.line import LINE_BYTES
from t3sim.collectives import Op
from t3sim.cosim.nmc_alu import DTYPES
from t3sim.gpu.engine.observers import Observer
from t3sim.gpu.engine.switch_hardware import SwitchNumbers
from t3sim.gpu.fabric import bits, queues
from t3sim.runs.failure import SimulationError
from t3sim.runs.program_kernels import LevelPlan
from t3sim.workload.operators.copy import Pass
from t3sim.workload.operators.kernel_table import Route

if TYPE_CHECKING:
    from t3sim.gpu.engine.hardware import Hardware
    from t3sim.gpu.state import Sim

WORD_BYTES = 8  #: a chunk has whole words
BYTES_PER_WORD = 33  #: of this computer: a word in memory, at first, as read before and after it was stored; a count
_NOBODY = -1
_SHIFTS = {False: 3, True: 2}  #: log2 of a word's bytes, by whether a switch adds
_MOST = 1 << 18  #: of a number that a switch adds; sums of 32 are exact in fp32


class CollectiveWords(NamedTuple):
    """Words of every GPU's chunks and of the parts that it receives, in blocks of whole lines."""

    memory: np.ndarray  # int64 or float32 [device, word]
    last_read: np.ndarray  # the same [0 or 1, device, word]: what a read found before and after the word was stored
    stored: np.ndarray  # uint8 [device, word]: how often
    added: np.ndarray  # uint16 [device, word]: parts of other GPUs that came through a switch; no words without one
    sender: np.ndarray  # int64 [device, block]: who stores it, _NOBODY: none does
    sources: np.ndarray  # int64 [device, block, source]: the sender's words whose sum its first is, or _NOBODY
    later: np.ndarray  # int64 [device, block, source]: 1: as read after the source was stored itself
    shift: int  # log2 of a word's bytes
    block_words: int
    chunk_bytes: int  # of all chunks of a GPU; the parts that it receives follow at `copies`
    copies: int
    columns: np.ndarray  # [packet, word]: sums that have left the switch's RTL; none: it is a model
    outside: np.ndarray  # int64 [device]: accesses to what is no block, or that nobody should make

    def before_edge(self, sim: "Sim", kernel: tuple, hardware: "Hardware | None", device: int, now: int) -> None:
        account(self, sim, device)

    def after_edge(self, sim: "Sim", kernel: tuple, hardware: "Hardware | None", device: int, now: int) -> None:
        pass


@compiled
def account(data: CollectiveWords, sim: "Sim", device: int) -> None:
    """Do to the numbers what DRAM performed for a GPU in this cycle."""
    for channel in range(sim.mem.m.channels):
        row = device * sim.mem.m.channels + channel
        if not sim.mem.retired[row]:
            continue
        lo, hi, number = sim.mem.retired_lo[row], sim.mem.retired_hi[row], queues.number_of(sim.mem.retired_tag[row])
        address, op = bits.address_of(lo, sim.b), bits.get(lo, hi, sim.b.op, 2)
        count = bits.get(lo, hi, sim.b.bytes, sim.b.op - sim.b.bytes) >> data.shift
        inside = address < data.chunk_bytes or address >= data.copies
        first = (address if address < data.copies else address - data.copies + data.chunk_bytes) >> data.shift
        if not inside or first + count > data.memory.shape[1]:
            data.outside[device] += 1
        elif op == bits.READ:
            for word in range(first, first + count):
                data.last_read[min(data.stored[device, word], 1), device, word] = data.memory[device, word]
        elif op == bits.UPDATE and data.added.shape[1]:
            add(data, device, first, count, number, 1 + bits.get(lo, hi, sim.b.more, sim.b.more_bits))
        else:
            local = bits.get(lo, hi, sim.b.source, 2) == bits.LOCAL
            store(data, device, first, count, device if local else queues.sender_of(number))


@compiled
def add(data: CollectiveWords, device: int, first: int, count: int, packet: int, parts: int) -> None:
    """Add words to memory that came through the switch: a packet of its RTL, or all others' parts."""
    for i in range(count):
        data.added[device, first + i] += np.uint16(parts)
        if len(data.columns):
            data.memory[device, first + i] += data.columns[packet, i]
        else:
            for sender in range(data.memory.shape[0]):
                if sender != device:
                    data.memory[device, first + i] += data.last_read[0, sender, first + i]


@compiled
def store(data: CollectiveWords, device: int, first: int, count: int, sender: int) -> None:
    """Store words, each the sum of what its sender read."""
    block = first // data.block_words
    if sender != data.sender[device, block]:
        data.outside[device] += 1
        return
    begins = block * data.block_words
    for word in range(first, first + count):
        data.memory[device, word] = 0
        for number in range(data.sources.shape[2]):
            source = data.sources[device, block, number]
            if source >= 0:
                data.memory[device, word] += data.last_read[data.later[device, block, number], sender,
                                                            source + word - begins]
        data.stored[device, word] += np.uint8(1)


class NumbersObserver(Observer):
    """The numbers of a run of all GPUs, and what they must be in the end."""

    def __init__(self, plans: Sequence[LevelPlan], seed: int, columns: np.ndarray) -> None:
        """Fill every GPU's memory; `plans`: of each GPU, `columns`: room for what the switch's RTL sends, if it is."""
        self._program, self._at, switched = plans[0].program, plans[0].at, plans[0].program.in_switch
        self._shift = _SHIFTS[switched]
        self._most = max(map(len, self._program.rank_chunks))  #: chunks of a GPU; later blocks are received parts
        every = [(plan, one) for plan in plans for one in plan.passes()]
        blocks = 1 + max(self._block(address) for _, one in every for address in (one.destination, *one.sources))
        width = max(len(one.sources) for _, one in every)
        sender = np.full((len(plans), blocks), _NOBODY)
        sources, later = np.full((len(plans), blocks, width), _NOBODY), np.zeros((len(plans), blocks, width), np.int64)
        places = [(plan.rank, one, to, self._block(address)) for plan, one in every if not one.updates
                  for to, address in _targets(plan, one)]
        for rank, one, to, block in places:
            if sender[to, block] != _NOBODY:
                raise ValueError(f"GPU {rank}: what GPU {to} has at {one.destination:#x} is stored twice")
            sender[to, block] = rank
        for rank, one, to, block in places:
            copied = len(one.sources) == 1 and block < self._most
            for number, source in enumerate(map(self._block, one.sources)):
                sources[to, block, number] = source * self._block_words
                later[to, block, number] = source >= self._most or (copied and sender[rank, source] != _NOBODY)
        shape, random = (len(plans), blocks * self._block_words), np.random.default_rng(seed)
        self._first = (random.integers(-_MOST, _MOST, shape, np.int32) if switched else
                       random.integers(-(1 << 63), (1 << 63) - 1, shape, np.int64, endpoint=True))
        memory = self._first.astype(np.float32 if switched else np.int64)
        self.data = CollectiveWords(
            memory, np.zeros((2, *shape), memory.dtype), np.zeros(shape, np.uint8),
            np.zeros(shape if switched else (len(plans), 0), np.uint16), sender, sources, later, self._shift,
            self._block_words, self._most * self._block_words << self._shift, self._at.copies,
            columns.view(memory.dtype), np.zeros(len(plans), np.int64))
        #: What the switch's RTL adds: what GPUs found.
        self.sent = SwitchNumbers(*[self.data.last_read[0].view(np.uint32)] * 2, 1, self._shift, columns,
                                  DTYPES["fp32"], np.zeros(len(plans), np.int64))

    @property
    def _block_words(self) -> int:
        return self._at.lines * LINE_BYTES >> self._shift

    def _block(self, address: int) -> int:
        """Return which block begins at an address."""
        first, before = (self._at.copies, self._most) if address >= self._at.copies else (self._at.data, 0)
        return before + (address - first) // (self._block_words << self._shift)

    def before(self, now: int, end: int) -> tuple[CollectiveWords, int]:
        return self.data, end

    def check(self) -> None:
        """Compare every word that the collective has a goal for. Raises SimulationError."""
        data = self.data
        if data.outside.any():
            device = int(np.argmax(data.outside))
            raise SimulationError(f"GPU {device}: {data.outside[device]} accesses outside all chunks")
        for (rank, chunk), expected in self._expected().items():
            block = self._program.rank_chunks[rank].index(chunk)
            words = slice(block * self._block_words, block * self._block_words + len(expected))
            counts = [(data.stored, "was stored {} times", int(data.sender[rank, block] != _NOBODY))]
            if self._program.in_switch:
                counts.append((data.added, "got {} parts of other GPUs",
                               len(self._program.additions.get((rank, chunk), ()))))
            for counted, what, times in counts:
                if len(wrong := np.flatnonzero(counted[rank, words] != times)):
                    raise SimulationError(f"GPU {rank}: word {wrong[0]} of chunk {chunk} "
                                          f"{what.format(counted[rank, words][wrong[0]])} instead of {times}")
            if len(wrong := np.flatnonzero(data.memory[rank, words] != expected)):
                raise SimulationError(f"GPU {rank}: word {wrong[0]} of chunk {chunk} is "
                                      f"{int(data.memory[rank, words][wrong[0]]):#x}, not {expected[wrong[0]]:#x} "
                                      f"({len(wrong)} such words)")

    @property
    def words(self) -> int:
        """Count the words that are compared."""
        return len(self._program.goal) * self._at.chunk_bytes // WORD_BYTES

    def _expected(self) -> dict[tuple[int, int], np.ndarray]:
        """Compute what each (rank, chunk) of the goal must hold."""
        program, length = self._program, self._at.chunk_bytes >> self._shift
        holds = {}
        for rank, chunk in program.start:
            first = program.rank_chunks[rank].index(chunk) * self._block_words
            holds[rank, chunk] = self._first[rank, first:first + length].astype(np.int64)
        for index in sorted(range(len(program.transfers)), key=program.levels.__getitem__):
            one = program.transfers[index]
            sent_words, target = holds[one.source, one.chunk], (one.destination, one.chunk)
            holds[target] = holds[target] + sent_words if one.op is Op.ADD and target in holds else sent_words
        return {key: holds[key] for key in program.goal}


def _targets(plan: LevelPlan, one: Pass) -> list[tuple[int, int]]:
    """List the GPUs that a pass stores to, each with the address there."""
    if one.route is not Route.PEER:
        return [(plan.rank, one.destination)]
    peer = plan.peers[one.peer]
    if peer < plan.program.ranks:
        return [(peer, one.destination)]
    return [(device, one.destination + offset) for device, offset in plan.copied_to]
