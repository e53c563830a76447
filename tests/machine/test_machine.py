"""Machine files: what table 1 says is in the default, and every mistake is named in one line."""

import re
from importlib import resources
from typing import get_args

import pytest
from pydantic import ValidationError

from t3sim.collectives.schedule import ScheduleError
from t3sim.machine import PRESETS, MachineError, hardware, load_machine
from t3sim.rtl.check_bits import PROTECTIONS
from t3sim.rtl.geometry import Geometry
from t3sim.runs.address_space import map_output
from t3sim.runs.plan import Plan
from t3sim.workload.workloads import gemm_workload


@pytest.fixture
def write(tmp_path):
    def write_file(text: str, name: str = "mine.toml") -> str:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return str(path)
    return write_file


def default_text() -> str:
    return resources.files("t3sim.machine").joinpath("machines/t3-table1.toml").read_text(encoding="utf-8")


def one_line(name: str) -> str:
    with pytest.raises(MachineError) as caught:
        load_machine(name)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_table_1():
    machine = load_machine()
    assert machine.name == "t3-table1"
    assert (machine.gpu.compute_units, machine.gpu.clock_ghz) == (80, 1.4)
    assert machine.gpu.peak_flop_per_ns == pytest.approx(114.7e3, rel=1e-3)
    assert machine.llc.size_bytes == 16 << 20
    assert machine.llc.bandwidth_bytes_per_ns == pytest.approx(64 * 32 * 1.4)
    assert (machine.link.bandwidth_gb_per_s, machine.link.latency_ns) == (75.0, 500.0)
    assert machine.memory_clock_ghz == 1.0
    assert (machine.dram.bank_groups, machine.dram.ccdwl_cycles) == (4, 4)
    bandwidth = machine.channels.count * machine.dram.peak_bytes_per_cycle * machine.memory_clock_ghz
    assert bandwidth == pytest.approx(1000, rel=0.03)  # GB/s


@pytest.mark.parametrize(("changes", "cycles"), [
    ("", 13),  # 32 channels x 64 B / (2 x 75 B per cycle) = 13.65
    ("[link]\nbandwidth_gb_per_s = 150.0", 6),
    ("[channels]\ncount = 64\n[dram]\nchannels = 64", 27),
    ("memory_clock_ghz = 2.0", 27),  # the link carries half as much per memory cycle
    ("[link]\nbandwidth_gb_per_s = 10000.0", 1),  # not 0, which is for ever
    ("memory_clock_ghz = 10.0\n[link]\nbandwidth_gb_per_s = 0.1", 65535),  # what the register holds
    ("[arbiter]\nstarvation_limit_cycles = 64", 64),
    ("[arbiter]\nstarvation_limit_cycles = 0", 0),
])
def test_the_starvation_limit_follows_link_and_channels_unless_it_is_given(write, changes, cycles):
    """Several links, channels and clocks, and both ends of the register."""
    assert load_machine(write(f'extends = "t3-table1"\n{changes}\n')).starvation_limit_cycles == cycles


def test_default_geometry_is_the_hardware_s_default():
    machine = load_machine()
    assert machine.geometry() == Geometry()
    assert machine.gpu.wavefront_tile_bytes == 8192


def test_every_number_of_the_default_has_its_source():
    for number, line in enumerate(default_text().splitlines(), 1):
        if re.match(r"\w+ = [-\d\[\"tf]", line) and not line.startswith("name"):
            assert re.search(r"\S  # \S", line), f"line {number} has no source: {line}"


def test_presets_are_the_packaged_files():
    packaged = {file.name for file in resources.files("t3sim.machine").joinpath("machines").iterdir()}
    assert packaged == {f"{name}.toml" for name in PRESETS}


def test_reference_channel():
    dram = load_machine("hbm2-reference").dram
    assert (dram.channels, dram.peak_bytes_per_cycle, dram.channel_bytes) == (1, 32, 1 << 30)
    assert dram.read_to_write_cycles == 14
    assert (dram.write_to_read_l_cycles, dram.write_to_read_s_cycles, dram.write_to_precharge_cycles) == (14, 12, 22)


def test_is_frozen():
    machine = load_machine()
    with pytest.raises(ValidationError):
        machine.gpu.compute_units = 160
    assert hash(machine) == hash(load_machine())


def test_whole_file(write):
    assert load_machine(write(default_text())) == load_machine()


def test_extends(write):
    machine = load_machine(write('extends = "t3-table1"\nname = "future"\n[gpu]\ncompute_units = 160\n'))
    assert (machine.name, machine.gpu.compute_units) == ("future", 160)
    assert machine.gpu.clock_ghz == 1.4
    assert machine.link == load_machine().link


def test_extends_a_file_beside_it(write):
    write('extends = "t3-table1"\nname = "slow"\n[link]\nbandwidth_gb_per_s = 10\n', "slow.toml")
    machine = load_machine(write('extends = "slow.toml"\nname = "slower"\n[link]\nlatency_ns = 900.0\n'))
    assert (machine.link.bandwidth_gb_per_s, machine.link.latency_ns) == (10, 900)


def test_refuses_to_extend_itself(write):
    name = write('extends = "mine.toml"\n')
    assert "extends itself" in one_line(name)


CACHE = """[memory_cache]
size_bytes = 16777216
ways = 16
replacement = "lru"
requests = 64
hit_latency_ns = 40.0
fill_latency_ns = 90.0
bandwidth_bytes_per_ns = 4000.0
"""


def test_a_memory_cache_is_there_only_if_the_file_says_so(write):
    assert load_machine().memory_cache is None
    cached = load_machine(write(f'extends = "t3-table1"\n{CACHE}')).memory_cache
    assert (cached.size_bytes, cached.sets(32)) == (16 << 20, 512)


@pytest.mark.parametrize(("change", "words"), [
    ("[link]\nlatency_us = 0.5", "[link] latency_us is unknown; did you mean latency_ns?"),
    ("[link]\nlatency = 0.5", "[link] latency is unknown; did you mean latency_ns?"),
    ("[link]\nbandwidth_gbit_per_s = 600", "did you mean bandwidth_gb_per_s?"),
    ("[llc]\nsize_mb = 16", "[llc] size_mb is unknown; did you mean size_bytes?"),
    ("[gpu]\ncompute_unit = 80", "did you mean compute_units?"),
    ("[gpu]\nhue = 3", "[gpu] hue is unknown; allowed are block_k, by_turn, clock_ghz"),
    ("[dram]\ntrp_ns = 14", "[dram] trp_ns is unknown; did you mean trp_cycles?"),
    ("[gpus]\ncompute_units = 80", "gpus = {'compute_units': 80}: input should be a valid integer"),
    ("[gpuz]\ncompute_units = 80", "gpuz is unknown; did you mean gpu?"),
    ("[link]\nlatency_ns = '500 ns'", "[link] latency_ns = '500 ns': input should be a valid number"),
    ("[link]\nlatency_ns = -1.0", "[link] latency_ns = -1.0: 0 to 10000 is allowed"),
    ("[link]\nbandwidth_gb_per_s = 0", "[link] bandwidth_gb_per_s = 0: 0.1 to 10000 is allowed"),
    ("[link]\nbandwidth_gb_per_s = inf", "finite"),
    ("[link]\nlatency_ns = nan", "finite"),
    ("[gpu]\ncompute_units = 80.5", "[gpu] compute_units = 80.5: input should be a valid integer"),
    ("[gpu]\ncompute_units = true", "[gpu] compute_units = True"),
    ("[gpu]\nmatrix_efficiency = 86.0", "[gpu] matrix_efficiency = 86.0: 0.01 to 1 is allowed"),
    ("[gpu]\nwavefronts_per_workgroup = 7", "[gpu] tile_n = 256 does not split evenly"),
    ("[gpu]\ntile_m = 100", "[gpu] tile_m = 100"),
    ("[gpu]\ntile_n = 1024", "[tracker] count_bits = 16 cannot count"),
    ("[llc]\nreplacement = \"mru\"", "[llc] replacement = 'mru'"),
    ("[llc]\nslices = 40", "[llc] slices = 40: 0 or a multiple of [channels] count = 32"),
    ("[llc]\nslice_queue_loads = 0", "[llc] slice_queue_loads = 0"),
    ("[llc]\nways = 24", "[llc] size_bytes = 16777216 is not a whole number of sets"),
    ("[llc]\nparts = 3", "lines of line_bytes = 128 in each of parts = 3"),
    ("[llc]\nparts = 32\n[gpu]\ncompute_units = 80", "[llc] parts = 32: must divide [gpu] compute_units = 80"),
    (CACHE.replace("ways = 16", "ways = 5"), "[memory_cache] size_bytes = 16777216: 32 slices of ways = 5 lines of 64"),
    (CACHE.replace("16777216", "16777280"), "[memory_cache] size_bytes = 16777280: 32 slices of ways = 16 lines of 64"),
    (CACHE.replace("requests = 64", "requests = 0"), "[memory_cache] requests = 0: 1 to 255 is allowed"),
    (CACHE.replace("hit_latency_ns = 40.0", ""), "[memory_cache] hit_latency_ns is missing"),
    (CACHE.replace('"lru"', '"mru"'), "[memory_cache] replacement = 'mru'"),
    (CACHE + "line_bytes = 128", "[memory_cache] line_bytes is unknown"),
    (CACHE + '[dram]\nscheduler = "gpgpusim"\ntrefi_cycles = 0',
     "[dram] scheduler = 'gpgpusim': with [memory_cache] only 'fr_fcfs' is allowed"),
    ("[tracker]\nsets = 200", "sets=200 is impossible: a power of two is needed"),
    ("[tracker]\nbanks = 512", "[tracker] banks = 512: 1 to 256 is allowed"),
    ("[tracker]\nways = 4", "[tracker] ways = 4: a workgroup of [gpu] wavefronts_per_workgroup = 8 needs as many"),
    ("[channels]\ncount = 16", "[dram] channels = 32 and [channels] count = 16 must agree"),
    ("[channels]\ninterleave_bytes = 32", "[channels] interleave_bytes = 32: 64 to 65536 is allowed"),
    ("[dma]\noutstanding_lines = 7", "outstanding_lines=7 is impossible: 2 x engines=8 to 65535"),
    ("[dma]\ntiles_per_block = 16", "[dma] tiles_per_block = 16 is more than"),
    ("[arbiter]\nstarvation_limit_cycles = 65536", "[arbiter] starvation_limit_cycles = 65536: input should be 'deriv"),
    ("[arbiter]\nstarvation_limit_cycles = 'auto'", "[arbiter] starvation_limit_cycles = 'auto': input should be 'd"),
    ("[arbiter]\nmonitor_breakpoints = [1, 2]", "[arbiter] monitor_breakpoints"),
    ("[arbiter]\nmonitor_breakpoints = [3, 2, 1]", "must rise"),
    ("[arbiter]\nmonitor_breakpoints = [1, 2, 300]", "[arbiter] monitor_breakpoints[2] = 300"),
    ("[dram]\nbank_groups = 3", "[dram] bank_groups = 3: a power of two"),
    ("link = 3", "link = 3 must be a section, [link]"),
    ("name = ''", "name = ''"),
    ("memory_clock_ghz = 0.0", "memory_clock_ghz = 0.0"),
])
def test_names_the_mistake(write, change, words):
    name = write(f'extends = "t3-table1"\n{change}\n')
    message = one_line(name)
    assert message.startswith(f"{name}: ")
    assert words in message


def test_missing_key(write):
    message = one_line(write(default_text().replace("latency_ns = 500.0", "")))
    assert "[link] latency_ns is missing" in message


def test_wrong_unit_outranks_the_key_that_it_replaces(write):
    message = one_line(write(default_text().replace("latency_ns = 500.0", "latency_us = 0.5")))
    assert "did you mean latency_ns?" in message


def test_unreadable(write, tmp_path):
    assert ("neither a file nor one of cais-8x4-t3, h100-sxm, h100-t3, h800-sxm, hbm2-reference, hbm3-reference, "
            "mi300x, mi300x-t3, mi308x, t3-accelsim, t3-table1"
            in one_line("v100"))
    assert "cannot be read" in one_line(str(tmp_path))
    assert "not a TOML file" in one_line(write("[gpu\n"))
    assert "not a TOML file" in one_line(write('name = "twice"\nname = "twice"\n'))
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    assert "not a TOML file" in one_line(str(binary))
    assert "not the name of a machine" in one_line(write("extends = 3\n"))
    assert "is neither a file nor" in one_line(write('extends = "gone.toml"\n'))
    assert "[dram] are missing, which the cycle level needs" in one_line(write(""))


def test_ids_may_be_short_but_must_name_every_tile(tmp_path):
    """Reads carry no tag in the hardware; a kernel with more tiles than ids is refused in one line."""
    path = tmp_path / "short.toml"
    path.write_text('extends = "t3-table1"\nname = "short ids"\n\n[tracker]\nwg_bits = 7\nsets = 64\n')
    machine = load_machine(path)
    for shape, fits in (("2048x2048x64", True), ("4096x4096x64", False)):
        schedule = Plan(machine, gemm_workload(shape, 4)).schedule
        bases = [0] * 4
        if fits:
            map_output(schedule, 0, bases, machine.geometry(), 1)
        else:
            with pytest.raises(ScheduleError, match=r"512 ids are needed.*wg_bits=7 .*128"):
                map_output(schedule, 0, bases, machine.geometry(), 1)


def test_a_machine_may_have_every_protection_of_the_hardware():
    assert get_args(hardware.Tracker.model_fields["protection"].annotation) == PROTECTIONS
