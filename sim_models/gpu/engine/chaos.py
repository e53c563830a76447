"""Random disturbances of a run: handshakes held back for a cycle, extra delays on the links.

They are repeatable by seed, and drawn by each GPU for itself, so that the order in which GPUs are stepped changes
nothing.
"""

from typing import NamedTuple

import numpy as np

from t3sim.base.compiled.jit import inlined

_CERTAIN = 1 << 16


class Chaos(NamedTuple):
    """State of the random generators, and sizes of the disturbances."""

    random: np.ndarray  # uint64 [gpu]
    hold_back: int  # probability (of 2^16) that a handshake is held back
    jitter_cycles: int  # largest extra delay of a packet


def make_chaos(gpus: int, seed: int, hold_back: float, jitter_cycles: int) -> Chaos:
    """Make disturbances. `hold_back` is a probability; with 0 and no jitter nothing is disturbed."""
    return Chaos(np.random.default_rng(seed).integers(1 << 63, size=gpus, dtype=np.uint64),
                 int(hold_back * _CERTAIN), jitter_cycles)


@inlined
def held_back(chaos: Chaos, gpu: int) -> bool:
    """Return whether a handshake of this GPU is held back now."""
    return chaos.hold_back > 0 and draw(chaos, gpu) % _CERTAIN < chaos.hold_back


@inlined
def extra_delay(chaos: Chaos, gpu: int) -> int:
    """Draw extra cycles of a packet on this GPU's link."""
    return draw(chaos, gpu) % (chaos.jitter_cycles + 1) if chaos.jitter_cycles else 0


@inlined
def draw(chaos: Chaos, gpu: int) -> int | np.int64:
    """Return the next number of a 64-bit linear congruential generator."""
    chaos.random[gpu] = chaos.random[gpu] * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
    return np.int64(chaos.random[gpu] >> np.uint64(33))
