"""Real numbers of a collective by kernels in a switch that adds: in every GPU's memory, and through the switch's RTL.

All GPUs have all chunks, at the same addresses. Elements are whole numbers in fp32, so small that any sum of all GPUs'
is exact: the order in which parts meet, and in how many packets they come, change no bit. A read finds what memory
holds at that moment; what is sent is what its GPU found last. With the switch's RTL it adds what it is sent, and memory
adds what comes out of it; its model's sums are made here. In the end each word is compared with what the collective
makes of the first numbers.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from t3sim.base.compiled.jit import compiled
from t3sim.cosim.nmc_alu import DTYPES
from t3sim.gpu.engine.observers import Observer
from t3sim.gpu.engine.switch_hardware import SwitchNumbers
from t3sim.gpu.fabric import bits, queues
from t3sim.runs.collective_numbers import WORD_BYTES
from t3sim.runs.failure import SimulationError
from t3sim.runs.program_kernels import LevelPlan

if TYPE_CHECKING:
    from t3sim.gpu.engine.hardware import Hardware
    from t3sim.gpu.state import Sim

_SHIFT = 2  #: log2 of an element's bytes
_MOST = 1 << 18  #: of an element; sums of 32 are exact in fp32


class Elements(NamedTuple):
    """Elements of every GPU's chunks; arrays are [device, element] unless said otherwise."""

    memory: np.ndarray  # float32
    last_read: np.ndarray  # float32: as the last read found it
    parts: np.ndarray  # uint16: parts of other GPUs that memory has added
    stored: np.ndarray  # uint8: how often
    columns: np.ndarray  # float32 [packet, element]: sums that have left the switch's RTL; none: it is a model
    outside: np.ndarray  # int64 [device]: accesses outside all chunks

    def before_edge(self, sim: "Sim", kernel: tuple, hardware: "Hardware | None", device: int, now: int) -> None:
        account(self, sim, device)

    def after_edge(self, sim: "Sim", kernel: tuple, hardware: "Hardware | None", device: int, now: int) -> None:
        pass


@compiled
def account(data: Elements, sim: "Sim", device: int) -> None:
    """Do to the elements what DRAM performed for a GPU in this cycle."""
    for channel in range(sim.m.channels):
        row = device * sim.m.channels + channel
        if not sim.mem.retired[row]:
            continue
        lo, hi, number = sim.mem.retired_lo[row], sim.mem.retired_hi[row], queues.number_of(sim.mem.retired_tag[row])
        first = bits.address_of(lo, sim.b) >> _SHIFT
        count = bits.get(lo, hi, sim.b.bytes, sim.b.op - sim.b.bytes) >> _SHIFT
        op, parts = bits.get(lo, hi, sim.b.op, 2), 1 + bits.get(lo, hi, sim.b.more, sim.b.more_bits)
        if first + count > data.memory.shape[1]:
            data.outside[device] += 1
            continue
        for i in range(count):
            at = first + i
            if op == bits.READ:
                data.last_read[device, at] = data.memory[device, at]
            elif op == bits.STORE:
                data.memory[device, at] = data.last_read[queues.sender_of(number), at]
                data.stored[device, at] += np.uint8(1)
            else:
                data.parts[device, at] += np.uint16(parts)
                if len(data.columns):
                    data.memory[device, at] += data.columns[number, i]
                else:
                    for sender in range(len(data.last_read)):
                        if sender != device:
                            data.memory[device, at] += data.last_read[sender, at]


class SwitchedNumbers(Observer):
    """The numbers of a run of all GPUs around a switch, and what they must be in the end."""

    def __init__(self, plans: Sequence[LevelPlan], seed: int, columns: np.ndarray) -> None:
        """Fill every GPU's memory; `plans`: of each GPU, `columns`: room for what the switch's RTL sends, if it is."""
        self._program, self._at = plans[0].program, plans[0].at
        elements = (self._at.chunk(self._program.chunks) - self._at.data) >> _SHIFT
        self._first = np.random.default_rng(seed).integers(-_MOST, _MOST, (len(plans), elements), np.int32)
        memory = self._first.astype(np.float32)
        self.data = Elements(memory, np.zeros_like(memory), np.zeros(memory.shape, np.uint16),
                             np.zeros(memory.shape, np.uint8), columns.view(np.float32), np.zeros(len(plans), np.int64))
        #: What the switch's RTL adds: what GPUs found.
        self.sent = SwitchNumbers(*[self.data.last_read.view(np.uint32)] * 2, 1, _SHIFT, columns, DTYPES["fp32"],
                                  np.zeros(len(plans), np.int64))

    def before(self, now: int, end: int) -> tuple[Elements, int]:
        return self.data, end

    def check(self) -> None:
        """Compare every word that the collective has a goal for. Raises SimulationError."""
        if self.data.outside.any():
            device = int(np.argmax(self.data.outside))
            raise SimulationError(f"GPU {device}: {self.data.outside[device]} accesses outside all chunks")
        for (rank, chunk), of in self._program.goal.items():
            first = (self._at.chunk(chunk) - self._at.data) >> _SHIFT
            mine = slice(first, first + (self._at.chunk_bytes >> _SHIFT))
            for kind, expected_sums, counts in (
                    ("parts of other GPUs were added", len(of) - 1 if rank == chunk else 0, self.data.parts),
                    ("times it was stored", int(rank != chunk), self.data.stored)):
                if len(wrong := np.flatnonzero(counts[rank, mine] != expected_sums)):
                    raise SimulationError(f"GPU {rank}: element {wrong[0]} of chunk {chunk}: "
                                          f"{counts[rank, mine][wrong[0]]} {kind} instead of {expected_sums}")
            expected_sums = self._first[sorted(of), mine].sum(axis=0, dtype=np.int64)
            stored_sums = self.data.memory[rank, mine]
            if len(wrong := np.flatnonzero(stored_sums != expected_sums)):
                raise SimulationError(f"GPU {rank}: element {wrong[0]} of chunk {chunk} is "
                                      f"{stored_sums[wrong[0]]:.0f}, not {expected_sums[wrong[0]]} ({len(wrong)} such "
                                      "elements)")

    @property
    def words(self) -> int:
        """Count the words that are compared."""
        return len(self._program.goal) * self._at.chunk_bytes // WORD_BYTES
