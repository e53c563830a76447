"""Track & Trigger: a schedule as register writes and as the compute units' work, device by device."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from t3sim.base.line import LINE_BYTES
from t3sim.collectives.schedule import Action, Limits, Schedule, ScheduleError
from t3sim.collectives.schedule.placement import NOWHERE
from t3sim.collectives.schedule.regions import Region, RegionDestination, RegionTable, plan_regions
from t3sim.collectives.schedule.schedule import NO_GPU
from t3sim.collectives.schedule.sums import more_bits
from t3sim.cosim.driver.driver import Destination, Driver, MemorySum, Write
from t3sim.gpu.setup import CopyTarget
from t3sim.rtl.geometry import Geometry
from t3sim.rtlsim.port_map import Field
from t3sim.workload.operators.kernel_table import STORE, KernelError, KernelTable, Route, rows_of
from t3sim.workload.operators.operator import output_stores
from t3sim.workload.operators.tiling import Tiling

_OUTPUT = 0  #: range that is open to peers: a device's output
_WORD_BITS = 63  #: of a request, as the models keep it


@dataclass(frozen=True)
class AddressSpace:
    """One device's output and those of its peers: where they are, and the regions of this one."""

    schedule: Schedule
    device: int
    peers: tuple[int, ...]  #: devices that this one sends to, as its dispatch window numbers them
    feeders: tuple[int, ...]  #: devices that send to it, which need to know its window
    bases: tuple[int, ...]  #: first byte of every device's output
    table: RegionTable
    memory_sum: MemorySum | None = None  #: of what arrives under any region; None: plain

    @property
    def base(self) -> int:
        """First byte of this device's output."""
        return self.bases[self.device]

    @property
    def regions(self) -> tuple[Region, ...]:
        return self.table.regions

    @cached_property
    def groups(self) -> tuple[tuple[RegionDestination, ...], ...]:
        """Destinations of tiles that a switch copies; their numbers, as devices, follow those of the devices."""
        if not self.schedule.program.in_switch:
            return ()
        return tuple(dict.fromkeys(region.destinations for region in self.regions if len(region.destinations) > 1))

    def program(self, driver: Driver) -> list[Write]:
        """List the `remote_map` and `dma_map` calls of the T3 paper's figure 12, for all regions."""
        limit = self.base + self.schedule.tiling.output_bytes
        writes = driver.open_memory(_OUTPUT, base=self.base, limit=limit) + driver.plain_arrivals(())
        writes += driver.heads(self.device, sends_to=self.peers, receives_from=self.feeders)
        driver.memory_sums(self.sums)
        for number, region in enumerate(self.regions, start=1):
            writes += self.map_region(driver, number, region)
        return writes

    @property
    def sums(self) -> dict[int, MemorySum]:
        """Each region's sum, by its number."""
        return dict.fromkeys(range(1, len(self.regions) + 1), self.memory_sum) if self.memory_sum else {}

    def map_region(self, driver: Driver, number: int, region: Region) -> list[Write]:
        """Map one region with its settings under its number."""
        tiling, limit = self.schedule.tiling, self.base + self.schedule.tiling.output_bytes
        tracked = {"updates_per_element": region.updates, "admitted": region.admitted,
                   "arrival_region": self.arrives_under(region)}
        if not region.destinations:
            return driver.event_map(
                number, base=self.base, limit=limit, tile_bytes=region.rows * region.columns * tiling.element_bytes,
                arrivals=[_OUTPUT] if number in self.table.arrivals else [], **tracked)
        to = {"base": self.base, "limit": limit, "to": self._leaves_for(region)}
        if Action.SEND_STORES in region.actions:
            return driver.remote_map(number, **to)
        return driver.dma_map(
            number, **to, **tracked, row_bytes=region.rows * tiling.element_bytes,
            columns=region.columns * region.tiles_per_block, pitch_bytes=tiling.pitch_bytes,
            tiles_per_block=region.tiles_per_block, event=Action.EVENT in region.actions,
            counted_bytes=self.first_line_bytes(region.rows) if region.present else None)

    def _leaves_for(self, region: Region) -> list[Destination]:
        """List a region's destinations; a group is one, with the address and id at its first GPU."""
        to = [self._destination(one) for one in region.destinations]
        if region.destinations not in self.groups:
            return to
        return [to[0]._replace(device=self.schedule.gpus + self.groups.index(region.destinations))]

    def group_offsets(self, group: Sequence[RegionDestination]) -> tuple[CopyTarget, ...]:
        """Return the offsets that the switch adds to address and id of a packet for a group's first GPU."""
        first = self._destination(group[0])
        return tuple(CopyTarget(one.device, one.address_offset - first.address_offset, one.wg_offset - first.wg_offset)
                     for one in map(self._destination, group))

    def _destination(self, to: RegionDestination) -> Destination:
        return Destination(to.gpu, self.table.number(to.region), "store" if to.region.copied else "update",
                           self.bases[to.gpu] - self.base, to.id_offset)

    def first_line_bytes(self, rows: int) -> int:
        """Bytes of the first line of a tile of this many rows."""
        return min(LINE_BYTES, rows * self.schedule.tiling.element_bytes)

    def arrives_under(self, region: Region) -> int:
        """Return the region of packets that peers add to a region's tiles; its own number if they add nothing."""
        arrival = region.arrival
        return self.table.number(arrival if arrival in self.regions else region)


def map_output(schedule: Schedule, device: int, bases: Sequence[int], geometry: Geometry,
               tiles_per_block: int, memory_sum: MemorySum | None = None) -> AddressSpace:
    """Plan a device's address space; `bases`: of every device's output, in bytes.

    Raises ScheduleError, and DriverError, for what this hardware cannot do.
    """
    for share in schedule.shares(device):
        role = share.role
        if len(role.routes) > geometry.dma.copies and not schedule.program.in_switch:
            raise ScheduleError(f"GPU {device}: chunk {role.chunk} goes to {len(role.routes)} others: [dma] "
                                f"copies={geometry.dma.copies} sends a tile to as many")
        if role.updates and role.actions & (Action.EVENT | Action.SEND_DMA) == 0:
            raise ScheduleError(f"GPU {device}: chunk {role.chunk} is tracked for nothing")
    counted_bits, needed = geometry.channel.more_bits, more_bits(schedule.gpus)
    if schedule.program.in_switch and schedule.program.adds and counted_bits < needed:
        raise ScheduleError(f"packets have up to {schedule.gpus - 1} parts of a sum: [channels] "
                            f"more_bits={counted_bits} counts {1 << counted_bits}")
    needed, ids = schedule.rows(device).ids, 1 << geometry.tracker.wg_bits
    if needed > ids:
        raise ScheduleError(f"GPU {device}: {needed} ids are needed: [tracker] wg_bits={geometry.tracker.wg_bits} "
                            f"has {ids}")
    window = Driver(geometry).largest_window(min(geometry.tracker.ways, schedule.tiling.wavefronts),
                                             schedule.waits_for(device))
    if not schedule.is_live(window):
        raise ScheduleError("a tile goes on under an id that is not larger than its own: GPUs could wait in a circle")
    if (slack := schedule.slack_of(device)) >= window:
        raise ScheduleError(f"GPU {device}: tiles that it touches early are up to {slack} ids ahead of those that "
                            f"it touches late: a dispatch window of more than {window} is needed")
    peers, feeders = schedule.peers(device), schedule.feeders(device)
    for way, others in (("sends to", peers), ("receives from", feeders)):
        if len(others) > geometry.dma.peers:
            raise ScheduleError(f"GPU {device} {way} {len(others)} others ({', '.join(map(str, others))}): [dma] "
                                f"peers={geometry.dma.peers} has the heads of this many")
    if len(peers) > 1 and schedule.policy.limits is Limits.SHIFT:
        raise ScheduleError(f"GPU {device} sends to {len(peers)} others: one shift cannot hold for all of them: "
                            "limits must be exact")
    table = plan_regions(schedule, device, tiles_per_block, geometry.dma.regions)
    sending_regions = [region for region in table.regions if region.destinations]
    blocks = {(region.rows, region.columns, region.tiles_per_block) for region in sending_regions
              if Action.SEND_DMA in region.actions}
    routes = {region.destinations for region in sending_regions}  # regions that go to the same ones share theirs
    entries = len(routes) if schedule.program.in_switch else sum(map(len, routes))
    for key, needed, counted_bits in (("block_shapes", len(blocks), geometry.dma.block_shapes),
                                      ("routes", entries, geometry.dma.routes)):
        if needed > counted_bits:
            raise ScheduleError(f"GPU {device}: {needed} {key} are needed: [dma] {key}={counted_bits} are too few")
    space = AddressSpace(schedule, device, peers, feeders, tuple(bases), table, memory_sum)
    Driver(geometry).memory_sums(space.sums)  # refuse before the work
    return space


def rows_of_workgroups(space: AddressSpace, tiling: Tiling) -> np.ndarray:
    """Return the row of `Schedule.rows` to which each workgroup contributes, int64[tiling.tiles]; -1: none."""
    rows, tracked = space.schedule.rows(space.device), space.schedule.tiling
    row_of = np.full(tracked.tiles, -1)
    contributes = np.flatnonzero(rows.contributes)
    row_of[rows.tile[contributes]] = contributes
    return row_of[tracked.holding(tiling)]


def fused_work(work: KernelTable, space: AddressSpace, tiling: Tiling) -> KernelTable:
    """Let a device's compute units make and store its tiles as its schedule says: in its order, where the regions say.

    `work`: of the operator, a group per part of a tile of `tiling` in the order of tiles, its output at byte 0. The
    schedule's tiles may be of several of them. Raises KernelError if it makes another output.
    """
    rows, tracked = space.schedule.rows(space.device), space.schedule.tiling
    parts = space.schedule.policy.parts
    _check_output(work, tiling, parts)
    tile_ids, of_workgroup = space.schedule.named(space.device), np.repeat(rows_of_workgroups(space, tiling), parts)
    order = np.argsort(of_workgroup, kind="stable")
    order = order[of_workgroup[order] >= 0]
    if not len(order):
        return replace(work, groups=work.groups[:0], steps=work.steps[:0], loads=work.loads[:0], stores=work.stores[:0])
    groups, stores, of_group = work.groups[order], work.stores.copy(), of_workgroup[order]
    groups["id"] = tile_ids[of_group]
    groups["tiles"] = np.where(rows.updates, tracked.wf_tiles[rows.tile], 0)[of_group]
    maker = work.group_of_stores // parts
    tile = tracked.holding(tiling)[maker]
    row = np.maximum(of_workgroup, 0)[work.group_of_stores]  # what no workgroup makes is not stored
    column = tiling.first_column[maker] + stores["wavefront"] * tiling.wf_columns
    stores["wavefront"] = (column - tracked.first_column[tile]) // tracked.wf_columns
    narrow = tracked.wf_widths[tile, stores["wavefront"]] < tracked.wf_columns
    stores["base"] += space.base
    stores["id"] = tile_ids[row]
    stores["region"] = space.table.own_regions[row, narrow.astype(int)]
    is_sent, is_stored = rows.actions[row] & Action.SEND_STORES, rows.actions[row] & Action.STORE
    stores["route"] = np.where(is_sent, np.where(is_stored, Route.BOTH, Route.MAPPED), Route.MEMORY)
    stores["updates"] = (rows.updates[row] > 0) | (is_stored == 0)
    return replace(work, groups=groups, stores=stores)


def _check_output(work: KernelTable, tiling: Tiling, parts: int) -> None:
    """Raise KernelError unless a kernel has a group for each part of each tile, which stores its wavefront tiles."""
    if len(work.groups) != tiling.tiles * parts or (work.groups["workgroups"] != 1).any():
        groups = "a group" if parts == 1 else f"{parts} groups"
        raise KernelError(f"groups: an operator makes each of its {tiling.tiles} tiles by {groups} of one workgroup; "
                          f"here are {len(work.groups)} groups of {int(work.groups['workgroups'].sum())} workgroups")
    expected_stores = output_stores(tiling, 0, parts)
    if len(work.stores) != len(expected_stores):
        raise KernelError(f"stores: the {tiling.tiles} tiles have {len(expected_stores)} wavefront tiles, each stored "
                          f"by a block; here are {len(work.stores)}")
    for column in ("base", "pitch", "rows", "bytes", "wavefront", "part", "step_stride", "workgroup_stride"):
        wrong = np.flatnonzero(work.stores[column] != expected_stores[column])
        if len(wrong):
            raise KernelError(f"stores[{wrong[0]}]: {column}={work.stores[column][wrong[0]]} is not that of the "
                              f"output's wavefront tile there: {expected_stores[column][wrong[0]]}")


def dispatch_requests(spaces: Sequence[AddressSpace], fields: Mapping[str, Field], tiling: Tiling) -> np.ndarray:
    """Pack each device's requests to its dispatch window: int64[device, request]. Raises ScheduleError if too wide.

    They are payloads of the RTL's `dispatch` with these `fields`. `tiling`: of workgroups; the first of several
    workgroups that share a tile opens its id.
    """
    width = max(field.lsb + field.width for field in fields.values())
    if width > _WORD_BITS:
        raise ScheduleError(f"a request for a workgroup has {width} bits: the models take {_WORD_BITS}; fewer "
                            "[tracker] wg_bits or [dma] regions are needed")
    packed = []
    for space in spaces:
        rows, requests = space.schedule.rows(space.device), space.schedule.requests(space.device)
        tiles = np.where(rows.updates, space.schedule.tiling.wf_tiles[rows.tile], 0)
        region, narrow = space.table.own_regions.T
        peer = np.where(requests.to_gpu == NO_GPU, 0, np.searchsorted(space.peers, requests.to_gpu))
        is_opened = requests.opens != 0
        columns = {"tiles": np.where(is_opened, tiles[requests.row], 0), "peer": peer, "region": region[requests.row],
                   "last_region": np.where(narrow, narrow, region)[requests.row]} | requests._asdict()
        if space.schedule.placement is None and not space.schedule.policy.present:
            of_workgroup = rows_of_workgroups(space, tiling)
            makers = np.bincount(of_workgroup[of_workgroup >= 0], minlength=len(rows.tile))[requests.row]
            times = np.where(requests.starts != 0, makers * space.schedule.policy.parts, 1)
            columns = {name: np.repeat(column, times) for name, column in columns.items()}
            columns["opens"] &= np.append(True, np.diff(np.repeat(np.arange(len(times)), times)) != 0)
        packed.append(sum(columns[name] << field.lsb for name, field in fields.items()))
    most = max(map(len, packed))  # what a shorter list ends with touches nothing, and goes by itself
    return np.stack([np.pad(one, (0, most - len(one))) for one in packed]).astype(np.int64)


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
        bytes=tiling.rows[tile] * tiling.element_bytes, id=schedule.named(device)[row],
        region=space.table.own_regions[row, 0], wavefront=inside // tiling.wf_columns,
        route=np.where(is_sent, Route.MAPPED, Route.MEMORY),
        updates=schedule.policy.parts > 1, part=parts[is_used])
    steps = work.steps.copy()
    last = work.groups["first_step"] + work.groups["steps"] - 1
    steps["first_store"], steps["stores"] = 0, 0
    steps["first_store"][last], steps["stores"][last] = np.cumsum(counts) - counts, counts
    return replace(work, steps=steps, stores=stores)
