"""Losses of a persistent kernel that sends: the time it saves when causes are removed in turn."""

from dataclasses import replace

from t3sim.event.tiles.persistent import Sending, Tasks, fused_run, task_ns
from t3sim.event.tiles.slots import run_slices
from t3sim.machine import Machine


def alone_ns(node: Machine, gpus: int, tasks: Tasks) -> float:
    """Return what one kernel of all tasks takes that sends nothing, ns from its start."""
    return run_slices(tasks.plain_places, lambda running: task_ns(node, tasks, running), [tasks.for_each * gpus],
                      lambda _, computed: computed)


def separate_losses(node: Machine, gpus: int, tasks: Tasks, kernels_ns: float,
                    collective_ns: float) -> dict[str, float]:
    """Return what kernels and a library's collective take longer than one kernel alone, ns by cause."""
    return {"kernels of a framework": kernels_ns - alone_ns(node, gpus, tasks), "collective": collective_ns}


def fused_losses(node: Machine, gpus: int, tasks: Tasks, sending: Sending) -> dict[str, float]:
    """Return what the fused kernel takes longer than one that sends nothing, ns by cause; they add up to all of it.

    Flags that are polled, masks, and registers that cost occupancy are taken away in this order; what is left beside
    the tasks are transfers that nothing hides, and stores that workgroups wait for. Stores that Track & Trigger tracks
    have those only.
    """
    found, before = {}, fused_run(node, gpus, tasks, sending).ns
    if not sending.tracked:
        no_flags, no_masks = (
            node.model_copy(update={"signals": node.signals.model_copy(update=dict.fromkeys(keys, 0.0))})
            for keys in (("poll_ns",), ("poll_ns", "mask_ns")))
        plain = replace(tasks, sending_places=tasks.plain_places)
        for cause, without, made in (("flags", no_flags, tasks), ("masks", no_masks, tasks),
                                     ("registers", no_masks, plain)):
            left = fused_run(without, gpus, made, sending).ns
            found[cause], before = before - left, left
    return found | {"transfers": before - alone_ns(node, gpus, tasks)}
