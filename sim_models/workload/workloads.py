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
_SCALED = 128  #: elements of 8 bits that share a scale (DeepEP)


class WorkloadError(BadInput):
    """A workload that cannot be run; the message names the value and the allowed values."""


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

#: K of the whole layer in units of H; tensor parallelism splits it over the GPUs (T3 paper, section 2.4).
_K_IN_HIDDEN = {"op": 1, "fc1": 4, "fc2": 4, "ip": 3}
SUBLAYERS = tuple(_K_IN_HIDDEN)
_GATHERED = "gathered-"  #: prefix of the name of a sub-layer behind an all-gather
_SUBLAYER_TITLES = {"op": "OP", "fc1": "FC-1", "fc2": "FC-2", "ip": "IP", "ip-q": "IP of the queries",
                    "ip-kv": "IP of keys and values"}


@dataclass(frozen=True)
class Workload:
    """One GEMM per GPU, C[M, N] = A[M, K] x B[K, N], whose C is then reduced over `tp` GPUs."""

    model: str
    sublayer: str
    tp: int  #: GPUs
    m: int  #: rows of C: tokens
    n: int  #: columns of C
    k: int  #: per GPU
    dtype: str = "fp16"  #: of `formats`; fp16 throughout in the T3 paper (section 5.2)
    #: Format of the output in memory: fp32 or fixed point, both of 32 bits; None: `dtype`.
    sums: str | None = field(default=None, kw_only=True)
    wire: str | None = field(default=None, kw_only=True)  #: format of the output on links; None: `dtype`

    kind: ClassVar[str] = "GEMM"
    producer: ClassVar[str] = "GEMM"  #: name in reports of the kernel that computes the output
    multiplies_matrices: ClassVar[bool] = True
    largest_extent: ClassVar[int] = LARGEST_EXTENT
    formats: ClassVar[Mapping[str, Format]] = FORMATS  #: allowed formats of its elements

    def __post_init__(self) -> None:
        if self.dtype not in self.formats:
            raise WorkloadError(f"{self.dtype!r} is not a format of elements: allowed are {', '.join(self.formats)}")
        if type(self.tp) is not int or self.tp not in DEVICES:
            raise WorkloadError(f"{self.tp!r} GPUs cannot form the ring: "
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
        """Bytes of an element of the output in memory."""
        return self.format.bytes if self.sums is None else FP32.bytes

    @property
    def moved_bytes(self) -> int:
        """Bytes in memory of an element that GPUs exchange."""
        return self.sum_bytes

    @property
    def flop(self) -> int:
        """Floating-point operations of one GPU's GEMM."""
        return 2 * self.m * self.n * self.k

    @property
    def output_bytes(self) -> int:
        """Bytes of the reduced array. A ring chunk is about this over `tp`; ragged tiles make chunks differ."""
        return self.m * self.n * self.format.bytes

    @property
    def activation_bytes(self) -> int:
        """Bytes of the input of all tokens, the result of an all-gather before the GEMM."""
        return self.m * self.k * self.format.bytes

    @property
    def input_bytes(self) -> int:
        """Bytes of A and B of one GPU, each counted once."""
        return (self.m + self.n) * self.k * self.format.bytes

    @property
    def shape(self) -> str:
        """The extents, for output."""
        return f"M={self.m} N={self.n} K={self.k}"

    @property
    def routed(self) -> str:
        """Routing of tokens to experts, for output; empty without experts."""
        return ""

    @property
    def size(self) -> str:
        """The extents in the command line's form: `512x512x96`."""
        return f"{self.m}x{self.n}x{self.k}"

    @property
    def weights_transposed(self) -> bool:
        """Whether the weights are contiguous along K in memory: forward (Y = X W^T) yes, backward (dX = dY W) no."""
        return self.sublayer not in ("fc1", "ip", "ip-q", "ip-kv", _GATHERED + "op", _GATHERED + "fc2")

    @property
    def title(self) -> str:
        """The workload's name, for output: `T-NLG FC-2, TP=8`."""
        if self.model == "custom":
            return f"{self.kind} on {self.tp} GPUs"
        if self.model == "chakra":
            return f"{self.sublayer} of the trace, TP={self.tp}"
        model = MODELS[self.model].title if self.model in MODELS else self.model
        sublayer = _SUBLAYER_TITLES[self.sublayer.removeprefix(_GATHERED)]
        gathered = " after its all-gather" if self.sublayer.startswith(_GATHERED) else ""
        return f"{model} {sublayer}{gathered}, TP={self.tp}"


@dataclass(frozen=True)
class GemvWorkload(Workload):
    """M elements per GPU, an M x K matrix times a vector; N is 1."""

    kind: ClassVar[str] = "GEMV"
    producer: ClassVar[str] = "GEMV"
    multiplies_matrices: ClassVar[bool] = False


@dataclass(frozen=True)
class DecodeWorkload(Workload):
    """A GEMM of few tokens, whose kernel has as small a tile: see `runs.operators.with_its_kernel`."""


@dataclass(frozen=True)
class CustomWorkload(Workload):
    """M x N elements of a custom kernel, in the tiles of a GEMM; the kernel may use K as it likes."""

    source: str = ""  #: reference to the function that makes the operator: see `t3sim.base.custom`

    kind: ClassVar[str] = "Custom kernel"
    producer: ClassVar[str] = "kernel"
    multiplies_matrices: ClassVar[bool] = False


@dataclass(frozen=True)
class EmbeddingWorkload(Workload):
    """Sums of rows of embedding tables: M bags on all GPUs, of K rows with N elements each."""

    tables: int = 1  #: per GPU
    rows: int = 1  #: of a table
    locality: str = "uniform"  #: frequencies of rows: a name of `locality.named_weights`, or a file's name
    seed: int = 0  #: of the draw of rows
    given: tuple[float, ...] = field(default=(), repr=False)  #: weights of rows from a file

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
        """Bytes of all rows in all bags, repeated rows included, and of the bags' lists."""
        return self.m * self.k * (self.n * self.format.bytes + _INDEX_BYTES)

    def weights(self) -> np.ndarray:
        """Return the relative frequency of each row of a table: float64[row]."""
        law_weights = None if self.given else named_weights(self.locality, self.rows)
        return np.array(self.given) if law_weights is None else law_weights


@dataclass(frozen=True)
class ExpertsWorkload(Workload):
    """The second GEMM of experts, equally many on each GPU, for M tokens on all GPUs, each with several experts.

    An expert multiplies its tokens, which have K elements, by its own weights. A token's N elements are summed over
    its experts.
    """

    experts: int = 2  #: on all GPUs
    per_token: int = 1  #: experts of a token
    zipf: float = 0.0  #: exponent of the experts' popularity over rank, 0: all equally popular
    seed: int = 0  #: of the draw of experts
    given: tuple[tuple[int, ...], ...] = field(default=(), repr=False)  #: instead, tokens of each GPU for each expert

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
        """The routing of tokens to experts. Raises BadInput for impossible counts in `given`."""
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
        """Floating-point operations of the GPU with the most tokens."""
        return 2 * max(map(sum, self.routing.groups)) * self.n * self.k

    @property
    def input_bytes(self) -> int:
        """Bytes of the tokens of the GPU with the most, and of its experts' weights."""
        rows, experts = max((sum(groups), len(groups)) for groups in self.routing.groups)
        return (rows + experts * self.n) * self.k * self.format.bytes

    @property
    def between(self) -> np.ndarray:
        """Tokens of each GPU for each GPU's experts, counted per expert: int64[source GPU, expert's GPU]."""
        return self.routing.counts.reshape(self.tp, self.tp, -1).sum(axis=2)

    @property
    def exchanged_elements(self) -> int:
        """Elements that GPUs exchange per token and expert: the expert's output."""
        return self.n

    @property
    def sent_bytes(self) -> int:
        """Most bytes that a GPU sends to others, or receives from them."""
        remote_tokens = self.between * (1 - np.eye(self.tp, dtype=np.int64))
        return int(max(remote_tokens.sum(axis=0).max(), remote_tokens.sum(axis=1).max())) * self.exchanged_elements * (
            self.format.bytes)


@dataclass(frozen=True)
class DispatchWorkload(ExpertsWorkload):
    """The first GEMM of experts on several GPUs: M tokens on all GPUs, of K elements, each with several experts.

    An expert's output, N elements for each of its tokens, stays on its GPU, in at least 16 bits. Tokens of 8 bits have
    a scale of 32 bits per 128 elements, which follows them in memory.
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
        """Tokens of each GPU's experts: int64[GPU, expert of the GPU]."""
        return self.routing.counts.sum(axis=0).reshape(self.tp, -1)


def transformer_workload(model: str = "t-nlg", sublayer: str = "fc2", tp: int = 8) -> Workload:
    """Return a sub-layer of a model of table 2. Raises `WorkloadError`."""
    table_model = MODELS.get(model.lower())
    if table_model is None:
        raise WorkloadError(f"model {model!r} is unknown: allowed are {', '.join(MODELS)}")
    depth_in_hidden = _K_IN_HIDDEN.get(sublayer.lower())
    if depth_in_hidden is None:
        raise WorkloadError(f"sub-layer {sublayer!r} is unknown: allowed are {', '.join(SUBLAYERS)}")
    if tp not in DEVICES:
        raise WorkloadError(f"TP={tp} is not possible: allowed are {DEVICES.start} to {DEVICES.stop - 1}")
    k = depth_in_hidden * table_model.hidden
    if k % tp:
        degrees = ", ".join(str(degree) for degree in DEVICES if k % degree == 0)
        raise WorkloadError(f"TP={tp} does not divide K={k} of {table_model.name} {sublayer.lower()}: allowed are "
                            f"{degrees}")
    return Workload(table_model.name, sublayer.lower(), tp, table_model.tokens, table_model.hidden, k // tp)


def gathered_workload(model: str = "t-nlg", sublayer: str = "fc1", tp: int = 8) -> Workload:
    """Return a sub-layer of a model of table 2 after an all-gather of its activations. Raises `WorkloadError`."""
    return behind_all_gather(transformer_workload(model, sublayer, tp))


def behind_all_gather(workload: Workload) -> Workload:
    """Return the GEMM of the same sub-layer behind an all-gather of its activations.

    Sequence parallelism splits these activations by tokens: of IP and FC-1 forward, of OP and FC-2 backward. The GEMM's
    columns are divided, not its depth.
    """
    return replace(workload, sublayer=_GATHERED + workload.sublayer, n=workload.k, k=workload.n)


def gemm_workload(shape: str, devices: int, dtype: str = "fp16") -> Workload:
    """Return a custom GEMM, `MxNxK` with the K of one GPU, on `devices` GPUs. Raises `WorkloadError`."""
    match = re.fullmatch(r"(\d{1,9})[xX](\d{1,9})[xX](\d{1,9})", shape.strip(), re.ASCII)
    if match is None:
        raise WorkloadError(f"GEMM shape {shape!r} is not MxNxK: three whole numbers, for example 8192x4256x2128")
    m, n, k = map(int, match.groups())
    return Workload("custom", "gemm", devices, m, n, k, dtype)


def gemv_workload(shape: str, devices: int) -> GemvWorkload:
    """Return a product of one GPU's M x K matrix and a vector, `Mx1xK`. Raises `WorkloadError`."""
    gemm = gemm_workload(shape, devices)
    if gemm.n != 1:
        raise WorkloadError(f"a GEMV multiplies by a vector: layer.gemm = {gemm.m}x1x{gemm.k}, not {shape.strip()}")
    return GemvWorkload("custom", "gemv", devices, gemm.m, 1, gemm.k, gemm.dtype)


def decode_workload(shape: str, devices: int) -> DecodeWorkload:
    """Return a GEMM of 1 to `MOST_DECODED` tokens, `MxNxK` with the K of one GPU. Raises `WorkloadError`."""
    gemm = gemm_workload(shape, devices)
    if gemm.m > MOST_DECODED:
        raise WorkloadError(f"layer.gemm = {shape.strip()}: {MOST_DECODED} tokens are decoded at once at most")
    return DecodeWorkload("custom", "decode", devices, gemm.m, gemm.n, gemm.k, gemm.dtype)


def experts_workload(shape: str, devices: int, experts: str, zipf: float = 0.0, seed: int = 0,
                     given: tuple[tuple[int, ...], ...] = (), first: bool = False) -> ExpertsWorkload:
    """Return a GEMM of experts on several GPUs, `MxNxK` with the tokens of all GPUs. Raises `WorkloadError`.

    `experts`: of all GPUs, and of a token, `64x8`; `first`: the GEMM after the dispatch of tokens, a
    `DispatchWorkload`; other parameters as in `ExpertsWorkload`.
    """
    gemm = gemm_workload(shape, devices)
    match = re.fullmatch(r"(\d{1,5})[xX](\d{1,3})", experts.strip(), re.ASCII)
    if match is None:
        raise WorkloadError(f"layer.experts = {experts[:40]!r} is not EXPERTSxCHOSEN (of all GPUs, and of a token), "
                            "for example 64x8")
    expert_count, per_token = map(int, match.groups())
    workload_type = DispatchWorkload if first else ExpertsWorkload
    return workload_type("custom", "gemm", devices, gemm.m, gemm.n, gemm.k, gemm.dtype, experts=expert_count,
                         per_token=per_token, zipf=zipf, seed=seed, given=given)


def custom_workload(source: str, shape: str, devices: int) -> CustomWorkload:
    """Return the workload of a custom kernel, by its reference and `MxNxK`. Raises `WorkloadError`."""
    gemm = gemm_workload(shape, devices)
    return CustomWorkload("custom", "gemm", devices, gemm.m, gemm.n, gemm.k, gemm.dtype, source)


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
    """Return a pooling of `BATCHxTABLES`: the batch of all GPUs, and the tables of each. Raises `BadInput`.

    `locality`: a name, or a file with one weight per row of a table; `seed`: as in `EmbeddingWorkload`; `alone`: on one
    GPU, which pools for the whole batch.
    """
    batch, tables = batch_and_tables(shape)
    if not alone and batch % devices:
        raise WorkloadError(f"layer.embedding = {shape}: a batch of {batch} cannot be shared evenly by {devices} GPUs")
    given = weights_of_file(locality) if named_weights(locality, 1) is None else ()
    return EmbeddingWorkload("custom", "embedding", devices, batch * tables * (1 if alone else devices), DIMENSION,
                             POOLED, "fp32", tables, len(given) or TABLE_ROWS,
                             Path(locality).name if given else locality, seed, given)


def paper_workloads() -> Iterator[Workload]:
    """Return every case of table 2: 16 of the small models, 12 of the large models."""
    for model in MODELS.values():
        for tp in model.tp_degrees:
            for sublayer in SUBLAYERS:
                yield transformer_workload(model.name, sublayer, tp)
