"""Transaction-level reference of `t3sim.rtl.dma.dma_table`: triggers in, commands out, in the same order.

A command leaves when the last tile of its block arrives; commands are in order of completion. The model
keeps blocks by workgroup, so it also tells when two open workgroups share a slot, which the window forbids.
"""

from typing import NamedTuple

from t3sim.rtl.geometry import Geometry


class Trigger(NamedTuple):
    """Fields of `t3sim.rtl.layouts.trigger`."""

    address: int
    region: int
    wf: int
    wg: int


class DmaTableModel:
    """Open blocks of one DMA table."""

    def __init__(self, geometry: Geometry):
        self._slots = geometry.tracker.window_slots
        self._open = {}  # (wg, lowest wf of the block) -> addresses of the tiles that arrived

    def accept(self, tile: Trigger, tiles_per_block: int) -> Trigger | None:
        """Return the command that `tile` completes, if it does."""
        tiles = max(1, tiles_per_block)
        key = tile.wg, tile.wf - tile.wf % tiles
        shared = [wg for wg, _ in self._open if wg != tile.wg and wg % self._slots == tile.wg % self._slots]
        if tiles > 1 and shared:
            raise ValueError(f"wg={tile.wg} shares a slot with open wg={shared[0]}")
        self._open.setdefault(key, []).append(tile.address)
        if len(self._open[key]) < tiles:
            return None
        return Trigger(min(self._open.pop(key)), tile.region, key[1], tile.wg)

    def incomplete(self) -> int:
        """Return the blocks that wait for tiles."""
        return len(self._open)
