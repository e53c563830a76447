"""Transaction-level reference of `t3sim.rtl.line_router`: which channel a line comes out of, and in what order.

At each channel, the lines of one engine come in the order in which the engine offered them; between engines the
order is free here (the hardware takes turns).
"""

from collections import deque

from t3sim.rtl.geometry import Geometry


def channel_of_line(address: int, geometry: Geometry) -> int:
    """Fold the fields of the block number by XOR, from the top (independent of `t3sim.rtl.address_map`)."""
    channel = geometry.channel
    if channel.channels == 1:
        return 0
    block, result = address // channel.interleave_bytes, 0
    while block:
        block, field = divmod(block, channel.channels)
        result ^= field
    return result


class LineRouterModel:
    """Lines that are inside, per engine and channel."""

    def __init__(self, geometry: Geometry):
        self._geometry = geometry
        self._inside = {}

    def accept(self, engine: int, line) -> None:
        """Let `line` (a dict of the layout's fields) enter from `engine`."""
        channel = channel_of_line(line["address"], self._geometry)
        self._inside.setdefault((channel, engine), deque()).append(line)

    def leave(self, channel: int, line) -> int:
        """Let `line` leave to `channel`; return the engine that it came from. ValueError if no engine has it next."""
        for (owner, engine), waiting in self._inside.items():
            if owner == channel and waiting and waiting[0] == line:
                waiting.popleft()
                return engine
        raise ValueError(f"channel {channel}: {line} is not the next line of any engine")

    def inside(self) -> int:
        return sum(map(len, self._inside.values()))
