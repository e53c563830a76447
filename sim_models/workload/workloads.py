"""The GEMMs that are followed by an all-reduce in a tensor-parallel Transformer (T3 paper, table 2 and section 6.1)."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np

from t3sim.base.errors import BadInput
from t3sim.machine.formats import BF16, E4M3, FORMATS, FP32, Format
from t3sim.workload.locality import named_weights, weights_of_file
from t3sim.workload.routing import Routing, drawn, given

DEVICES = range(2, 65)  #: ring sizes that can be run
LARGEST_EXTENT = 1 << 20
MOST_DECODED = 512  #: tokens (Flux paper, section 5.2: batches of 64 and 512)

#: Elements of an embedding (fused operators' paper, section IV-B), rows that are added up, rows of a table.
DIMENSION, POOLED, TABLE_ROWS = 256, 10, 16384
_INDEX_BYTES = 8
_SCALED = 128  #: elements of 8 bits that have a scale together (DeepEP)


class WorkloadError(BadInput):
    """A workload that cannot be run."""


@dataclass(frozen=True)
class Model:
    """Hyperparameters that shape a sub-layer. "1K" in table 2 is read as 1024."""

    name: str
    title: str
    hidden: int
    layers: int
    sequence_length: int
    batch: int
    tp_degrees: tuple[int, ...]  #: the paper's; others may be run

    @property
    def tokens(self) -> int:
        return self.sequence_length * self.batch


MODELS = {model.name: model for model in (
    Model("mega-gpt-2", "Mega-GPT-2", 3072, 74, 1024, 16, (8, 16)),
    Model("t-nlg", "T-NLG", 4256, 78, 1024, 8, (8, 16)),
    Model("gpt-3", "GPT-3", 12 * 1024, 96, 1024, 2, (32,)),
    Model("palm", "PALM", 18 * 1024, 118, 1024, 2, (32,)),
    Model("mt-nlg", "MT-NLG", 20 * 1024, 105, 1024, 2, (32,)),
)}

#: K of the whole layer in units of H; tensor parallelism splits it over the devices (T3 paper, section 2.4).
_K_IN_HIDDEN = {"op": 1, "fc1": 4, "fc2": 4, "ip": 3}
SUBLAYERS = tuple(_K_IN_HIDDEN)
_GATHERED = "gathered-"  #: in the `sublayer` of one behind an all-gather
_SUBLAYER_TITLES = {"op": "OP", "fc1": "FC-1", "fc2": "FC-2", "ip": "IP", "ip-q": "IP of the queries",
                    "ip-kv": "IP of keys and values"}


@dataclass(frozen=True)
class Workload:
    """One GEMM per device, C[M, N] = A[M, K] x B[K, N], whose C is then reduced over `tp` devices."""

    model: str
    sublayer: str
    tp: int  #: devices
    m: int  #: rows of C: tokens
    n: int  #: columns of C
    k: int  #: per device
    dtype: str = "fp16"  #: of `formats`; fp16 throughout in the T3 paper (section 5.2)
    #: What memory holds of the output: fp32 or a fixed point, 32 bits either; None: the same as `dtype`.
    sums: str | None = field(default=None, kw_only=True)
    wire: str | None = field(default=None, kw_only=True)  #: what links carry of it; None: the same as `dtype`

    kind: ClassVar[str] = "GEMM"
    producer: ClassVar[str] = "GEMM"  #: what reports call the kernel that makes the output
    multiplies_matrices: ClassVar[bool] = True
    largest_extent: ClassVar[int] = LARGEST_EXTENT
    formats: ClassVar[Mapping[str, Format]] = FORMATS  #: that its elements may have

    def __post_init__(self) -> None:
        if self.dtype not in self.formats:
            raise WorkloadError(f"{self.dtype!r} is no format of elements: allowed are {', '.join(self.formats)}")
        if type(self.tp) is not int or self.tp not in DEVICES:
            raise WorkloadError(f"{self.tp!r} devices cannot form the ring: "
                                f"allowed are {DEVICES.start} to {DEVICES.stop - 1}")
        for name in ("m", "n", "k"):
            extent = getattr(self, name)
            if type(extent) is not int or not 1 <= extent <= self.largest_extent:
                raise WorkloadError(f"{name.upper()}={extent!r} is no {self.kind} extent: allowed are 1 to "
                                    f"{self.largest_extent}")

    @property
    def format(self) -> Format:
        """The format of every element of A, B and C."""
        return self.formats[self.dtype]

    @property
    def sum_bytes(self) -> int:
        """Bytes that an element of the output has in memory."""
        return self.format.bytes if self.sums is None else FP32.bytes

    @property
    def moved_bytes(self) -> int:
        """Bytes that an element of what is exchanged has in memory."""
        return self.sum_bytes

    @property
    def flop(self) -> int:
        """Floating-point operations of one device's GEMM."""
        return 2 * self.m * self.n * self.k

    @property
    def output_bytes(self) -> int:
        """Bytes of the array that is reduced. A ring chunk is this over `tp`, give or take the raggedness of tiles."""
        return self.m * self.n * self.format.bytes

    @property
    def activation_bytes(self) -> int:
        """The input of all tokens, which an all-gather before the GEMM brings together."""
        return self.m * self.k * self.format.bytes

    @property
    def input_bytes(self) -> int:
        """Bytes of A and B of one device, each counted once."""
        return (self.m + self.n) * self.k * self.format.bytes

    @property
    def shape(self) -> str:
        """The extents for people."""
        return f"M={self.m} N={self.n} K={self.k}"

    @property
    def routed(self) -> str:
        """Which experts its tokens go to, for people; nothing without experts."""
        return ""

    @property
    def size(self) -> str:
        """The extents as the command line has them: `512x512x96`."""
        return f"{self.m}x{self.n}x{self.k}"

    @property
    def weights_transposed(self) -> bool:
        """Say whether the weights lie along K in memory.

        They do forward, where Y = X W^T, but not backward, where dX = dY W.
        """
        return self.sublayer not in ("fc1", "ip", "ip-q", "ip-kv", _GATHERED + "op", _GATHERED + "fc2")

    @property
    def title(self) -> str:
        """The workload for people: `T-NLG FC-2, TP=8`."""
        if self.model == "custom":
            return f"{self.kind} on {self.tp} devices"
        if self.model == "chakra":
            return f"{self.sublayer} of the trace, TP={self.tp}"
        model = MODELS[self.model].title if self.model in MODELS else self.model
        sublayer = _SUBLAYER_TITLES[self.sublayer.removeprefix(_GATHERED)]
        gathered = " after its all-gather" if self.sublayer.startswith(_GATHERED) else ""
        return f"{model} {sublayer}{gathered}, TP={self.tp}"


@dataclass(frozen=True)
class GemvWorkload(Workload):
    """M elements per device, a matrix of M x K times a vector; N is 1."""

    kind: ClassVar[str] = "GEMV"
    producer: ClassVar[str] = "GEMV"
    multiplies_matrices: ClassVar[bool] = False


@dataclass(frozen=True)
class DecodeWorkload(Workload):
    """A GEMM of few tokens, by a kernel whose tile is as small as they are: see `runs.operators.with_its_kernel`."""


@dataclass(frozen=True)
class CustomWorkload(Workload):
    """M x N elements that a custom kernel makes, in the tiles of a GEMM; what it does with K is its own matter."""

    source: str = ""  #: the function that makes the operator: see `t3sim.base.custom`

    kind: ClassVar[str] = "Custom kernel"
    producer: ClassVar[str] = "kernel"
    multiplies_matrices: ClassVar[bool] = False


@dataclass(frozen=True)
class EmbeddingWorkload(Workload):
    """Sums of rows of embedding tables: of all devices M bags of K rows each, which have N elements."""

    tables: int = 1  #: per device
    rows: int = 1  #: of a table
    locality: str = "uniform"  #: which rows are named how often: a name of `locality.named_weights`, or a file's
    seed: int = 0  #: by which they are drawn
    given: tuple[float, ...] = field(default=(), repr=False)  #: weights of rows that a file has

    kind: ClassVar[str] = "Embedding pooling"
    producer: ClassVar[str] = "pooling"
    multiplies_matrices: ClassVar[bool] = False
    largest_extent: ClassVar[int] = 1 << 24

    @property
    def size(self) -> str:
        return f"{self.m // self.tables}x{self.tables}"

    @property
    def shape(self) -> str:
        return (f"batch {self.m // self.tables // self.tp}, {self.tables} tables of {self.rows} rows per GPU, {self.k} "
                f"rows of {self.n} elements in a sum, {self.locality}")

    @property
    def flop(self) -> int:
        return self.m * self.n * self.k

    @property
    def table_bytes(self) -> int:
        return self.tables * self.rows * self.n * self.format.bytes

    @property
    def input_bytes(self) -> int:
        """Bytes of the rows that are added up, each time that they are named, and of the lists that name them."""
        return self.m * self.k * (self.n * self.format.bytes + _INDEX_BYTES)

    def weights(self) -> np.ndarray:
        """Return how often each row of a table is named, in proportion: float64[row]."""
        named = None if self.given else named_weights(self.locality, self.rows)
        return np.array(self.given) if named is None else named


@dataclass(frozen=True)
class ExpertsWorkload(Workload):
    """The second GEMM of experts that devices share, each as many: of all devices M tokens that go to several of them.

    An expert multiplies its tokens, which have K elements, by its own weights; a token's N elements are summed over
    its experts.
    """

    experts: int = 2  #: of all devices
    per_token: int = 1  #: experts of a token
    zipf: float = 0.0  #: exponent of the experts' popularity over rank, 0: all are alike
    seed: int = 0  #: by which tokens' experts are drawn
    given: tuple[tuple[int, ...], ...] = field(default=(), repr=False)  #: tokens of each device for each expert instead

    kind: ClassVar[str] = "Experts' GEMM"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.m % self.tp:
            raise WorkloadError(f"M={self.m} tokens cannot be shared evenly by {self.tp} GPUs")
        if self.experts % self.tp or not 1 <= self.per_token <= self.experts:
            raise WorkloadError(f"{self.per_token} of {self.experts} experts for each token, on {self.tp} GPUs, are "
                                "not possible: a multiple of the GPUs, and at most all of them for a token")
        if self.given and (tokens := len(self.routing.experts_of)) != self.m:
            raise WorkloadError(f"M={self.m}: the routing has {tokens} tokens")

    @property
    def title(self) -> str:
        return super().title if self.model == "custom" else f"{self.model} {self.kind}, {self.tp} GPUs"

    @cached_property
    def routing(self) -> Routing:
        """Which tokens go to which experts. Raises BadInput for one that is given and cannot be."""
        if self.given:
            return given(list(map(list, self.given)), self.tp, self.experts, self.per_token)
        return drawn(self.tp, self.experts, self.per_token, self.m, self.zipf, self.seed)

    @property
    def shape(self) -> str:
        return f"{super().shape}, {self.routed}"

    @property
    def routed(self) -> str:
        popularity = "as given" if self.given else f"Zipf {self.zipf:g}" if self.zipf else "all alike"
        return f"{self.per_token} of {self.experts} experts for a token, {popularity}"

    @property
    def flop(self) -> int:
        """Floating-point operations of the device with the most tokens."""
        return 2 * max(map(sum, self.routing.groups)) * self.n * self.k

    @property
    def input_bytes(self) -> int:
        """Bytes of the tokens of the device with the most, and of its experts' weights."""
        rows, experts = max((sum(groups), len(groups)) for groups in self.routing.groups)
        return (rows + experts * self.n) * self.k * self.format.bytes

    @property
    def between(self) -> np.ndarray:
        """Tokens of each device for another one's experts, as often as they go to one: int64[device, device]."""
        return self.routing.counts.reshape(self.tp, self.tp, -1).sum(axis=2)

    @property
    def exchanged_elements(self) -> int:
        """Elements of a token that are exchanged: an expert's output."""
        return self.n

    @property
    def sent_bytes(self) -> int:
        """Bytes that the device with the most sends to others, or gets from them."""
        across = self.between * (1 - np.eye(self.tp, dtype=np.int64))
        return int(max(across.sum(axis=0).max(), across.sum(axis=1).max())) * self.exchanged_elements * (
            self.format.bytes)


@dataclass(frozen=True)
class DispatchWorkload(ExpertsWorkload):
    """The first GEMM of experts that devices share: of all devices M tokens of K elements that go to several of them.

    What an expert makes, N elements of each of its tokens, stays on its device, in 16 bits where tokens have 8. Those
    have a scale of 32 bits for each 128 elements after them.
    """

    formats: ClassVar[Mapping[str, Format]] = {**FORMATS, E4M3.name: E4M3}

    @property
    def sum_bytes(self) -> int:
        return max(self.format.bytes, BF16.bytes)

    @property
    def moved_bytes(self) -> int:
        return self.format.bytes

    @property
    def routed(self) -> str:
        return f"dispatched, {super().routed}"

    @property
    def exchanged_elements(self) -> int:
        scales = -(-self.k // _SCALED) * FP32.bytes if self.format.bytes == 1 else 0
        return self.k + scales

    @property
    def tokens_of(self) -> np.ndarray:
        """Tokens of each device's experts, one after the other: int64[device, expert of the device]."""
        return self.routing.counts.sum(axis=0).reshape(self.tp, -1)


def transformer_workload(model: str = "t-nlg", sublayer: str = "fc2", tp: int = 8) -> Workload:
    """Return a sub-layer of a model of table 2. Raises `WorkloadError`."""
    known = MODELS.get(model.lower())
    if known is None:
        raise WorkloadError(f"model {model!r} is unknown: allowed are {', '.join(MODELS)}")
    multiple = _K_IN_HIDDEN.get(sublayer.lower())
    if multiple is None:
        raise WorkloadError(f"sub-layer {sublayer!r} is unknown: allowed are {', '.join(SUBLAYERS)}")
    if tp not in DEVICES:
        raise WorkloadError(f"TP={tp} is not possible: allowed are {DEVICES.start} to {DEVICES.stop - 1}")
    k = multiple * known.hidden
    if k % tp:
        fitting = ", ".join(str(degree) for degree in DEVICES if k % degree == 0)
        raise WorkloadError(f"TP={tp} does not divide K={k} of {known.name} {sublayer.lower()}: allowed are {fitting}")
    return Workload(known.name, sublayer.lower(), tp, known.tokens, known.hidden, k // tp)


def gathered_workload(model: str = "t-nlg", sublayer: str = "fc1", tp: int = 8) -> Workload:
    """Return a sub-layer of a model of table 2 after an all-gather of its activations. Raises `WorkloadError`."""
    return behind_all_gather(transformer_workload(model, sublayer, tp))


def behind_all_gather(workload: Workload) -> Workload:
    """Return the GEMM of the same sub-layer that is behind an all-gather of its activations.

    These are split by tokens there (sequence parallelism): of IP and FC-1 forward, of OP and FC-2 backward. Its columns
    are divided, not its depth.
    """
    return replace(workload, sublayer=_GATHERED + workload.sublayer, n=workload.k, k=workload.n)


def gemm_workload(shape: str, devices: int, dtype: str = "fp16") -> Workload:
    """Return a custom GEMM, `MxNxK` with the K of one device. Raises `WorkloadError`."""
    match = re.fullmatch(r"(\d{1,9})[xX](\d{1,9})[xX](\d{1,9})", shape.strip(), re.ASCII)
    if match is None:
        raise WorkloadError(f"GEMM shape {shape!r} is not MxNxK: three whole numbers, for example 8192x4256x2128")
    m, n, k = map(int, match.groups())
    return Workload("custom", "gemm", devices, m, n, k, dtype)


def gemv_workload(shape: str, devices: int) -> GemvWorkload:
    """Return a product of one device's M x K matrix and a vector, `Mx1xK`. Raises `WorkloadError`."""
    found = gemm_workload(shape, devices)
    if found.n != 1:
        raise WorkloadError(f"a GEMV multiplies by a vector: layer.gemm = {found.m}x1x{found.k}, not {shape.strip()}")
    return GemvWorkload("custom", "gemv", devices, found.m, 1, found.k, found.dtype)


def decode_workload(shape: str, devices: int) -> DecodeWorkload:
    """Return a GEMM of 1 to `MOST_DECODED` tokens, `MxNxK` with the K of one device. Raises `WorkloadError`."""
    found = gemm_workload(shape, devices)
    if found.m > MOST_DECODED:
        raise WorkloadError(f"layer.gemm = {shape.strip()}: {MOST_DECODED} tokens are decoded at once at most")
    return DecodeWorkload("custom", "decode", devices, found.m, found.n, found.k, found.dtype)


def experts_workload(shape: str, devices: int, experts: str, zipf: float = 0.0, seed: int = 0,
                     given: tuple[tuple[int, ...], ...] = (), first: bool = False) -> ExpertsWorkload:
    """Return a GEMM of experts that devices share, `MxNxK` with the tokens of all devices. Raises `WorkloadError`.

    `experts`: of all devices, and of a token, `64x8`; `first`: to which tokens are dispatched, a `DispatchWorkload`;
    the others as in `ExpertsWorkload`.
    """
    found = gemm_workload(shape, devices)
    match = re.fullmatch(r"(\d{1,5})[xX](\d{1,3})", experts.strip(), re.ASCII)
    if match is None:
        raise WorkloadError(f"layer.experts = {experts[:40]!r} is not EXPERTSxCHOSEN (of all GPUs, and of a token), "
                            "for example 64x8")
    of_all, per_token = map(int, match.groups())
    made = DispatchWorkload if first else ExpertsWorkload
    return made("custom", "gemm", devices, found.m, found.n, found.k, found.dtype, experts=of_all,
                per_token=per_token, zipf=zipf, seed=seed, given=given)


def custom_workload(source: str, shape: str, devices: int) -> CustomWorkload:
    """Return the `MxNxK` of a custom kernel, by its reference. Raises `WorkloadError`."""
    found = gemm_workload(shape, devices)
    return CustomWorkload("custom", "gemm", devices, found.m, found.n, found.k, found.dtype, source)


def batch_and_tables(text: str) -> tuple[int, int]:
    """Parse `BATCHxTABLES`. Raises `WorkloadError`."""
    match = re.fullmatch(r"(\d{1,7})[xX](\d{1,7})", text.strip(), re.ASCII)
    batch, tables = map(int, match.groups()) if match else (0, 0)
    if not (0 < batch <= LARGEST_EXTENT and 0 < tables <= LARGEST_EXTENT):
        raise WorkloadError(f"layer.embedding = {text[:40]!r} is not BATCHxTABLES (tables per GPU), for example "
                            f"2048x256, each 1 to {LARGEST_EXTENT}")
    return batch, tables


def embedding_workload(shape: str, devices: int, locality: str = "uniform", seed: int = 0,
                       alone: bool = False) -> EmbeddingWorkload:
    """Return a pooling of `BATCHxTABLES`: the batch of all devices, and the tables of each. Raises `BadInput`.

    `locality`: a name, or a file of weights, whose tables have as many rows; `seed`: as in `EmbeddingWorkload`;
    `alone`: on one device, which pools for the whole batch.
    """
    batch, tables = batch_and_tables(shape)
    if not alone and batch % devices:
        raise WorkloadError(f"layer.embedding = {shape}: a batch of {batch} cannot be shared evenly by {devices} GPUs")
    given = weights_of_file(locality) if named_weights(locality, 1) is None else ()
    return EmbeddingWorkload("custom", "embedding", devices, batch * tables * (1 if alone else devices), DIMENSION,
                             POOLED, "fp32", tables, len(given) or TABLE_ROWS,
                             Path(locality).name if given else locality, seed, given)


def paper_workloads() -> Iterator[Workload]:
    """Return every case of table 2: 16 of the small models, 12 of the large ones."""
    for model in MODELS.values():
        for tp in model.tp_degrees:
            for sublayer in SUBLAYERS:
                yield transformer_workload(model.name, sublayer, tp)
