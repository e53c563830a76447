"""Programs as copies between buffers: what each GPU's queue copies, after what, and which peers get a signal."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from t3sim.collectives import Op, Program, Transfer
from t3sim.collectives.algorithms import algorithms, one_ring
from t3sim.machine.topologies import fully_connected

#: All of them move chunks of 1/gpus of the array. What is added is fp16, by memory.
COLLECTIVES = {
    "ag": "all-gather", "ag-ring": "all-gather around a ring", "a2a": "all-to-all",
    "rs": "reduce-scatter, added in memory", "rs-ring": "reduce-scatter around a ring, added in memory",
    "ar": "all-reduce, added in memory", "ar-ring": "all-reduce around a ring, added in memory"}
#: Variants of copies: back to back; of one source to two peers in one command; in place, by memory that keeps the
#: exclusive or of what it holds and what arrives.
VARIANTS = {"b2b": tuple(COLLECTIVES), "bcst": ("ag", "ar"), "swap": ("a2a",)}


class Copied(NamedTuple):
    """A copy of a chunk or of a part of it: what a command, or a trigger, asks for."""

    source: int  #: byte of the GPU's buffers
    peer: int
    to: int  #: byte of the peer's buffers
    adds: bool  #: memory adds what arrives, or in a swap keeps the exclusive or


class Stage(NamedTuple):
    """A part of a GPU's queue."""

    waits: tuple[tuple[int, int], ...]  #: flags that peers set or count up, and the value that each must have
    copies: tuple[Copied, ...]
    signals: tuple["CopySignal", ...]  #: when all copies have left
    stored: tuple[int, ...] = ()  #: chunks, by their first byte, that the GPU's producer must have stored before


class CopySignal(NamedTuple):
    """A peer that gets a signal when copies to it have left."""

    peer: int
    flag: int
    adds: bool  #: memory adds 1 to the flag, which counts peers; otherwise it is set to 1


@dataclass(frozen=True)
class CopyExchange:
    """A collective of chunks. Addresses count from the start of a GPU's buffers.

    The receive buffer of a direct all-gather or all-to-all follows the send buffer; all others work in place.
    """

    stages: tuple[tuple[Stage, ...], ...]  #: of each GPU, in their order
    produced: tuple[tuple[int, ...], ...]  #: chunks that each GPU's producer stores in the order in which they are sent
    chunk_bytes: int
    size_bytes: int  #: of a GPU's buffers
    adds: bool  #: memory adds, also what the producer stores
    swaps: bool = False

    def copies(self) -> Iterator[tuple[int, Copied]]:
        """Give the copies of whole chunks by their GPUs."""
        return ((gpu, one) for gpu, stages in enumerate(self.stages) for stage in stages for one in stage.copies)


def plan_exchange(collective: str, gpus: int, chunk: int, swaps: bool = False) -> CopyExchange:
    """Return the copies of a collective (one of `COLLECTIVES`); with `swaps` an all-to-all in place."""
    if collective.endswith("-ring"):
        kind = collective.removesuffix("-ring")
        # What is summed around the ring starts at its own place, and ends one GPU before.
        return read_off(one_ring(kind, gpus, 1), chunk, turn=kind != "ag", counted=False)
    program = algorithms(collective, fully_connected(gpus))["direct"].program()
    return swapped(program, chunk) if swaps else read_off(program, chunk, apart=collective in ("ag", "a2a"))


def read_off(program: Program, chunk: int, *, turn: int = 0, apart: bool = False, counted: bool = True) -> CopyExchange:
    """Read off a program what each GPU's queue copies: a stage for each level of its transfers, in their order.

    `turn`: chunk c lies at place c + turn; or, `apart`, a chunk that arrives lies after all that the GPU starts with,
    at the place of its sender. `counted`: peers count up the flag of a level; otherwise one is there alone and sets it.
    """
    starts = [[chunk for chunk in program.rank_chunks[gpu] if (gpu, chunk) in program.start]
              for gpu in range(program.ranks)]

    def place_of(gpu: int, number: int) -> int:
        return starts[gpu].index(number) if apart else (number + turn) % program.chunks

    def copied(transfer: Transfer) -> Copied:
        to = (len(starts[transfer.destination]) + transfer.source if apart else
              place_of(transfer.destination, transfer.chunk))
        return Copied(place_of(transfer.source, transfer.chunk) * chunk, transfer.destination, to * chunk,
                      transfer.op is Op.ADD)

    def stages_of(gpu: int) -> Iterator[Stage]:
        waited_levels: set[int] = set()
        for level, transfers in _by_level(program, gpu):
            before = {program.levels[index] for one in transfers for index in one.after} - waited_levels
            waited_levels |= before
            yield Stage(tuple((one + 1, senders[one, gpu]) for one in sorted(before)), tuple(map(copied, transfers)),
                        tuple(CopySignal(peer, level + 1, counted) for peer in _peers(transfers)))

    senders = Counter((level, peer) for gpu in range(program.ranks) for level, transfers in _by_level(program, gpu)
                      for peer in _peers(transfers))
    stages = tuple(tuple(stages_of(gpu)) for gpu in range(program.ranks))
    produced = tuple(tuple(place_of(gpu, number) for number in _produced(program, gpu)) for gpu in range(program.ranks))
    places = max(max(one.source, one.to) for gpu in stages for stage in gpu for one in stage.copies) // chunk + 1
    return CopyExchange(stages, produced, chunk, places * chunk, program.adds)


def _by_level(program: Program, gpu: int) -> list[tuple[int, list[Transfer]]]:
    """Return what a GPU sends, by the length of the chain of transfers before it."""
    sends = sorted((program.levels[index], index) for index, one in enumerate(program.transfers) if one.source == gpu)
    return [(level, [program.transfers[index] for _, index in same])
            for level, same in groupby(sends, lambda one: one[0])]


def _peers(transfers: list[Transfer]) -> list[int]:
    return list(dict.fromkeys(one.destination for one in transfers))


def _produced(program: Program, gpu: int) -> list[int]:
    """Order the chunks that a GPU produces as it sends them: what is added here but never sent comes last."""
    sent_chunks = dict.fromkeys(one.chunk for _, transfers in _by_level(program, gpu) for one in transfers)
    added = (number for number in program.rank_chunks[gpu] if (gpu, number) in program.arrivals)
    return [number for number in dict.fromkeys((*sent_chunks, *added)) if (gpu, number) in program.start]


def swapped(program: Program, chunk: int) -> CopyExchange:
    """Let each pair of an all-to-all exchange two chunks in place.

    One sends its own, the other sends back what it then holds, the exclusive or of both, and the first, which now holds
    the other's, sends that. A producer's store replaces what memory holds, so what arrives before it is lost: the other
    first says that its chunk is stored. The first of a pair is either in turn, so that all have as many.
    """
    gpus = program.ranks
    stages, produced = [], []
    for gpu in range(gpus):
        (_, transfers), = _by_level(program, gpu)
        peers, first, second = _peers(transfers), [], []
        for peer in peers:
            (first if ((gpu + peer) % 2 == 1) == (gpu < peer) else second).append(peer)

        def stage(peers: list[int], waits: list[int], flag: int, gpu: int = gpu) -> Stage:
            return Stage(((flag - 1, len(waits)),) if waits else (),
                         tuple(Copied(peer * chunk, peer, gpu * chunk, True) for peer in peers),
                         tuple(CopySignal(peer, flag, True) for peer in peers))
        meeting = Stage((), (), tuple(CopySignal(peer, 1, True) for peer in second),
                        tuple(peer * chunk for peer in second))
        stages.append((meeting, stage(first, first, 2), stage(second, second, 3), stage(first, first, 4)))
        produced.append((*second, *first, gpu))
    return CopyExchange(tuple(stages), tuple(produced), chunk, gpus * chunk, False, True)
