"""Transaction-level reference of `t3sim.rtl.dma.line_router`: which channel a line comes out of, and in what order.

At each channel, the lines of one engine come in the order in which the engine offered them; between engines the
order is free here (the hardware takes turns).
"""

from collections import deque

from t3sim.rtl.geometry import Geometry


def channel_of_line(address: int, geometry: Geometry) -> int:
    """Fold the fields of the block number, and divide what is above (independent of `t3sim.rtl.address_map`)."""
    channel = geometry.channel
    odd, fold = channel.channels, 1
    while odd % 2 == 0:
        odd, fold = odd // 2, fold * 2
    block = address // channel.interleave_bytes
    upper, lower = block // fold % odd, 0
    while block and fold > 1:
        block, field = divmod(block, fold)
        lower ^= field
    return upper * fold + lower


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
