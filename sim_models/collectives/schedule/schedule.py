"""The schedule joins roles and tiles: ids, routes from id to id, and the slack between GPUs."""

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
NO_GPU = -1
_FAR = np.iinfo(np.int64).max


class Share(NamedTuple):
    """A GPU's part in one slice of a chunk: consecutive tiles with the same treatment."""

    role: Role
    number: int  #: of the role, among the GPU's
    slice_index: int
    tiles: range
    first_id: int  #: of the first tile, the others follow; NO_ID: none


class Rows(NamedTuple):
    """A GPU's tiles in its order of execution, int64[row] each."""

    tile: np.ndarray
    id: np.ndarray  # NO_ID: none
    share: np.ndarray  # index of `Schedule.shares`
    level: np.ndarray
    slice_index: np.ndarray
    contributes: np.ndarray  # bool: a workgroup of this GPU computes a part of it
    updates: np.ndarray
    actions: np.ndarray
    to_gpu: np.ndarray  # int64 [row, route]; NO_GPU: none
    to_id: np.ndarray  # int64 [row, route], id there; NO_ID: none

    @property
    def ids(self) -> int:
        """One more than the largest id."""
        return int(self.id.max(initial=NO_ID)) + 1


class Requests(NamedTuple):
    """Requests of a GPU to its dispatch window, int64[request] each (rtl/order.py).

    A row of `Rows` has a request for each route but the first, and then a request that starts its workgroup. With a
    placement, a tile that only arrives has one request, and a workgroup has one per peer, with its last tile there.
    """

    row: np.ndarray
    id: np.ndarray  # that its stores name: its own, else its id at the destination; 0: neither
    opens: np.ndarray
    there: np.ndarray  # id at the destination
    to_gpu: np.ndarray  # NO_GPU: none
    reaches: np.ndarray
    starts: np.ndarray


@dataclass(frozen=True)
class Schedule:
    """A collective over the tiles of an operator's output, GPU by GPU.

    Windows of ids work because of two rules (docs/why/five-questions.md, question 2): a tile that is sent on has a
    smaller id than the tile that it becomes part of (`is_causal`), and no id that a GPU uses exceeds an id that it uses
    later by more than `slack`. `tiling` is of the whole output; a slice of a chunk is a range of its tiles.
    """

    tiling: Tiling
    program: Program
    topology: Topology
    policy: ScheduleOptions = ScheduleOptions()  #: of the schedule; arbitration policies are `t3sim.rtl.arbiter.Policy`
    placement: Placement | None = None  #: of workgroups' columns on the output's tiles, if workgroups have other tiles

    def __post_init__(self) -> None:
        if self.program.ranks != self.topology.gpus:
            raise ScheduleError(f"{self.program.ranks} ranks do not fit {self.topology.gpus} GPUs of topology "
                                f"{self.topology.name!r}")
        self._check_ways()
        if self.policy.limits is Limits.SHIFT and not self._in_order_of_ids:
            raise ScheduleError("one shift for all tiles needs ids in the order of dispatch: limits must be exact")

    def _check_ways(self) -> None:
        """Refuse transfers without a route, and routes on which full buffers could block each other in a cycle."""
        waits_for: dict[tuple[int, int], set[tuple[int, int]]] = defaultdict(set)
        pairs = {(transfer.source, transfer.destination): transfer for transfer in reversed(self.program.transfers)}
        for transfer in pairs.values():
            try:
                way = self.topology.way(transfer.source, transfer.destination)
            except TopologyError:
                raise ScheduleError(f"{transfer}: topology {self.topology.name!r} has no route for it") from None
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
    def gpus(self) -> int:
        return self.program.ranks

    @cached_property
    def roles(self) -> tuple[tuple[Role, ...], ...]:
        """Each GPU's roles, in its order of execution."""
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
        """Elements of the largest chunk in any slice."""
        elements = np.append(0, np.cumsum(self.tiling.rows * self.tiling.columns))
        return int(np.diff(elements[self._edges]).max())

    def _own_lengths(self, gpu: int) -> np.ndarray:
        return self._lengths[:, [role.chunk for role in self.roles[gpu]]]

    def first_ids(self, gpu: int) -> np.ndarray:
        """Return the id of the first tile of each of a GPU's roles, int64[slice, role]; NO_ID: none."""
        if gpu not in self._known_ids:
            lengths = self._own_lengths(gpu)
            numbered = np.array([self.policy.ids is Ids.TOUCHED or role.tracked for role in self.roles[gpu]])
            numbered_lengths = np.where(numbered, lengths, 0).ravel()
            first = (np.cumsum(numbered_lengths) - numbered_lengths).reshape(lengths.shape)
            self._known_ids[gpu] = np.where(numbered, first, NO_ID)
        return self._known_ids[gpu]

    @cached_property
    def _known_ids(self) -> dict[int, np.ndarray]:
        return {}

    def shares(self, gpu: int) -> Iterator[Share]:
        """Yield a GPU's shares, in its order of execution."""
        first = self.first_ids(gpu)
        for slice_index in range(self.policy.slices):
            for number, role in enumerate(self.roles[gpu]):
                yield Share(role, number, slice_index, self.chunk(slice_index, role.chunk),
                            int(first[slice_index, number]))

    def rows(self, gpu: int) -> Rows:
        """Return a GPU's tiles in its order of execution."""
        shares = list(self.shares(gpu))
        lengths = [len(share.tiles) for share in shares]
        index = np.repeat(np.arange(len(shares)), lengths)
        index_in_share = np.arange(len(index)) - np.repeat(np.cumsum(lengths) - lengths, lengths)

        def by_tile(values, dtype=np.int64) -> np.ndarray:
            return np.array(values, dtype)[index]

        def ids(first: list[int]) -> np.ndarray:
            return np.where(by_tile(first) == NO_ID, NO_ID, by_tile(first) + index_in_share)
        most_routes = max(1, *(len(role.routes) for role in self.roles[gpu]))
        routes = [[share.role.routes[number] if number < len(share.role.routes) else None for share in shares]
                  for number in range(most_routes)]
        rows = Rows(
            tile=by_tile([share.tiles.start for share in shares]) + index_in_share,
            id=ids([share.first_id for share in shares]), share=index,
            level=by_tile([share.role.level for share in shares]),
            slice_index=by_tile([share.slice_index for share in shares]),
            contributes=by_tile([share.role.contributes for share in shares], bool),
            updates=by_tile([share.role.updates for share in shares]),
            actions=by_tile([int(share.role.actions) for share in shares]),
            to_gpu=np.stack([by_tile([route.gpu if route else NO_GPU for route in number])
                             for number in routes], axis=1),
            to_id=np.stack([ids([self._first_id(route, share.slice_index) if route else NO_ID
                                 for share, route in zip(shares, number)]) for number in routes], axis=1))
        return rows if self.policy.shuffle is None else Rows(*(column[self.order(gpu)] for column in rows))

    def order(self, gpu: int) -> np.ndarray:
        """Return the order in which a GPU dispatches its tiles, which are numbered along `shares`: int64[row]."""
        tiles = int(self._own_lengths(gpu).sum())
        return np.arange(tiles) if self.policy.shuffle is None else self.policy.shuffle.order(tiles, gpu)

    def requests(self, gpu: int) -> Requests:
        """Return a GPU's requests to its dispatch window, tile by tile."""
        if self.placement is not None:
            return self._placed_requests(self.placement, gpu)
        rows = self.rows(gpu)
        has_request = rows.to_id != NO_ID
        has_request[:, 0] |= (rows.id != NO_ID) | (not self.policy.present)  # with or without a route; the last request
        row, route = np.nonzero(has_request[:, ::-1])
        route = has_request.shape[1] - 1 - route
        peer_ids, to_gpu = rows.to_id[row, route], rows.to_gpu[row, route]
        opens, routed = (route == 0) & (rows.id[row] != NO_ID), peer_ids != NO_ID
        starts = (route == 0) & rows.contributes[row] & (self.tiling.wf_tiles[rows.tile[row]] > 0)
        if self.policy.limits is Limits.SHIFT:  # one peer, so one route
            peer_ids, reaches = rows.id + self.slack_of(gpu), np.ones_like(routed)
        else:
            peer_ids, reaches = np.where(routed, peer_ids, 0), routed
        return Requests(row, np.where(opens, rows.id[row], np.where(routed, peer_ids, 0)), opens.astype(np.int64),
                        peer_ids, to_gpu, reaches.astype(np.int64), starts.astype(np.int64))

    def named(self, gpu: int) -> np.ndarray:
        """Return the id in a tile's stores, int64[row]: its own, else its id on the first route."""
        rows = self.rows(gpu)
        return np.where(rows.id != NO_ID, rows.id, np.maximum(rows.to_id[:, 0], 0))

    def rows_touched(self, gpu: int) -> np.ndarray:
        """With a placement, return the row of each column of a GPU's workgroups; NOWHERE: none.

        int64[workgroup, column of a tile].
        """
        placement, tiling = self.placement, self.tiling
        assert placement is not None
        columns, _ = placement.columns_of_workgroups(gpu)
        row_of = np.zeros(tiling.tiles, np.int64)
        row_of[self.rows(gpu).tile] = np.arange(tiling.tiles)
        first_row = placement.tilings[gpu].first_row[placement.workgroups(gpu)]
        return np.where(columns == NOWHERE, NOWHERE, row_of[tiling.at(first_row[:, None], np.maximum(columns, 0))])

    def _placed_requests(self, placement: Placement, gpu: int) -> Requests:
        """Request a slice's arriving tiles, then the slice's workgroups at every peer to which they send.

        A slice's tiles have larger ids than the slice before it, here and at any peer, and a workgroup's columns are of
        one slice.
        """
        rows, touched_rows = self.rows(gpu), self.rows_touched(gpu)
        arriving_rows = np.flatnonzero(rows.id != NO_ID)
        workgroup, column = np.nonzero(touched_rows != NOWHERE)
        row = touched_rows[workgroup, column]
        peer, peer_id = rows.to_gpu[row, 0], rows.to_id[row, 0]
        by_peer = np.lexsort((peer_id, peer, workgroup))  # a workgroup's own tiles come first
        row, workgroup, peer, peer_id = row[by_peer], workgroup[by_peer], peer[by_peer], peer_id[by_peer]
        largest = (np.diff(workgroup, append=NOWHERE) != 0) | (np.diff(peer, append=NOWHERE - 1) != 0)
        row, workgroup, peer, peer_id = row[largest], workgroup[largest], peer[largest], peer_id[largest]
        starts = np.diff(workgroup, append=NOWHERE) != 0
        needed = starts | (peer != NO_GPU)  # its own tiles already have requests
        row, workgroup, peer, peer_id, starts = (one[needed] for one in (row, workgroup, peer, peer_id, starts))
        zeros, remote = np.zeros_like(arriving_rows), peer != NO_GPU
        order = np.argsort(np.concatenate([rows.slice_index[arriving_rows], rows.slice_index[row]]), kind="stable")

        def joined(of_tiles: np.ndarray, of_workgroups: np.ndarray) -> np.ndarray:
            return np.concatenate([of_tiles, of_workgroups]).astype(np.int64)[order]
        return Requests(joined(arriving_rows, row),
                        joined(rows.id[arriving_rows], np.where(remote, peer_id, rows.id[row])),
                        joined(zeros + 1, 0 * row), joined(zeros, np.where(remote, peer_id, 0)),
                        joined(zeros + NO_GPU, peer), joined(zeros, remote), joined(zeros, starts))

    def _first_id(self, route: TileRoute, slice_index: int) -> int:
        return int(self.first_ids(route.gpu)[slice_index, route.role])

    def id_offset(self, share: Share, route: TileRoute) -> int:
        """Return the id of a share's tile on a route minus the id that its stores name (`named`)."""
        first_id = share.first_id
        if first_id == NO_ID:
            first_id = self._first_id(share.role.routes[0], share.slice_index)
        return self._first_id(route, share.slice_index) - first_id

    def slack_of(self, gpu: int) -> int:
        """Return by how many ids a GPU's early tiles may be ahead of its late ones.

        That is the maximum, over all tiles x and y where y comes no later than x, of the largest id of y anywhere minus
        the smallest id of x. Ring: the tiles of the next GPU's first chunk.
        """
        lengths = self._own_lengths(gpu).ravel()
        first_ids = self.first_ids(gpu).ravel()
        ids_by_route = [first_ids]
        for number in range(max(len(role.routes) for role in self.roles[gpu])):
            ids_by_route.append(np.full(first_ids.shape, NO_ID))
            for index, role in enumerate(self.roles[gpu]):
                if number < len(role.routes):
                    peer, peer_role = role.routes[number]
                    ids_by_route[-1][index::len(self.roles[gpu])] = self.first_ids(peer)[:, peer_role]
        ids = np.stack(ids_by_route)
        smallest, largest = np.where(ids == NO_ID, _FAR, ids).min(axis=0), ids.max(axis=0)
        has_ids = largest != NO_ID
        if self.policy.shuffle is not None:  # tile by tile
            rows = np.repeat(np.arange(len(lengths)), lengths)
            index_in_share = np.arange(len(rows)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
            order = self.order(gpu)[has_ids[rows][self.order(gpu)]]
            smallest, largest = (smallest[rows] + index_in_share)[order], (largest[rows] + index_in_share)[order]
            return int((np.maximum.accumulate(largest) - smallest).max(initial=0))
        has_ids &= lengths > 0
        smallest, largest, lengths = smallest[has_ids], largest[has_ids], lengths[has_ids]
        ahead = np.maximum.accumulate(largest + lengths - 1)[:-1] - smallest[1:]
        return int(max((largest - smallest).max(initial=0), ahead.max(initial=0)))

    @cached_property
    def slack(self) -> int:
        """The largest slack of all GPUs."""
        return max(map(self.slack_of, range(self.gpus)))

    def is_causal(self) -> bool:
        """Say whether every tracked tile that is sent on has a smaller id than the tile that it becomes part of.

        Empty chunks use no ids and can make the two ids equal.
        """
        return all(self._first_id(route, share.slice_index) > share.first_id
                   for gpu in range(self.gpus) for share in self.shares(gpu)
                   if share.role.tracked and share.tiles for route in share.role.routes)

    def is_live(self, window: int) -> bool:
        """Say whether GPUs with windows of this many ids never wait for each other in a cycle.

        This holds if the schedule is causal, or so small that all ids fit into the first window and no request waits.
        """
        ahead = self.slack if self.policy.limits is Limits.SHIFT else 0
        return self.is_causal() or max(self.rows(gpu).ids for gpu in range(self.gpus)) + ahead <= window

    def peers(self, gpu: int) -> tuple[int, ...]:
        """Return the GPUs to which a GPU sends."""
        return tuple(sorted({route.gpu for role in self.roles[gpu] for route in role.routes}))

    def waits_for(self, gpu: int) -> int:
        """Return how many peers suffice for each tile that DMA sends to go to at least one of them.

        Tiles that wait for an engine are open in these peers' windows. The greedy choice may exceed the minimum by 1.
        """
        uncovered = [{route.gpu for route in role.routes} for role in self.roles[gpu]
                     if Action.SEND_DMA in role.actions]
        count = 0
        while uncovered:
            most = Counter(chain.from_iterable(uncovered)).most_common(1)[0][0]
            uncovered, count = [peers for peers in uncovered if most not in peers], count + 1
        return count

    def feeders(self, gpu: int) -> tuple[int, ...]:
        """Return the GPUs from which a GPU receives."""
        return tuple(sorted({route.gpu for role in self.roles[gpu] for route in role.fed_by}))

    def is_symmetric(self) -> bool:
        """Say whether one GPU can represent all: a shift of all ranks changes nothing.

        No transfer may pass through another GPU and load its links; a switch's links are all alike at any time. Chunks
        of a ragged output still differ by some tiles, which a mirrored run neglects if none is empty.
        """
        return (self.policy.shuffle is None and self.placement is None and bool(self._lengths.all())
                and not isinstance(self.tiling, UnevenTiling)
                and self.program.invariant_under_shift()
                and self.topology.invariant_under_shift()
                and all(onward >= self.topology.gpus for transfer in self.program.transfers
                        for _, onward in self.topology.way(transfer.source, transfer.destination)[:-1]))

    def wf_tiles(self, gpu: int, action: Action) -> int:
        """Count a GPU's wavefront tiles with this action."""
        rows = self.rows(gpu)
        return int(self.tiling.wf_tiles[rows.tile[rows.actions & action != 0]].sum())

    def tracked_wf_tiles(self, gpu: int) -> int:
        """Count the wavefront tiles that a GPU's Tracker completes."""
        rows = self.rows(gpu)
        return int(self.tiling.wf_tiles[rows.tile[rows.updates > 0]].sum())

