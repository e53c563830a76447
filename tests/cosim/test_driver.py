"""The driver's calls give the descriptors and settings they promise, and refuse the impossible in one line."""

from dataclasses import fields, replace

import pytest

from t3sim.cosim.driver.driver import Destination, Driver, DriverError, MemorySum, Write, error_in_words
from t3sim.rtl.formats import NUMBERS
from t3sim.rtl.geometry import ChannelGeometry, DmaGeometry, Geometry, GeometryError, TrackerGeometry
from t3sim.rtl.registers import REGION_ACTIONS, register_map
from t3sim.testbenches.reference.config_bus import ConfigBusModel, ErrorReport

GEOMETRY = Geometry()
THERE = Destination(3, 5)
DMA = dict(base=0x1_0000_0000, limit=0x1_0010_0000, to=[THERE], row_bytes=256, columns=16, pitch_bytes=8192,
           updates_per_element=2)
REMOTE = dict(base=0x1000, limit=0x2000, to=[Destination(1, 2)])


def applied(*calls, geometry=GEOMETRY):
    """The registers after the calls' writes; every write must be legal and change what it names."""
    model = ConfigBusModel(geometry)
    for writes in calls:
        for offset, value in writes:
            assert 0 <= value < 1 << 32
            assert not model.write(offset, value)[0]
            register = next(r for o, r, _ in register_map(geometry).all_registers() if o == offset)
            assert register.access == "w1" or model.read(offset) == (False, value), "a bit fell on no field"
    return model


def mapped(model, region):
    """A region's fields, with those of its entries in other tables."""
    entry = model.entry("region", region)
    return entry | {name: value for table in ("block", "buffer", "route")
                    for name, value in model.entry(table, entry[table]).items()}


def test_dma_map():
    """Mappings, split-K included, write the expected registers."""
    there = Destination(3, 5, operation="store", address_offset=-0x4000, wg_offset=-7)
    model = applied(Driver(GEOMETRY).dma_map(
        4, **DMA | {"to": [there]}, tiles_per_block=4, arrivals=[1], arrival_region=9))
    assert mapped(model, 4) == dict(
        send_stores=0, send_dma=1, event=0, operation=0, device=3, destination_region=5, arrivals=2, tiles_per_block=4,
        threshold=2 * 256 * 4, block=0, buffer=0, route=0, more_routes=0,
        wg_offset=(1 << 16) - 7, address_offset=(1 << 48) - 0x4000, base=0x1_0000_0000, limit=0x1_0010_0000,
        row_bytes=256, columns=16, family=9, pitch_bytes=8192)
    assert applied(Driver(GEOMETRY).dma_map(4, **DMA, event=True)).entry("region", 4)["event"] == 1
    assert applied().entry("region", 3) == model.entry("region", 3), "other regions stay as they are"


def test_remote_map_and_event_map():
    """Each writes the expected registers: a route for stores, an event instead of a DMA."""
    driver = Driver(GEOMETRY)
    model = applied(driver.remote_map(1, **REMOTE | {"to": [Destination(1, 2, wg_offset=9, address_offset=0x80)]}),
                    driver.event_map(15, base=0, limit=64, tile_bytes=4096, updates_per_element=3),
                    driver.event_map(14, base=0, limit=64, tile_bytes=4096, updates_per_element=3, admitted=True),
                    driver.dma_map(13, **DMA, admitted=True))
    remote, event = mapped(model, 1), model.entry("region", 15)
    assert [remote[name] for name in (*REGION_ACTIONS, "operation", "device", "destination_region")] == [
        1, 0, 0, 1, 1, 2]
    assert (remote["wg_offset"], remote["address_offset"]) == (9, 0x80)
    assert [event[name] for name in (*REGION_ACTIONS, "threshold", "family")] == [0, 0, 1, 12288, 15]
    assert [model.entry("region", region)["threshold"] for region in (14, 13)] == [12289, 2 * 256 * 16 + 1]


def test_regions_share_equal_entries_and_an_unmapped_one_frees_its_own():
    driver = Driver(replace(GEOMETRY, dma=DmaGeometry(block_shapes=2, routes=2, buffers=1)))
    model = applied(driver.dma_map(1, **DMA), driver.dma_map(2, **DMA), driver.dma_map(3, **DMA | {"columns": 8}),
                    driver.remote_map(4, **REMOTE), geometry=driver.geometry)
    entries = [[model.entry("region", region)[name] for name in ("block", "buffer", "route")] for region in range(1, 5)]
    assert entries == [[0, 0, 0], [0, 0, 0], [1, 0, 0], [0, 0, 1]]
    full = {"block_shapes": DMA | {"columns": 4}, "routes": DMA | {"to": [Destination(2, 5)]},
            "buffers": DMA | {"limit": DMA["limit"] + 64}}
    for key, arguments in full.items():
        size = getattr(driver.geometry.dma, key)
        with pytest.raises(DriverError, match=rf"region=5 is not possible: .* \({key}={size}\) has no room for it"):
            driver.dma_map(5, **arguments)
    again = applied(driver.unmap(3), driver.dma_map(5, **full["block_shapes"]), geometry=driver.geometry)
    assert again.entry("region", 5)["block"] == 1, "the refusals have taken nothing, and region 3 gives its entry up"
    driver.unmap(1)
    assert applied(driver.dma_map(6, **DMA), geometry=driver.geometry).entry("region", 6)["block"] == 0, (
        "region 2 has it still")


def test_copies_go_on_routes_one_behind_the_other():
    """A region's routes are adjacent table entries, existing ones are shared, and too many are refused."""
    dma = DmaGeometry(routes=4, copies=3, queue_commands=4)
    driver = Driver(replace(GEOMETRY, dma=dma))
    blocks = dict(base=0, limit=4096, row_bytes=64, columns=4)
    model = applied(driver.copy_map(1, **blocks, to=((1, 64), (2, 128), (3, 192))),
                    driver.copy_map(2, **blocks, to=((3, 192),)), geometry=driver.geometry)
    first, second = model.entry("region", 1), model.entry("region", 2)
    assert (first["route"], first["more_routes"], second["route"], second["more_routes"]) == (0, 2, 2, 0)
    assert [(model.entry("route", route)["device"], model.entry("route", route)["address_offset"])
            for route in range(3)] == [(1, 64), (2, 128), (3, 192)]
    with pytest.raises(DriverError, match=r"to=.* 1 to 3 \(copies=3\) devices are allowed"):
        driver.copy_map(3, **blocks, to=[(device, 0) for device in range(4)])
    with pytest.raises(DriverError, match=r"routes \(routes=4\) has no room"):
        driver.copy_map(3, **blocks, to=((4, 0), (5, 0)))


def test_memory_is_open_to_peers_only_where_it_was_opened():
    driver = Driver(GEOMETRY)
    model = applied(driver.open_memory(0, base=0x1_0000_0000, limit=0x2_0000_0001),
                    driver.open_memory(1, base=0, limit=64),
                    driver.event_map(1, base=0, limit=64, tile_bytes=64, updates_per_element=1, arrivals=[0, 1]),
                    driver.event_map(2, base=0, limit=64, tile_bytes=64, updates_per_element=1),
                    driver.remote_map(3, **REMOTE), driver.plain_arrivals([1]))
    assert [model.value("arrivals", ("region", region)) for region in range(5)] == [2, 3, 0, 0, 0]
    ranges = [[model.value(f"arrivals{i}_{name}_lo") | model.value(f"arrivals{i}_{name}_hi") << 32
               for name in ("base", "last")] for i in range(2)]
    assert ranges == [[0x1_0000_0000, 0x2_0000_0000], [0, 63]]
    assert [model.value(name, ("region", 0)) for name in REGION_ACTIONS] == [0, 0, 1]
    assert applied(driver.plain_arrivals([1]), driver.plain_arrivals(())).value("event", ("region", 0)) == 0


@pytest.mark.parametrize("call", [
    lambda driver: driver.open_memory(2, base=0, limit=64), lambda driver: driver.open_memory(0, base=64, limit=64),
    lambda driver: driver.plain_arrivals([-1]), lambda driver: driver.dma_map(1, **DMA, arrivals=[2])])
def test_what_cannot_be_opened_is_refused(call):
    with pytest.raises(DriverError, match=r"^(number|limit|arrivals)=.* is not possible: "):
        call(Driver(GEOMETRY))


def test_actions_are_cleared_first_and_written_last():
    def actions(model):
        return any(model.value(name, ("region", 2)) for name in REGION_ACTIONS)

    driver, model = Driver(GEOMETRY), ConfigBusModel(GEOMETRY)
    for writes in (driver.dma_map(2, **DMA), driver.remote_map(2, **REMOTE)):
        for index, (offset, value) in enumerate(writes):
            model.write(offset, value)
            assert actions(model) == (index == len(writes) - 1)
    assert not actions(applied(writes, driver.unmap(2)))


@pytest.mark.parametrize("channels, lanes, limit", [(32, 2, 8), (64, 1, 32), (4, 4, 1), (16, 3, 2)])
def test_a_policy_sets_a_starvation_limit_that_holds_no_link_up(channels, lanes, limit):
    """Without one MCA could hold the ring back for as long as compute units read."""
    geometry = Geometry(channel=ChannelGeometry(channels=channels), dma=DmaGeometry(egress_lanes=lanes))
    assert applied(Driver(geometry).policy("mca"), geometry=geometry).value("starvation_limit") == limit


@pytest.mark.parametrize("threshold,stored,auto", [("auto", 127, 1), (None, 127, 0), (1, 1, 0), (30, 30, 0)])
@pytest.mark.parametrize("name,code", [("round_robin", 0), ("compute_first", 1), ("mca", 2), ("ring_aware", 3)])
def test_policy(name, code, threshold, stored, auto):
    model = applied(Driver(GEOMETRY).policy(name, threshold, **({"starvation_limit": 500} if name == "mca" else {})))
    assert model.value("starvation_limit") == (500 if name == "mca" else 0)
    assert (model.value("policy"), model.value("threshold"), model.value("auto_threshold")) == (code, stored, auto)


def test_other_settings():
    driver = Driver(GEOMETRY)
    model = applied(driver.stage(80), driver.monitor(1.25, 10, 63.75), driver.window(8, slack=12))
    assert model.value("stage") == 80 and model.value("least_samples") == 64
    assert [model.value(f"breakpoint{i}") for i in range(3)] == [5, 40, 255]
    assert (model.value("window"), model.value("tiles")) == (256, 8)
    model = applied(driver.policy("compute_first", 1, starvation_limit=None), driver.window(2, workgroups=3))
    assert [model.value(name) for name in ("starvation_limit", "window", "tiles")] == [0, 3, 2]
    control = [applied() and writes for writes in (driver.restart(), driver.clear_error(), driver.clear_counters(),
                                                   driver.soft_reset(9))]
    assert [ConfigBusModel(GEOMETRY).write(*writes[-1]) for writes in control] == [
        (False, {"restart"}), (False, {"clear_error"}), (False, {"clear_counters"}), (False, {"soft_reset"})]
    assert applied(driver.restart(kernel=3), driver.soft_reset(500)).value("epoch") == 3
    assert applied(driver.soft_reset(500)).value("quiet_cycles") == 500
    for limit, periods in ((None, 0), (1, 1), (257, 2), (1 << 20, 4096)):
        assert applied(driver.soft_reset(1, limit)).value("reset_limit") == periods
    assert [applied(driver.restart(kernel)).value("epoch") for kernel in (1, 255, 256, 257, 510, 511)] == [
        1, 255, 1, 2, 255, 1]
    assert applied(driver.watchdog(1025)).value("watchdog_limit") == 5
    assert applied(driver.watchdog(1024), driver.watchdog(None)).value("watchdog_limit") == 0


def test_heads_are_heard_and_told_by_name():
    geometry = replace(GEOMETRY, dma=replace(GEOMETRY.dma, peers=3))
    driver, model = Driver(geometry), ConfigBusModel(geometry)
    for write in driver.heads(9, sends_to=(4, 7), receives_from=(1, 2, 3)):
        assert model.write(*write) == (False, set())
    assert model.value("device_number") == 9
    assert [model.value(f"peer{i}_heard") for i in range(3)] == [4, 7, 9]
    assert [(model.value(f"peer{i}_told"), model.value(f"peer{i}_telling")) for i in range(3)] == [
        (1, 1), (2, 1), (3, 1)]
    for write in driver.heads(9, sends_to=(), receives_from=(5,)):
        model.write(*write)
    assert [model.value(f"peer{i}_telling") for i in range(3)] == [1, 0, 0]


@pytest.mark.parametrize("sets,ways,wf_bits,tiles,largest", [
    (256, 8, 3, 8, 256), (256, 8, 3, 4, 256), (16, 16, 3, 8, 32), (16, 16, 3, 5, 32), (16, 6, 3, 4, 16),
    (1, 1, 1, 1, 1)])
def test_largest_window(sets, ways, wf_bits, tiles, largest):
    tracker = TrackerGeometry(sets=sets, ways=ways, wf_bits=wf_bits, banks=1)
    driver = Driver(Geometry(tracker=tracker))
    assert driver.largest_window(tiles) == largest
    assert largest * tiles <= sets * ways, "each open tile has a way of its own"


def test_commands_that_wait_find_room():
    """With more open tiles than ready commands all GPUs of a ring could wait for each other.

    Triggers would wait for the engines, arrivals for the triggers, links for the arrivals, engines for the links.
    """
    assert Driver(Geometry(dma=DmaGeometry(ready_commands=1024))).largest_window(8) == 128
    assert Geometry().dma.ready_commands >= Driver(Geometry()).largest_window(8) * 8
    with pytest.raises(DriverError, match="tiles_per_workgroup=8 .* from 1 to 7 "):
        Driver(Geometry(dma=DmaGeometry(ready_commands=7))).largest_window(8)


def test_only_peers_in_whose_windows_commands_wait_share_the_queue():
    driver = Driver(Geometry(dma=DmaGeometry(peers=4)))
    assert [driver.largest_window(8, waits_for) for waits_for in (None, 0, 1, 2, 3, 4)] == [64, 256, 256, 128, 85, 64]
    assert driver.window(8, slack=100, waits_for=1)
    with pytest.raises(DriverError, match="slack=100 .* 0 to 63, "):
        driver.window(8, slack=100)
    with pytest.raises(DriverError, match="waits_for=5 .* from 0 to 4 "):
        driver.largest_window(8, 5)


@pytest.mark.parametrize("call,changes,text", [
    ("dma_map", dict(region=0), "region=0 is not possible: a whole number from 1 to 15 is allowed"),
    ("dma_map", dict(region=16), "region=16 "),
    ("dma_map", dict(region=True), "region=True "),
    ("dma_map", dict(base=1 << 48), "base=281474976710656 "),
    ("dma_map", dict(limit=0x1_0000_0000), "limit=4294967296 .* from 4294967297 "),
    ("dma_map", dict(limit=0x1_0001_0000), "limit=4295032832 .* base \\+ 123136 "),
    ("dma_map", dict(to=[THERE._replace(device=64)]), "device=64 .* from 0 to 63 "),
    ("dma_map", dict(to=[THERE._replace(destination_region=0)]), "destination_region=0 .* from 1 to 15 "),
    ("dma_map", dict(row_bytes=0), "row_bytes=0 "),
    ("dma_map", dict(row_bytes=8192), "row_bytes=8192 .* from 1 to 8191 "),
    ("dma_map", dict(columns=1024), "columns=1024 .* from 1 to 1023 "),
    ("dma_map", dict(columns=6, tiles_per_block=4), "columns=6 .* multiple of tiles_per_block=4 "),
    ("dma_map", dict(tiles_per_block=3), "tiles_per_block=3 .* power of two up to 8 "),
    ("dma_map", dict(tiles_per_block=16), "tiles_per_block=16 "),
    ("dma_map", dict(pitch_bytes=255), "pitch_bytes=255 .* from 256 "),
    ("dma_map", dict(updates_per_element=16), "updates_per_element=16 .* from 1 to 15 "),
    ("dma_map", dict(columns=1000), "tile_bytes=256000 .* from 1 to 65535 "),
    ("dma_map", dict(to=[THERE._replace(operation="add")]), "operation='add' .* one of store, update "),
    ("dma_map", dict(to=[THERE._replace(wg_offset=65536)]), "wg_offset=65536 "),
    ("dma_map", dict(to=[THERE._replace(address_offset=-(1 << 48))]), "address_offset=-281474976710656 "),
    ("dma_map", dict(to=[THERE._replace(address_offset=32)]),
     "address_offset=32 .* multiple of the line's 64 bytes is allowed"),
    ("remote_map", dict(to=[THERE._replace(address_offset=-1)]), "address_offset=-1 .* multiple of the line's 64 "),
    ("dma_map", dict(to=[]), r"to=\(\) .* 1 to 1 \(copies=1\) devices are allowed"),
    ("remote_map", dict(to=[THERE, THERE]), r"to=\(3, 3\) .* 1 to 1 \(copies=1\) devices are allowed"),
    ("remote_map", dict(limit=0x800), "limit=2048 "),
    ("event_map", dict(tile_bytes=0), "tile_bytes=0 "),
    ("event_map", dict(tile_bytes=40000), "updates_per_element=2 .* from 1 to 1 "),
])
def test_impossible_mappings(call, changes, text):
    """Each raises one line that says why."""
    arguments = dict(region=4) | {"dma_map": DMA, "remote_map": REMOTE, "event_map": dict(
        base=0, limit=64, tile_bytes=64, updates_per_element=2)}[call]
    applied(getattr(Driver(GEOMETRY), call)(**arguments))
    with pytest.raises(DriverError, match=text) as caught:
        getattr(Driver(GEOMETRY), call)(**(arguments | changes))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("call,text", [
    (lambda d: d.policy("fifo"), "policy='fifo' .* one of round_robin, compute_first, mca, ring_aware "),
    (lambda d: d.policy("mca", 127), "threshold=127 .* from 1 to 126 "),
    (lambda d: d.policy("mca", 1, 0), "starvation_limit=0 .* from 1 to 65535 "),
    (lambda d: d.policy("mca", 1, "never"), "starvation_limit='never' .* from 1 to 65535 "),
    (lambda d: d.monitor(1, 2, 3, least_samples=100), "least_samples=100 .* multiple of 64 from 0 to 16320 "),
    (lambda d: d.soft_reset(0), "quiet_cycles=0 .* from 1 to 65535 "),
    (lambda d: d.watchdog(0), "cycles=0 .* from 1024 to 16776960 "),
    (lambda d: d.restart(0), "kernel=0 .* from 1 to "),
    (lambda d: d.soft_reset(16, 0), "limit_cycles=0 .* from 1 to 16776960 "),
    *((lambda d, name=name: d.policy(name, starvation_limit=100), f"starvation_limit=100 .*: policy '{name}' has none")
      for name in ("round_robin", "compute_first", "ring_aware")),
    (lambda d: d.policy("ring_aware", 0), "threshold=0 .* from 1 to 126 "),
    (lambda d: d.stage(0), "workgroups=0 .* from 1 to "),
    (lambda d: d.monitor(1, 2, 64), "ten_below=64 "),
    (lambda d: d.monitor(0.1, 2, 3), "none_below=0.1 "),
    (lambda d: d.monitor(3, 2, 4), "ten_below=4 .* none_below <= thirty_below "),
    (lambda d: d.heads(64, sends_to=(), receives_from=()), "device=64 .* from 0 to 63 "),
    (lambda d: d.heads(0, sends_to=(1, 2), receives_from=()), r"sends_to=\(1, 2\) .* at most 1, "),
    (lambda d: d.heads(0, sends_to=(1,), receives_from=(2, 3)), r"receives_from=\(2, 3\) .* at most 1, "),
    (lambda d: d.heads(0, sends_to=(-1,), receives_from=()), "sends_to=-1 .* from 0 to 63 "),
    (lambda d: d.window(9), "tiles_per_workgroup=9 .* from 1 to 8 "),
    (lambda d: d.window(8, workgroups=257), "workgroups=257 .* from 1 to 256 "),
    (lambda d: d.window(8, workgroups=8, slack=8), "slack=8 .* 0 to 7, less than the dispatch window"),
])
def test_impossible_settings(call, text):
    with pytest.raises(DriverError, match=text):
        call(Driver(GEOMETRY))


def test_first_error_and_identity_are_read_back():
    driver, model = Driver(GEOMETRY), ConfigBusModel(GEOMETRY)

    def read(offset):
        return model.read(offset)[1]

    assert driver.first_error(read) is None
    model.report([ErrorReport(code=4, address=0x123456789ABC, region=7, wf=5, wg=1234)])
    shown = sum(driver.registers["WATCHDOG_WAITS"].field(f"waits_{name}").encode(1) for name in ("peer", "link"))
    assert driver.waiting(lambda offset: shown) == ["link", "peer"] and driver.waiting(read) == []
    error = driver.first_error(read)
    assert error == dict(code="address_out_of_range", wg=1234, wf=5, region=7, address=0x123456789ABC)
    words = "address_out_of_range: workgroup 1234, wavefront 5, region 7, address 0x123456789abc"
    assert error_in_words(error) == words and error_in_words(None) == "none"
    assert error_in_words({**error, "kind": "uncorrectable", "set": 3, "way": 1, "memory": "entry"}) == (
        f"{words}; uncorrectable, set 3, way 1, entry")
    driver.check_identity(read)
    with pytest.raises(DriverError, match="regions=16 is not possible: this driver was made for 8"):
        Driver(Geometry(dma=DmaGeometry(regions=8))).check_identity(read)
    with pytest.raises(DriverError, match="ID='0x00000000' .* 0x54335454 "):
        driver.check_identity(lambda offset: 0)


def other_geometries():
    """One for every field of a GPU's geometry, with only that changed; its driver knows nothing of switches."""
    for part in fields(Geometry):
        if part.name == "switch":
            continue
        sizes = getattr(GEOMETRY, part.name)
        for field in fields(sizes):
            value = getattr(sizes, field.name)
            numbers = () if isinstance(value, str) else (2 * value, value // 2, value + 1, value - 1, value + 2)
            for other in filter(value.__ne__, numbers or ("secded", "bf16-in-fp32")):
                try:
                    changed = replace(GEOMETRY, **{part.name: replace(sizes, **{field.name: other})})
                except GeometryError:
                    continue
                yield pytest.param(changed, id=f"{field.name}={other}")
                break
            else:
                assert field.name == "request_bytes", f"{field.name} has no other value"


@pytest.mark.parametrize("other", list(other_geometries()))
def test_hardware_of_another_size_is_refused_whatever_size_it_is(other):
    """Every field of the geometry is changed; one line names it."""
    with pytest.raises(DriverError, match=r"^\w+=\d+ is not possible: this driver was made for \d+$"):
        Driver(GEOMETRY).check_identity(lambda offset: ConfigBusModel(other).read(offset)[1])


def test_a_command_queue_is_set_up_and_rung():
    driver = Driver(replace(Geometry(), dma=replace(Geometry().dma, queue_commands=4)))
    registers = driver.registers
    assert driver.command_queue(0x12_0000_0100, (0x3_0000_0040, 0x4_0000_0080)) == [
        (registers[f"QUEUE_{name}"].offset, value) for name, value in (
            ("BASE_LO", 0x100), ("BASE_HI", 0x12), ("WORDS_BASE_LO", 0x40), ("WORDS_BASE_HI", 3),
            ("WORDS_LIMIT_LO", 0x80), ("WORDS_LIMIT_HI", 4))]
    assert [value for _, value in driver.command_queue(0)] == 6 * [0]
    assert driver.resume_queue() == [(registers["CONTROL"].offset, 1 << 4)]
    assert driver.skip_command() == [(registers["CONTROL"].offset, 1 << 5)]
    for words in ((64, 65), (63, 128)):
        with pytest.raises(DriverError, match="a multiple of 64"):
            driver.command_queue(0, words)
    with pytest.raises(DriverError, match="limit=0"):
        driver.command_queue(0, (64, 0))
    with pytest.raises(DriverError, match="no command queue"):
        Driver(Geometry()).resume_queue()
    with pytest.raises(DriverError, match="no command queue"):
        Driver(Geometry()).skip_command()
    assert driver.doorbell(13) == [(registers["DOORBELL"].offset, 5)]
    assert registers["DOORBELL"].offset not in [offset for offset, _ in driver.soft_reset(16)]
    for base in (0x40, -256, 1 << 48):
        with pytest.raises(DriverError, match="base"):
            driver.command_queue(base)
    with pytest.raises(DriverError, match="no command queue"):
        Driver(Geometry()).command_queue(0)


def test_a_ready_table_is_set_up():
    """The shift is written; a size that is no power of two, or too many groups, is refused in one line."""
    driver = Driver(replace(Geometry(), dma=replace(Geometry().dma, ready_groups=32)))
    register = driver.registers["READY"]
    for ids, shift in ((1, 0), (8, 3), (2048, 11)):
        assert driver.ready_table(ids) == [Write(register.offset, shift)]
    for ids in (0, 3, -4, 1 << 17, 2.0, True):
        with pytest.raises(DriverError, match=f"ids_per_group={ids!r} is not possible: a power of two up to 65536"):
            driver.ready_table(ids)
    for ids, tiles in ((4096, 1), (512, 8), (1 << 16, 1)):
        with pytest.raises(DriverError, match=f"ids_per_group={ids} .* 4095 tiles is allowed, not {ids * tiles}$"):
            driver.ready_table(ids, tiles)
    assert driver.ready_table(256, 8)
    with pytest.raises(DriverError, match="ready_groups=0 is not possible: this hardware has no ready table"):
        Driver(Geometry()).ready_table(8)


def test_a_tile_may_be_complete_with_fewer_bytes_than_it_has():
    driver = Driver(Geometry())
    block = {"base": 0, "limit": 1 << 20, "to": [Destination(1, 1)], "row_bytes": 256, "columns": 4,
             "pitch_bytes": 512, "updates_per_element": 1}
    for counted, threshold in ((None, 1024), (64, 64)):
        model = applied(driver.dma_map(2, **block, counted_bytes=counted), geometry=driver.geometry)
        assert model.entry("region", 2)["threshold"] == threshold
    for counted in (0, 1025):
        with pytest.raises(DriverError, match=f"counted_bytes={counted} is not possible: a whole number from 1"):
            driver.dma_map(2, **block, counted_bytes=counted)


def test_a_region_s_sum_is_one_that_the_geometry_has():
    """The driver refuses any other sum before it writes."""
    wide = Geometry(channel=ChannelGeometry(sums="bf16-in-fp32+bf16-in-fixed"))
    driver = Driver(wide)
    driver.memory_sums({2: MemorySum("bf16-in-fixed", 130, saturate=True)})
    *_, actions = driver.event_map(2, base=0, limit=4096, tile_bytes=4096, updates_per_element=2)
    register = driver.registers["REGION_ACTIONS"]
    assert tuple(register.field(name).decode(actions.value) for name in ("sum", "scale", "narrow", "saturate")) == (
        NUMBERS["bf16-in-fixed"], 130, 0, 1)
    for geometry, name, words in ((wide, "e4m3-in-fp32", "fp16, bf16, fp32, bf16-in-fp32, bf16-in-fixed"),
                                  (Geometry(), "bf16", "none")):
        with pytest.raises(DriverError, match=f"sum='{name}' is not possible: {words} .sums of the geometry"):
            Driver(geometry).memory_sums({1: MemorySum(name)})
    with pytest.raises(DriverError, match="scale=256"):
        driver.memory_sums({1: MemorySum("bf16-in-fixed", 256)})
