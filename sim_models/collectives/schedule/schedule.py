"""Roles and tiles put together: ids, routes from id to id, and how far devices may be apart."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np

from t3sim.collectives import Program
from t3sim.collectives.schedule.placement import NOWHERE, Placement
from t3sim.collectives.schedule.roles import (
    Action,
    Ids,
    Limits,
    Role,
    ScheduleError,
    ScheduleOptions,
    TileRoute,
    roles_of,
)
from t3sim.machine.topologies import Topology, TopologyError
from t3sim.workload.operators.tiling import Tiling
from t3sim.workload.operators.uneven_tiling import UnevenTiling

NO_ID = -1
NO_DEVICE = -1
_FAR = np.iinfo(np.int64).max


class Share(NamedTuple):
    """A device's part in one slice of a chunk: consecutive tiles that it treats alike."""

    role: Role
    number: int  #: of the role, among the device's
    slice_index: int
    tiles: range
    first_id: int  #: of the first tile, the others follow; NO_ID: they have none


class Rows(NamedTuple):
    """A device's tiles in its order of execution, int64[row] each."""

    tile: np.ndarray
    id: np.ndarray  # NO_ID: none
    share: np.ndarray  # index of `Schedule.shares`
    level: np.ndarray
    slice_index: np.ndarray
    contributes: np.ndarray  # bool: a workgroup of this device makes a part of it
    updates: np.ndarray
    actions: np.ndarray
    to_device: np.ndarray  # int64 [row, route]; NO_DEVICE: none
    to_id: np.ndarray  # int64 [row, route], id there; NO_ID: none

    @property
    def ids(self) -> int:
        """One more than the largest id."""
        return int(self.id.max(initial=NO_ID)) + 1


class Requests(NamedTuple):
    """Requests of a device to its dispatch window, int64[request] each (rtl/order.py).

    A row of `Rows` has one for each route but the first, and then one that starts its workgroup. With a placement a
    tile that only arrives has one, and a workgroup one for each peer, of the last tile there that it touches.
    """

    row: np.ndarray
    id: np.ndarray  # without one of its own, that where it goes: what its stores name; 0: neither
    opens: np.ndarray
    there: np.ndarray
    to_device: np.ndarray  # NO_DEVICE: none
    reaches: np.ndarray
    starts: np.ndarray


@dataclass(frozen=True)
class Schedule:
    """A collective over the tiles of an operator's output, device by device.

    Two rules let windows of ids work (docs/why/five-questions.md, question 2): a tile that goes on has a smaller id
    than the one that it becomes part of (`is_causal`), and what a device touches early is never more than
    `slack` ids ahead of what it touches late. `tiling` is the whole output's; a slice of a chunk is a range
    of its tiles.
    """

    tiling: Tiling
    program: Program
    topology: Topology
    policy: ScheduleOptions = ScheduleOptions()
    placement: Placement | None = None  #: of what workgroups make, if that is not the output's tiles

    def __post_init__(self) -> None:
        if self.program.ranks != self.topology.gpus:
            raise ScheduleError(f"{self.program.ranks} ranks do not fit {self.topology.gpus} GPUs of topology "
                                f"{self.topology.name!r}")
        self._check_ways()
        if self.policy.limits is Limits.SHIFT and not self._in_order_of_ids:
            raise ScheduleError("one shift for all tiles needs ids in the order of dispatch: limits must be exact")

    def _check_ways(self) -> None:
        """Refuse what cannot be sent, and ways of several links on which packets could wait for each other.

        A full buffer holds up the link before it.
        """
        waits_for: dict[tuple[int, int], set[tuple[int, int]]] = defaultdict(set)
        pairs = {(transfer.source, transfer.destination): transfer for transfer in reversed(self.program.transfers)}
        for transfer in pairs.values():
            try:
                way = self.topology.way(transfer.source, transfer.destination)
            except TopologyError:
                raise ScheduleError(f"{transfer}: topology {self.topology.name!r} has no way for it") from None
            for link, onward in pairwise(way):
                waits_for[link].add(onward)
        try:
            TopologicalSorter(waits_for).prepare()
        except CycleError as error:
            links = ", ".join(f"{source} to {destination}" for source, destination in error.args[1][:4])
            raise ScheduleError(f"topology {self.topology.name!r}: the links {links} ... could wait for each other in "
                                "a circle") from None

    @property
    def _in_order_of_ids(self) -> bool:
        return self.policy.ids is Ids.TOUCHED and self.policy.shuffle is None

    @property
    def devices(self) -> int:
        return self.program.ranks

    @cached_property
    def roles(self) -> tuple[tuple[Role, ...], ...]:
        """Each device's, in its order of execution."""
        return roles_of(self.program, self.policy.staged or self.policy.present, self.policy.parts,
                        self.placement is not None)

    @cached_property
    def _edges(self) -> np.ndarray:
        return self.tiling.cut(self.policy.slices * self.program.chunks)

    @cached_property
    def _lengths(self) -> np.ndarray:
        """Tiles of each chunk, int64[slice, chunk]."""
        return np.diff(self._edges).reshape(self.policy.slices, self.program.chunks)

    def chunk(self, slice_index: int, chunk: int) -> range:
        """Return the tiles of a slice of a chunk."""
        part = slice_index * self.program.chunks + chunk
        return range(int(self._edges[part]), int(self._edges[part + 1]))

    @property
    def largest_chunk(self) -> int:
        """Elements of the largest chunk, in whichever slice."""
        elements = np.append(0, np.cumsum(self.tiling.rows * self.tiling.columns))
        return int(np.diff(elements[self._edges]).max())

    def _own_lengths(self, device: int) -> np.ndarray:
        return self._lengths[:, [role.chunk for role in self.roles[device]]]

    def first_ids(self, device: int) -> np.ndarray:
        """Return the id of the first tile of each of a device's roles, int64[slice, role]; NO_ID: it has none."""
        if device not in self._known_ids:
            lengths = self._own_lengths(device)
            numbered = np.array([self.policy.ids is Ids.TOUCHED or role.tracked for role in self.roles[device]])
            counted = np.where(numbered, lengths, 0).ravel()
            first = (np.cumsum(counted) - counted).reshape(lengths.shape)
            self._known_ids[device] = np.where(numbered, first, NO_ID)
        return self._known_ids[device]

    @cached_property
    def _known_ids(self) -> dict[int, np.ndarray]:
        return {}

    def shares(self, device: int) -> Iterator[Share]:
        """List what a device does, in its order of execution."""
        first = self.first_ids(device)
        for slice_index in range(self.policy.slices):
            for number, role in enumerate(self.roles[device]):
                yield Share(role, number, slice_index, self.chunk(slice_index, role.chunk),
                            int(first[slice_index, number]))

    def rows(self, device: int) -> Rows:
        """List what a device does, tile by tile."""
        shares = list(self.shares(device))
        lengths = [len(share.tiles) for share in shares]
        index = np.repeat(np.arange(len(shares)), lengths)
        place = np.arange(len(index)) - np.repeat(np.cumsum(lengths) - lengths, lengths)

        def each(values, dtype=np.int64) -> np.ndarray:
            return np.array(values, dtype)[index]

        def ids(first: list[int]) -> np.ndarray:
            return np.where(each(first) == NO_ID, NO_ID, each(first) + place)
        most = max(1, *(len(role.routes) for role in self.roles[device]))
        routes = [[share.role.routes[number] if number < len(share.role.routes) else None for share in shares]
                  for number in range(most)]
        rows = Rows(
            tile=each([share.tiles.start for share in shares]) + place, id=ids([share.first_id for share in shares]),
            share=index, level=each([share.role.level for share in shares]),
            slice_index=each([share.slice_index for share in shares]),
            contributes=each([share.role.contributes for share in shares], bool),
            updates=each([share.role.updates for share in shares]),
            actions=each([int(share.role.actions) for share in shares]),
            to_device=np.stack([each([route.device if route else NO_DEVICE for route in number])
                                for number in routes], axis=1),
            to_id=np.stack([ids([self._first_id(route, share.slice_index) if route else NO_ID
                                 for share, route in zip(shares, number)]) for number in routes], axis=1))
        return rows if self.policy.shuffle is None else Rows(*(column[self.order(device)] for column in rows))

    def order(self, device: int) -> np.ndarray:
        """Compute which of a device's tiles, counted along `shares`, it dispatches first, second, ...: int64[row]."""
        tiles = int(self._own_lengths(device).sum())
        return np.arange(tiles) if self.policy.shuffle is None else self.policy.shuffle.order(tiles, device)

    def requests(self, device: int) -> Requests:
        """List what a device asks its dispatch window for, tile by tile."""
        if self.placement is not None:
            return self._placed_requests(self.placement, device)
        rows = self.rows(device)
        asked = rows.to_id != NO_ID
        asked[:, 0] |= (rows.id != NO_ID) | (not self.policy.present)  # with or without a route; asked for last
        row, route = np.nonzero(asked[:, ::-1])
        route = asked.shape[1] - 1 - route
        there, to_device = rows.to_id[row, route], rows.to_device[row, route]
        opens, goes = (route == 0) & (rows.id[row] != NO_ID), there != NO_ID
        starts = (route == 0) & rows.contributes[row] & (self.tiling.wf_tiles[rows.tile[row]] > 0)
        if self.policy.limits is Limits.SHIFT:  # one peer, so one route
            there, reaches = rows.id + self.slack_of(device), np.ones_like(goes)
        else:
            there, reaches = np.where(goes, there, 0), goes
        return Requests(row, np.where(opens, rows.id[row], np.where(goes, there, 0)), opens.astype(np.int64), there,
                        to_device, reaches.astype(np.int64), starts.astype(np.int64))

    def named(self, device: int) -> np.ndarray:
        """Return which id a tile's stores name, int64[row]: its own, or where it has none that of its first route."""
        rows = self.rows(device)
        return np.where(rows.id != NO_ID, rows.id, np.maximum(rows.to_id[:, 0], 0))

    def rows_touched(self, device: int) -> np.ndarray:
        """Return which row each column of each of a device's workgroups is of, with a placement; NOWHERE: of none.

        int64[workgroup, column of a tile].
        """
        placement, tiling = self.placement, self.tiling
        assert placement is not None
        columns, _ = placement.columns_of_workgroups(device)
        row_of = np.zeros(tiling.tiles, np.int64)
        row_of[self.rows(device).tile] = np.arange(tiling.tiles)
        first_row = placement.made[device].first_row[placement.workgroups(device)]
        return np.where(columns == NOWHERE, NOWHERE, row_of[tiling.at(first_row[:, None], np.maximum(columns, 0))])

    def _placed_requests(self, placement: Placement, device: int) -> Requests:
        """Ask for what arrives in a slice, then for each workgroup of the slice at every peer that it touches.

        A slice's tiles have larger ids than those of the slice before it, here and at any peer, and a workgroup's
        columns are of one slice.
        """
        rows, touched = self.rows(device), self.rows_touched(device)
        own = np.flatnonzero(rows.id != NO_ID)
        workgroup, column = np.nonzero(touched != NOWHERE)
        row = touched[workgroup, column]
        peer, there = rows.to_device[row, 0], rows.to_id[row, 0]
        last = np.lexsort((there, peer, workgroup))  # of each workgroup and peer the largest id, its own first of all
        row, workgroup, peer, there = row[last], workgroup[last], peer[last], there[last]
        largest = (np.diff(workgroup, append=NOWHERE) != 0) | (np.diff(peer, append=NOWHERE - 1) != 0)
        row, workgroup, peer, there = row[largest], workgroup[largest], peer[largest], there[largest]
        starts = np.diff(workgroup, append=NOWHERE) != 0
        keep = starts | (peer != NO_DEVICE)  # its own tiles have been asked for
        row, workgroup, peer, there, starts = (one[keep] for one in (row, workgroup, peer, there, starts))
        arrive, goes = np.zeros_like(own), peer != NO_DEVICE
        order = np.argsort(np.concatenate([rows.slice_index[own], rows.slice_index[row]]), kind="stable")

        def joined(of_tiles: np.ndarray, of_workgroups: np.ndarray) -> np.ndarray:
            return np.concatenate([of_tiles, of_workgroups]).astype(np.int64)[order]
        return Requests(joined(own, row), joined(rows.id[own], np.where(goes, there, rows.id[row])),
                        joined(arrive + 1, 0 * row), joined(arrive, np.where(goes, there, 0)),
                        joined(arrive + NO_DEVICE, peer), joined(arrive, goes), joined(arrive, starts))

    def _first_id(self, route: TileRoute, slice_index: int) -> int:
        return int(self.first_ids(route.device)[slice_index, route.role])

    def id_offset(self, share: Share, route: TileRoute) -> int:
        """Compute what to add to the id that a share's stores name (`named`) for that of the same tile on a route."""
        own = share.first_id
        if own == NO_ID:
            own = self._first_id(share.role.routes[0], share.slice_index)
        return self._first_id(route, share.slice_index) - own

    def slack_of(self, device: int) -> int:
        """Compute by how many ids what a device touches early may be ahead of what it touches late.

        Over all tiles x and y of which y comes no later than x: the largest id that y has anywhere minus the smallest
        of x. Ring: the tiles of the chunk with which the next device begins.
        """
        lengths = self._own_lengths(device).ravel()
        own = self.first_ids(device).ravel()
        touched = [own]
        for number in range(max(len(role.routes) for role in self.roles[device])):
            touched.append(np.full(own.shape, NO_ID))
            for index, role in enumerate(self.roles[device]):
                if number < len(role.routes):
                    to, there = role.routes[number]
                    touched[-1][index::len(self.roles[device])] = self.first_ids(to)[:, there]
        ids = np.stack(touched)
        smallest, largest = np.where(ids == NO_ID, _FAR, ids).min(axis=0), ids.max(axis=0)
        touches = largest != NO_ID
        if self.policy.shuffle is not None:  # tile by tile
            rows = np.repeat(np.arange(len(lengths)), lengths)
            place = np.arange(len(rows)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
            order = self.order(device)[touches[rows][self.order(device)]]
            smallest, largest = (smallest[rows] + place)[order], (largest[rows] + place)[order]
            return int((np.maximum.accumulate(largest) - smallest).max(initial=0))
        touches &= lengths > 0
        smallest, largest, lengths = smallest[touches], largest[touches], lengths[touches]
        ahead = np.maximum.accumulate(largest + lengths - 1)[:-1] - smallest[1:]
        return int(max((largest - smallest).max(initial=0), ahead.max(initial=0)))

    @cached_property
    def slack(self) -> int:
        """Compute the slack of the device that has the largest."""
        return max(map(self.slack_of, range(self.devices)))

    def is_causal(self) -> bool:
        """Say whether everything that is tracked and goes on has a smaller id than the tile that it becomes part of.

        Empty chunks use no ids, so that with some of them the two may be equal.
        """
        return all(self._first_id(route, share.slice_index) > share.first_id
                   for device in range(self.devices) for share in self.shares(device)
                   if share.role.tracked and share.tiles for route in share.role.routes)

    def is_live(self, window: int) -> bool:
        """Say whether devices with windows of this many ids never wait for each other in a circle.

        It is causal, or so small that no request ever waits: all ids that any names are inside the first window.
        """
        ahead = self.slack if self.policy.limits is Limits.SHIFT else 0
        return self.is_causal() or max(self.rows(device).ids for device in range(self.devices)) + ahead <= window

    def peers(self, device: int) -> tuple[int, ...]:
        """List the devices that a device sends to."""
        return tuple(sorted({route.device for role in self.roles[device] for route in role.routes}))

    def waits_for(self, device: int) -> int:
        """Count peers of which each of a device's tiles that DMA sends goes to at least one.

        What waits for an engine is open in their windows. The peer with the most tiles first, so it may be one more
        than need be.
        """
        waiting = [{route.device for route in role.routes} for role in self.roles[device]
                   if Action.SEND_DMA in role.actions]
        count = 0
        while waiting:
            most = Counter(chain.from_iterable(waiting)).most_common(1)[0][0]
            waiting, count = [peers for peers in waiting if most not in peers], count + 1
        return count

    def feeders(self, device: int) -> tuple[int, ...]:
        """List the devices from which a device receives."""
        return tuple(sorted({route.device for role in self.roles[device] for route in role.fed_by}))

    def is_symmetric(self) -> bool:
        """Say whether one device can stand for all: nothing changes if every rank is renamed to the next one.

        No transfer goes through another GPU, whose links it would load; at a switch the links of all are alike at any
        time. Chunks of a ragged output differ by some tiles all the same; a mirrored run neglects that, as long as none
        is empty.
        """
        return (self.policy.shuffle is None and self.placement is None and bool(self._lengths.all())
                and not isinstance(self.tiling, UnevenTiling)
                and self.program.invariant_under_shift()
                and self.topology.invariant_under_shift()
                and all(onward >= self.topology.gpus for transfer in self.program.transfers
                        for _, onward in self.topology.way(transfer.source, transfer.destination)[:-1]))

    def wf_tiles(self, device: int, action: Action) -> int:
        """Count a device's wavefront tiles of which this becomes."""
        rows = self.rows(device)
        return int(self.tiling.wf_tiles[rows.tile[rows.actions & action != 0]].sum())

    def tracked_wf_tiles(self, device: int) -> int:
        """Count the wavefront tiles that a device's Tracker completes."""
        rows = self.rows(device)
        return int(self.tiling.wf_tiles[rows.tile[rows.updates > 0]].sum())

