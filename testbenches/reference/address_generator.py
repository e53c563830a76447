"""Transaction-level reference of `t3sim.rtl.dma.address_generator`: the lines and errors of one DMA command, in order.

Commands are served in the order in which they came in; `expand` gives one list per command that mixes lines
(`Request`) and errors (`LineError`) as the hardware meets them.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from t3sim.rtl.geometry import Geometry
from t3sim.rtl.registers import ERRORS

READ, SOURCE_DMA, SOURCE_COPY = 0, 2, 3
LINE_BYTES = 64


class Request(NamedTuple):
    """Fields of `t3sim.rtl.layouts.request`; enums as numbers."""

    address: int
    bytes: int
    op: int
    source: int
    region: int
    wf: int
    wg: int


class LineError(NamedTuple):
    """Code and fields of `t3sim.rtl.layouts.error`."""

    code: int
    address: int
    region: int
    wf: int
    wg: int


def entry_of(table: Sequence[dict], number: int) -> dict:
    """Return a table's entry; after the last one there are zeros."""
    return table[number] if number < len(table) else dict.fromkeys(table[0], 0)


def expand(command: dict, tables: Mapping[str, Sequence[dict]], geometry: Geometry) -> list:
    """Return lines and errors of one command, a dict with the fields of its layout.

    `tables`: of `t3sim.rtl.layouts.mapping_tables`, each entry a dict. For blocks whose `columns` are at least
    `tiles_per_block`, as the driver makes them.
    """
    region = tables["region"][command["region"]]
    block, buffer = (entry_of(tables[name], region[name]) for name in ("block", "buffer"))
    ids = {name: command[name] for name in ("region", "wf", "wg")}
    source = SOURCE_COPY if command.get("copy") else SOURCE_DMA
    if not region["send_dma"] or not block["row_bytes"] or not block["columns"]:
        return [LineError(ERRORS["region_unconfigured"], command["address"], **ids)]
    result = []
    for column in range(block["columns"]):
        start = command["address"] + column * block["pitch_bytes"]
        end = start + block["row_bytes"]
        tile = column * block["tiles_per_block"] // block["columns"]
        ids["wf"] = (command["wf"] + tile) % (1 << geometry.tracker.wf_bits)
        while start < end:
            behind = min(end, (start // LINE_BYTES + 1) * LINE_BYTES)
            if buffer["base"] <= start and behind <= buffer["limit"]:
                result.append(Request(start, behind - start, READ, source, **ids))
            else:
                address = start % (1 << geometry.tracker.address_bits)
                result.append(LineError(ERRORS["address_out_of_range"], address, **ids))
            start = behind
    return result
