"""Transaction-level model of `t3sim.rtl.switch.merge_table`: parts in the order in which they are taken, sums out.

Who is taken first, and when a set is looked at for sums that wait, is the hardware's; the model says what must leave
then.
"""

from typing import NamedTuple

from t3sim.rtl.geometry import Geometry
from t3sim.testbenches.reference.nmc_alu import AluDtype, AluOp, Operands, combine

WHOLE, EVICTED, EXPIRED = range(3)  #: of `t3sim.rtl.switch.packets.Why`
_UPDATE = 2


class Key(NamedTuple):
    """Name of a sum: a line's number, which bytes of it, what its elements are, and the kernel's number."""

    line: int
    offset: int
    bytes: int
    dtype: int
    epoch: int


class Sum(NamedTuple):
    """A sum that lacks parts; `request` is that of the last one, `sources` has a bit for each that has sent one."""

    request: dict
    sources: int
    column: int


class MergeTableModel:
    """The sums of one port. `parts` are packets as the fields of `t3sim.rtl.switch.packets.switch_packet`."""

    def __init__(self, geometry: Geometry, whole: int) -> None:
        self._switch, self._whole, self._more_bits = geometry.switch, whole, geometry.channel.more_bits
        self._rows: list[dict[Key, Sum]] = [{} for _ in range(geometry.switch.merge_sets)]  # the longest ago first

    @property
    def held(self) -> int:
        return sum(map(len, self._rows))

    def row_of(self, line: int) -> dict[Key, Sum]:
        return self._rows[line % self._switch.merge_sets]

    def key_of(self, part: dict) -> Key:
        line, offset = divmod(part["request"]["address"], self._switch.packet_bytes)
        return Key(line, offset, part["request"]["bytes"], part["dtype"], part["epoch"])

    def take(self, part: dict, source: int) -> tuple[str, dict | None]:
        """Take a part; return the field of `merge_event` that says what it does, and what leaves."""
        key = self.key_of(part)
        row = self.row_of(key.line)
        before = row.get(key)
        if self.is_unlike(part) or before and before.sources >> source & 1:
            return "refuses", None
        column = part["column"]
        if before:
            column = combine(Operands(before.column, column, AluOp.ADD, AluDtype(min(key.dtype, AluDtype.FP32))),
                             self._switch.packet_bytes)
            del row[key]
        one = Sum(part["request"], 1 << source | (before.sources if before else 0), column)
        if one.sources.bit_count() == self._whole:
            return "completes", self._packet(key, one, WHOLE)
        if len(row) == self._switch.merge_ways:
            raise ValueError(f"line {key.line:#x} finds its set full: a sum must leave first")
        row[key] = one
        return "joins" if before else "begins", None

    def evict(self, part: dict) -> dict:
        """Return the sum that leaves for a part, which needs its place."""
        key = self.key_of(part)
        if not self.needs_room(part):
            raise ValueError(f"no sum need leave for line {key.line:#x}")
        return self._leave(self.row_of(key.line), EVICTED)

    def is_unlike(self, part: dict) -> bool:
        """Return whether it is none that a GPU sends: one part of bytes in one line."""
        key = self.key_of(part)
        return part["parts"] != 1 or not 0 < key.bytes <= self._switch.packet_bytes - key.offset

    def needs_room(self, part: dict) -> bool:
        """Return whether a part is the first of a sum for which its set has no place."""
        key = self.key_of(part)
        row = self.row_of(key.line)
        return (key not in row and len(row) == self._switch.merge_ways and self._whole > 1
                and not self.is_unlike(part))

    def expire(self, line: int) -> dict:
        """Return the sum that leaves the set of this line, as no part has come for too long."""
        return self._leave(self.row_of(line), EXPIRED)

    def _leave(self, row: dict[Key, Sum], why: int) -> dict:
        key = next(iter(row))
        return self._packet(key, row.pop(key), why)

    def _packet(self, key: Key, one: Sum, why: int) -> dict:
        parts = one.sources.bit_count()
        request = one.request | {"address": key.line * self._switch.packet_bytes + key.offset, "op": _UPDATE}
        if self._more_bits:
            request["more"] = parts - 1
        return {"packet": {"request": request, "epoch": key.epoch, "dtype": key.dtype, "parts": parts,
                           "column": one.column}, "why": why, "sources": one.sources}
