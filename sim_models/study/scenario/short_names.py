"""Short names of keys, as options and settings of studies have them: `gemm` for `layer.gemm`."""

from collections.abc import Mapping
from typing import Any

SHORT_NAMES = {
    "model": "layer.model", "sublayer": "layer.sublayer", "tp": "layer.tp", "gemm": "layer.gemm",
    "devices": "layer.devices", "tokens": "layer.tokens", "dtype": "layer.dtype", "chakra": "layer.chakra",
    "kernel": "layer.kernel", "collective": "layer.collective", "bytes": "layer.bytes", "values": "layer.values",
    "embedding": "layer.embedding", "experts": "layer.experts", "locality": "layer.locality",
    "split-k": "layer.split_k", "operator": "layer.operator", "topology": "exchange.topology",
    "algorithm": "exchange.algorithm", "sums": "exchange.sums", "signal": "exchange.signal",
    "technique": "techniques", "policy": "t3.policy", "comm-units": "decomposed.communication_units",
    "flux-order": "flux.order", "flux-transfer": "flux.transfer", "flux-pieces": "flux.pieces", "tune": "flux.tune",
    "slice": "fused_wg.slice_tasks", "machine": "machine", "level": "level", "no-software": "software",
    "every-gpu": "gpus.every", "skew": "gpus.skew", "seed": "seed",
}
#: Those that are said or not said, and what their key then is.
SWITCHES = {"tune": True, "no-software": False, "every-gpu": True, "values": True}


def keys_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys that settings stand for; what has no short name is taken as a key, what is None as not said."""
    keys: dict[str, Any] = {}
    for name, value in settings.items():
        key = SHORT_NAMES.get(name, name)
        if name in SWITCHES and isinstance(value, bool):
            value = SWITCHES[name] if value else None
        if key == "techniques" and isinstance(value, str):
            value = tuple(name.strip() for name in value.split(","))
        if value is not None:
            keys[key] = value
    return keys
