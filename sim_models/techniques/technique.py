"""Record of a technique: it says what it runs, what it refuses, and how its result is made up."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..errors import BadInput, Words
from ..runs.kernels import Kernel, KernelResult
from .choices import Choices
from .result import TechniqueResult


@dataclass(frozen=True)
class Technique:
    """A way to run a sub-layer. To add one, put a file beside this one and name its record in `table.py`."""

    name: str  #: as a scenario names it
    title: str  #: for people, a line
    source: str  #: the publication that it follows
    #: The kernels that its result is made of: the GEMM alone first, then what it is fused with or what follows.
    kernels: Callable[[Choices], tuple[Kernel, ...]]
    #: Of the technique's name, its kernels' results, GHz of the memory's clock, and the choices.
    combine: Callable[[str, Sequence[KernelResult], float, Choices], TechniqueResult]
    refuses: Callable[[Choices], str | Words | None] = lambda choices: None  #: a sentence that says why, None: it goes
    by_default: bool = False  #: run if none is named
    splits_k: bool = False  #: its GEMM's K can be in parts

    def kernels_of(self, choices: Choices) -> tuple[Kernel, ...]:
        """List its kernels. Raises BadInput for choices that it refuses."""
        if refused := self.refuses(choices):
            raise BadInput(refused)
        return self.kernels(choices)
