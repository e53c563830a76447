"""Scenario: all to be asked of `t3 run`, as sections and keys. A file, options and Python make the same object."""

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
    """Layer that is computed: a model's sub-layer, a custom GEMM or kernel, those of a file, or a collective alone."""

    operator: _Operator = "gemm-rs"  #: a kernel fused with a collective, or a kernel alone; `t3 techniques` lists them
    model: str | None = None  #: of the T3 paper, t-nlg by default; of today; or a Hugging Face config.json
    sublayer: str | None = None  #: op, fc1, fc2 or ip; else fc2, fc1 after an all-gather, or all of a model of today
    tp: int | None = None  #: tensor-parallel degree: GPUs, 2 to 64; 8 if not given
    tokens: int | None = None  #: of a batch, for a model of today or a config.json; 8192 if not given
    gemm: str | None = None  #: MxNxK of one GPU, instead of a model
    devices: int | None = None  #: GPUs for `gemm` and `embedding`, 2 to 64; for `collective`, 2 to 32
    embedding: str | None = None  #: BATCHxTABLES: the batch of all GPUs, and tables per GPU
    experts: str | None = None  #: EXPERTSxCHOSEN: experts of all GPUs, and of a token
    locality: str | None = None  #: of an embedding's rows, or tokens' experts: uniform, zipf:EXPONENT, or a file
    chakra: str | None = None  #: a Chakra execution trace, whose GEMMs before a collective are run on `tp` GPUs
    kernel: str | None = None  #: a custom kernel, alone: an .npz file
    dtype: str | None = None  #: of elements: fp16, bf16, fp32, of `moe-dispatch` e4m3; if not given fp16, or the file's
    split_k: int | None = None  #: parts of K, each of which a workgroup computes; the machine's if not given
    collective: str | None = None  #: alone, by kernels on compute units: rs, ag, ar or a2a
    bytes: int | None = None  #: of each GPU's array, for `collective`
    values: bool = False  #: a collective alone, or a GEMM with one: GPUs carry numbers, all of whose bits are compared
    workload: InstanceOf[Workload] | None = None  #: from Python: the sub-layer itself


class ExchangeSection(ScenarioSection):
    """The collective: over which links, by which algorithm."""

    topology: _Over | None = None  #: ring, switch, full, torus:RxC or nodes:NxG; the operator's own if not given
    algorithm: _By | None = None  #: ring, both-rings, direct, hierarchical, all-rings or in-switch; else the topology's
    accumulate: str | None = None  #: format in memory: fp32, or fixed, a fixed point of 32 bits; if not given the dtype
    wire: str | None = None  #: with `accumulate = fp32`, format on links: fp32, e4m3 or e5m2 in blocks; else the dtype
    sums: str = "arrival"  #: fixed: refuse an algorithm whose sums may have other bits in another run
    signal: str | None = None  #: wavefront, workgroup, wave-group or shard: what is complete before it is sent


class T3Section(ScenarioSection):
    """Technique t3."""

    policy: str | None = None  #: the arbiters', round_robin if not given


class DecomposedSection(ScenarioSection):
    """Technique decomposed."""

    communication_units: int = 16  #: compute units that its communication kernels have


class FluxSection(ScenarioSection):
    """Technique flux."""

    order: str = "shifted"  #: of tiles: shifted (from the next GPU's on), or same on all GPUs
    pieces: int | None = None  #: tiles that a GPU's rows are cut into after an all-gather; 1 if not given
    tune: bool = False  #: take the best of all choices
    transfer: str | None = None  #: event level: push (each GPU writes to the others, the default) or pull


class FusedWgSection(ScenarioSection):
    """Technique fused-wg."""

    slice_tasks: int | None = None  #: event level: tasks of the persistent kernel that are signalled together


class GpusSection(ScenarioSection):
    """Which GPUs are simulated, and what tells one from another."""

    every: bool = False  #: hardware for every GPU, instead of one that stands for all
    skew: str | None = None  #: late:GPU:NS, clock:GPU:SHARE, dead:GPU:UNITS, link:FROM-TO:GB/S, a comma between


class Scenario(ScenarioSection):
    """One request. What is not said has the defaults of `t3 run` without options."""

    level: _Level = "cycle"  #: cycle, with RTL in the loop; event, tile by tile; library, ranked on GPUs that are sold
    seed: _Seed = 0  #: of whatever is random
    software: bool = True  #: event level: libraries and hosts take time
    techniques: _Names | None = None  #: those of the T3 paper if not given; of the event level all
    machine: str | Mapping[str, Any] | InstanceOf[Machine] = "t3-table1"  #: name, file, or `extends` and what differs
    fraction: _Fraction = "1"  #: of each GPU and of the tokens that is simulated, such as 1/4
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
