"""Every tile's region, as programmed, says where the tile goes: the same one at the next device."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from t3sim.collectives import Program, direct, ring
from t3sim.collectives.all_reduce import all_reduce
from t3sim.collectives.schedule import Action, Ids, Limits, Schedule, ScheduleError, ScheduleOptions, Shuffle
from t3sim.cosim.driver.driver import Driver
from t3sim.machine import load_machine
from t3sim.machine.topologies import ring as ring_topology
from t3sim.machine.topologies.shapes import fully_connected
from t3sim.rtl.geometry import DmaGeometry, Geometry
from t3sim.rtl.registers import OPERATIONS, REGION_ACTIONS
from t3sim.rtlsim.port_map import Field
from t3sim.runs.address_space import dispatch_requests, fused_work, map_output
from t3sim.runs.plan import Plan
from t3sim.testbenches.reference.config_bus import ConfigBusModel
from t3sim.workload.operators.gemm import Gemm, Matrix
from t3sim.workload.operators.kernel_table import KernelTable, Route
from t3sim.workload.operators.tiling import Tiling
from t3sim.workload.workloads import paper_workloads

GEOMETRY = Geometry(dma=DmaGeometry(regions=64, block_shapes=16, routes=64))
SKEW = 3 << 20  #: between the devices' outputs


def decode(driver: Driver, writes) -> list[dict[str, int]]:
    """Regions after these writes: fields by name, with those of their entries in other tables."""
    model, actions = ConfigBusModel(driver.geometry), driver.registers["REGION_ACTIONS"].offset
    table = driver.registers.table("region")
    mapping = {table.offset(region) + actions for region in range(table.entries)}
    mapped = set()
    for offset, value in writes:
        assert offset not in mapped, "no region is written over another"
        assert not model.write(offset, value)[0]
        mapped |= {offset} if offset in mapping and value else set()
    regions = [model.entry("region", region) for region in range(driver.geometry.dma.regions)]
    return [entry | model.entry("block", entry["block"]) | model.entry("buffer", entry["buffer"])
            | {"routes": [model.entry("route", entry["route"] + number) for number in range(entry["more_routes"] + 1)]}
            for entry in regions]


def ring_all_reduce(devices: int) -> Program:
    return all_reduce(ring.reduce_scatter(devices), ring.all_gather(devices))


def direct_all_reduce(devices: int) -> Program:
    return all_reduce(direct.reduce_scatter(devices), direct.all_gather(devices))


def scheduled(m: int, n: int, devices: int, slices: int = 1, collective=ring.reduce_scatter, **policy) -> Schedule:
    return Schedule(Tiling(m, n), collective(devices), ring_topology(devices), ScheduleOptions(slices, **policy))


def map_everything(schedule: Schedule, geometry: Geometry, blocks: int, devices=None):
    bases = [(device + 1) * SKEW for device in range(schedule.gpus)]
    return [map_output(schedule, device, bases, geometry, blocks) for device in devices or range(schedule.gpus)]


def stored(space) -> KernelTable:
    """A GEMM's work under a schedule; one step of loads, one that stores."""
    operand = Matrix(0, 256)
    gemm = Gemm(space.schedule.tiling, 32, 32, operand, True, operand, 0, 1.0, 0.0, 0.0)
    return fused_work(gemm.work(space.device), space, space.schedule.tiling)


def check(schedule: Schedule, geometry: Geometry, blocks: int) -> None:
    """Each region as the registers say it, against what the schedule wants of each wavefront tile."""
    driver, tiling = Driver(geometry), schedule.tiling
    spaces = map_everything(schedule, geometry, blocks)
    tables = [decode(driver, space.program(driver)) for space in spaces]
    for device, space in enumerate(spaces):
        assert not any(tables[device][0][action] for action in REGION_ACTIONS)
        assert space.peers == schedule.peers(device)
        rows, work = schedule.rows(device), stored(space)
        group = np.cumsum(rows.contributes) - 1
        for row, tile in enumerate(rows.tile):
            for wf in range(tiling.wf_tiles[tile]):
                columns, height = int(tiling.wf_widths[tile, wf]), int(tiling.rows[tile])
                kind, tile_bytes = int(columns < tiling.wf_columns), height * columns * 2
                region = int(space.table.own_regions[row, kind])
                entry, actions = tables[device][region], Action(int(rows.actions[row]))
                assert [name for name in REGION_ACTIONS if entry[name]] == [
                    name for name in REGION_ACTIONS if Action[name.upper()] in actions]
                first = space.base + int(tiling.offsets[tile]) + wf * tiling.wf_columns * tiling.pitch_bytes
                last = first + (columns - 1) * tiling.pitch_bytes + height * 2
                if Action.SEND_DMA in actions:
                    assert entry["base"] <= first and last <= entry["limit"]
                named = int(rows.id[row]) if rows.id[row] >= 0 else int(rows.to_id[row, 0])
                if rows.contributes[row]:
                    store = work.stores[work.steps[work.groups[group[row]]["first_step"] + 1]["first_store"] + wf]
                    assert (store["base"], store["rows"], store["bytes"]) == (first, columns, height * 2)
                    assert (store["id"], store["wavefront"], store["region"]) == (named, wf, region)
                    assert store["route"] == (Route.MEMORY if Action.SEND_STORES not in actions
                                              else Route.BOTH if Action.STORE in actions else Route.MAPPED)
                admitted = bool(rows.updates[row]) and not rows.contributes[row]
                assert entry["threshold"] == rows.updates[row] * tile_bytes + admitted, "bytes of all updates"
                under = int(space.table.arrivals[row, kind])
                if under:  # what arrives for the tile is let in, and joins what is stored here
                    assert tables[device][under]["arrivals"] == 1 and tables[device][under]["family"] == entry["family"]
                    assert tables[device][under]["threshold"] == entry["threshold"]
                goes = [(peer, to) for peer, to in zip(rows.to_gpu[row], rows.to_id[row]) if to >= 0]
                assert not goes or len(entry["routes"]) == len(goes)
                for route, (peer, to_id) in zip(entry["routes"], goes):
                    there, bits = schedule.rows(peer), geometry.tracker
                    (to,) = np.flatnonzero(there.id == to_id)
                    assert (named + route["wg_offset"]) % (1 << bits.wg_bits) == to_id, "the same tile's id there"
                    target = (first + route["address_offset"]) % (1 << bits.address_bits)
                    assert there.tile[to] == tile and target == first - space.base + spaces[peer].base
                    assert route["destination_region"] == spaces[peer].table.arrivals[to, kind]
                    arrival = tables[peer][route["destination_region"]]
                    assert arrival["event"] and not arrival["send_dma"] and route["device"] == peer
                    made = there.contributes[to]
                    assert route["operation"] == OPERATIONS["update" if made else "store"]
                    assert arrival["threshold"] == there.updates[to] * tile_bytes + (not made), "from here and there"
                if Action.SEND_DMA in actions:
                    assert entry["row_bytes"] == height * 2 and entry["pitch_bytes"] == tiling.pitch_bytes
                    assert entry["columns"] == columns * entry["tiles_per_block"]
                    whole = tiling.columns[tile] % (tiling.wf_columns * blocks) == 0
                    assert entry["tiles_per_block"] == (blocks if whole else 1)


COLLECTIVES = (ring.reduce_scatter, ring.all_gather, ring_all_reduce)


@pytest.mark.long
@settings(max_examples=40, deadline=None)
@given(m=st.integers(1, 900), n=st.integers(1, 900), devices=st.integers(2, 6), slices=st.integers(1, 3),
       blocks=st.sampled_from([1, 2, 8]), staged=st.booleans(), collective=st.sampled_from(COLLECTIVES))
def test_any_shape(m, n, devices, slices, blocks, staged, collective):
    schedule = scheduled(m, n, devices, slices, collective, staged=staged)
    assume(schedule.is_causal())
    check(schedule, GEOMETRY, blocks)


@pytest.mark.parametrize("m, n, devices, slices, blocks", [
    (1024, 1024, 4, 1, 1),  # even
    (1024, 1024, 2, 1, 8),  # no DMA position
    (1000, 1064, 4, 2, 1),  # ragged both ways, narrow wavefront tiles
    (1000, 1064, 3, 1, 4),  # blocks of several tiles where they fit
])
def test_known_shapes(m, n, devices, slices, blocks):
    check(scheduled(m, n, devices, slices), GEOMETRY, blocks)


@pytest.mark.long
@pytest.mark.parametrize("collective", [direct.all_gather, direct_all_reduce])
@pytest.mark.parametrize("ids", list(Ids))
def test_a_tile_that_goes_to_all_others(collective, ids):
    """One route per peer with its own address, id and region; a workgroup starts when all peers have room."""
    geometry = replace(GEOMETRY, dma=replace(GEOMETRY.dma, regions=64, routes=64, copies=3, peers=3))
    schedule = Schedule(Tiling(1000, 1064), collective(4), fully_connected(4),
                        ScheduleOptions(ids=ids, limits=Limits.EXACT))
    check(schedule, geometry, 1)
    for device in range(4):
        rows, requests = schedule.rows(device), schedule.requests(device)
        routes = (rows.to_id >= 0).sum(1)
        assert (np.bincount(requests.row) == np.maximum(routes, 1)).all() and routes.max() == 3
        for row in range(0, len(routes), 7):
            own = np.flatnonzero(requests.row == row)
            assert (np.diff(own) == 1).all()
            assert not (requests.opens[own[:-1]].any() or requests.starts[own[:-1]].any())
            assert requests.starts[own[-1]] == rows.contributes[row] and requests.opens[own[-1]] == (rows.id[row] >= 0)
            asked = {(requests.to_gpu[i], requests.there[i]) for i in own if requests.reaches[i]}
            assert asked == {pair for pair in zip(rows.to_gpu[row], rows.to_id[row]) if pair[1] >= 0}


@pytest.mark.long
def test_the_papers_workloads_fit_the_papers_machine():
    machine = load_machine()
    for w in {(w.m, w.n, w.tp): w for w in paper_workloads()}.values():
        schedule = Plan(machine, w).schedule
        ends = (0, schedule.gpus - 1)  # the last device's own chunk has the narrow tiles
        for space in map_everything(schedule, machine.geometry(), machine.dma.tiles_per_block, ends):
            assert 3 <= len(space.regions) < machine.geometry().dma.regions
            space.program(Driver(machine.geometry()))


def test_neighbours_number_arrivals_alike():
    spaces = map_everything(scheduled(1000, 1064, 4), GEOMETRY, 1)
    shared = sum(Action.EVENT in region.actions for region in spaces[0].regions)
    for space in spaces:
        assert space.table.arrivals.max() <= shared and space.regions[:shared] == spaces[0].regions[:shared]
        assert not any(Action.EVENT in region.actions for region in space.regions[shared:])


def test_regions_are_planned_before_anything_is_programmed():
    """Nothing that reads a table may add to it."""
    (space,) = map_everything(scheduled(1000, 1064, 4), GEOMETRY, 1, [1])
    before = space.regions
    space.program(Driver(GEOMETRY))
    stored(space)
    assert space.regions is before and isinstance(before, tuple)
    with pytest.raises(ValueError, match="not in tuple"):
        space.table.number(replace(before[0], rows=77))


@pytest.mark.parametrize(("key", "needed"), [("block_shapes", 4), ("routes", 4)])
def test_too_few_entries_are_refused_in_one_line(key, needed):
    """Each shape of a block has an entry, and each destination with its offset; regions share them."""
    roomy = DmaGeometry(regions=64, block_shapes=64, routes=64)
    schedule = scheduled(1000, 1064, 4)
    map_everything(schedule, Geometry(dma=replace(roomy, **{key: needed})), 1)
    with pytest.raises(ScheduleError, match=rf"GPU \d: {needed} {key} are needed: \[dma\] {key}={needed - 1} are"):
        map_everything(schedule, Geometry(dma=replace(roomy, **{key: needed - 1})), 1)


def test_too_few_regions_are_refused_in_one_line():
    with pytest.raises(ScheduleError) as error:
        map_everything(scheduled(1000, 1064, 4), Geometry(dma=DmaGeometry(regions=4)), 1)
    message = str(error.value)
    assert "regions=4" in message and "1064x1000" in message and "[dma] regions" in message and "\n" not in message


@pytest.mark.parametrize(("program", "topology", "policy", "words"), [
    (direct.reduce_scatter, fully_connected, ScheduleOptions(limits=Limits.EXACT),
     r"GPU 0 sends to 3 others .*peers=1 has"),
    (direct.all_gather, fully_connected, ScheduleOptions(limits=Limits.EXACT),
     r"chunk 0 goes to 3 others: \[dma\] copies=1 "),
])
def test_what_this_hardware_cannot_do_is_refused_in_one_line(program, topology, policy, words):
    schedule = Schedule(Tiling(32, 16 * 11, 32, 16, 4), program(4), topology(4), policy)
    with pytest.raises(ScheduleError, match=words) as error:
        map_everything(schedule, GEOMETRY, 1)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("policy", [ScheduleOptions(ids=Ids.TRACKED), ScheduleOptions(shuffle=Shuffle(3))])
def test_one_shift_for_all_tiles_needs_ids_in_the_order_of_dispatch(policy):
    with pytest.raises(ScheduleError, match="limits must be exact"):
        Schedule(Tiling(32, 16 * 11, 32, 16, 4), ring.reduce_scatter(4), ring_topology(4), policy)


@pytest.mark.parametrize("policy", [ScheduleOptions(), ScheduleOptions(ids=Ids.TRACKED, limits=Limits.EXACT),
                                    ScheduleOptions(limits=Limits.EXACT, shuffle=Shuffle(7, seed=2))])
def test_requests_say_what_each_tile_touches(policy):
    """Each id is opened once; what a request names at the peer is no smaller than where the tile goes.

    With one shift, which every tile has, it has the slack beyond its own.
    """
    schedule = Schedule(Tiling(32, 16 * 11, 32, 16, 4), ring.reduce_scatter(4), ring_topology(4), policy)
    for device in range(4):
        rows, requests = schedule.rows(device), schedule.requests(device)
        opened = requests.id[requests.opens != 0]
        assert sorted(opened) == list(range(len(opened))) and (requests.starts == 1).all()
        (to_id,) = rows.to_id.T
        goes = to_id >= 0
        if policy.limits is Limits.SHIFT:
            assert (requests.there == rows.id + schedule.slack_of(device)).all() and requests.reaches.all()
            assert (requests.there[goes] >= to_id[goes]).all()
        else:
            assert (requests.reaches == goes).all() and (requests.there[goes] == to_id[goes]).all()
        stored_away = goes & (rows.id < 0)
        assert (requests.id[stored_away] == to_id[stored_away]).all(), "what stores to a peer names"
    space = map_output(schedule, 0, [0] * 4, GEOMETRY, 1)
    (packed,) = dispatch_requests([space], {
        "id": Field(0, 16), "tiles": Field(16, 4), "there": Field(20, 17), "peer": Field(37, 1), "opens": Field(38, 1),
        "reaches": Field(39, 1), "starts": Field(40, 1), "region": Field(41, 6),
        "last_region": Field(47, 6)}, space.schedule.tiling)
    with pytest.raises(ScheduleError, match="a request for a workgroup has 64 bits: the models take 63"):
        dispatch_requests([space], {"id": Field(0, 64)}, space.schedule.tiling)
    rows, requests = schedule.rows(0), schedule.requests(0)
    assert (packed & 0xFFFF == requests.id).all() and (packed >> 20 & 0x1FFFF == requests.there).all()
    assert (packed >> 16 & 15 == np.where(rows.updates, schedule.tiling.wf_tiles[rows.tile], 0)).all()
    assert (packed >> 37 & 15 == requests.opens << 1 | requests.reaches << 2 | requests.starts << 3).all()
    own = space.table.own_regions
    assert (packed >> 41 & 63 == own[:, 0]).all()
    assert (packed >> 47 == np.where(own[:, 1], own[:, 1], own[:, 0])).all(), "the last one may be narrow"
