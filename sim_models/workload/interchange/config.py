"""The GEMMs of a Hugging Face config.json that exchanges follow or precede: its sub-layers', its experts'."""

from typing import NamedTuple

from t3sim.workload.model_file import load_transformer
from t3sim.workload.transformer import INPUTS, Transformer
from t3sim.workload.workloads import DEVICES, Workload, WorkloadError

#: Formats by the names that a config.json gives them.
_FORMATS = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32"}
TOKENS = 8192  #: of a batch, if none are asked for: T-NLG's in the T3 paper


def config_workloads(path: str, tp: int, tokens: int = TOKENS, sublayer: str | None = None,
                     dtype: str | None = None) -> list[tuple[Workload, int]]:
    """Return a model's sub-layers on `tp` GPUs, or the one that is named, and how often the model has each.

    In `dtype`, else in the model's format; in fp16 where it has none that near-memory compute adds, see `lacking`.

    They are forward the projection of the attention and the second part of the feed-forward network, backward the
    inputs of that network and of the attention, or of what a latent attention widens: queries, and keys with values.

    Raises BadInput: the file, a degree that does not divide the model, a sub-layer that is unknown or, where tokens go
    to experts, not all-reduced.
    """
    model = load_transformer(path)
    found = _reduced(model)
    wanted = tuple(found) if sublayer is None else (sublayer.lower(),)
    if wanted[0] not in found and wanted[0] in model.reduced:
        raise WorkloadError(f"sub-layer {sublayer!r} of {model.name} is one of {model.experts} experts', whose outputs "
                            f"are exchanged, not all-reduced: allowed are {', '.join(found)}")
    if wanted[0] not in found:
        raise WorkloadError(f"sub-layer {sublayer!r} is unknown: allowed are {', '.join(found)}")
    if tp in DEVICES and {"op", *INPUTS.values()} & set(wanted) and (why := model.not_shared_by(tp)):
        raise WorkloadError(f"TP={tp} {why}")
    if "ip" in wanted and tp in DEVICES:  # another one is refused with the workload
        columns, depth, times = found["ip"]
        found["ip"] = columns, depth + int(model.more_kv_width(tp)), times
    for name in wanted:
        if tp in DEVICES and found[name][1] % tp:
            raise WorkloadError(f"TP={tp} does not divide K={found[name][1]} of {model.name} {name}")
    chosen = dtype or _FORMATS.get(model.dtype, "fp16")
    return [(Workload(model.name, name, tp, tokens, columns, depth // max(1, tp), chosen), times)
            for name, (columns, depth, times) in found.items() if name in wanted]


class ExpertsGemm(NamedTuple):
    """A GEMM of a model's experts, as a scenario describes one."""

    model: str
    gemm: str  #: tokens of all GPUs, columns, depth: `MxNxK`
    experts: str  #: of all GPUs, and of a token: `64x8`
    dtype: str
    times: int  #: layers that have it


def config_experts(path: str, tokens: int, first: bool) -> ExpertsGemm:
    """Return a model's first or second GEMM of the experts to which tokens are routed; both of a gate's are one.

    Raises BadInput: the file, or a model without experts.
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
    """Say in a sentence which format a model has that cannot be run, and what runs instead; None: it can be."""
    model = load_transformer(path)
    if not model.dtype or model.dtype in _FORMATS:
        return None
    return (f"{model.name} is in {model.dtype}, which neither the machines nor the near-memory ALU have: it runs in "
            f"fp16 (layer.dtype: {', '.join(_FORMATS.values())})")


def _reduced(model: Transformer) -> dict[str, tuple[int, int, int]]:
    """Return the columns of each sub-layer's GEMM, its depth before it is divided, and how many layers have it."""
    layers = {name: model.layers for name in model.reduced}
    first, count = model.kinds[0]
    if model.experts > 1:  # the first layers may have none
        layers |= dict.fromkeys(("fc1", "fc2"), count if first.experts == 1 else 0)
    return {name: (*extents, layers[name]) for name, extents in first.reduced.items() if layers[name]}
