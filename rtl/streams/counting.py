"""Counts signals that are 1."""

from collections.abc import Iterable

from amaranth.hdl import Value


def ones(bits: Iterable) -> Value:
    """Count the ones among `bits` with a balanced tree of adders."""
    bits = list(bits)
    while len(bits) > 1:
        bits = [bits[i] + bits[i + 1] if i + 1 < len(bits) else bits[i] for i in range(0, len(bits), 2)]
    return Value.cast(bits[0] if bits else 0)
