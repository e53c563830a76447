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
    """Devices, and places of each whose loads may wait at its cache."""
    return pair.first.shape


def _returned(pair, sim, device, tag, now):
    if stream_of(tag) == pair.second.work.stream:
        agents.returned(pair.second, sim, device, tag, now)
    else:
        agents.returned(pair.first, sim, device, tag, now)


class SideBySide(NamedTuple):
    """Both kernels, as an agent (gpu/engine/agents.py)."""

    first: ComputeUnits
    second: ComputeUnits  # made with `released`, and counted under another stream than the first
    after: np.ndarray  # int64 [phase of the second]: phases of the first that must be over
    launch_cycles: int  # from then to the phase's start

    shape, returned = property(_shape), _returned

    def cycle(self, sim: Sim, hardware: Hardware | None, device: int, now: int) -> None:
        agents.cycle(self.first, sim, hardware, device, now)
        release(self, device, now)
        agents.cycle(self.second, sim, hardware, device, now)

    def done(self, sim: Sim, device: int) -> bool:
        return agents.done(self.first, sim, device) and agents.done(self.second, sim, device)

    def progress(self, device: int) -> int:
        return agents.progress(self.first, device) + agents.progress(self.second, device)


class WithCopies(NamedTuple):
    """A kernel, and copies beside it that end with it, as an agent (gpu/engine/agents.py)."""

    first: ComputeUnits
    second: ComputeUnits  # engines, counted under another stream than the first

    shape, returned = property(_shape), _returned

    def cycle(self, sim: Sim, hardware: Hardware | None, device: int, now: int) -> None:
        agents.cycle(self.first, sim, hardware, device, now)
        if not is_over(self.first, device):
            agents.cycle(self.second, sim, hardware, device, now)

    def done(self, sim: Sim, device: int) -> bool:
        return agents.done(self.first, sim, device)

    def progress(self, device: int) -> int:
        return agents.progress(self.first, device)


@inlined
def release(pair: SideBySide, device: int, now: int) -> None:
    """Launch the second kernel's present phase if what it waits for has happened."""
    second = pair.second
    if (not is_over(second, device) and second.state.opens[device] == NEVER
            and pair.first.state.phase[device] >= pair.after[second.state.phase[device]]):
        open_phase(second, device, now + pair.launch_cycles)
