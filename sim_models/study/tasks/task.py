"""The unit of work: one kernel on one machine and layer. Figures that need the same kernel share it."""

import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Protocol

from t3sim.base.cache import digest
from t3sim.base.custom import digest_of_custom
from t3sim.machine import Machine
from t3sim.mechanisms.track_trigger import FusedGemm
from t3sim.rtl.arbiter import INSTALLED
from t3sim.rtl.geometry import Geometry
from t3sim.runs import kernels
from t3sim.runs.kernel_results import KernelResult
from t3sim.study.tasks.estimate import kernel_seconds
from t3sim.study.tasks.sources import source_digest
from t3sim.workload.workloads import CustomWorkload, Workload

BUILD_SECONDS = 60.0
_LONGEST_NAME = 120  #: letters of a kernel's name in a file's
#: Parts of a machine that a kernel without RTL does not see.
_OF_RTL = {"tracker": True, "dma": True, "arbiter": True, "channels": {"more_bits"}}


class Task(Protocol):
    """Unit of work that the runner runs in a process of its own."""

    @property
    def key(self) -> str:
        """The result's key: a hash of everything that it depends on; also the name of its file."""

    @property
    def label(self) -> str:
        """The task for people, in one line."""

    @property
    def seconds(self) -> float:
        """A guess at its run time."""

    @property
    def requires(self) -> "tuple[Task, ...]":
        """The tasks that must have been done before."""

    @property
    def needs_rtl(self) -> bool:
        """Say whether the RTL is in its loop."""

    @property
    def result_type(self) -> Any:
        """Type of the result: a dataclass or a union of dataclasses, with a field `host_seconds`."""

    @property
    def description(self) -> dict[str, Any]:
        """The task's inputs as JSON; stored next to the result."""

    def run(self, progress: Callable[[float], None]) -> Any:
        """Return the result, or None if the task has none. Raises this project's errors."""


@dataclass(frozen=True)
class BuildTask:
    """The RTL of one geometry, compiled into the build cache. Has no result of its own."""

    geometry: Geometry

    @cached_property
    def key(self) -> str:
        return f"build-{digest(repr(self.geometry))}"

    @property
    def label(self) -> str:
        tracker = self.geometry.tracker
        return f"build of the RTL, Tracker {tracker.sets} x {tracker.ways}"

    seconds = BUILD_SECONDS
    requires = ()

    def run(self, progress: Callable[[float], None]) -> None:
        from t3sim.runs.fused import rtl_design

        rtl_design(self.geometry)


@dataclass(frozen=True)
class WarmUpTask:
    """Small layers through every kind of loop, which are compiled once rather than in every worker.

    With `rtl` the RTL of `machine` is compiled as well.
    """

    machine: Machine
    rtl: bool
    key = "warm-up"
    requires = ()

    @property
    def label(self) -> str:
        return "compiling the models" + (" and the RTL" if self.rtl else "")

    @property
    def seconds(self) -> float:
        return BUILD_SECONDS if self.rtl else BUILD_SECONDS / 4

    def run(self, progress: Callable[[float], None]) -> None:
        gpu = self.machine.gpu
        small = Workload("custom", "gemm", 2, 2 * gpu.tile_m, 2 * gpu.tile_n, gpu.block_k)
        for kernel in (kernels.GEMM, kernels.ALL_GATHER, *([FusedGemm("round_robin")] if self.rtl else [])):
            kernels.simulate(kernel, self.machine, small)


@dataclass(frozen=True, eq=False)
class KernelTask:
    """One kernel simulation; make it with `kernel_task`, which drops names that do not affect the result.

    Tasks with equal inputs are equal.
    """

    kernel: kernels.Kernel
    machine: Machine
    workload: Workload
    seed: int = 0
    mirrored: bool = True
    window_cycles: int = 0  #: of recorded traffic; 0: none
    machine_name: str = ""  #: for people

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KernelTask) and other.key == self.key

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    def needs_rtl(self) -> bool:
        return self.kernel.needs_rtl

    @property
    def result_type(self) -> type:
        return self.kernel.result_type

    @property
    def description(self) -> dict[str, Any]:
        # Names round what they are made of; `repr` does not.
        return {"kernel": repr(self.kernel), "workload": {"kind": self.workload.kind, **asdict(self.workload)},
                "seed": self.seed, "mirrored": self.mirrored, "window_cycles": self.window_cycles,
                "machine": self.machine.model_dump(mode="json", exclude=None if self.needs_rtl else _OF_RTL),
                **({"custom": [digest_of_custom(*one) for one in self.custom.items()]} if self.custom else {})}

    @property
    def result_module(self) -> str | None:
        """Module that the result comes from, for those who keep it.

        None of kernels that are not ours, and with custom parts: it is not known which sources they import.
        """
        ours = type(self.kernel).__module__.startswith("t3sim.")
        return type(self.kernel).__module__ if ours and not self.custom else None

    @property
    def custom(self) -> dict[str, str]:
        """Custom parts that it is made of, by their keys of a scenario."""
        exchange = getattr(self.kernel, "exchange", None)
        policy = {one.name: f"{one.grants.__module__}:{one.grants.__name__}" for one in INSTALLED}.get(
            getattr(self.kernel, "policy", ""))
        return {**({"layer.operator": self.workload.source} if isinstance(self.workload, CustomWorkload) else {}),
                **(exchange.custom if exchange else {}), **({"t3.policy": policy} if policy else {})}

    @cached_property
    def key(self) -> str:
        shape = self.workload
        kernel = re.sub(r"[^\w.+-]+", "-", self.kernel.name)[:_LONGEST_NAME]
        name = f"{kernel}-{shape.m}x{shape.n}x{shape.k}-{shape.tp}"
        return f"{name}-{digest(described(self), source_digest(type(self.kernel).__module__, rtl=self.needs_rtl))}"

    @property
    def label(self) -> str:
        shape = self.workload
        size = f"{shape.m}x{shape.n}" + (f"x{shape.k}" if self.kernel.uses_depth else "")
        if self.kernel.uses_depth and not shape.weights_transposed:
            size += " backward"
        if shape.format.bytes == 1:
            size += f" in {shape.dtype}"
        if shape.routed:
            size += f", {shape.routed},"
        every = "" if self.mirrored else "all "
        return f"{self.kernel.name} {size} on {every}{shape.tp} GPUs, {self.machine_name}"

    @property
    def seconds(self) -> float:
        return kernel_seconds(self.kernel, self.machine, self.workload, self.mirrored)

    @property
    def requires(self) -> tuple[BuildTask, ...]:
        return (BuildTask(self.machine.geometry()),) if self.needs_rtl else ()

    def run(self, progress: Callable[[float], None]) -> KernelResult:
        return kernels.simulate(self.kernel, self.machine, self.workload, progress, self.seed, self.mirrored,
                                self.window_cycles)


def kernel_task(kernel: kernels.Kernel, machine: Machine, workload: Workload, seed: int = 0, mirrored: bool = True,
                window_cycles: int = 0) -> KernelTask:
    """Make the task of one kernel, the same for all that give the same result.

    Of a sub-layer's name only the layout of its weights matters, and the depth of the GEMM does not change a
    collective.
    """
    sublayer, k = "gemm" if workload.weights_transposed else "ip", workload.k
    if not kernel.uses_depth:
        sublayer, k = "gemm", 1
    return KernelTask(kernel, machine.model_copy(update={"name": "-"}),
                      replace(workload, model="custom", sublayer=sublayer, k=k), seed, mirrored, window_cycles,
                      machine.name)


def described(task: Task) -> str:
    """Write a task's description as text that is the same for equal ones."""
    return json.dumps(task.description, sort_keys=True)
