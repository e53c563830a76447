"""An operator of tasks and its collective under several techniques on one node, and where the time of each goes."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from t3sim.analytic.gemm import Shape
from t3sim.base.errors import BadInput, Key, choices
from t3sim.event.tiles.persistent import Sending, embedding, fused_run, gemm_tasks, gemv, kernels_ns, places, reduction
from t3sim.event.tiles.persistent_losses import fused_losses, separate_losses
from t3sim.machine import Machine

OPERATORS = ("embedding-a2a", "gemv-ar", "gemm-a2a")
TECHNIQUES = ("sequential", "fused-wg", "t3-model")


@dataclass(frozen=True)
class PersistentTimes:
    """One technique's time."""

    total_ns: float
    shorter: float  #: than sequential, as a share
    loss_ns: dict[str, float]  #: what it takes longer than one kernel of all tasks that sends nothing, by cause
    computed_ns: float | None = None  #: until the last task is computed


@dataclass(frozen=True)
class PersistentRun:
    """An operator of tasks on a node."""

    operator: str
    machine: str
    gpus: int
    shape: str
    slice_tasks: int
    kernels_ns: float
    collective_ns: float
    techniques: dict[str, PersistentTimes]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def run_persistent(node: Machine, operator: str, gpus: int, shape: tuple[int, ...],
                   techniques: Sequence[str] = TECHNIQUES, sending: Sending | str = Sending()) -> PersistentRun:
    """Play an operator on the GPUs of one node; `sending`: how, or how fine a signal. Raises BadInput.

    It is `embedding-a2a` (shape: batch of all GPUs, tables per GPU), `gemv-ar` (m, k) or `gemm-a2a` (m, n, k: one
    GPU's).
    """
    for name in techniques:
        if name not in TECHNIQUES:
            raise BadInput(Key("techniques", repr(name)),
                           f" is unknown for persistent kernels: allowed are {choices(name, TECHNIQUES)}")
    if not 2 <= gpus <= node.gpus:
        raise BadInput(Key("layer.devices", gpus),
                       f": persistent kernels run on 2 to {node.gpus} GPUs of machine {node.name}")
    launches = 1
    if operator == "embedding-a2a":
        tasks, launches = embedding(node, gpus, *shape), shape[1]
    elif operator == "gemv-ar":
        tasks = gemv(node, gpus, *shape)
    else:
        places(node, True)
        tasks = gemm_tasks(node, gpus, Shape(*shape))
    if not tasks.for_each:
        raise BadInput(f"{operator}: {' x '.join(map(str, shape))} leaves no task for each of {gpus} GPUs")
    if isinstance(sending, str):
        sending = Sending.by(sending, tasks)
    alone, collective = kernels_ns(node, gpus, tasks, launches)
    found = {}
    for name in techniques:
        if name == "sequential":
            found[name] = PersistentTimes(alone + collective, 0.0,
                                          separate_losses(node, gpus, tasks, alone, collective))
            continue
        how = replace(sending, tracked=name == "t3-model")
        one = fused_run(node, gpus, tasks, how)
        found[name] = PersistentTimes(one.ns, reduction(alone + collective, one.ns),
                                      fused_losses(node, gpus, tasks, how), one.computed_ns)
    return PersistentRun(operator, node.name, gpus, " x ".join(map(str, shape)), sending.slice_tasks, alone, collective,
                         found)
