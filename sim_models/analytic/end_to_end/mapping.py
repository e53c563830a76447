"""Mapping of a model to GPUs: tensor, pipeline, data and expert parallelism, micro-batches, recomputation.

Every field is an integer or an array, so that the same equations serve 1 mapping or 100,000.
"""

import math
from dataclasses import dataclass, fields, replace

import numpy as np

from t3sim.base.bounded import MOST_MAPPINGS
from t3sim.base.errors import BadInput
from t3sim.workload.transformer import Transformer

#: Forms of recomputation in the backward pass, by code.
RECOMPUTE = ("none", "selective", "full")
NONE, SELECTIVE, FULL = range(3)


class MappingError(BadInput):
    """A mapping that does not fit the model, the batch or the GPUs."""


@dataclass(frozen=True)
class Mapping:
    """Degrees of parallelism; `gpus = tp * pp * dp`."""

    tp: np.ndarray | int = 1
    pp: np.ndarray | int = 1
    dp: np.ndarray | int = 1
    micro: np.ndarray | int = 1  #: sequences per micro-batch and replica
    interleave: np.ndarray | int = 1  #: chunks of layers per pipeline stage
    sp: np.ndarray | int = 0  #: 1: sequence parallelism where tensor parallelism would replicate
    zero: np.ndarray | int = 0  #: 0 to 3: optimizer states, gradients, weights sharded over the replicas
    ep: np.ndarray | int = 1  #: GPUs of a replica group over which experts are spread
    recompute: np.ndarray | int = NONE

    @property
    def gpus(self):
        return self.tp * self.pp * self.dp

    def at(self, index: int) -> "Mapping":
        """Return the mapping with this index, of plain integers."""
        return replace(self, **{field.name: int(np.asarray(getattr(self, field.name)).ravel()[index])
                                for field in fields(self)})

    def __str__(self) -> str:
        always = ("tp", "pp", "dp", "micro")
        parts = [f"{field.name}={getattr(self, field.name)}" for field in fields(self) if field.name != "recompute"
                 and (field.name in always or getattr(self, field.name) != field.default)]
        return ",".join(parts)


def parse_mapping(text: str, recompute: str) -> Mapping:
    """Return the mapping of `tp=8,pp=4,dp=2,micro=1`. Raises `MappingError`.

    Missing keys are 1, `sp` and `zero` are 0.
    """
    allowed = [field.name for field in fields(Mapping) if field.name != "recompute"]
    values: dict[str, int] = {}
    for part in text.split(","):
        key, separator, value = part.strip().partition("=")
        if not separator or key not in allowed:
            raise MappingError(f"mapping = {part.strip()[:40]!r} is not KEY=NUMBER: keys are {', '.join(allowed)}")
        if key in values:
            raise MappingError(f"mapping: {key} appears twice")
        lowest, highest = {"sp": (0, 1), "zero": (0, 3)}.get(key, (1, 1 << 20))
        if not value.isascii() or not value.isdigit() or not lowest <= int(value[:12]) <= highest:
            raise MappingError(f"mapping: {key}={value[:40]!r} is not possible: {lowest} to {highest}")
        values[key] = int(value)
    return Mapping(**values, recompute=RECOMPUTE.index(recompute))


def check_mapping(mapping: Mapping, model: Transformer, gpus: int, global_batch: int, heads_split: bool = True) -> None:
    """Refuse an impossible mapping. Raises `MappingError` with the two numbers that do not agree.

    `heads_split`: GPUs share the heads evenly; else every GPU has all heads.
    """
    m = mapping
    if m.gpus != gpus:
        raise MappingError(f"tp={m.tp} x pp={m.pp} x dp={m.dp} are {m.gpus} GPUs instead of gpus = {gpus}")
    if m.tp > model.heads:
        raise MappingError(f"tp={m.tp} exceeds heads={model.heads}")
    if heads_split and (reason := model.not_shared_by(m.tp)):
        raise MappingError(f"tp={m.tp} {reason}")
    for value, name, total, total_name in (
            (m.pp * m.interleave, "pp x interleave", model.layers, "layers"),
            (m.dp * m.micro, "dp x micro", global_batch, "global_batch"), (m.ep, "ep", model.experts, "experts"),
            (m.ep, "ep", m.dp, "dp")):
        if total % value:
            raise MappingError(f"{name} = {value} must divide {total_name} = {total}")
    steps = global_batch // (m.dp * m.micro)
    if m.interleave > 1 and (m.pp == 1 or steps % m.pp):
        raise MappingError(f"interleave={m.interleave} needs pp > 1 and micro-batches ({steps}) in multiples of "
                           f"pp={m.pp}")
    if m.sp and m.tp == 1:
        raise MappingError("sp=1 needs tp > 1")


def _divisors(number: int) -> list[int]:
    low = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return sorted({*low, *(number // d for d in low)})


def every_mapping(model: Transformer, gpus: int, global_batch: int, recomputations=(NONE, SELECTIVE, FULL)) -> Mapping:
    """Return all mappings that `check_mapping` accepts, one array per field. Raises `MappingError` if there is none."""
    rows = []
    experts = _divisors(model.experts) if model.experts > 1 else [1]
    for tp in _divisors(gpus):
        if model.not_shared_by(tp):
            continue
        for pp in _divisors(gpus // tp):
            dp = gpus // tp // pp
            if model.layers % pp or global_batch % dp:
                continue
            for micro in _divisors(global_batch // dp):
                steps = global_batch // dp // micro
                for chunks in _divisors(model.layers // pp):
                    if chunks > 1 and (pp == 1 or steps % pp):
                        continue
                    for ep in experts:
                        if dp % ep == 0:
                            rows.append((tp, pp, dp, micro, chunks, ep))
                if len(rows) > MOST_MAPPINGS:
                    raise MappingError(f"gpus = {gpus} and global_batch = {global_batch} have more than "
                                       f"{MOST_MAPPINGS:,} mappings of {model.name}: mapping = tp=8,... names one, or "
                                       "numbers with fewer divisors have less")
    if not rows:
        raise MappingError(f"no mapping of {model.name} (heads={model.heads}, layers={model.layers}) has gpus = "
                           f"{gpus} with global_batch = {global_batch}")
    degrees = np.array(rows, np.int64)
    options = np.array([(sp, zero, recompute)
                        for sp in (0, 1) for zero in (0, 1, 2, 3) for recompute in recomputations])
    mappings = np.hstack([np.repeat(degrees, len(options), axis=0), np.tile(options, (len(degrees), 1))])
    tp, dp, sp, zero = mappings[:, 0], mappings[:, 2], mappings[:, 6], mappings[:, 7]
    mappings = mappings[~((sp == 1) & (tp == 1)) & ~((zero > 0) & (dp == 1))]
    tp, pp, dp, micro, chunks, ep, sp, zero, recompute = mappings.T
    return Mapping(tp, pp, dp, micro, chunks, sp, zero, ep, recompute)
