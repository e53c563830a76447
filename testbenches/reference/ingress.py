"""Reference of `t3sim.rtl.link.ingress`: whether one arrival is lawful."""

from collections.abc import Sequence
from typing import NamedTuple

from t3sim.rtl.geometry import Geometry

SOURCE_REMOTE, SOURCE_DMA = 1, 2
STORE, UPDATE = 1, 2


class OpenRange(NamedTuple):
    """Memory that peers may write."""

    regions: frozenset[int]  #: under which they may
    base: int  #: first byte
    last: int  #: last byte; whole lines count


def is_lawful(packet: dict, ranges: Sequence[OpenRange], window: range, tiles: int, any_tile: bool,
              geometry: Geometry) -> bool:
    """Say whether `packet`, with the fields of `t3sim.rtl.layouts.request`, is accepted.

    `window`: the workgroups of the dispatch window, each of which has up to `tiles`.
    """
    line_bytes = geometry.channel.request_bytes
    line = packet["address"] // line_bytes
    return (packet["op"] in (STORE, UPDATE) and packet["source"] in (SOURCE_REMOTE, SOURCE_DMA)
            and 1 <= packet["bytes"] <= line_bytes - packet["address"] % line_bytes
            and any(packet["region"] in opened.regions
                    and opened.base // line_bytes <= line <= opened.last // line_bytes for opened in ranges)
            and (packet["region"] == 0 or any_tile or (packet["wg"] in window and packet["wf"] < tiles)))
