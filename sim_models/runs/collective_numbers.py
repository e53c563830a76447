"""Real numbers of a collective by kernels on compute units: what is read, added up and stored, in every GPU's memory.

Each GPU's memory holds 64-bit words. A line that DRAM reads gives what memory holds at that moment; a line that DRAM
writes becomes the sum, modulo 2^64, of what its sender read for it. So a read that comes before what it needs, a line
that is lost, comes twice or goes to the wrong place leaves other bits. In the end each word that the collective has a
goal for is compared with what its program says, which is computed transfer by transfer, without passes or addresses.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from t3sim.base.compiled.jit import compiled
from t3sim.base.line import LINE_BYTES
from t3sim.collectives import Op
from t3sim.gpu.engine.observers import Observer
from t3sim.gpu.fabric import bits
from t3sim.runs.failure import SimulationError
from t3sim.runs.program_kernels import LevelPlan
from t3sim.workload.operators.kernel_table import Route

if TYPE_CHECKING:
    from t3sim.gpu.engine.hardware import Hardware
    from t3sim.gpu.state import Sim

WORD_BYTES = 8  #: a chunk has whole words
BYTES_PER_WORD = 33  #: of this computer: a word in memory, at first, as read before and after it was stored; a count
_NOBODY = -1


class CollectiveWords(NamedTuple):
    """Words of every GPU's chunks and of the parts that it receives, in blocks of whole lines."""

    memory: np.ndarray  # int64 [device, word]
    last_read: np.ndarray  # int64 [device, 0 or 1, word]: what a read found before and after the word was stored
    stored: np.ndarray  # uint8 [device, word]: how often
    sender: np.ndarray  # int64 [device, block]: who stores it, _NOBODY: none does
    sources: np.ndarray  # int64 [device, block, source]: the sender's words whose sum its first is, or _NOBODY
    later: np.ndarray  # int64 [device, block, source]: 1: as read after the source was stored itself
    block_words: int
    chunk_bytes: int  # of all chunks of a GPU; the parts that it receives follow at `copies`
    copies: int
    outside: np.ndarray  # int64 [device]: accesses to what is no block, or that nobody should make

    def before_edge(self, sim: "Sim", kernel: tuple, hardware: "Hardware | None", device: int, now: int) -> None:
        account(self, sim, device)

    def after_edge(self, sim: "Sim", kernel: tuple, hardware: "Hardware | None", device: int, now: int) -> None:
        pass


@compiled
def account(data: CollectiveWords, sim: "Sim", device: int) -> None:
    """Do to the numbers what DRAM performed for a GPU in this cycle."""
    for channel in range(sim.m.channels):
        row = device * sim.m.channels + channel
        if not sim.mem.retired[row]:
            continue
        lo, hi = sim.mem.retired_lo[row], sim.mem.retired_hi[row]
        address, count = bits.address_of(lo, sim.b), bits.get(lo, hi, sim.b.bytes, sim.b.op - sim.b.bytes) // WORD_BYTES
        inside = address < data.chunk_bytes or address >= data.copies
        first = (address if address < data.copies else address - data.copies + data.chunk_bytes) // WORD_BYTES
        if not inside or first + count > data.memory.shape[1]:
            data.outside[device] += 1
        elif bits.get(lo, hi, sim.b.op, 2) == bits.READ:
            for word in range(first, first + count):
                data.last_read[device, min(data.stored[device, word], 1), word] = data.memory[device, word]
        else:
            store(data, device, first, count)


@compiled
def store(data: CollectiveWords, device: int, first: int, count: int) -> None:
    """Store words, each the sum of what its sender read."""
    block = first // data.block_words
    sender, begins = data.sender[device, block], block * data.block_words
    if sender < 0:
        data.outside[device] += 1
        return
    for word in range(first, first + count):
        total = np.int64(0)
        for number in range(data.sources.shape[2]):
            source = data.sources[device, block, number]
            if source >= 0:
                total += data.last_read[sender, data.later[device, block, number], source + word - begins]
        data.memory[device, word] = total
        data.stored[device, word] += np.uint8(1)


class NumbersObserver(Observer):
    """The numbers of a run of all GPUs, and what they must be in the end."""

    def __init__(self, plans: Sequence[LevelPlan], seed: int) -> None:
        """Fill every GPU's memory with numbers; `plans`: of each GPU."""
        self._program, self._at = plans[0].program, plans[0].at
        self._most = max(map(len, self._program.rank_chunks))  #: chunks of a GPU; later blocks are received parts
        passes = [plan.passes() for plan in plans]
        every = [(rank, plan, one) for rank, plan in enumerate(plans) for one in passes[rank]]
        blocks = 1 + max(self._block(address) for _, _, one in every for address in (one.destination, *one.sources))
        width = max(len(one.sources) for _, _, one in every)
        sender = np.full((len(plans), blocks), _NOBODY)
        sources, later = np.full((len(plans), blocks, width), _NOBODY), np.zeros((len(plans), blocks, width), np.int64)
        places = [(rank, one, plan.peers[one.peer] if one.route is Route.PEER else rank, self._block(one.destination))
                  for rank, plan, one in every]
        for rank, one, to, block in places:
            if sender[to, block] != _NOBODY:
                raise ValueError(f"GPU {rank}: what GPU {to} has at {one.destination:#x} is stored twice")
            sender[to, block] = rank
        for rank, one, to, block in places:
            copied = len(one.sources) == 1 and block < self._most
            for number, source in enumerate(map(self._block, one.sources)):
                sources[to, block, number] = source * self._block_words
                later[to, block, number] = source >= self._most or (copied and sender[rank, source] != _NOBODY)
        words = blocks * self._block_words
        self._first = np.random.default_rng(seed).integers(-(1 << 63), (1 << 63) - 1, (len(plans), words), np.int64,
                                                           endpoint=True)
        self.data = CollectiveWords(
            self._first.copy(), np.zeros((len(plans), 2, words), np.int64), np.zeros((len(plans), words), np.uint8),
            sender, sources, later, self._block_words, self._most * self._block_words * WORD_BYTES, self._at.copies,
            np.zeros(len(plans), np.int64))

    @property
    def _block_words(self) -> int:
        return self._at.lines * LINE_BYTES // WORD_BYTES

    def _block(self, address: int) -> int:
        """Return which block begins at an address."""
        first, before = (self._at.copies, self._most) if address >= self._at.copies else (self._at.data, 0)
        return before + (address - first) // (self._block_words * WORD_BYTES)

    def before(self, now: int, end: int) -> tuple[CollectiveWords, int]:
        return self.data, end

    def check(self) -> None:
        """Compare every word that the collective has a goal for. Raises SimulationError."""
        if self.data.outside.any():
            device = int(np.argmax(self.data.outside))
            raise SimulationError(f"GPU {device}: {self.data.outside[device]} accesses outside all chunks")
        for (rank, chunk), expected in self._expected().items():
            block = self._program.rank_chunks[rank].index(chunk)
            words = slice(block * self._block_words, block * self._block_words + len(expected))
            times = int(self.data.sender[rank, block] != _NOBODY)
            if len(wrong := np.flatnonzero(self.data.stored[rank, words] != times)):
                raise SimulationError(f"GPU {rank}: word {wrong[0]} of chunk {chunk} was stored "
                                      f"{self.data.stored[rank, words][wrong[0]]} times instead of {times}")
            stored_words = self.data.memory[rank, words]
            if len(wrong := np.flatnonzero(stored_words != expected)):
                raise SimulationError(f"GPU {rank}: word {wrong[0]} of chunk {chunk} is "
                                      f"{stored_words[wrong[0]]:#x}, not {expected[wrong[0]]:#x} ({len(wrong)} such "
                                      "words)")

    @property
    def words(self) -> int:
        """Count the words that are compared."""
        return len(self._program.goal) * self._at.chunk_bytes // WORD_BYTES

    def _expected(self) -> dict[tuple[int, int], np.ndarray]:
        """Compute what each (rank, chunk) of the goal must hold."""
        program, length = self._program, self._at.chunk_bytes // WORD_BYTES
        holds = {}
        for rank, chunk in program.start:
            first = program.rank_chunks[rank].index(chunk) * self._block_words
            holds[rank, chunk] = self._first[rank, first:first + length]
        for index in sorted(range(len(program.transfers)), key=program.levels.__getitem__):
            one = program.transfers[index]
            sent_words, target = holds[one.source, one.chunk], (one.destination, one.chunk)
            holds[target] = holds[target] + sent_words if one.op is Op.ADD and target in holds else sent_words
        return {key: holds[key] for key in program.goal}
