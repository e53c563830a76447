"""DMA collectives as commands in engines' queues (DMA collectives paper, section 4.2)."""

from collections.abc import Callable
from dataclasses import dataclass

from ..errors import BadInput

#: Collectives of DMA engines: every pair of GPUs exchanges a chunk, in an all-reduce twice.
COLLECTIVES = {"ag": "all-gather", "a2a": "all-to-all", "rs": "reduce-scatter, added in memory",
               "ar": "all-reduce, added in memory"}


@dataclass(frozen=True)
class Command:
    """A command of one engine: a copy has one destination, a broadcast two; a swap exchanges with its destination."""

    source: int
    destinations: tuple[int, ...]
    swap: bool = False
    in_order: bool = False  #: it touches what commands before it in its queue touch, and waits for them


@dataclass(frozen=True)
class Queue:
    """Commands of one engine, back to back; a signal at the end."""

    gpu: int
    commands: tuple[Command, ...]


def _pcpy(gpus: int) -> list[Queue]:
    """Queue an engine for each copy."""
    return [Queue(gpu, (Command(gpu, ((gpu + hop) % gpus,)),)) for gpu in range(gpus) for hop in range(1, gpus)]


def _bcst(gpus: int) -> list[Queue]:
    """Queue an engine for every two destinations; if their number is odd, a copy for the last."""
    queues = []
    for gpu in range(gpus):
        others = [(gpu + hop) % gpus for hop in range(1, gpus)]
        queues += [Queue(gpu, (Command(gpu, tuple(others[first:first + 2])),)) for first in range(0, gpus - 1, 2)]
    return queues


def _swap(gpus: int) -> list[Queue]:
    """Queue an engine for each pair, of either GPU in turn so that all have as many."""
    return [Queue(a if (a + b) % 2 else b, (Command(a if (a + b) % 2 else b, (b if (a + b) % 2 else a,), swap=True),))
            for a in range(gpus) for b in range(a + 1, gpus)]


def _b2b(gpus: int) -> list[Queue]:
    """Queue one engine per GPU with all of its copies."""
    return [Queue(gpu, tuple(Command(gpu, ((gpu + hop) % gpus,)) for hop in range(1, gpus))) for gpu in range(gpus)]


_PLANS: dict[str, Callable[[int], list[Queue]]] = {"pcpy": _pcpy, "bcst": _bcst, "swap": _swap, "b2b": _b2b}
VARIANTS = tuple(_PLANS)

#: Variants of each collective: broadcasts need one source for several destinations, swaps a chunk in each direction.
POSSIBLE = {"ag": ("pcpy", "bcst", "b2b"), "a2a": ("pcpy", "swap", "b2b"), "rs": ("pcpy", "b2b"),
            "ar": ("pcpy", "b2b")}


def plan(collective: str, variant: str, gpus: int) -> list[Queue]:
    """Return the queues of a collective, in the order in which the host fills them. Raises `BadInput`."""
    if variant not in POSSIBLE[collective]:
        raise BadInput(f"variant {variant!r} is not possible for {COLLECTIVES[collective]}: allowed are "
                       f"{', '.join(POSSIBLE[collective])}")
    return _PLANS[variant](gpus)
