"""Fate of each tile on each device, and whose updates go where; from a run's plan."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from t3sim.base.line import lines_of


class TileId(NamedTuple):
    """A wavefront tile: simulated device, name of the tile, wavefront."""

    device: int
    wg: int
    wf: int


@dataclass(frozen=True)
class TilePlace:
    """Place of a wavefront tile in its device's output, and the region that it is programmed with."""

    position: int  #: transfers before it, at most: its level in the schedule
    made: int  #: workgroups of this device that make it
    stored: int | None  #: columns that this device's workgroups store, of one that none makes alone; None: all or none
    row: int
    rows: int
    column: int
    columns: int  #: 0: the wavefront has none of a ragged tile
    columns_of_tile: int
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


@dataclass(frozen=True)
class Consumer:
    """Workgroup whose inputs are tiles, or whose columns are of several: what it makes, for which it waits."""

    m0: int
    rows: int
    n0: int
    columns: int
    waits_for: range  #: tiles of the last group that it needs; empty: it has all from the start


class OutputMap:
    """Map of what each device of a run does with each of its tiles, from its plan.

    `run` as in trace.json; `plan`: see `describe.plan_of`.
    """

    def __init__(self, run: dict, plan: dict[str, np.ndarray]) -> None:
        self._run, self._plan = run, plan
        self._groups: dict[int, list[TileId]] = {}  #: tiles of each share

    def fault(self) -> str | None:
        """Say what is wrong with the plan, in words; None: nothing."""
        run, plan = self._run, self._plan
        devices, tiles = run["simulated_devices"], max(run["tiles"])
        each, regions = (devices, tiles), max(map(len, run["regions"]))
        shapes = dict.fromkeys(("tile", "position", "made", "m0", "n0", "rows", "columns", "c_base"), each)
        routes = plan["to_wg"].shape[-1] if "to_wg" in plan and plan["to_wg"].ndim else 1
        shapes |= {"region": (*each, 2), "to_device": (*each, routes), "to_wg": (*each, routes)}
        limits = {"tile": (-1, 1 << 48), "region": (0, regions), "to_device": (-1, run["devices"] - 1),
                  "to_wg": (-1, tiles - 1)}
        if run["mirrored"]:
            groups = plan["lines"].shape if "lines" in plan else ()
            shapes |= {"group": each[1:], "rank": (tiles, run["wavefronts"]), "lines": groups,
                       "becomes": (*groups, routes)}
            last = (-1, len(plan.get("lines", ())) - 1)
            limits |= {"group": last, "becomes": last}
        if run["names"] > tiles:
            shapes |= dict.fromkeys(_CONSUMER, (devices, run["names"] - tiles))
            limits["waits_for"] = -1, tiles // run["group_tiles"] - 1 if run["group_tiles"] else -1
        if "stored" in plan:
            shapes["stored"], limits["stored"] = (*each, run["wavefronts"]), (0, run["wf_columns"] * run["parts"])
        for name, shape in shapes.items():
            if name not in plan:
                return f"{name} is missing"
            if plan[name].shape != shape or plan[name].dtype != np.int64 or not shape:
                return f"{name} is {plan[name].dtype}{list(plan[name].shape)}, and int64{list(shape)} is needed"
            low, high = limits.get(name, (0, 1 << 48))
            if plan[name].size and not low <= plan[name].min() <= plan[name].max() <= high:
                return f"{name} has {plan[name].min()} to {plan[name].max()}: {low} to {high} are possible"
        return None

    def place(self, tile: TileId) -> TilePlace:
        run, plan, at = self._run, self._plan, tile[:2]
        width, pitch = run["wf_columns"], run["pitch_bytes"]
        columns = int(np.clip(plan["columns"][at] - tile.wf * width, 0, width))
        number = int(plan["region"][at][int(columns < width)])
        stored = int(plan["stored"][tile]) if "stored" in plan else None
        return TilePlace(int(plan["position"][at]), int(plan["made"][at]), stored, int(plan["m0"][at]),
                         int(plan["rows"][at]), int(plan["n0"][at]) + tile.wf * width, columns,
                         int(plan["columns"][at]), int(plan["c_base"][at]) + tile.wf * width * pitch, pitch,
                         run["element_bytes"], number, run["regions"][tile.device][number - 1] if number else None)

    def consumer(self, device: int, name: int) -> Consumer | None:
        """Return what a workgroup makes whose inputs or outputs are tiles; None: it is the name of a tile."""
        tiles, each = max(self._run["tiles"]), self._run["group_tiles"] or 0
        if name < tiles:
            return None
        waits_for, *place = (int(self._plan[field][device, name - tiles]) for field in _CONSUMER)
        return Consumer(*place, range(waits_for * each, (waits_for + 1) * each) if waits_for >= 0 else range(0))

    def output_tile(self, device: int, wg: int) -> int:
        """Return the number of the output tile that a name stands for on a device."""
        return int(self._plan["tile"][device, wg])

    def alike(self, tile: TileId) -> bool:
        """Say whether the device has the same part of the output under another name, too: until it is summed, and then.

        Addresses do not tell the two apart.
        """
        return int((self._plan["tile"][tile.device] == self.output_tile(tile.device, tile.wg)).sum()) > 1

    def routes(self, tile: TileId) -> list[tuple[int, int]]:
        """List where a tile goes: the device, by its number, and the tile's name there."""
        plan, at = self._plan, tile[:2]
        return [(int(device), int(wg)) for device, wg in zip(plan["to_device"][at], plan["to_wg"][at]) if device >= 0]

    def feeds(self, tile: TileId) -> list[TileId]:
        """Return the tiles that its data update: the same tile at each device to which it goes.

        In mirrored mode, where one device stands for all, they are those that its lines become
        (`t3sim.collectives.schedule.mirror`).
        """
        if not self._run["mirrored"]:
            return [TileId(device, wg, tile.wf) for device, wg in self.routes(tile)]
        becomes = self._plan["becomes"][self._plan["group"][tile.wg]]
        return [other for group in dict.fromkeys(becomes[becomes >= 0].tolist())
                for other in self._tiles_of(group, tile.device) if self._overlap(tile, other)]

    def fed_by(self, tile: TileId) -> list[TileId]:
        """Return the tiles whose data update it, the inverse of `feeds`."""
        plan = self._plan
        if self._run["mirrored"]:
            before = np.flatnonzero((plan["becomes"] == plan["group"][tile.wg]).any(axis=1))
            return [other for group in before.tolist() for other in self._tiles_of(group, tile.device)
                    if self._overlap(other, tile)]
        is_sent = (plan["to_device"] == tile.device) & (plan["to_wg"] == tile.wg)
        return [TileId(int(device), int(wg), tile.wf) for device, wg in np.argwhere(is_sent.any(axis=2))]

    def from_devices(self, tile: TileId) -> list[int]:
        """List the devices, by their numbers, whose data update it; what one that stands for all has of them, too."""
        if not self._run["mirrored"]:
            return [other.device for other in self.fed_by(tile)]
        devices, own = self._run["devices"], self._run["numbers"][tile.device]
        plan, group = self._plan, self._plan["group"][tile.wg]
        groups = {int(plan["to_device"][0, wg, route]) for before, route in np.argwhere(plan["becomes"] == group)
                  for wg in np.flatnonzero(plan["group"] == before)[:1]}
        return sorted((2 * own - device) % devices for device in groups)  # it comes from as far as it goes

    def destinations(self, device: int, number: int) -> list[int]:
        """List the devices to which a packet goes: one, or those of a group to which a switch copies it."""
        groups, devices = self._run["switch_groups"][device], self._run["devices"]
        if number < devices:
            return [number]
        return groups[number - devices] if number - devices < len(groups) else []

    def sender(self, device: int, packet: np.void) -> int | None:
        """Return the name of the tile that a packet of a device is of; None: of none."""
        plan, run = self._plan, self._run
        to = self.destinations(device, int(packet["a"]))
        if not to:
            return None
        offset = int(packet["address"]) - run["bases"][to[0]]
        column, row = offset // run["pitch_bytes"], offset % run["pitch_bytes"] // run["element_bytes"]
        inside = ((plan["n0"][device] <= column) & (column < plan["n0"][device] + plan["columns"][device])
                  & (plan["m0"][device] <= row) & (row < plan["m0"][device] + plan["rows"][device]))
        meant = (plan["to_device"][device] == to[0]) & (plan["to_wg"][device] == packet["wg"])
        tiles = np.flatnonzero(inside)
        exact = tiles[meant[tiles].any(axis=1)]
        return int((exact if len(exact) else tiles)[0]) if len(tiles) else None

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
        sent_lines, arriving_lines = (line * of_receiver // of_sender for line in self._lines(sender))
        first, behind = self._lines(receiver)
        return max(sent_lines, first) < min(arriving_lines, behind)


#: Fields of the plan that `Consumer` is made of.
_CONSUMER = ("waits_for", "output_m0", "output_rows", "output_n0", "output_columns")
