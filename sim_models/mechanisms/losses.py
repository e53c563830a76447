"""Losses of a fused run: the nanoseconds that it takes beyond its GEMM alone.

Both runs record the state of each compute unit in each cycle: launch, compute, waiting for loads, for stores or for the
dispatch window, or idle. The means over all units sum to the GEMM's time, so the differences between the fused and the
isolated run sum to the GEMM's slowdown. The rest of the collective, after the GEMM, is `link_tail`. All losses sum to
the fused run's time minus the isolated GEMM's.

The wait for loads is split by the requests that DRAM served while GEMM reads waited in its queues, in excess of the
isolated run's. This split is by count: it does not weigh bus turnarounds or row conflicts.
"""

from typing import NamedTuple

import numpy as np

from t3sim.gpu.setup import ACCOUNTS
from t3sim.runs.phases import PURPOSES

#: Loss by waiting for loads, by the requests that were served meanwhile.
READ_STALLS = {"gemm_read": "read_stall_by_gemm_reads", "gemm_write": "read_stall_by_gemm_writes",
               "rs_read": "read_stall_by_rs_reads", "rs_write": "read_stall_by_rs_writes"}


class Watched(NamedTuple):
    """Observations of a GEMM while it ran."""

    cycles: float  #: until its last workgroup ended
    units: np.ndarray  #: cycles per state, summed over units
    waited: np.ndarray  #: requests per memory purpose that were served while its reads waited


def attribute(alone: Watched, fused: Watched, *, end: int, units: int) -> dict[str, float]:
    """Return cause -> memory cycles. `end`: of the fused run; `units`: compute units."""
    states = {}
    for index, name in enumerate(ACCOUNTS):
        states[name] = (float(fused.units[index]) - float(alone.units[index])) / units
    busy = [name for name in ACCOUNTS if name != "idle"]
    # Idle time is counted to the end of each run's simulation; within the GEMM it is what the other states leave.
    states["idle"] = fused.cycles - alone.cycles - sum(states[name] for name in busy)
    loss = {
        "window_blocked": states["blocked"],
        "store_to_memory": states["store_memory"],
        "store_to_link": states["store_link"],
        "launch_and_compute": states["launch"] + states["compute"],
        "idle_units": states["idle"],
        **_split(states["load"], alone.waited, fused.waited),
        "link_tail": float(end - fused.cycles),
    }
    of_software = {"flags_polled": states["poll"], "local_reduction": states["adding"]}  # which most kernels do not do
    return loss | {cause: cycles for cause, cycles in of_software.items() if cycles}


def attribute_gathered(alone: Watched, fused: Watched, *, end: int, units: int) -> dict[str, float]:
    """Attribute as `attribute` a GEMM whose workgroups wait for their inputs, which no window holds."""
    return {"inputs_not_there" if cause == "window_blocked" else cause: cycles
            for cause, cycles in attribute(alone, fused, end=end, units=units).items()}


def attribute_split(whole: Watched, fewer: Watched, split: Watched, *, end: int, units: int,
                    launches: float) -> dict[str, float]:
    """Return cause -> memory cycles of GEMMs that are split and run beside a collective's kernels.

    They sum to `end` - whole.
    """
    loss = attribute_sending(fewer, split, end=end, units=units)
    return {"communication_units": fewer.cycles - whole.cycles, "kernel_launches": launches,
            "wave_tails": loss.pop("idle_units") - launches, **loss}


def attribute_sending(alone: Watched, sending: Watched, *, end: int, units: int) -> dict[str, float]:
    """Return cause -> memory cycles of a kernel that sends, or waits for what comes; they sum to `end` - alone."""
    loss = attribute(alone, sending, end=end, units=units)
    del loss["window_blocked"]  # no window holds workgroups
    return loss


def attribute_storing(alone: Watched, storing: Watched, *, end: int, units: int, launches: float,
                      reduction: float) -> dict[str, float]:
    """Return cause -> memory cycles of a GEMM that stores at its output's owners; they sum to `end` - alone.

    `launches`, `reduction`: cycles of the kernel that adds the parts at the end, when all have arrived.
    """
    loss = attribute_sending(alone, storing, end=round(end - launches - reduction), units=units)
    return {**loss, "kernel_launches": launches, "local_reduction": reduction}


def _split(stall: float, alone: np.ndarray, fused: np.ndarray) -> dict[str, float]:
    """Split stall cycles over their causes, in proportion to the requests that were added."""
    added = {name: max(0.0, float(fused[i]) - float(alone[i])) for i, name in enumerate(PURPOSES)
             if name in READ_STALLS}
    total = sum(added.values())
    if stall <= 0 or total == 0:
        return {READ_STALLS[name]: stall if name == "gemm_read" else 0.0 for name in READ_STALLS}
    return {READ_STALLS[name]: stall * share / total for name, share in added.items()}
