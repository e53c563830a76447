"""Request traces: lines `0xADDRESS READ|WRITE CYCLE`, one request each, of 64 bytes if not said otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from t3sim.base.bounded import check_regular, reading
from t3sim.base.errors import BadInput
from t3sim.base.line import LINE_BYTES

_LONGEST_LINE = 200  #: what is longer is no request

LAST_CYCLE = 1_000_000_000  #: a second at 1 GHz


class Trace(NamedTuple):
    """Requests in the order in which they are offered."""

    lines: np.ndarray  #: int64: line index, one per request's size
    ops: np.ndarray  #: int64: 0 read, 1 write
    cycles: np.ndarray  #: int64: earliest cycle of each

    @classmethod
    def of(cls, lines, ops, cycles) -> Trace:
        """Make a trace from anything array-like, checked."""
        trace = cls(*(np.ascontiguousarray(a, dtype=np.int64) for a in (lines, ops, cycles)))
        if not trace.lines.shape == trace.ops.shape == trace.cycles.shape or trace.lines.ndim != 1:
            raise ValueError(f"trace: lengths differ: {trace.lines.shape}, {trace.ops.shape}, {trace.cycles.shape}")
        if trace.lines.size and (trace.lines.min() < 0 or trace.cycles.min() < 0):
            raise ValueError("trace: addresses and cycles must not be negative")
        if trace.cycles.size and trace.cycles.max() > LAST_CYCLE:
            raise ValueError(f"trace: cycle {trace.cycles.max()} is too late: 0 to {LAST_CYCLE} is allowed")
        if trace.ops.size and not np.isin(trace.ops, (0, 1)).all():
            raise ValueError("trace: operations are 0 (read) and 1 (write)")
        return trace


def read_trace(path: Path, request_bytes: int = LINE_BYTES, capacity_bytes: int | None = None) -> Trace:
    """Read a trace file for a channel of this capacity; BadInput names the first bad line."""
    addresses, ops, cycles = [], [], []
    with reading(str(path), "a trace"):
        check_regular(path)
    with path.open() as file:
        for number, text in enumerate(iter(lambda: file.readline(_LONGEST_LINE), ""), 1):
            words = text.split()
            if not words:
                continue
            try:
                address, operation, cycle = words
                if "_" in text or not text.isascii():
                    raise ValueError
                addresses.append(int(address, 16))
                ops.append(("READ", "WRITE").index(operation.upper()))
                cycles.append(int(cycle))
                prefixed = address.lower().lstrip("+-").startswith("0x")
            except ValueError:
                raise BadInput(
                    f"{path}:{number}: expected '0xADDRESS READ|WRITE CYCLE', got {text.strip()!r}") from None
            if not prefixed:  # 131072 may be either
                decimal = f", or 0x{int(address):x} if it is decimal" if address.isdigit() else ""
                raise BadInput(f"{path}:{number}: address {address!r} has no 0x: write 0x{address} if it is hexadecimal"
                               f"{decimal}")
            if capacity_bytes is not None and addresses[-1] >= capacity_bytes:
                raise BadInput(f"{path}:{number}: address {address} is beyond the channel's {capacity_bytes} bytes: "
                               f"0x0 to 0x{capacity_bytes - 1:x} is allowed")
    if not addresses:
        raise BadInput(f"{path} has no request: expected lines '0xADDRESS READ|WRITE CYCLE'")
    return Trace.of(np.array(addresses, np.int64) // request_bytes, ops, cycles)


def write_trace(trace: Trace, path: Path) -> None:
    """Write a trace file."""
    with path.open("w") as file:
        file.writelines(f"0x{line * LINE_BYTES:X} {'WRITE' if op else 'READ'} {cycle}\n"
                        for line, op, cycle in zip(*(a.tolist() for a in trace), strict=True))
