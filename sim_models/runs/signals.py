"""Granularity of signals: what must be complete before it is sent on, from a wavefront's tile to a GPU's whole chunk.

Hardware can afford one for each wavefront's tile (T3 paper, section 4.2.1); software, whose signals cost an atomic, a
fence or a kernel, has one for each workgroup (fused operators), for the tiles of a wave, or for a chunk. Here the same
hardware gives coarser ones: DMA commands of all wavefronts of a workgroup (`[dma] tiles_per_block`), or a Tracker whose
tiles are those of many workgroups, with counters and commands wide enough.
"""

from dataclasses import replace

from t3sim.base.errors import BadInput
from t3sim.machine import Machine
from t3sim.workload.operators.tiling import Tiling

SIGNALS = ("wavefront", "workgroup", "wave-group", "shard")
_OF_MANY = SIGNALS[2:]  #: whose tiles several workgroups make
COUNT_BITS = 32  #: the widest that a Tracker can have
_ALL = 1 << 40


def hardware(machine: Machine, signal: str) -> Machine:
    """Return the machine with Track & Trigger hardware that signals so."""
    if signal in _OF_MANY:
        return machine.changed(tracker={"count_bits": COUNT_BITS}, dma={"tiles_per_block": 1})
    tiles = 1 if signal == "wavefront" else machine.gpu.wavefronts_per_workgroup
    return machine.changed(dma={"tiles_per_block": tiles})


def tracked_tiling(tiling: Tiling, signal: str | None, ranks: int, at_once: int, block: tuple[int, int]) -> Tiling:
    """Cut an output into the tiles that the Tracker counts; `tiling`: into those that workgroups make.

    `at_once`: workgroups that a GPU runs at once; `block`: the most bytes and columns that a DMA command moves. A tile
    of many is a rectangle of workgroups that follow each other: whole lines of tiles, or an equal part of one. Those of
    a wave group are at most as many as run at once, as a chunk has, and as a DMA command moves; those of a shard are a
    chunk. Raises BadInput for a chunk that no DMA command moves.
    """
    if signal not in _OF_MANY:
        return tiling
    chunk = max(1, tiling.tiles // ranks)
    tiles_together = chunk if signal == "shard" else min(at_once, chunk)
    along, across = (tiling.tile_columns, tiling.tile_rows)[::1 if tiling.along_n else -1]
    abreast = min(tiles_together, tiling.abreast)
    of_line = tiles_together // abreast
    lines = min(across, abreast * max(1, of_line // along))
    length = along if of_line >= along else -(-along // -(-along // of_line))
    high, wide = (lines, length) if tiling.along_n else (length, lines)
    most_high = max(1, block[0] // (tiling.tile_m * tiling.element_bytes))
    most_wide = max(1, block[1] // tiling.tile_n)
    if signal == "shard" and (high > most_high or wide > most_wide):
        raise BadInput(f"exchange.signal = shard: a chunk of {high * tiling.tile_m} x {wide * tiling.tile_n} elements "
                       f"is more than a DMA command moves, {block[0]} bytes of {block[1]} columns")
    return replace(tiling, tile_m=min(high, most_high) * tiling.tile_m, tile_n=min(wide, most_wide) * tiling.tile_n,
                   wavefronts=1, abreast=1)


def tiles_of(signal: str | None, at_once: int) -> int:
    """Return how many workgroups' tiles software signals together; `at_once`: workgroups that a GPU runs at once.

    Wavefronts of a workgroup end together there, so that a signal of theirs is the workgroup's; a shard has all.
    """
    return {"wave-group": at_once, "shard": _ALL}.get(signal or "", 1)
