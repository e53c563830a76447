"""How a fused GEMM's output is mapped: regions, and the driver calls that program one device.

A region is one kind of treatment (remote, DMA, event) of one shape of wavefront tile with one workgroup offset. All
arrivals from the ring are tracked under the receiver's event region of their shape; the receiver's own store then
gives the tile its region, so a sender need not know its neighbour's map (rtl/tracker.py).
"""

from dataclasses import dataclass, field

from rtl.geometry import Geometry

from .driver import Driver, DriverError, Write
from .tiling import DMA, EVENT, REMOTE, STAGED, Tiling

UPDATES_PER_ELEMENT = 2  #: ring reduce-scatter: the local and the arriving one (T3 paper, section 4.2.1)


@dataclass(frozen=True)
class Region:
    kind: int
    rows: int
    columns: int  #: of one wavefront tile
    wg_offset: int = 0
    tiles_per_block: int = 1


@dataclass
class AddressSpace:
    """Regions of one device's output. Ids are given in the order of first use, event regions first."""

    geometry: Geometry
    tiling: Tiling
    device: int
    base: int  #: of this device's output
    downstream_base: int  #: of the downstream neighbour's
    tiles_per_block: int = 1
    regions: list[Region] = field(default_factory=list)

    def __post_init__(self) -> None:
        tiling = self.tiling
        row_shapes = sorted({int(r) for r in tiling.rows}, reverse=True)
        widths = sorted({tiling.wf_tile_columns(t, w) for t in range(tiling.tiles) for w in range(tiling.wavefronts)}
                        - {0}, reverse=True)
        for rows in row_shapes:  # the same on every device, so that neighbours agree on the numbers
            for columns in widths:
                self._number(Region(EVENT, rows, columns))

    @property
    def downstream(self) -> int:
        """Device that this one sends to: d-1 (T3 paper, figure 7)."""
        return (self.device - 1) % self.tiling.devices

    def _number(self, region: Region) -> int:
        if region not in self.regions:
            if len(self.regions) + 1 >= self.geometry.dma.regions:
                raise DriverError(f"regions={self.geometry.dma.regions} are too few for the shapes and chunk sizes of "
                                  f"a {self.tiling.n}x{self.tiling.m} output over {self.tiling.devices} devices; "
                                  "a larger power of two up to 64 is needed in [dma] regions")
            self.regions.append(region)
        return self.regions.index(region) + 1

    def region(self, kind: int, slice_index: int, rows: int, columns: int, whole_blocks: bool) -> int:
        """Region id of a wavefront tile; `whole_blocks`: its workgroup fills DMA blocks of `tiles_per_block`."""
        if kind == EVENT:
            return self._number(Region(EVENT, rows, columns))
        blocks = self.tiles_per_block if kind in (DMA, STAGED) and whole_blocks else 1
        return self._number(Region(kind, rows, columns, self.tiling.wg_offset(self.device, slice_index), blocks))

    def program(self, driver: Driver) -> list[Write]:
        """The `remote_map` and `dma_map` calls of the T3 paper's figure 12, for the regions in use."""
        writes = []
        limit = self.base + self.tiling.output_bytes
        for number, region in enumerate(self.regions, start=1):
            if region.kind == EVENT:
                writes += driver.event_map(
                    number, base=self.base, limit=limit,
                    tile_bytes=region.rows * region.columns * self.tiling.element_bytes,
                    updates_per_element=UPDATES_PER_ELEMENT)
                continue
            to = {"base": self.base, "limit": limit, "device": self.downstream,
                  "destination_region": self._number(Region(EVENT, region.rows, region.columns)),
                  "address_offset": self.downstream_base - self.base, "wg_offset": region.wg_offset}
            if region.kind == REMOTE:
                writes += driver.remote_map(number, **to)
            else:
                writes += driver.dma_map(
                    number, **to, row_bytes=region.rows * self.tiling.element_bytes,
                    columns=region.columns * region.tiles_per_block, pitch_bytes=self.tiling.pitch_bytes,
                    updates_per_element=1 if region.kind == STAGED else UPDATES_PER_ELEMENT,
                    tiles_per_block=region.tiles_per_block)
        return writes
