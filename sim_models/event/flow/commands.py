"""Commands in engines' queues for a collective's copies (DMA collectives paper, section 4.2), from its program."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby

from t3sim.base.errors import BadInput
from t3sim.collectives import Op, Program, Transfer
from t3sim.collectives.algorithms import algorithms
from t3sim.machine.topologies import fully_connected

#: Collectives of DMA engines: every pair of GPUs exchanges a chunk, in an all-reduce twice.
COLLECTIVES = {"ag": "all-gather", "a2a": "all-to-all", "rs": "reduce-scatter, added in memory",
               "ar": "all-reduce, added in memory"}


@dataclass(frozen=True)
class Command:
    """A command of an engine: a copy has 1 destination, a broadcast 2; a swap exchanges with its destination."""

    source: int
    destinations: tuple[int, ...]
    swap: bool = False
    in_order: bool = False  #: it waits for earlier commands of its queue, with which it shares data


@dataclass(frozen=True)
class Queue:
    """Commands of one engine, back to back; a signal at the end."""

    gpu: int
    commands: tuple[Command, ...]


@dataclass(frozen=True)
class Round:
    """Queues whose copies wait only for copies of the round before."""

    queues: list[Queue]
    adds: bool  #: memory adds arriving data


def _copies(transfers: list[Transfer], most_destinations: int = 1) -> list[Command]:
    """Return a command for each copy, or for up to `most_destinations` copies of a chunk."""
    commands = []
    for (gpu, _), chunk_transfers in groupby(transfers, lambda transfer: (transfer.source, transfer.chunk)):
        destinations = [transfer.destination for transfer in chunk_transfers]
        commands += [Command(gpu, tuple(destinations[first:first + most_destinations]))
                     for first in range(0, len(destinations), most_destinations)]
    return commands


def _pcpy(transfers: list[Transfer]) -> list[Queue]:
    """Queue an engine for each copy."""
    return [Queue(command.source, (command,)) for command in _copies(transfers)]


def _bcst(transfers: list[Transfer]) -> list[Queue]:
    """Queue an engine for every 2 destinations; with an odd number, the last engine has a copy."""
    return [Queue(command.source, (command,)) for command in _copies(transfers, 2)]


def _swap(transfers: list[Transfer]) -> list[Queue]:
    """Queue an engine for each pair, on either GPU in turn so that all have equally many."""
    pairs = [(one.source, one.destination) for one in transfers if one.source < one.destination]
    directed_pairs = [(a, b) if (a + b) % 2 else (b, a) for a, b in pairs]
    return [Queue(gpu, (Command(gpu, (peer,), swap=True),)) for gpu, peer in directed_pairs]


def _b2b(transfers: list[Transfer]) -> list[Queue]:
    """Queue one engine per GPU with all of its copies."""
    return [Queue(gpu, tuple(commands)) for gpu, commands in groupby(_copies(transfers), lambda one: one.source)]


_PLANS: dict[str, Callable[[list[Transfer]], list[Queue]]] = {
    "pcpy": _pcpy, "bcst": _bcst, "swap": _swap, "b2b": _b2b}
VARIANTS = tuple(_PLANS)

#: Variants of each collective: broadcasts need one source for several destinations, swaps a chunk in each direction.
POSSIBLE = {"ag": ("pcpy", "bcst", "b2b"), "a2a": ("pcpy", "swap", "b2b"), "rs": ("pcpy", "b2b"),
            "ar": ("pcpy", "b2b")}


def plan(collective: str, variant: str, gpus: int) -> list[Round]:
    """Return the rounds of a collective, each with its queues in the order of filling them. Raises `BadInput`."""
    if variant not in POSSIBLE[collective]:
        raise BadInput(f"variant {variant!r} is not possible for {COLLECTIVES[collective]}: allowed are "
                       f"{', '.join(POSSIBLE[collective])}")
    return rounds(algorithms(collective, fully_connected(gpus))["direct"].program(), variant)


def rounds(program: Program, variant: str) -> list[Round]:
    """Read the rounds off a program, one for each level of its transfers."""
    rounds = []
    for level in range(max(program.levels) + 1):
        transfers = [one for one, depth in zip(program.transfers, program.levels) if depth == level]
        rounds.append(Round(_PLANS[variant](transfers), transfers[0].op is Op.ADD))
    return rounds
