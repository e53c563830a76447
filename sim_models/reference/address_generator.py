"""Transaction-level reference of `t3sim.rtl.address_generator`: the lines and errors of one DMA command, in order.

Commands are served in the order in which they came in; `expand` gives one list per command that mixes lines
(`Request`) and errors (`LineError`) as the hardware meets them.
"""

from typing import NamedTuple

from t3sim.rtl.geometry import Geometry
from t3sim.rtl.registers import ERRORS

READ, SOURCE_DMA = 0, 2
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


def expand(command: dict, descriptor: dict, geometry: Geometry) -> list:
    """Return lines and errors of one command; `command` and `descriptor` are dicts with the fields of the layouts.

    For descriptors whose `columns` are at least `tiles_per_block`, as the driver makes them.
    """
    ids = {name: command[name] for name in ("region", "wf", "wg")}
    if not descriptor["send_dma"] or not descriptor["row_bytes"] or not descriptor["columns"]:
        return [LineError(ERRORS["region_unconfigured"], command["address"], **ids)]
    result = []
    for column in range(descriptor["columns"]):
        start = command["address"] + column * descriptor["pitch_bytes"]
        end = start + descriptor["row_bytes"]
        tile = column * descriptor["tiles_per_block"] // descriptor["columns"]
        ids["wf"] = (command["wf"] + tile) % (1 << geometry.tracker.wf_bits)
        while start < end:
            behind = min(end, (start // LINE_BYTES + 1) * LINE_BYTES)
            if descriptor["base"] <= start and behind <= descriptor["limit"]:
                result.append(Request(start, behind - start, READ, SOURCE_DMA, **ids))
            else:
                address = start % (1 << geometry.tracker.address_bits)
                result.append(LineError(ERRORS["address_out_of_range"], address, **ids))
            start = behind
    return result
