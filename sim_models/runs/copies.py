"""Collectives as copies between buffers: what each GPU's queue copies, after what, and whom it tells."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

#: All of them move chunks of 1/gpus of the array. What is added is fp16, by memory.
COLLECTIVES = {
    "ag": "all-gather", "ag-ring": "all-gather around a ring", "a2a": "all-to-all",
    "rs": "reduce-scatter, added in memory", "rs-ring": "reduce-scatter around a ring, added in memory",
    "ar": "all-reduce, added in memory", "ar-ring": "all-reduce around a ring, added in memory"}
#: Variants of copies: back to back; of one source to two peers in one command; in place, by memory that keeps the
#: exclusive or of what it holds and what arrives.
VARIANTS = {"b2b": tuple(COLLECTIVES), "bcst": ("ag", "ar"), "swap": ("a2a",)}
ADDS = ("rs", "rs-ring", "ar", "ar-ring")


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
    signals: tuple["Told", ...]  #: when all copies have left


class Told(NamedTuple):
    """A peer that gets a signal when copies to it have left."""

    peer: int
    flag: int
    adds: bool  #: memory adds 1 to the flag, which counts peers; otherwise it is set to 1


@dataclass(frozen=True)
class Exchange:
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


def plan_exchange(collective: str, gpus: int, chunk: int, swaps: bool = False) -> Exchange:
    """Return the copies of a collective (one of `COLLECTIVES`); with `swaps` an all-to-all in place."""
    if swaps:
        return Exchange(tuple(tuple(_swaps(gpu, gpus, chunk)) for gpu in range(gpus)),
                        tuple(tuple((gpu + hop) % gpus for hop in range(gpus)) for gpu in range(gpus)), chunk,
                        gpus * chunk, False, True)
    chunks = {"a2a": 2 * gpus, "ag": gpus + 1}.get(collective, gpus)
    return Exchange(tuple(tuple(_stages(collective, gpu, gpus, chunk)) for gpu in range(gpus)),
                    tuple(tuple(_produced(collective, gpu, gpus)) for gpu in range(gpus)), chunk, chunks * chunk,
                    collective in ADDS)


def _stages(collective: str, gpu: int, gpus: int, chunk: int) -> list[Stage]:
    if collective.endswith("-ring"):
        return _ring(collective, gpu, gpus, chunk)
    peers = [(gpu + hop) % gpus for hop in range(1, gpus)]
    tells = tuple(Told(peer, 1, True) for peer in peers)
    if collective == "a2a":
        return [Stage((), tuple(Copied(peer * chunk, peer, (gpus + gpu) * chunk, False) for peer in peers), tells)]
    if collective == "ag":
        return [Stage((), tuple(Copied(0, peer, chunk + gpu * chunk, False) for peer in peers), tells)]
    scatter = Stage((), tuple(Copied(peer * chunk, peer, peer * chunk, True) for peer in peers), tells)
    if collective == "rs":
        return [scatter]
    return [scatter, Stage(
        ((1, gpus - 1),), tuple(Copied(gpu * chunk, peer, gpu * chunk, False) for peer in peers),
        tuple(Told(peer, 2, True) for peer in peers))]


def _swaps(gpu: int, gpus: int, chunk: int) -> list[Stage]:
    """Let each pair exchange two chunks in place.

    One sends its own, the other sends back what it then holds, the exclusive or of both, and the first, which now holds
    the other's, sends that. The first of a pair is either in turn, so that all have as many.
    """
    first, second = [], []
    for hop in range(1, gpus):
        peer = (gpu + hop) % gpus
        (first if ((gpu + peer) % 2 == 1) == (gpu < peer) else second).append(peer)

    def stage(peers: list[int], waits: tuple[tuple[int, int], ...], flag: int) -> Stage:
        return Stage(waits, tuple(Copied(peer * chunk, peer, gpu * chunk, True) for peer in peers),
                     tuple(Told(peer, flag, True) for peer in peers))
    return [stage(first, (), 1), stage(second, ((1, len(second)),) if second else (), 2),
            stage(first, ((2, len(first)),) if first else (), 3)]


def _ring(collective: str, gpu: int, gpus: int, chunk: int) -> list[Stage]:
    """Return the stages of a ring: each sends to the next GPU what the one before has brought, or made whole."""
    adding = collective in ADDS
    steps = [(gpu - step, adding) for step in range(gpus - 1)]
    if collective == "ar-ring":
        steps += [(gpu + 1 - step, False) for step in range(gpus - 1)]
    following = (gpu + 1) % gpus
    return [Stage(((step, 1),) if step else (), (Copied(place % gpus * chunk, following, place % gpus * chunk, adds),),
                  (Told(following, step + 1, False),)) for step, (place, adds) in enumerate(steps)]


def _produced(collective: str, gpu: int, gpus: int) -> list[int]:
    """Order the chunks that a GPU produces: what is added here but never sent comes last."""
    if collective in ("ag", "ag-ring"):
        return [0 if collective == "ag" else gpu]
    direct = [(gpu + hop) % gpus for hop in range(1, gpus)]
    if collective == "a2a":
        return direct
    return [*direct, gpu] if not collective.endswith("-ring") else [(gpu - step) % gpus for step in range(gpus)]
