"""Channel-local line index to row, bank and bank group."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from t3sim.base.compiled.jit import inlined
from t3sim.machine.dram import Dram


class FieldPlace(NamedTuple):
    """Place of a field in the channel-local line index; width 0 = the field is absent there."""

    shift: int
    width: int


def field_places(dram: Dram) -> dict[str, FieldPlace]:
    """Return where every field of `dram.address_fields` is in a line index (the bits inside a line are cut off).

    "column" is present as "column_high" with an empty "column_low", "bank_group_high" is empty where it is not named.
    """
    inside_line = (dram.columns_per_request - 1).bit_length()
    split = "column_low" in dram.address_fields
    group_bits = (dram.bank_groups - 1).bit_length()
    group_high_bits = int("bank_group_high" in dram.address_fields)
    widths = {
        "row": (dram.rows_per_bank - 1).bit_length(),
        "bank": (dram.banks_per_group - 1).bit_length(),
        "bank_group": group_bits - group_high_bits,
        "bank_group_high": group_high_bits,
        "column": dram.column_bits,
        "column_high": dram.column_bits - dram.column_low_bits,
        "column_low": dram.column_low_bits,
    }
    places = {"bank_group_high": FieldPlace(0, 0)}
    position = -inside_line  # columns of one request lie below the line index
    for name in reversed(dram.address_fields):
        low, high = position, position + widths[name]
        places[name] = FieldPlace(max(low, 0), max(high, 0) - max(low, 0))
        position = high
    if not split:
        places["column_high"] = places.pop("column")
        places["column_low"] = FieldPlace(0, 0)
    return places


@inlined
def row_of(config: np.record, line: int) -> int:
    """Return the row within its bank. Lines beyond the channel's capacity wrap around."""
    return (line >> config.row_shift) & config.row_mask


@inlined
def bank_of(config: np.record, line: int) -> int:
    """Return the bank number, bank group in the high bits: bank_group * banks_per_group + bank."""
    bank = (line >> config.bank_shift) & config.bank_mask
    group = (line >> config.group_shift) & config.group_mask
    group |= ((line >> config.group_high_shift) & config.group_high_mask) << config.group_low_bits
    if config.bank_hash:
        # Row and column bits permute banks and groups, so no power-of-two distance keeps two streams in one bank or a
        # stride in one group, while neighbours in the group field still lie in different groups.
        fold = (line >> config.row_shift) & config.row_mask
        fold ^= fold >> 8
        fold ^= fold >> 4
        column = (line >> config.column_shift) & config.column_mask
        bank ^= (fold ^ fold >> 2) & config.bank_mask
        group ^= (column ^ column >> 2 ^ fold >> 2) & config.group_mask
    return (group << config.bank_bits) | bank


def line_of(dram: Dram, bank_group: int, bank: int, row: int, line_in_row: int) -> int:
    """Return the line index at a place; the inverse of `row_of` and `bank_of` for an address map without hash."""
    if dram.bank_hash:
        raise ValueError("line_of: only for an address map without bank_hash")
    places = field_places(dram)
    low = places["column_low"]
    column_low = line_in_row & ((1 << low.width) - 1)
    group_low_bits = places["bank_group"].width
    values = {"row": row, "bank": bank, "bank_group": bank_group & ((1 << group_low_bits) - 1),
              "bank_group_high": bank_group >> group_low_bits, "column_low": column_low,
              "column_high": line_in_row >> low.width}
    return sum(value << places[name].shift for name, value in values.items())
