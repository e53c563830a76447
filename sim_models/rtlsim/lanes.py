"""Fields of packed word arrays, for models in numba. A `Lane` comes from `PortMap.lane`."""

from typing import TYPE_CHECKING

import numpy as np
from numba import njit

from t3sim.base.compiled.jit import compiled
from t3sim.rtlsim.port_map import WORD_BITS

if TYPE_CHECKING:
    from t3sim.rtlsim.port_map import Lane

_ALL_ONES = np.uint64(0xFFFF_FFFF_FFFF_FFFF)


@njit(inline="always")
def _place(lane: "Lane", index: int) -> tuple[int, int, int]:
    """Return the first word of the element, and the field's first bit and last bit + 1 in it."""
    start = lane.bit + index * lane.stride * WORD_BITS
    shift = start % WORD_BITS
    return start // WORD_BITS, shift, shift + lane.width


@compiled
def read(words: np.ndarray, lane: "Lane", index: int) -> int:
    """Return element `index` of the lane as int64. Fields wider than 63 bits do not fit."""
    word, first, end = _place(lane, index)
    value = words[word] >> np.uint64(first)
    if end > WORD_BITS:
        value |= words[word + 1] << np.uint64(WORD_BITS - first)
    return np.int64(value & (_ALL_ONES >> np.uint64(WORD_BITS - lane.width)))


@compiled
def write(words: np.ndarray, lane: "Lane", index: int, value: int) -> None:
    """Set element `index` of the lane; bits above its width are dropped, other fields stay."""
    word, first, end = _place(lane, index)
    mask = _ALL_ONES >> np.uint64(WORD_BITS - lane.width)
    bits = np.uint64(value) & mask
    words[word] = (words[word] & ~(mask << np.uint64(first))) | (bits << np.uint64(first))
    if end > WORD_BITS:
        high = np.uint64(WORD_BITS - first)
        words[word + 1] = (words[word + 1] & ~(mask >> high)) | (bits >> high)
