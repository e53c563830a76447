"""The self-checks of a fused run; docs/reference/checks.md lists them."""

from collections.abc import Mapping, Sequence

import numpy as np

from t3sim.gpu.fabric.network import outgoing
from t3sim.runs.diagnosis import at_rest, final_tiles, lost_packets
from t3sim.runs.failure import SimulationError
from t3sim.runs.programmed import ProgrammedGpus, ProgrammedRun


def check(run: ProgrammedRun) -> None:
    """Check a run whose fused kernel has ended. Raises SimulationError."""
    control = run.sim.control
    for d, space in enumerate(run.spaces):
        if lost_packets(run, d):
            waiting = run.sim.network.flight.count[outgoing(run.sim.network, d)].sum()
            raise SimulationError(f"GPU {space.device}: {waiting} packets on the link"
                                  f"{lost_packets(run, d)}")
    run.raise_errors()
    for d, space in enumerate(run.spaces):
        if inside := at_rest(run, d):  # a tile that fired got bytes twice, or bytes of another
            raise SimulationError(f"GPU {space.device}: not idle at the end: {inside}")
        final = final_tiles(run, d)
        if (control.events[d] != final).any():
            q, wf = np.argwhere(control.events[d] != final)[0]
            raise SimulationError(f"GPU {space.device}: tile of workgroup {q}, wavefront {wf} completed "
                                  f"{control.events[d, q, wf]} times instead of {int(final[q, wf])}")
        tracked = run.schedule.tracked_wf_tiles(space.device)
        counters = run.counters(d)
        if counters["triggers"] != tracked:
            raise SimulationError(f"GPU {space.device}: {counters['triggers']} triggers for {tracked} tiles")
        if counters["packets"] != run.sim.network.injected[d]:
            raise SimulationError(f"GPU {space.device}: {counters['packets']} packets left, "
                                  f"{run.sim.network.injected[d]} were sent")
    for observer in run.observers:
        observer.check()


def nothing_counted(run: ProgrammedGpus, before: Sequence[Mapping[str, int]]) -> None:
    """Check that no counter moved during a collective by kernels, which is not tracked. Raises SimulationError.

    `before`: each device's counters.
    """
    for d, device in enumerate(run.devices):
        counted = run.counters(d)
        changed = [f"{name} {before[d][name]:,} to {counted[name]:,}" for name in counted
                   if counted[name] != before[d][name]]
        if changed:
            raise SimulationError(f"GPU {device}: stores of a collective are not tracked, but the hardware counted "
                                  f"during it: {', '.join(changed)}")
