"""Real numbers of collectives by commands in memory: what is copied, and what memory adds.

A line that DRAM reads for DMA takes what memory holds at that moment; a line that arrives replaces it when DRAM
performs the write, or is added by the near-memory ALU's RTL, which in a swap keeps the exclusive or. Where memory
adds, it starts as -0.0, the identity of IEEE
addition, and the producer's stores are added, too. In the end every word is compared with numpy's: a sum is the parts'
in the order in which DRAM added them, and each part must have come once.
"""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from t3sim.base.compiled.jit import compiled
from t3sim.cosim.nmc_alu import COLUMN_BYTES, compiled_alu
from t3sim.gpu.engine.observers import Observer
from t3sim.gpu.fabric import bits, memory
from t3sim.gpu.fabric.queues import number_of, stream_of
from t3sim.machine.formats import FP16
from t3sim.runs.copies import CopyExchange
from t3sim.runs.failure import SimulationError
from t3sim.runs.near_memory import Alu, add, make_alu, sum_in_turn

if TYPE_CHECKING:
    from t3sim.gpu.engine.hardware import Hardware
    from t3sim.gpu.state import Sim

WORD_BYTES = 8
_COLUMN = COLUMN_BYTES // WORD_BYTES  #: words that the ALU adds at once
_NEGATIVE_ZERO = np.array([FP16.negative_zero] * 4, np.uint16).view(np.int64)[0]


class CopyWords(NamedTuple):
    """Words of every GPU's buffers, [device, word]."""

    produced: np.ndarray  # int64: what the producer stores
    memory: np.ndarray  # int64
    last_read: np.ndarray  # int64 [device, region, word]: what a read for a region found
    tally: np.ndarray  # uint8: how often a peer's copy wrote the word, or was added to it
    base: np.ndarray  # int64 [device]
    shift: np.ndarray  # int64 [source, destination]: words from the source's word to the destination's
    region: np.ndarray  # int64 [source, destination, adds]
    outside: np.ndarray  # int64 [device]: accesses to what is no buffer
    arrival_order: np.ndarray  # uint8 [addition, device, column]: whose it was, plus 1
    added: np.ndarray  # uint8 [device, column]: additions so far, as many as `arrival_order` holds at most
    silent: np.ndarray  # int64 [device]: columns without an answer from the ALU
    alu: Alu

    def before_edge(self, sim: "Sim", kernel: tuple, hardware: "Hardware | None", device: int, now: int) -> None:
        account(self, sim, device)

    def after_edge(self, sim: "Sim", kernel: tuple, hardware: "Hardware | None", device: int, now: int) -> None:
        pass


@compiled
def account(data: CopyWords, sim: "Sim", device: int) -> None:
    """Do to the numbers what DRAM performed for a device in this cycle."""
    for c in range(sim.mem.m.channels):
        row = device * sim.mem.m.channels + c
        if not sim.mem.retired[row] or stream_of(sim.mem.retired_tag[row]) == memory.OTHER:
            continue  # commands and flags
        lo, hi = sim.mem.retired_lo[row], sim.mem.retired_hi[row]
        source, op = bits.get(lo, hi, sim.b.source, 2), bits.get(lo, hi, sim.b.op, 2)
        first = (bits.address_of(lo, sim.b) - data.base[device]) // WORD_BYTES
        count = bits.get(lo, hi, sim.b.bytes, sim.b.op - sim.b.bytes) // WORD_BYTES
        if first < 0 or first + count > data.memory.shape[1]:
            data.outside[device] += 1
            continue
        if op == bits.READ:
            region = bits.get(lo, hi, sim.b.region, sim.b.region_bits)
            for word in range(first, first + count):
                data.last_read[device, region, word] = data.memory[device, word]
            continue
        adds = op == bits.UPDATE
        sender = device if source == bits.LOCAL else number_of(sim.mem.retired_tag[row])
        for word in range(first, first + count):
            if source == bits.LOCAL:
                new = data.produced[device, word]
            else:
                new = data.last_read[sender, data.region[sender, device, int(adds)], word - data.shift[sender, device]]
                data.tally[device, word] += np.uint8(1)
            if adds:
                data.alu.inputs[data.alu.old + word % _COLUMN] = data.memory[device, word]
                data.alu.inputs[data.alu.new + word % _COLUMN] = new
                if word % _COLUMN == _COLUMN - 1:
                    _add_column(data, device, word // _COLUMN, sender)
            else:
                data.memory[device, word] = new


@compiled
def _add_column(data: CopyWords, device: int, column: int, sender: int) -> None:
    """Let the RTL add the operands that it has; whose they were is kept."""
    alu = data.alu
    if not add(alu):
        data.silent[device] += 1
    for word in range(_COLUMN):
        data.memory[device, column * _COLUMN + word] = alu.outputs[alu.result + word]
    if data.added[device, column] < data.arrival_order.shape[0]:
        data.arrival_order[data.added[device, column], device, column] = sender + 1
        data.added[device, column] += np.uint8(1)


class CopyLedger(Observer):
    """The numbers of a run, and what they must be in the end."""

    def __init__(self, exchange: CopyExchange, base: np.ndarray, region: np.ndarray, regions: int, seed: int) -> None:
        """Fill the buffers of all GPUs with numbers.

        `base`: address of each GPU's buffers; `region`: [source, destination, adds] that a copy is made under.
        """
        self._exchange = exchange
        gpus, words, random = len(exchange.stages), exchange.size_bytes // WORD_BYTES, np.random.default_rng(seed)
        if exchange.adds:  # finite numbers, so that a sum depends on the order
            produced = random.standard_normal((gpus, 4 * words)).astype(np.float16).view(np.int64)
            self._start = np.full_like(produced, _NEGATIVE_ZERO)
        else:
            produced, self._start = random.integers(-(1 << 63), (1 << 63) - 1, (2, gpus, words), np.int64,
                                                    endpoint=True)
        shift = np.zeros((gpus, gpus), np.int64)
        for gpu, copy in exchange.copies():
            shift[gpu, copy.peer] = (copy.to - copy.source) // WORD_BYTES
        self._alu = compiled_alu()
        columns = words // _COLUMN
        self.data = CopyWords(
            produced, self._start.copy(), np.zeros((gpus, regions, words), np.int64), np.zeros((gpus, words), np.uint8),
            base, shift, region, np.zeros(gpus, np.int64),
            arrival_order=np.zeros((gpus + 1 if exchange.adds else 0, gpus, columns), np.uint8),
            added=np.zeros((gpus, columns), np.uint8), silent=np.zeros(gpus, np.int64),
            alu=make_alu(self._alu, FP16.name, "xor" if exchange.swaps else "add"))

    def before(self, now: int, end: int) -> tuple[CopyWords, int]:
        return self.data, end

    def check(self) -> None:
        """Compare every word. Raises SimulationError."""
        data = self.data
        for count, problem in ((data.outside, "an access outside of the buffers"),
                               (data.silent, "an addition without an answer from the near-memory ALU")):
            if count.any():
                raise SimulationError(f"GPU {int(np.argmax(count))}: {problem}")
        expected, word_writes = self._expected()
        for d, word in np.argwhere(data.tally != word_writes)[:1]:
            raise SimulationError(f"GPU {d}: bytes from {word * WORD_BYTES} on were copied there "
                                  f"{data.tally[d, word]} times instead of {word_writes[d, word]}")
        wrong = np.argwhere(data.memory != expected)
        for d, word in wrong[:1]:
            raise SimulationError(f"GPU {d}: bytes from {word * WORD_BYTES} on are {data.memory[d, word]:#x} "
                                  f"instead of {expected[d, word]:#x} ({len(wrong)} such words)")

    def _expected(self) -> tuple[np.ndarray, np.ndarray]:
        """Compute what every word must hold, and how often peers' copies must have come there: stage after stage."""
        exchange, data = self._exchange, self.data
        expected, written = self._start.copy(), np.zeros(self._start.shape, np.uint8)
        parts: dict[tuple[int, int], dict[int, np.ndarray]] = {}  # by GPU and first word of a chunk, by whose they are
        length = exchange.chunk_bytes // WORD_BYTES

        def value(gpu: int, first: int) -> np.ndarray:
            if (gpu, first) in parts:
                return self._sum(gpu, first, parts[gpu, first])
            return expected[gpu, first:first + length].copy()
        for gpu, chunks in enumerate(exchange.produced):
            for first in (chunk * length for chunk in chunks):
                produced = data.produced[gpu, first:first + length]
                if exchange.adds:
                    parts[gpu, first] = {gpu: produced}
                else:
                    expected[gpu, first:first + length] = produced
        for number in range(max(map(len, exchange.stages))):
            now = [(gpu, copy) for gpu, stages in enumerate(exchange.stages) for copy in stages[number].copies]
            values = [value(gpu, copy.source // WORD_BYTES) for gpu, copy in now]
            for (gpu, copy), new in zip(now, values):
                first = copy.to // WORD_BYTES
                written[copy.peer, first:first + length] += 1
                if exchange.swaps:
                    expected[copy.peer, first:first + length] ^= new
                elif copy.adds:
                    parts[copy.peer, first][gpu] = new
                else:
                    parts.pop((copy.peer, first), None)
                    expected[copy.peer, first:first + length] = new
        for gpu, first in parts:
            expected[gpu, first:first + length] = value(gpu, first)
        return expected, written

    def _sum(self, gpu: int, first: int, parts: dict[int, np.ndarray]) -> np.ndarray:
        """Add up the parts of a chunk, column by column in the order in which DRAM did. Raises SimulationError."""
        columns = slice(first // _COLUMN, first // _COLUMN + len(parts[gpu]) // _COLUMN)
        order, gpus = self.data.arrival_order[:, gpu, columns], np.array(sorted(parts))
        order = order[:len(parts)].astype(np.int64) - 1
        if (self.data.added[gpu, columns] != len(parts)).any() or (np.sort(order, axis=0) != gpus[:, None]).any():
            raise SimulationError(f"GPU {gpu}: to bytes from {first * WORD_BYTES} on not each of the parts of GPUs "
                                  f"{', '.join(map(str, gpus))} was added once")
        values = np.stack([parts[one] for one in gpus]).view(np.uint16)
        turns = np.repeat(np.searchsorted(gpus, order), COLUMN_BYTES // FP16.bytes, axis=1)
        return sum_in_turn(values, turns, FP16).view(np.int64)

    def close(self) -> None:
        """Free the ALU."""
        self._alu.close()
