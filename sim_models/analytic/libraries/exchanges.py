"""Tokens that go to their experts and back, by kernels that store at other GPUs and through network cards (DeepEP)."""

from t3sim.analytic.gemm import BYTES
from t3sim.analytic.libraries.links import ring_gb_per_s
from t3sim.machine import Machine

#: Of the wires within a node: a flag and a copy out of a buffer for each token.
_WITHIN = 0.6


def exchange_ns(machine: Machine, gpus: int, nodes: int, token_bytes: float, tokens: int) -> float:
    """Return the time in which each GPU sends this many tokens, counted per expert, evenly to all."""
    sent, far = tokens * token_bytes, 1 - 1 / nodes
    card = machine.cards.gb_per_s * machine.cards.efficiency if machine.cards else float("inf")
    within = (1 - far) * sent / (ring_gb_per_s(machine, max(2, gpus // nodes)) * _WITHIN)
    return machine.rings.simple.base_ns + machine.direct.base_ns + max(within, far * sent / card)


def token_bytes(hidden: int, dtype: str) -> float:
    """Return the bytes of a token; 8-bit ones have a scale of 32 bits for each 128."""
    return hidden * (1 + 4 / 128) if dtype == "fp8" else BYTES.get(dtype, 2.0) * hidden
