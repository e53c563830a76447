"""The sub-layers of a Hugging Face config.json that a tensor-parallel training all-reduces."""

from ..end_to_end.transformer import Transformer, load_transformer
from ..workloads import DEVICES, SUBLAYERS, Workload, WorkloadError

#: Formats by the names that a config.json gives them.
_FORMATS = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32"}
TOKENS = 8192  #: of a batch, if none are asked for: T-NLG's in the T3 paper


def config_workloads(path: str, tp: int, tokens: int = TOKENS, sublayer: str | None = None,
                     dtype: str | None = None) -> list[tuple[Workload, int]]:
    """Return a model's sub-layers on `tp` GPUs, or the one that is named, and how often the model has each.

    In `dtype`, else in the model's format; in fp16 where it has none that near-memory compute adds, see `lacking`.

    They are forward the projection of the attention and the second part of the feed-forward network, backward the
    inputs of that network and of the attention.

    Raises BadInput: the file, a degree that does not divide the model, a sub-layer that is unknown or, where tokens go
    to experts, not all-reduced.
    """
    model = load_transformer(path)
    wanted = SUBLAYERS if sublayer is None else (sublayer.lower(),)
    if not set(wanted) <= set(SUBLAYERS):
        raise WorkloadError(f"sub-layer {sublayer!r} is unknown: allowed are {', '.join(SUBLAYERS)}")
    inner = _inner_extents(model)
    if sublayer is not None and wanted[0] not in inner:
        raise WorkloadError(f"sub-layer {sublayer!r} of {model.name} is one of {model.experts} experts', whose outputs "
                            f"are exchanged, not all-reduced: allowed are {', '.join(inner)}")
    for name, extent in inner.items():
        if name in wanted and tp in DEVICES and extent % tp:
            raise WorkloadError(f"TP={tp} does not divide K={extent} of {model.name} {name}")
    chosen = dtype or _FORMATS.get(model.dtype, "fp16")
    return [(Workload(model.name, name, tp, tokens, model.hidden, inner[name] // max(1, tp), chosen), model.layers)
            for name in wanted if name in inner]


def lacking(path: str) -> str | None:
    """Say in a sentence which format a model has that cannot be run, and what runs instead; None: it can be."""
    model = load_transformer(path)
    if not model.dtype or model.dtype in _FORMATS:
        return None
    return (f"{model.name} is in {model.dtype}, which neither the machines nor the near-memory ALU have: it runs in "
            f"fp16 (--dtype: {', '.join(_FORMATS.values())})")


def _inner_extents(model: Transformer) -> dict[str, int]:
    """Return the K of each sub-layer's GEMM before it is divided among GPUs."""
    attention = {"op": model.hidden, "ip": model.hidden + 2 * model.kv_width}
    if model.experts > 1:
        return attention
    return {"op": attention["op"], "fc1": model.feed_forward * (2 if model.gated else 1), "fc2": model.feed_forward,
            "ip": attention["ip"]}
