"""Record of a technique: its kernels, the plans that it refuses, and how its result is computed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import signature

from t3sim.base.custom import of_kind
from t3sim.base.errors import BadInput, shown
from t3sim.mechanisms.result import TechniqueResult
from t3sim.runs.kernel_results import KernelResult
from t3sim.runs.kernels import Kernel
from t3sim.runs.plan import Plan


@dataclass(frozen=True)
class Technique:
    """A way to run a sub-layer. To add one, put a file with its record into this folder."""

    name: str  #: as a scenario names it
    title: str  #: for people, a line
    source: str  #: the publication that it follows
    #: The kernels that its result is made of: the GEMM alone first, then what it is fused with or what follows.
    kernels: Callable[[Plan], tuple[Kernel, ...]]
    #: Computes the result from the technique's name, its kernels' results, and the plan.
    combine: Callable[[str, Sequence[KernelResult], Plan], TechniqueResult]
    refuses: Callable[[Plan], str | None] = lambda plan: None  #: a sentence that says why, None: not refused
    by_default: bool = False  #: run if none is named
    splits_k: bool = False  #: its GEMM's K can be in parts

    def __post_init__(self) -> None:
        """Refuse functions that take something else, before anything is simulated. Raises TypeError."""
        for function, needed in (("kernels", ["plan"]), ("combine", ["name", "parts", "plan"]), ("refuses", ["plan"])):
            if not callable(getattr(self, function)):
                raise TypeError(f"{function} = {shown(getattr(self, function))} is not a function")
            takes = signature(getattr(self, function))
            try:
                takes.bind(*needed)
            except TypeError:
                raise TypeError(f"{function}{takes} is to take ({', '.join(needed)})") from None

    def kernels_of(self, plan: Plan) -> tuple[Kernel, ...]:
        """List its kernels. Raises BadInput for a plan that it refuses."""
        if refused := self.refuses(plan):
            raise BadInput(refused)
        kernels = self.kernels(plan)
        if not isinstance(kernels, tuple) or not all(isinstance(kernel, Kernel) for kernel in kernels):
            raise BadInput(f"techniques = {self.name} has kernels {shown(kernels)}: a tuple of Kernels is needed")
        return kernels

    def result(self, parts: Sequence[KernelResult], plan: Plan) -> TechniqueResult:
        """Compute its result from its kernels'. Raises BadInput if `combine` returns no TechniqueResult."""
        result = self.combine(self.name, parts, plan)
        return of_kind(f"techniques = {self.name}", result, TechniqueResult)
