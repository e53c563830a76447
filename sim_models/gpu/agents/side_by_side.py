"""Two kernels on one GPU at the same time, each on compute units of its own, as streams with events between them.

The first runs by itself. Each phase of the second is a kernel that waits for a phase of the first, and is then
launched. They share memory and links; the second's loads go past the cache.
"""

from typing import NamedTuple

import numpy as np

from t3sim.base.compiled.jit import inlined
from t3sim.gpu.agents.compute_units import ComputeUnits, open_phase
from t3sim.gpu.agents.units.state import NEVER, is_over
from t3sim.gpu.engine import agents
from t3sim.gpu.engine.hardware import Hardware
from t3sim.gpu.fabric.queues import stream_of
from t3sim.gpu.state import Sim


def _shape(pair) -> tuple[int, int]:
    """GPUs, and places of each whose loads may wait at its cache."""
    return pair.first.shape


def _returned(pair, sim, gpu, tag, now):
    if stream_of(tag) == pair.second.work.stream:
        agents.returned(pair.second, sim, gpu, tag, now)
    else:
        agents.returned(pair.first, sim, gpu, tag, now)


class SideBySide(NamedTuple):
    """Both kernels, as an agent (gpu/engine/agents.py)."""

    first: ComputeUnits
    second: ComputeUnits  # made with `released`, and counted under another stream than the first
    after: np.ndarray  # int64 [phase of the second]: phases of the first that must be over
    launch_cycles: int  # from then to the phase's start

    shape, returned = property(_shape), _returned

    def cycle(self, sim: Sim, hardware: Hardware | None, gpu: int, now: int) -> None:
        agents.cycle(self.first, sim, hardware, gpu, now)
        release(self, gpu, now)
        agents.cycle(self.second, sim, hardware, gpu, now)

    def done(self, sim: Sim, gpu: int) -> bool:
        return agents.done(self.first, sim, gpu) and agents.done(self.second, sim, gpu)

    def progress(self, gpu: int) -> int:
        return agents.progress(self.first, gpu) + agents.progress(self.second, gpu)


class WithCopies(NamedTuple):
    """A kernel, and concurrent copies that end with it, as an agent (gpu/engine/agents.py)."""

    first: ComputeUnits
    second: ComputeUnits  # engines, with another traffic class than the first

    shape, returned = property(_shape), _returned

    def cycle(self, sim: Sim, hardware: Hardware | None, gpu: int, now: int) -> None:
        agents.cycle(self.first, sim, hardware, gpu, now)
        if not is_over(self.first, gpu):
            agents.cycle(self.second, sim, hardware, gpu, now)

    def done(self, sim: Sim, gpu: int) -> bool:
        return agents.done(self.first, sim, gpu)

    def progress(self, gpu: int) -> int:
        return agents.progress(self.first, gpu)


@inlined
def release(pair: SideBySide, gpu: int, now: int) -> None:
    """Launch the second kernel's present phase if the first kernel's phase that it waits for is over."""
    second = pair.second
    if (not is_over(second, gpu) and second.state.opens[gpu] == NEVER
            and pair.first.state.phase[gpu] >= pair.after[second.state.phase[gpu]]):
        open_phase(second, gpu, now + pair.launch_cycles)
