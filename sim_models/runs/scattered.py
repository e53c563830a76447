"""A kernel whose tiles have columns of several owners: each column is stored where the placement says.

So an expert's weighted outputs go to the tokens' owners, whose memories add them; the owner's Tracker counts bytes of
the owner's tiles, whoever stores them.
"""

from dataclasses import replace

import numpy as np

from t3sim.collectives.schedule import Action
from t3sim.collectives.schedule.placement import NOWHERE
from t3sim.runs.address_space import AddressSpace
from t3sim.workload.operators.kernel_table import STORE, KernelTable, Route, rows_of


def scattered_work(work: KernelTable, space: AddressSpace) -> KernelTable:
    """Let a device's compute units store each column of their tiles as the placement says.

    `work`: of the operator, a group for each of `Placement.workgroups`. Rows of wavefronts are stored in turn, as they
    are without a placement.
    """
    schedule, device = space.schedule, space.device
    placement, tiling, rows = schedule.placement, schedule.tiling, schedule.rows(device)
    assert placement is not None
    tiles_here = placement.tilings[device]
    in_turn = np.arange(tiles_here.tile_n).reshape(tiles_here.wavefronts, -1).T.ravel()
    columns, parts = (one[:, in_turn] for one in placement.columns_of_workgroups(device))
    touched = schedule.rows_touched(device)[:, in_turn]
    is_used = columns != NOWHERE
    column, row, counts = columns[is_used], touched[is_used], is_used.sum(axis=1)
    tile = rows.tile[row]
    inside = column - tiling.first_column[tile]
    is_sent = rows.actions[row] & Action.SEND_STORES != 0
    stores = rows_of(
        STORE, len(row), base=space.base + tiling.offsets[tile] + inside * tiling.pitch_bytes, rows=1,
        bytes=tiling.rows[tile] * tiling.element_bytes, id=schedule.named(device)[row], region=space.table.own[row, 0],
        wavefront=inside // tiling.wf_columns, route=np.where(is_sent, Route.MAPPED, Route.MEMORY),
        updates=schedule.policy.parts > 1, part=parts[is_used])
    steps = work.steps.copy()
    last = work.groups["first_step"] + work.groups["steps"] - 1
    steps["first_store"], steps["stores"] = 0, 0
    steps["first_store"][last], steps["stores"][last] = np.cumsum(counts) - counts, counts
    return replace(work, steps=steps, stores=stores)
