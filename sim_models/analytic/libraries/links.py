"""Rates of the wires between some of a node's GPUs: rings through their links, and each GPU to all others at once."""

from functools import cache

from t3sim.machine import Machine
from t3sim.machine.links import Wires


def ring_gb_per_s(machine: Machine, gpus: int) -> float:
    """Return what each GPU sends while rings through `gpus` of them are full, before any efficiency."""
    wires = machine.wires
    if wires.kind == "full":
        return wires.gb_per_s * max(1, gpus - 1)
    if wires.kind == "graph":
        return wires.gb_per_s * _rings(wires.pairs, gpus)
    return wires.gb_per_s


def pair_gb_per_s(machine: Machine, gpus: int) -> float:
    """Return what goes from one GPU to each other one while all send to all."""
    wires = machine.wires
    if wires.kind == "full":
        return wires.gb_per_s
    if wires.kind == "graph":  # what has no link of its own crosses another GPU
        return ring_gb_per_s(machine, gpus) / max(1, gpus - 1) / 2
    return wires.gb_per_s / max(1, gpus - 1)


def link_gb_per_s(wires: Wires) -> float:
    """Return what one GPU sends to one other while nobody else sends."""
    if wires.kind == "graph":
        return wires.gb_per_s * max(count for *_, count in wires.pairs)
    return wires.gb_per_s


@cache
def _rings(pairs: tuple[tuple[int, int, int], ...], gpus: int) -> int:
    """Return how many rings of one direction lead through the first `gpus` GPUs without sharing a link.

    A link has two directions, so that each cycle is two rings. Two GPUs have as many as links.
    """
    left = {(min(one, other), max(one, other)): count for one, other, count in pairs if max(one, other) < gpus}
    if gpus == 2:
        return left.get((0, 1), 0) or 1
    cycles = [cycle for cycle in _cycles(gpus) if all(edge in left for edge in cycle)]

    def most(left: dict[tuple[int, int], int], first: int) -> int:
        best = 0
        bound = sum(left.values()) // gpus
        for place in range(first, len(cycles)):
            if best == bound:
                break
            if all(left[edge] for edge in cycles[place]):
                best = max(best, 1 + most({**left, **{edge: left[edge] - 1 for edge in cycles[place]}}, place))
        return best

    return 2 * most(left, 0) or 1


@cache
def _cycles(gpus: int) -> list[tuple[tuple[int, int], ...]]:
    """Return the edges of every cycle through all GPUs."""
    found = []

    def walk(path: list[int]) -> None:
        if len(path) == gpus:
            if path[1] < path[-1]:
                found.append(tuple((min(edge), max(edge)) for edge in zip(path, [*path[1:], path[0]])))
            return
        for after in range(1, gpus):
            if after not in path:
                walk([*path, after])

    walk([0])
    return found
