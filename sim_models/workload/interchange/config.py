"""GEMMs of a Hugging Face config.json next to an exchange: of its sub-layers and of its experts."""

from typing import NamedTuple

from t3sim.workload.model_file import load_transformer
from t3sim.workload.transformer import INPUTS, Transformer
from t3sim.workload.workloads import DEVICES, Workload, WorkloadError

#: Formats by their names in a config.json.
_FORMATS = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32"}
TOKENS = 8192  #: default of a batch: T-NLG's in the T3 paper


def config_workloads(path: str, tp: int, tokens: int = TOKENS, sublayer: str | None = None,
                     dtype: str | None = None) -> list[tuple[Workload, int]]:
    """Return a model's sub-layers on `tp` GPUs, or one of them, and how often the model has each.

    Elements are in `dtype`, by default in the model's format; in fp16 if near-memory compute cannot add that format
    (`lacking`).

    Sub-layers are the projection of the attention and the second part of the feed-forward network forward, and backward
    the inputs of that network and of the attention; with latent attention, of queries and of keys with values.

    Raises BadInput for the file, for a degree that does not divide the model, and for a sub-layer that is unknown or,
    with experts, not all-reduced.
    """
    model = load_transformer(path)
    sublayers = _reduced(model)
    names = tuple(sublayers) if sublayer is None else (sublayer.lower(),)
    if names[0] not in sublayers and names[0] in model.reduced:
        raise WorkloadError(f"sub-layer {sublayer!r} of {model.name} is one of {model.experts} experts', whose outputs "
                            f"are exchanged, not all-reduced: allowed are {', '.join(sublayers)}")
    if names[0] not in sublayers:
        raise WorkloadError(f"sub-layer {sublayer!r} is unknown: allowed are {', '.join(sublayers)}")
    if tp in DEVICES and {"op", *INPUTS.values()} & set(names) and (reason := model.not_shared_by(tp)):
        raise WorkloadError(f"TP={tp} {reason}")
    if "ip" in names and tp in DEVICES:  # another one is refused with the workload
        columns, depth, times = sublayers["ip"]
        sublayers["ip"] = columns, depth + int(model.more_kv_width(tp)), times
    for name in names:
        if tp in DEVICES and sublayers[name][1] % tp:
            raise WorkloadError(f"TP={tp} does not divide K={sublayers[name][1]} of {model.name} {name}")
    format_name = dtype or _FORMATS.get(model.dtype, "fp16")
    return [(Workload(model.name, name, tp, tokens, columns, depth // max(1, tp), format_name), times)
            for name, (columns, depth, times) in sublayers.items() if name in names]


class ExpertsGemm(NamedTuple):
    """A GEMM of a model's experts, in the words of a scenario."""

    model: str
    gemm: str  #: tokens of all GPUs, columns, depth: `MxNxK`
    experts: str  #: of all GPUs, and of a token: `64x8`
    dtype: str
    times: int  #: number of layers with this GEMM


def config_experts(path: str, tokens: int, first: bool) -> ExpertsGemm:
    """Return a model's first or second GEMM of routed experts; a gated network's two first matrices are one GEMM.

    Raises BadInput for the file, and for a model without experts.
    """
    model, times = load_transformer(path).kinds[-1]
    if model.experts == 1:
        raise WorkloadError(f"layer.model = {path[:60]} has no experts")
    columns, depth = model.feed_forward * (2 if model.gated else 1), model.hidden
    if not first:
        columns, depth = model.hidden, model.feed_forward
    return ExpertsGemm(model.name, f"{tokens}x{columns}x{depth}", f"{model.experts}x{model.experts_per_token}",
                       _FORMATS.get(model.dtype, "fp16"), times)


def lacking(path: str) -> str | None:
    """Return a sentence about a model's format that cannot be run and its replacement; None if it can be run."""
    model = load_transformer(path)
    if not model.dtype or model.dtype in _FORMATS:
        return None
    return (f"{model.name} is in {model.dtype}, which neither the machines nor the near-memory ALU have: it runs in "
            f"fp16 (layer.dtype: {', '.join(_FORMATS.values())})")


def _reduced(model: Transformer) -> dict[str, tuple[int, int, int]]:
    """Return for each sub-layer its GEMM's columns, its undivided depth, and the number of layers that have it."""
    layers = {name: model.layers for name in model.reduced}
    first, count = model.kinds[0]
    if model.experts > 1:  # the first layers may have none
        layers |= dict.fromkeys(("fc1", "fc2"), count if first.experts == 1 else 0)
    return {name: (*extents, layers[name]) for name, extents in first.reduced.items() if layers[name]}
