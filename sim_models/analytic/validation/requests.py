"""Requests of measured rows to a machine, and measured times set beside answered ones."""

from dataclasses import dataclass

from t3sim.analytic.end_to_end.mapping import Mapping
from t3sim.analytic.end_to_end.training import TrainingJob
from t3sim.base.errors import BadInput


class NotExpressible(ValueError):
    """A row that the models cannot answer. The message is the reason, the same for all rows of its kind."""


@dataclass(frozen=True)
class Collective:
    """One collective of a library; `size_bytes`: of the whole tensor."""

    kind: str  #: all_reduce, all_gather, reduce_scatter, all_to_all, send_recv
    gpus: int
    nodes: int
    size_bytes: float
    library: str = ""
    algorithm: str = ""


@dataclass(frozen=True)
class GemmRequest:
    """One GPU's GEMM; `waited`: a framework's call whose end the host waits for."""

    m: int
    n: int
    k: int
    dtype: str = "bf16"
    waited: bool = False


@dataclass(frozen=True)
class OverlapRequest:
    """A GEMM and its collective; `way`: how they are run, in the words of the source."""

    operator: str  #: such as ag+gemm
    gpus: int
    gemm: GemmRequest  #: of one GPU
    way: str
    part: str = "fused"  #: baseline, fused, gemm, collective


@dataclass(frozen=True)
class Norm:
    """An all-reduce and an RMSNorm over tokens, or a part of it."""

    gpus: int
    tokens: int
    hidden: int
    part: str


@dataclass(frozen=True)
class Prompt:
    """A prompt through a model; `way`: baseline, without (no all-reduce), tokenweave."""

    model: str
    gpus: int
    tokens: int
    way: str


@dataclass(frozen=True)
class Beside:
    """A kernel beside a collective; `way`: alone, together, collective."""

    compute: str
    collective: str
    by: str
    amount: str
    gpus: int
    way: str


@dataclass(frozen=True)
class Crowded:
    """A kernel on a GPU some of whose units another one holds, while that one, or copy engines, move data."""

    compute: str
    units: int
    gb_per_s: float  #: of the GPU's memory, that are moved


@dataclass(frozen=True)
class Slowdown:
    """A kernel's time beside another one over its time alone, for which a fit takes its rows' ratios."""

    beside: "Beside | Crowded"
    alone: "Beside | Crowded"


@dataclass(frozen=True)
class Steady:
    """A kernel that has run over and over for a second."""

    compute: str


@dataclass(frozen=True)
class MemoryAccess:
    """Bytes that one GPU loads, stores or copies; `where`: own memory, one link, or all others at once."""

    operation: str
    where: str
    size_bytes: float


@dataclass(frozen=True)
class ExpertsExchange:
    """Tokens that go to their experts and come back."""

    operation: str
    library: str
    gpus: int
    nodes: int
    tokens: int
    hidden: int
    top_k: int
    experts: int
    dtype: str


@dataclass(frozen=True)
class Training:
    """An iteration of training."""

    job: TrainingJob
    mapping: Mapping


Request = (Collective | GemmRequest | OverlapRequest | Norm | Prompt | Beside | Crowded | Slowdown | Steady
           | MemoryAccess | ExpertsExchange | Training)


@dataclass(frozen=True)
class Measured:
    """A time that somebody measured."""

    source: str
    gpu: str  #: as the row names it
    quantity: str
    scenario: str
    ask: Request
    ns: float
    file: str = ""


@dataclass(frozen=True)
class Ratio:
    """Two times of one row or of two, of which the first over the second counts.

    `kind`: sign (which is longer), share (1 - second/first, in percent), slowdown (first/second - 1, in percent).
    """

    source: str
    gpu: str
    quantity: str
    scenario: str
    kind: str
    first: Request
    second: Request
    measured: float  #: of a sign the ratio, else percent
    file: str = ""


@dataclass(frozen=True)
class Unread:
    """A row without anything to compare."""

    source: str
    gpu: str
    scenario: str
    reason: str
    file: str = ""


Read = Measured | Ratio | Unread


class BadRows(BadInput):
    """A file of rows that cannot be read. The message names the line, the column, its value and what is allowed."""
