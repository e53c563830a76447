"""Scenario: one request to `t3 run`, as sections and keys. A file, options and Python make the same object."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, InstanceOf

from t3sim.base.custom import is_custom, reference_of
from t3sim.base.errors import BadInput
from t3sim.machine import Machine
from t3sim.runs.exchange import ALGORITHMS, FUSED_OPERATORS, TOPOLOGIES
from t3sim.workload.workloads import Workload

_Names = Annotated[tuple[str, ...], Field(min_length=1)]
ALONE = ("gemm", "decode", "gemv", "embedding")  #: kernels without a collective


def _operator(name: str) -> str:
    """Return an operator, whose kernel an entry point may stand for: `outer` of `outer-rs`."""
    kernel, dash, collective = name.rpartition("-")
    if name in FUSED_OPERATORS or name in ALONE:
        return name
    reference = reference_of("layer.operator", name)
    return f"{reference_of('layer.operator', kernel)}{dash}{collective}" if dash and reference == name else reference


def _algorithm(name: str) -> str:
    return name if name in ALGORITHMS else reference_of("exchange.algorithm", name)


def _topology(name: str) -> str:
    return name if name in TOPOLOGIES else reference_of("exchange.topology", name)


def _fraction(text: str) -> str:
    if re.fullmatch(r"1(/[1-9]\d{0,2})?", text, re.ASCII) is None:
        raise BadInput(f"fraction = {text[:40]!r}: 1, 1/2, 1/3 to 1/999 are allowed")
    return text


_Operator, _By, _Over = (Annotated[str, AfterValidator(check)] for check in (_operator, _algorithm, _topology))
_Level = Literal["cycle", "event", "library"]
_Fraction = Annotated[str, AfterValidator(_fraction)]
_Seed = Annotated[int, Field(ge=0, le=(1 << 63) - 1)]


class ScenarioSection(BaseModel):
    """A section of a scenario. Unknown keys, text for numbers, NaN and infinity are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Layer(ScenarioSection):
    """Layer to compute: a model's sub-layer, a custom GEMM or kernel, layers of a file, or a collective alone."""

    operator: _Operator = "gemm-rs"  #: kernel with a collective, or kernel alone; see `t3 techniques`
    model: str | None = None  #: of the T3 paper (default t-nlg), a recent one, or a Hugging Face config.json
    sublayer: str | None = None  #: op, fc1, fc2 or ip; default fc2, fc1 after an all-gather, all of a recent model
    tp: int | None = None  #: tensor-parallel degree (number of GPUs), 2 to 64; default 8
    tokens: int | None = None  #: tokens of a batch, for a recent model or a config.json; default 8192
    gemm: str | None = None  #: MxNxK of one GPU, instead of a model
    devices: int | None = None  #: number of GPUs for `gemm` and `embedding`, 2 to 64; for `collective`, 2 to 32
    embedding: str | None = None  #: BATCHxTABLES: the batch of all GPUs, and tables per GPU
    experts: str | None = None  #: EXPERTSxCHOSEN: experts on all GPUs, and experts per token
    locality: str | None = None  #: choice of embedding rows, or of tokens' experts: uniform, zipf:EXPONENT, or a file
    chakra: str | None = None  #: Chakra execution trace; its GEMMs before a collective run on `tp` GPUs
    kernel: str | None = None  #: custom kernel alone: an .npz file
    dtype: str | None = None  #: element format: fp16, bf16, fp32, e4m3 (`moe-dispatch`); default: file's, or fp16
    split_k: int | None = None  #: parts of K, each computed by its own workgroup; default: the machine's
    collective: str | None = None  #: collective alone, by kernels on compute units: rs, ag, ar or a2a
    bytes: int | None = None  #: size of each GPU's array, for `collective`
    values: bool = False  #: GPUs carry numbers, and every bit of the result is compared
    workload: InstanceOf[Workload] | None = None  #: from Python: the sub-layer itself


class ExchangeSection(ScenarioSection):
    """The collective: its links and its algorithm."""

    topology: _Over | None = None  #: ring, switch, full, torus:RxC or nodes:NxG; default: the operator's
    algorithm: _By | None = None  #: ring, both-rings, direct, hierarchical, all-rings, in-switch; default: topology's
    accumulate: str | None = None  #: format of sums in memory: fp32, or fixed (32-bit fixed point); default: dtype
    wire: str | None = None  #: format on links with `accumulate = fp32`: fp32, e4m3, e5m2 (blocks); default: dtype
    sums: str = "arrival"  #: fixed: refuse algorithms whose sums may differ in bits from run to run
    signal: str | None = None  #: unit that is complete before it is sent: wavefront, workgroup, wave-group, shard


class T3Section(ScenarioSection):
    """Technique t3."""

    policy: str | None = None  #: arbitration policy of technique t3; default round_robin


class DecomposedSection(ScenarioSection):
    """Technique decomposed."""

    communication_units: int = 16  #: compute units of its communication kernels


class FluxSection(ScenarioSection):
    """Technique flux."""

    order: str = "shifted"  #: order of tiles: shifted (the next GPU's first), or same on all GPUs
    pieces: int | None = None  #: communication tiles of a GPU's rows after an all-gather; default 1
    tune: bool = False  #: use the best of all choices
    transfer: str | None = None  #: event level: push (each GPU writes to the others, the default) or pull


class FusedWgSection(ScenarioSection):
    """Technique fused-wg."""

    slice_tasks: int | None = None  #: event level: tasks of the persistent kernel that are signalled together


class GpusSection(ScenarioSection):
    """Simulated GPUs, and differences between them."""

    every: bool = False  #: simulate every GPU, instead of one representative GPU
    skew: str | None = None  #: late:GPU:NS, clock:GPU:SHARE, dead:GPU:UNITS, link:FROM-TO:GB/S, separated by commas


class Scenario(ScenarioSection):
    """One request. Other keys have the defaults of `t3 run` without options."""

    level: _Level = "cycle"  #: cycle (RTL in the loop), event (tile by tile), library (ranking on commercial GPUs)
    seed: _Seed = 0  #: random seed
    software: bool = True  #: event level: include the time of libraries and hosts
    techniques: _Names | None = None  #: techniques to run; default: those of the T3 paper; event level: all
    machine: str | Mapping[str, Any] | InstanceOf[Machine] = "t3-table1"  #: name, file, or `extends` with changes
    fraction: _Fraction = "1"  #: simulated part of each GPU and of the tokens, such as 1/4
    layer: Layer = Layer()
    exchange: ExchangeSection = ExchangeSection()
    t3: T3Section = T3Section()
    decomposed: DecomposedSection = DecomposedSection()
    flux: FluxSection = FluxSection()
    fused_wg: FusedWgSection = FusedWgSection()
    gpus: GpusSection = GpusSection()

    @property
    def parts(self) -> int:
        """Parts of each GPU, of which one is simulated."""
        return int(self.fraction.removeprefix("1/"))

    def custom(self) -> dict[str, str]:
        """Return the functions that it names, by their keys; of an operator without its collective."""
        operator = self.layer.operator
        functions = {"layer.operator": operator if is_custom(operator) else operator.rpartition("-")[0],
                     "exchange.algorithm": self.exchange.algorithm or "",
                     "exchange.topology": self.exchange.topology or ""}
        return {key: name for key, name in functions.items() if is_custom(name)}

    def changes(self) -> dict[str, Any]:
        """Return what differs from a scenario that says nothing, by its key: `exchange.topology`."""
        changes = {}
        for name in type(self).model_fields:
            value = getattr(self, name)
            if isinstance(value, ScenarioSection):
                changes |= {f"{name}.{key}": getattr(value, key) for key in type(value).model_fields
                            if getattr(value, key) != type(value).model_fields[key].default}
            elif value != type(self).model_fields[name].default:
                changes[name] = value
        return changes


def setting(key: str, value: object) -> str:
    """Return a key and its value as messages repeat it: `exchange.topology = switch`."""
    if isinstance(value, bool):
        return f"{key} = {str(value).lower()}"
    return f"{key} = {(','.join(value) if isinstance(value, tuple) else str(value))[:40]}"
