"""Which workgroup computes which tile of the output, and whose updates go where; from a run's plan."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..line import lines_of


class TileId(NamedTuple):
    """A wavefront tile: simulated device, workgroup, wavefront."""

    device: int
    wg: int
    wf: int


@dataclass(frozen=True)
class Place:
    """Where a wavefront tile lies in its device's output, and the region that it is programmed with."""

    position: int  #: transfers before it, at most: its level in the schedule
    row: int
    rows: int
    column: int
    columns: int  #: 0: the wavefront has none of a ragged tile
    base: int  #: address of its first element
    pitch_bytes: int
    element_bytes: int
    number: int  #: of the region, 0: none
    region: dict | None  #: as `record` describes it

    def holds(self, addresses: np.ndarray, base: int | None = None) -> np.ndarray:
        """Return which addresses lie in the tile, were it at `base`."""
        offset = addresses.astype(np.int64) - (self.base if base is None else base)
        column, within = offset // self.pitch_bytes, offset % self.pitch_bytes
        return (column >= 0) & (column < self.columns) & (within < self.rows * self.element_bytes)


class OutputMap:
    """What each workgroup of a run computes, from its plan.

    `run` as in trace.json; `plan`: what each workgroup does, [device, workgroup] (see `record`).
    """

    def __init__(self, run: dict, plan: dict[str, np.ndarray]) -> None:
        self._run, self._plan = run, plan
        self._groups: dict[int, list[TileId]] = {}  #: tiles of each share

    def fault(self) -> str | None:
        """Say what is wrong with the plan, in words; None: nothing."""
        run, plan = self._run, self._plan
        each, regions = (run["simulated_devices"], run["workgroups"]), max(map(len, run["regions"]))
        shapes = dict.fromkeys(("tile", "position", "m0", "n0", "rows", "columns", "c_base"), each)
        shapes["region"] = (*each, 2)
        if run["mirrored"]:
            groups = plan["lines"].shape if "lines" in plan else ()
            shapes |= {"group": each[1:], "rank": (each[1], run["wavefronts"]), "lines": groups, "becomes": groups}
        for name, shape in shapes.items():
            if name not in plan:
                return f"{name} is missing"
            if plan[name].shape != shape or plan[name].dtype != np.int64 or not shape:
                return f"{name} is {plan[name].dtype}{list(plan[name].shape)}, and int64{list(shape)} is needed"
            low, high = (-1 if name in ("group", "becomes") else 0), 1 << 48
            high = {"region": regions, "group": len(plan.get("lines", ())) - 1,
                    "becomes": len(plan.get("lines", ())) - 1}.get(name, high)
            if plan[name].size and not low <= plan[name].min() <= plan[name].max() <= high:
                return f"{name} has {plan[name].min()} to {plan[name].max()}: {low} to {high} are possible"
        return None

    def place(self, tile: TileId) -> Place:
        run, plan, at = self._run, self._plan, tile[:2]
        width, pitch = run["wf_columns"], run["pitch_bytes"]
        columns = int(np.clip(plan["columns"][at] - tile.wf * width, 0, width))
        number = int(plan["region"][at][int(columns < width)])
        return Place(int(plan["position"][at]), int(plan["m0"][at]), int(plan["rows"][at]),
                     int(plan["n0"][at]) + tile.wf * width, columns, int(plan["c_base"][at]) + tile.wf * width * pitch,
                     pitch, run["element_bytes"], number, run["regions"][tile.device][number - 1] if number else None)

    def output_tile(self, device: int, wg: int) -> int:
        """Return the number of the output tile that a workgroup computes."""
        return int(self._plan["tile"][device, wg])

    def feeds(self, tile: TileId) -> list[TileId]:
        """Return the tiles that its data updates: the same tile at the neighbour.

        In mirrored mode, where one device stands for all, they are those that its lines become
        (`t3sim.schedule.mirror`).
        """
        region = self.place(tile).region
        if not region or region["to_device"] is None:
            return []
        if self._run["mirrored"]:
            becomes = int(self._plan["becomes"][self._plan["group"][tile.wg]])
            return [other for other in self._tiles_of(becomes, tile.device) if self._overlap(tile, other)]
        return self._same_tile(tile, self._run["downstream"][tile.device])

    def fed_by(self, tile: TileId) -> list[TileId]:
        """Return the tiles whose data updates it, the inverse of `feeds`."""
        if self.place(tile).position == 0:
            return []
        if self._run["mirrored"]:
            (before,) = np.flatnonzero(self._plan["becomes"] == self._plan["group"][tile.wg])
            return [other for other in self._tiles_of(int(before), tile.device) if self._overlap(other, tile)]
        return self._same_tile(tile, self._run["downstream"].index(tile.device))

    def wg_at(self, device: int, address: int) -> int | None:
        """Return whose output an address of the downstream neighbour's output is, as a workgroup; None: no one's."""
        plan, run = self._plan, self._run
        offset = address - run["bases"][device]["downstream"]
        column, row = offset // run["pitch_bytes"], offset % run["pitch_bytes"] // run["element_bytes"]
        inside = ((plan["n0"][device] <= column) & (column < plan["n0"][device] + plan["columns"][device])
                  & (plan["m0"][device] <= row) & (row < plan["m0"][device] + plan["rows"][device]))
        found = np.flatnonzero(inside)
        return int(found[0]) if len(found) else None

    def _same_tile(self, tile: TileId, device: int) -> list[TileId]:
        wgs = np.flatnonzero(self._plan["tile"][device] == self.output_tile(tile.device, tile.wg))
        return [TileId(device, int(wg), tile.wf) for wg in wgs]

    def _tiles_of(self, group: int, device: int) -> list[TileId]:
        """Return the tiles of one of the device's shares."""
        if group not in self._groups:
            tiles = (TileId(device, int(wg), wf) for wg in np.flatnonzero(self._plan["group"] == group)
                     for wf in range(self._run["wavefronts"]))
            self._groups[group] = [other for other in tiles if self.place(other).columns]
        return self._groups[group]

    def _lines(self, tile: TileId) -> tuple[int, int]:
        """Return the first and one past the last of a tile's lines, counted through its group."""
        place, first = self.place(tile), int(self._plan["rank"][tile.wg, tile.wf])
        return first, first + place.columns * lines_of(place.rows * place.element_bytes)

    def _overlap(self, sender: TileId, receiver: TileId) -> bool:
        lines, group = self._plan["lines"], self._plan["group"]
        of_sender, of_receiver = int(lines[group[sender.wg]]), int(lines[group[receiver.wg]])
        sent, there = (line * of_receiver // of_sender for line in self._lines(sender))
        first, behind = self._lines(receiver)
        return max(sent, first) < min(there, behind)
