"""An exchange before a GEMM: tiles of the activations come by Track & Trigger; workgroups start when theirs have.

Each GPU has the rows of its own tokens. A *group* is a column of tiles of the activations, all features of a few
tokens: what the workgroups of these tokens wait for. Its tiles have consecutive ids, as many as a power of two, so that
the ready table (rtl/window/ready_table.py) finds a tile's group by a shift. What a GPU sends is in memory before: a
short workgroup for each tile stores the first lines again, which lets the Tracker fire and DMA send them on. What
arrives is kept and, of an all-gather, sent on likewise. What a GPU has and sends to nobody has no id, and nobody waits
for it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from t3sim.base.line import LINE_BYTES
from t3sim.collectives.schedule.schedule import NO_ID
from t3sim.cosim.driver.driver import Driver
from t3sim.machine import Machine
from t3sim.rtlsim.port_map import Field
from t3sim.runs.address_space import AddressSpace
from t3sim.workload.operators.kernel_table import (
    ASKS_WINDOW,
    GROUP,
    LOAD,
    STEP,
    STORE,
    KernelTable,
    Route,
    joined,
    rows_of,
)
from t3sim.workload.operators.operator import OutputParts
from t3sim.workload.operators.tiling import Tiling, TilingError
from t3sim.workload.workloads import Workload

LEAST_ROW_BYTES = 256  #: of a tile, what stays on one memory channel
_MOST_ROW_BYTES = 4096


def parts_of_features(features: int, element_bytes: int) -> list[tuple[int, int]]:
    """List how a token's features, which are contiguous, can be cut: a power of two of parts, and how high each is.

    The fewest parts come first. Raises TilingError.
    """
    unit = LINE_BYTES // element_bytes
    cuts = [(rows, -(-features // (rows * unit)) * unit) for rows in (1 << bit for bit in range(13))]
    possible = [(rows, height) for rows, height in cuts if -(-features // height) == rows
                and height * element_bytes <= _MOST_ROW_BYTES
                and (rows == 1 or height * element_bytes >= LEAST_ROW_BYTES)]
    if not possible:
        raise TilingError(f"K={features} cannot be cut into a power of two of equal parts of whole lines, "
                          f"{LEAST_ROW_BYTES} to {_MOST_ROW_BYTES} bytes each")
    return possible


def gather_tiling(tokens: int, features: int, ranks: int, tile_n: int, wavefronts: int, element_bytes: int,
                  most_ids: int) -> Tiling:
    """Cut the activations into tiles, of which a group has a power of two.

    `tile_n`: tokens of a group, halved while ranks could not have alike numbers of them; `most_ids`: that a rank's own
    tiles may have, fewer if tiles would be too small, more if too large. Raises TilingError.
    """
    def columns() -> int:
        return -(-tokens // tile_n)
    while tile_n // 2 % wavefronts == 0 and (columns() < ranks or tokens % (ranks * tile_n)
                                             and not tokens % (ranks * wavefronts)):
        tile_n //= 2
    possible, per_rank = parts_of_features(features, element_bytes), -(-columns() // ranks)
    height = [height for rows, height in possible if rows * per_rank <= most_ids or rows == possible[0][0]][-1]
    return Tiling(features, tokens, height, tile_n, wavefronts, element_bytes, pitch_unit_bytes=LEAST_ROW_BYTES,
                  whole_columns=True)


def tiling_for(machine: Machine, workload: Workload) -> Tiling:
    """Cut a layer's activations for a machine. Raises TilingError and DriverError."""
    gpu, geometry = machine.gpu, machine.geometry()
    window = Driver(geometry).largest_window(min(geometry.tracker.ways, gpu.wavefronts_per_workgroup))
    return gather_tiling(workload.m, workload.k, workload.tp, gpu.tile_n, gpu.wavefronts_per_workgroup,
                         workload.format.bytes, most_ids=window // 4)


class GatherGroups(NamedTuple):
    """A device's groups, int64[column of tiles] each."""

    number: np.ndarray  # in the ready table, the order of ids
    turn: np.ndarray  # in which they are there: those that nobody waits for first, then the others as they come
    ready: int  # groups of its own tokens, which are there from the start

    @property
    def in_turn(self) -> np.ndarray:
        """Numbers of the groups that come, in their order: int64[group]."""
        return self.number[np.argsort(self.turn)][self.ready:]


def groups_of(space: AddressSpace) -> GatherGroups:
    """Return a device's groups, their numbers and the order in which they are there."""
    rows, tiling = space.schedule.rows(space.device), space.schedule.tiling
    number, others = np.zeros((2, tiling.tile_columns), np.int64)
    number[rows.tile // tiling.tile_rows] = rows.id // tiling.tile_rows
    others[rows.tile // tiling.tile_rows] = ~rows.contributes
    return GatherGroups(number, np.argsort(np.lexsort((number, others))), int((others == 0).sum()))


class Consumers(NamedTuple):
    """Workgroups of a device that are made of what comes, and the first column of the activations that is theirs."""

    outputs: OutputParts
    first_input: int

    def in_turn(self, space: AddressSpace) -> tuple[np.ndarray, np.ndarray]:
        """Return which of them a device starts first, second, ..., and how many groups of others each needs.

        Both int64[workgroup]; groups come in their order, so that the last of those needed is the one that counts.
        """
        _, order, ready = groups_of(space)
        turn_of = order[space.schedule.tiling.column_of_tiles]
        begin = self.first_input + self.outputs.first_column
        end = begin + self.outputs.columns
        latest = np.array([turn_of[first:last].max() for first, last in zip(begin, end)], np.int64)
        turn = np.lexsort((np.arange(len(latest)), latest))
        return turn, np.maximum(latest - ready + 1, 0)[turn]


def gathering_work(work: KernelTable, consumers: Consumers, space: AddressSpace) -> KernelTable:
    """Let a device's workgroups start in the order in which their activations come, its own first.

    Before them are those that have its own tiles sent. `work`: of the GEMM, a group for each of `consumers`.
    """
    turn, needs = consumers.in_turn(space)
    sending = _sending(space)
    groups, steps, loads, stores, row_lists = joined([sending, replace(work, groups=work.groups[turn])])
    return replace(work, groups=groups, steps=steps, loads=loads, stores=stores, row_lists=row_lists,
                   needs=np.append(np.full(len(sending.groups), ASKS_WINDOW), needs))


def rows_sent(space: AddressSpace) -> np.ndarray:
    """Return which rows of `Schedule.rows` are a device's own tiles that it sends, in its order: int64[tile]."""
    rows, tiling = space.schedule.rows(space.device), space.schedule.tiling
    return np.flatnonzero(rows.contributes & (rows.id != NO_ID) & (tiling.wf_tiles[rows.tile] > 0))


def _sending(space: AddressSpace) -> KernelTable:
    """Make the workgroups that read and store the first lines of a device's own tiles, one for each."""
    rows, tiling, own = space.schedule.rows(space.device), space.schedule.tiling, rows_sent(space)
    tile, count = rows.tile[own], tiling.wf_tiles[rows.tile[own]]
    size = np.array([space.first_line_bytes(height) for height in tiling.rows[tile]])
    groups = rows_of(GROUP, len(own), workgroups=1, first_step=np.arange(len(own)), steps=1, id=rows.id[own],
                     tiles=count)
    steps = rows_of(STEP, len(own), repeats=1, first_load=np.arange(len(own)), loads=1,
                    first_store=np.cumsum(count) - count, stores=count)
    pitch = tiling.wf_columns * tiling.pitch_bytes
    loads = rows_of(LOAD, len(own), base=space.base + tiling.offsets[tile], pitch=pitch, rows=count, bytes=size)
    row, wavefront = np.nonzero(tiling.wf_widths[tile])
    narrow = tiling.wf_widths[tile][row, wavefront] < tiling.wf_columns
    stores = rows_of(STORE, len(row), base=space.base + tiling.offsets[tile][row] + wavefront * pitch, rows=1,
                     bytes=size[row], id=rows.id[own][row], wavefront=wavefront,
                     region=space.table.own_regions[own][row, narrow.astype(int)], route=Route.MEMORY)
    return KernelTable(groups, steps, loads, stores)


def ready_asks(spaces: Sequence[AddressSpace], fields: Mapping[str, Field]) -> np.ndarray:
    """Pack what each device asks its ready table, group by group in the order in which they come: int64[device, ask].

    They are payloads of the RTL's `asks` with these `fields`.
    """
    packed = []
    for space in spaces:
        groups, tiling = groups_of(space), space.schedule.tiling
        column = np.argsort(groups.turn)[groups.ready:]
        tiles = tiling.wf_tiles.reshape(tiling.tile_columns, tiling.tile_rows).sum(axis=1)[column]
        columns = {"group": groups.number[column], "tiles": tiles}
        packed.append(sum(columns[name] << field.lsb for name, field in fields.items()))
    most = max(map(len, packed))  # what a shorter list ends with is answered at once
    return np.stack([np.pad(one, (0, most - len(one))) for one in packed]).astype(np.int64)
