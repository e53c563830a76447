"""Symmetry of GPUs: a representative GPU stands for all GPUs that lie whole periods further."""

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import numpy as np

Gpu = TypeVar("Gpu", int, "np.ndarray")


@dataclass(frozen=True)
class Alike:
    """Positions in a shape of GPUs, in which GPUs a period apart along a dimension behave alike.

    Numbers follow each other along the last dimension. Methods take a GPU's number, or an array of numbers.
    """

    shape: tuple[int, ...]
    period: tuple[int, ...]  #: of each dimension, a divisor of its length; equal to the length: no symmetry
    origin: int = 0  #: first representative GPU in each dimension

    @classmethod
    def none(cls, gpus: int) -> "Alike":
        """Return no symmetry: each GPU represents itself only."""
        return cls((gpus,), (gpus,))

    @property
    def copies(self) -> int:
        """GPUs per representative GPU, itself included."""
        return prod(length // step for length, step in zip(self.shape, self.period))

    @cached_property
    def representatives(self) -> tuple[int, ...]:
        """The representative GPUs."""
        representatives = [0]
        for _, length, step, first in self.dimensions:
            representatives = [number * length + (first + position) % length
                               for number in representatives for position in range(step)]
        return tuple(representatives)

    def home(self, gpu: Gpu) -> Gpu:
        """Return a GPU's representative."""
        renamed = gpu * 0
        for stride, length, step, first in self.dimensions:
            position = first if step == 1 else ((gpu // stride - first) % step + first) % length
            renamed = renamed + position * stride
        return renamed

    def seen(self, reference: Gpu, gpu: Gpu) -> Gpu:
        """Map a GPU under the shift that maps a reference GPU to its representative."""
        renamed = gpu * 0
        for stride, length, step, first in self.dimensions:
            shift = reference // stride - first
            renamed = renamed + (gpu // stride - shift + shift % step) % length * stride
        return renamed

    def moved(self, gpu: Gpu, periods: tuple[int, ...]) -> Gpu:
        """Return the GPU that lies some periods further in each dimension."""
        shifted = gpu * 0
        for (stride, length, step, _), count in zip(self.dimensions, periods):
            shifted = shifted + (gpu // stride + count * step) % length * stride
        return shifted

    def moves(self, dimension: int) -> list[tuple[int, ...]]:
        """Return shifts along a dimension: by 1 period, which generates all others, and half-way around."""
        periods = self.shape[dimension] // self.period[dimension]
        return [tuple(shift if axis == dimension else 0 for axis in range(len(self.shape)))
                for shift in sorted({1, periods // 2}) if 0 < shift < periods]

    @cached_property
    def dimensions(self) -> list[tuple[int, int, int, int]]:
        """The dimensions: stride in GPUs, length, period, position of the origin."""
        strides = [prod(self.shape[axis + 1:]) for axis in range(len(self.shape))]
        return [(stride, length, step, self.origin // stride % length)
                for stride, length, step in zip(strides, self.shape, self.period)]


def along(alike: Alike | None, dimension: int) -> Alike | None:
    """Return the symmetry along one dimension only."""
    if alike is None:
        return None
    _, length, step, first = alike.dimensions[dimension]
    return Alike((length,), (step,), first)
