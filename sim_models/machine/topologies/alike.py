"""GPUs that are alike: one of them stands for all that lie whole periods further, as a mirrored GPU does for all."""

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TypeVar

import numpy as np

Gpu = TypeVar("Gpu", int, np.ndarray)


@dataclass(frozen=True)
class Alike:
    """Positions in a shape of GPUs, of which those a period apart in a dimension do the same.

    The last dimension's positions follow each other. Methods take a GPU's number, or an array of them.
    """

    shape: tuple[int, ...]
    period: tuple[int, ...]  #: of each dimension, a divisor of its length; its length: none of it is alike
    origin: int = 0  #: GPU from which on, in each dimension, a period stands for all

    @classmethod
    def none(cls, gpus: int) -> "Alike":
        """Return that each GPU stands for itself only."""
        return cls((gpus,), (gpus,))

    @property
    def copies(self) -> int:
        """GPUs for which one stands."""
        return prod(length // step for length, step in zip(self.shape, self.period))

    @cached_property
    def standing(self) -> tuple[int, ...]:
        """GPUs that stand for all."""
        found = [0]
        for _, length, step, first in self.dimensions:
            found = [number * length + (first + place) % length for number in found for place in range(step)]
        return tuple(found)

    def home(self, gpu: Gpu) -> Gpu:
        """Return who stands for a GPU."""
        return self.seen(gpu, gpu)

    def seen(self, reference: Gpu, gpu: Gpu) -> Gpu:
        """Return what becomes of a GPU when a reference is renamed to the one that stands for it, and all with it."""
        found = gpu * 0
        for stride, length, step, first in self.dimensions:
            ahead = (reference // stride - first) % length
            found = found + (gpu // stride - ahead + ahead % step) % length * stride
        return found

    def moved(self, gpu: Gpu, by: tuple[int, ...]) -> Gpu:
        """Return the GPU that lies some periods further in each dimension."""
        found = gpu * 0
        for (stride, length, step, _), periods in zip(self.dimensions, by):
            found = found + (gpu // stride + periods * step) % length * stride
        return found

    def moves(self, dimension: int) -> list[tuple[int, ...]]:
        """Return moves along a dimension: by one period, of which all others are made, and half-way around."""
        periods = self.shape[dimension] // self.period[dimension]
        return [tuple(by if other == dimension else 0 for other in range(len(self.shape)))
                for by in sorted({1, periods // 2}) if 0 < by < periods]

    @cached_property
    def dimensions(self) -> list[tuple[int, int, int, int]]:
        """The dimensions: GPUs from one position to the next, length, period, position of the origin."""
        strides = [prod(self.shape[place + 1:]) for place in range(len(self.shape))]
        return [(stride, length, step, self.origin // stride % length)
                for stride, length, step in zip(strides, self.shape, self.period)]


def along(alike: Alike | None, dimension: int) -> Alike | None:
    """Return who is alike along one dimension only."""
    if alike is None:
        return None
    _, length, step, first = alike.dimensions[dimension]
    return Alike((length,), (step,), first)
