"""Track & Trigger: a schedule as register writes and as the compute units' work, device by device."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from t3sim.rtl.geometry import Geometry

from ..cosim.ports import Field
from ..driver.driver import Driver, Write
from ..operators.kernel_table import KernelTable, Route
from ..schedule import Action, Schedule, ScheduleError
from ..schedule.regions import Region, RegionTable, arrival_region, plan_regions

_OUTPUT = 0  #: range that is open to peers: a device's output


@dataclass(frozen=True)
class AddressSpace:
    """One device's output and its neighbour's: where they are, and the regions of this one."""

    schedule: Schedule
    device: int
    peer: int  #: device that this one sends to
    base: int  #: first byte of this device's output
    peer_base: int
    table: RegionTable

    @property
    def regions(self) -> tuple[Region, ...]:
        return self.table.regions

    def program(self, driver: Driver) -> list[Write]:
        """List the `remote_map` and `dma_map` calls of the T3 paper's figure 12, for all regions."""
        tiling, writes = self.schedule.tiling, []
        limit = self.base + tiling.output_bytes
        writes += driver.open_memory(_OUTPUT, base=self.base, limit=limit) + driver.plain_arrivals(())
        received = set(self.table.arrivals.ravel().tolist())
        for number, region in enumerate(self.regions, start=1):
            if Action.EVENT in region.actions:
                writes += driver.event_map(
                    number, base=self.base, limit=limit, tile_bytes=region.rows * region.columns * tiling.element_bytes,
                    updates_per_element=region.updates, arrivals=[_OUTPUT] if number in received else [],
                    arrival_region=self.arrives_under(region))
                continue
            to = {"base": self.base, "limit": limit, "device": self.peer,
                  "destination_region": self.destination(region),
                  "address_offset": self.peer_base - self.base, "wg_offset": region.id_offset}
            if Action.SEND_STORES in region.actions:
                writes += driver.remote_map(number, **to)
            else:
                writes += driver.dma_map(
                    number, **to, row_bytes=region.rows * tiling.element_bytes,
                    columns=region.columns * region.tiles_per_block, pitch_bytes=tiling.pitch_bytes,
                    updates_per_element=region.updates, tiles_per_block=region.tiles_per_block,
                    arrival_region=self.arrives_under(region))
        return writes

    def arrives_under(self, region: Region) -> int:
        """Number of the region under which what peers add to a region's tiles arrives; its own if they add nothing."""
        arrival = arrival_region(region.rows, region.columns, region.updates)
        return self.table.number(arrival if arrival in self.regions else region)

    def destination(self, region: Region) -> int:
        """Number of the peer's region under which what leaves a region arrives."""
        (updates,) = {role.updates for role in self.schedule.roles[self.peer] if role.fed_by}
        return self.table.number(arrival_region(region.rows, region.columns, updates))


def map_output(schedule: Schedule, device: int, bases: Sequence[int], geometry: Geometry,
               tiles_per_block: int) -> AddressSpace:
    """Plan a device's address space; `bases`: of every device's output, in bytes.

    Raises ScheduleError for what this hardware cannot do.
    """
    for share in schedule.shares(device):
        role = share.role
        if Action.EVENT in role.actions and role.routes:
            raise ScheduleError(f"device {device}: chunk {role.chunk} is announced and goes on: this hardware does one")
        if not role.contributes:
            raise ScheduleError(f"device {device}: chunk {role.chunk} arrives without a workgroup of its own: this "
                                "hardware opens no tile for it")
        if role.updates and role.actions & (Action.EVENT | Action.SEND_DMA) == 0:
            raise ScheduleError(f"device {device}: chunk {role.chunk} is tracked for nothing")
    if len({role.updates for roles in schedule.roles for role in roles if role.fed_by}) > 1:
        raise ScheduleError("arrivals complete tiles of different numbers of updates: a sender cannot name the region")
    needed, ids = int(schedule.rows(device).id.max()) + 1, 1 << geometry.tracker.wg_bits
    if needed > ids:
        raise ScheduleError(f"device {device}: {needed} ids are needed: [tracker] wg_bits={geometry.tracker.wg_bits} "
                            f"has {ids}")
    if not schedule.is_causal():
        raise ScheduleError("a tile goes on under an id that is not larger than its own: GPUs could wait in a circle")
    peer = schedule.peer(device)
    table = plan_regions(schedule, device, tiles_per_block, geometry.dma.regions)
    return AddressSpace(schedule, device, peer, bases[device], bases[peer], table)


def fused_work(work: KernelTable, space: AddressSpace) -> KernelTable:
    """Let a device's compute units store as its schedule says: in the order of its tiles, each where its region says.

    `work`: of the operator, a group per tile in the order of tiles, its output at byte 0.
    """
    rows, tiling = space.schedule.rows(space.device), space.schedule.tiling
    named = space.schedule.requests(space.device).id
    row_of = np.zeros(tiling.tiles, np.int64)
    row_of[rows.tile] = np.arange(len(rows.tile))
    groups, stores = work.groups[rows.tile], work.stores.copy()
    groups["id"] = named
    groups["tiles"] = np.where(rows.updates, tiling.wf_tiles[rows.tile], 0)
    row = row_of[work.group_of_stores]
    stores["base"] += space.base
    stores["id"] = named[row]
    stores["region"] = space.table.own[row, (stores["rows"] < tiling.wf_columns).astype(int)]
    stores["route"] = np.where(rows.actions[row] & Action.SEND_STORES, Route.MAPPED, Route.MEMORY)
    stores["updates"] = True
    return replace(work, groups=groups, stores=stores)


def dispatch_requests(spaces: Sequence[AddressSpace], fields: Mapping[str, Field]) -> np.ndarray:
    """Pack what each device asks its dispatch window for: int64[device, request], payloads of the RTL's `dispatch`
    with these `fields`."""
    packed = []
    for space in spaces:
        rows, requests = space.schedule.rows(space.device), space.schedule.requests(space.device)
        tiles = np.where(rows.updates, space.schedule.tiling.wf_tiles[rows.tile], 0)
        region, narrow = space.table.own.T
        columns = {"tiles": tiles, "peer": np.zeros_like(tiles), "region": region,
                   "last_region": np.where(narrow, narrow, region)} | requests._asdict()
        packed.append(sum(columns[name] << field.lsb for name, field in fields.items()))
    return np.ascontiguousarray(np.stack(packed).astype(np.int64))
