"""Every tile's region, as programmed, says where the tile goes: the same one at the downstream neighbour."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rtl.geometry import DmaGeometry, Geometry
from rtl.registers import OPERATIONS, REGION_KINDS, REGION_STRIDE
from sim_models.address_space import AddressSpace
from sim_models.driver import Driver, DriverError
from sim_models.machine import load_machine
from sim_models.simulation import make_tiling
from sim_models.tiling import DMA, EVENT, REMOTE, Tiling
from sim_models.workloads import paper_workloads

GEOMETRY = Geometry(dma=DmaGeometry(regions=64))
SKEW = 3 << 20  #: between the devices' outputs


def decode(driver: Driver, writes) -> list[dict[str, int]]:
    """The region descriptors after these writes, fields by name."""
    memory = {}
    kind = driver.registers["REGION_KIND"].offset
    for offset, value in writes:
        dead = (offset - kind) % REGION_STRIDE == 0 and memory.get(offset) == 0  # taken out of use while it is changed
        assert offset not in memory or dead, "no region is written over another"
        memory[offset] = value
    tables = []
    for region in range(driver.geometry.dma.regions):
        fields = {}
        for register in driver.registers.region:
            word = memory.get(driver.registers.region_offset(region) + register.offset)
            if word is not None:
                fields |= {field.name: field.decode(word) for field in register.fields}
        for name in ("base", "limit", "address_offset"):
            if f"{name}_lo" in fields:
                fields[name] = fields.pop(f"{name}_lo") | fields.pop(f"{name}_hi") << 32
        tables.append(fields)
    return tables


def map_everything(tiling: Tiling, geometry: Geometry, blocks: int, devices=None):
    """Spaces of all devices, used as the GEMM's plan does; and for each, the region of each (workgroup, wavefront)."""
    spaces, used = [], []
    for device in devices or range(tiling.devices):
        below = (device - 1) % tiling.devices
        space = AddressSpace(geometry, tiling, device, (device + 1) * SKEW, (below + 1) * SKEW, blocks)
        regions = {}
        for q, (tile, position, s) in enumerate(zip(*tiling.order(device))):
            columns = int(tiling.columns[tile])
            whole = columns % (tiling.wf_columns * blocks) == 0
            for wf in range(tiling.wf_tiles(tile)):
                regions[q, wf] = space.region(tiling.kind(int(position)), int(s), int(tiling.rows[tile]),
                                              tiling.wf_tile_columns(tile, wf), whole)
        spaces.append(space)
        used.append(regions)
    return spaces, used


def tile_address(tiling: Tiling, base: int, tile: int, wf: int) -> int:
    row, column = tile % tiling.tile_rows * tiling.tile_m, tile // tiling.tile_rows * tiling.tile_n
    return base + (column + wf * tiling.wf_columns) * tiling.pitch_bytes + row * tiling.element_bytes


def check(tiling: Tiling, geometry: Geometry, blocks: int) -> None:
    driver = Driver(geometry)
    spaces, used = map_everything(tiling, geometry, blocks)
    tables = [decode(driver, space.program(driver)) for space in spaces]
    kinds = {REMOTE: REGION_KINDS["remote"], DMA: REGION_KINDS["dma"], EVENT: REGION_KINDS["event"]}
    for device, space in enumerate(spaces):
        below = space.downstream
        assert below == (device - 1) % tiling.devices and not tables[device][0]
        tiles, positions, _ = tiling.order(device)
        place = np.argsort(tiling.order(below)[0])
        for (q, wf), number in used[device].items():
            tile, entry = int(tiles[q]), tables[device][number]
            rows, columns = int(tiling.rows[tile]), tiling.wf_tile_columns(tile, wf)
            assert entry["kind"] == kinds[tiling.kind(int(positions[q]))]
            first = tile_address(tiling, space.base, tile, wf)
            last = first + (columns - 1) * tiling.pitch_bytes + rows * 2
            assert entry["base"] <= first and last <= entry["limit"]
            if entry["kind"] != kinds[REMOTE]:
                assert entry["threshold"] == 2 * (rows * columns * 2), "two updates of each two-byte element"
            if entry["kind"] == kinds[EVENT]:
                continue
            assert entry["op"] == OPERATIONS["update"] and entry["device"] == below
            there = (q + entry["wg_offset"]) % (1 << geometry.tracker.wg_bits)
            assert there == place[tile], "the same tile's workgroup there"
            target = (first + entry["address_offset"]) % (1 << geometry.tracker.address_bits)
            assert target == tile_address(tiling, spaces[below].base, tile, wf)
            arrival = tables[below][entry["destination_region"]]
            assert arrival["kind"] == kinds[EVENT]
            assert arrival["threshold"] == 2 * (rows * columns * 2)
            if entry["kind"] == kinds[DMA]:
                assert entry["row_bytes"] == rows * 2 and entry["pitch_bytes"] == tiling.pitch_bytes
                assert entry["columns"] == columns * entry["tiles_per_block"]
                whole = tiling.columns[tile] % (tiling.wf_columns * blocks) == 0
                assert entry["tiles_per_block"] == (blocks if whole else 1)


@settings(max_examples=40, deadline=None)
@given(m=st.integers(1, 900), n=st.integers(1, 900), devices=st.integers(2, 6), slices=st.integers(1, 3),
       blocks=st.sampled_from([1, 2, 8]))
def test_any_shape(m, n, devices, slices, blocks):
    assume(-(-m // 128) * -(-n // 128) >= devices * slices)
    check(Tiling(m, n, devices, slices=slices), GEOMETRY, blocks)


@pytest.mark.parametrize("m, n, devices, slices, blocks", [
    (1024, 1024, 4, 1, 1),  # even
    (1024, 1024, 2, 1, 8),  # no DMA position
    (1000, 1064, 4, 2, 1),  # ragged both ways, narrow wavefront tiles
    (1000, 1064, 3, 1, 4),  # blocks of several tiles where they fit
])
def test_known_shapes(m, n, devices, slices, blocks):
    check(Tiling(m, n, devices, slices=slices), GEOMETRY, blocks)


def test_the_papers_workloads_fit_the_papers_machine():
    machine = load_machine()
    for w in {(w.m, w.n, w.tp): w for w in paper_workloads()}.values():
        tiling = make_tiling(machine, w)
        ends = (0, tiling.devices - 1)  # the last device's own chunk has the narrow tiles
        spaces, _ = map_everything(tiling, machine.geometry(), machine.dma.tiles_per_block, ends)
        for space in spaces:
            assert 3 <= len(space.regions) < machine.geometry().dma.regions
            space.program(Driver(machine.geometry()))


def test_neighbours_number_event_regions_alike():
    tiling = Tiling(1000, 1064, 4)
    spaces = [AddressSpace(GEOMETRY, tiling, d, 0, 0) for d in range(4)]
    assert all(space.regions == spaces[0].regions and space.regions for space in spaces)
    assert {region.kind for region in spaces[0].regions} == {EVENT}


def test_same_treatment_same_region():
    space = AddressSpace(GEOMETRY, Tiling(1024, 1024, 4), 0, 0, 0)
    first = space.region(DMA, 0, 128, 16, True)
    assert space.region(DMA, 0, 128, 16, True) == first != space.region(REMOTE, 0, 128, 16, True)
    assert space.region(EVENT, 0, 128, 16, True) == 1


def test_too_few_regions_are_refused_in_one_line():
    tiling = Tiling(1000, 1064, 4)
    with pytest.raises(DriverError) as error:
        map_everything(tiling, Geometry(dma=DmaGeometry(regions=4)), 1)
    message = str(error.value)
    assert "regions=4" in message and "1064x1000" in message and "[dma] regions" in message and "\n" not in message
