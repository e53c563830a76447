"""One file describes a machine for all levels of simulation: each takes its part, nothing else may stand there."""

from importlib import resources

import pytest

from t3sim.cli import main
from t3sim.machine import PRESETS, Machine, MachineError, load_machine
from t3sim.machine.files import ALIASES, read
from t3sim.machine.levels import (
    CLUSTER,
    COMMERCIAL,
    CYCLE,
    ENGINES,
    ITERATIONS,
    LEVELS,
    NETWORK,
    QUEUE,
    TILES,
)
from t3sim.machine.load import machines_of, sections

CYCLE_LEVEL = ("cais-8x4-t3", "h100-t3", "hbm2-reference", "hbm3-reference", "mi300x-t3", "t3-accelsim",
               "t3-table1")
WITH_CYCLE_MACHINE = ("h100-sxm", "h800-sxm", "mi300x", "mi308x")
A100 = ("a100-40gb", "a100-nvlink", "a100-pcie", "a100-sxm")
MI300 = ("mi300x", "mi308x", "mi325x", "mi355x")
HOPPER_AND_LATER = ("b200", "b300", "cais-8x4", "gb200", "gh200", "h100-sxm", "h200-sxm", "h800-sxm")
TAKES = {
    CYCLE: (*CYCLE_LEVEL, *WITH_CYCLE_MACHINE),
    QUEUE: (*CYCLE_LEVEL, *WITH_CYCLE_MACHINE),
    ENGINES: MI300,
    TILES: (*A100, "dgx-v100", "mi210-2x4", "mi210-x4", *CYCLE_LEVEL, *HOPPER_AND_LATER),
    NETWORK: ("mi210-2x4", "torus-128"),
    CLUSTER: ("mi210", *CYCLE_LEVEL),
    COMMERCIAL: (*A100, "dgx-v100", "l20-pcie", *HOPPER_AND_LATER, *MI300),
    ITERATIONS: (*A100, *HOPPER_AND_LATER, *MI300),
}


@pytest.fixture
def write(tmp_path):
    def write_file(text: str) -> str:
        (tmp_path / "mine.toml").write_text(text)
        return str(tmp_path / "mine.toml")
    return write_file


def refusal(level, name: str) -> str:
    with pytest.raises(MachineError) as caught:
        load_machine(name, level)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_every_machine_serves_the_levels_for_which_it_says_enough():
    assert [machines_of(level) for level in LEVELS] == [sorted(TAKES[level]) for level in LEVELS]
    assert {name for names in TAKES.values() for name in names} == set(PRESETS)
    for level, names in TAKES.items():
        own = [read(name).get("cycle_machine", name) if level in (CYCLE, QUEUE) else name for name in names]
        assert [load_machine(name, level).name for name in names] == own


@pytest.mark.parametrize(("level", "name"), [(level, name) for level in LEVELS for name in PRESETS
                                             if name not in TAKES[level]])
def test_what_a_machine_does_not_say_is_named(level, name):
    line, there = refusal(level, name), read(name)
    assert line.startswith(f"{name}: ") and f" missing, which {level.called} needs; machines that have all are" in line
    lacking = [f"[{one}]" for one in sections(level) if one not in there]
    said = line.removeprefix(f"{name}: ").partition(" missing, which")[0]
    assert said.removesuffix(" are").removesuffix(" is") == ", ".join(lacking) if lacking else said.removesuffix(
        " is") in Machine.model_validate(there).lacks(level)


def test_a_file_that_lacks_sections_is_told_which_its_level_needs(write):
    assert refusal(ENGINES, write('extends = "t3-table1"\nname = "mine"\n')).endswith(
        'mine.toml: [memory], [stream], [engine], [kernel], [power] are missing, which the event level of DMA engines '
        'needs; a file with `extends = "mi300x"` needs only what differs')
    # A wrong value comes first.
    assert "[link] latency_ns = -1" in refusal(CYCLE, write('name = "mine"\n[link]\nlatency_ns = -1\n'))


@pytest.mark.parametrize(("alias", "product"), ALIASES.items())
def test_a_machine_answers_to_its_former_names(alias, product, write, capsys):
    levels = [level for level in LEVELS if product in TAKES[level]]
    assert product in PRESETS and alias not in PRESETS and levels
    for level in levels:
        assert load_machine(alias, level) == load_machine(product, level)
        mine, its = (load_machine(write(f'extends = "{base}"\nname = "mine"\n[gpu]\ncompute_units = 8\n'), level)
                     for base in (alias, product))
        assert mine == its and mine.name == "mine"
    lacking = next(level for level in LEVELS if level not in levels)
    assert refusal(lacking, alias).startswith(f"{product}: [")
    assert main(["run", "--level", "event", "--gemm", "512x512x512", "--devices", "4", "--machine", alias]) == 0
    assert product in capsys.readouterr().out


def test_a_product_has_a_machine_of_the_cycle_level(write):
    assert load_machine("h100-sxm") == load_machine("h100-t3") and load_machine("mi300x") == load_machine("mi300x-t3")
    assert load_machine("h100-sxm", QUEUE) == load_machine("h100-t3", QUEUE)
    # What a file says over the product it says of that machine.
    mine = write('extends = "h100-nvlink"\nname = "mine"\n[accelerator]\ncores = 66\n[tracker]\nsets = 1024\n'
                 '[link]\nbandwidth_gb_per_s = 900.0\n[rings]\nchannels = 4\n')
    assert load_machine(mine) == load_machine({"extends": "h100-t3", "name": "mine", "gpu": {"compute_units": 66},
                                               "tracker": {"sets": 1024}, "link": {"bandwidth_gb_per_s": 900.0}})
    assert load_machine(mine, ITERATIONS).cycle_machine == mine and load_machine(mine, COMMERCIAL).rings.channels == 4
    assert load_machine("h800-sxm").link.bandwidth_gb_per_s == 200.0
    assert load_machine("h800-sxm", ITERATIONS).cycle_machine == "h800-sxm"


@pytest.mark.parametrize(("base", "text", "words"), [
    ("h100-sxm", "[memory]\nbandwidth_gb_per_s = 4800.0", "[dram] are missing, which the cycle level needs"),
    ("mi300x", "[link]\nbandwidth_gb_per_s = 128.0", "[dram] are missing, which the cycle level needs"),
    ("h100-sxm", 'rings.channels = "x"', "[rings] channels = 'x'"),
    ("h100-sxm", 'accelerator.cores = "x"', "[accelerator] cores = 'x'"),
    ("h100-sxm", "gpu = 3\naccelerator.cores = 5", "gpu = 3 must be a section"),
    ("h100-sxm", "dma.ready_commands = 1", "[dma] ready_commands = 1"),
    ("h100-sxm", 'cycle_machine = "h100-t3"\nlink.bandwidth_gb_per_s = "x"', "[link] bandwidth_gb_per_s = 'x'"),
    ("h100-sxm", 'cycle_machine = "nowhere"', "nowhere' is neither a file nor one of")])
def test_a_machine_without_its_gpu_on_the_cycle_level_says_so(base, text, words, write):
    assert words in refusal(CYCLE, write(f'extends = "{base}"\n{text}\n'))


def test_a_machine_of_the_cycle_level_may_be_a_file_beside(write, tmp_path):
    (tmp_path / "t3.toml").write_text('extends = "h100-t3"\nname = "beside"\n[tracker]\nsets = 512\n')
    assert load_machine(write('extends = "h100-sxm"\ncycle_machine = "t3.toml"\n')).tracker.sets == 512


def test_every_machine_has_its_own_file_with_its_name():
    for name in PRESETS:
        text = resources.files("t3sim.machine").joinpath(f"machines/{name}.toml").read_text("utf-8")
        assert text.count(f'\nname = "{name}"\n') == 1


@pytest.mark.parametrize(("text", "words"), [
    ("[power]\nlink_pj_per_bit = -1.0", "[power] link_pj_per_bit = -1.0: 0 to 1e12 is allowed"),
    ("[power]\nlink_watt = 1.0", "[power] link_watt is unknown; allowed are compute_idle_w"),
    ("[link]\nkind = 'swich'", "[link] kind = 'swich': input should be 'switch', 'full' or 'host'"),
    ("[library.small]\nefficiency = 2.0", "[library.small] efficiency = 2.0"),
    ("power = 3", "power = 3 must be a section, [power]"),
    ("[gpu]\nsplit_k = [0]", "[gpu] split_k[0] = 0"),
])
def test_what_is_there_for_another_level_is_checked(write, text, words):
    assert words in refusal(CYCLE, write(f'extends = "t3-table1"\n{text}\n'))


def test_a_property_of_the_hardware_is_said_once(write):
    """By any of its keys, also over a machine that says another one; the other levels follow."""
    mine = write('extends = "mi210-2x4"\n[accelerator]\ncores = 100\n')
    assert load_machine(mine, TILES).gpu.compute_units == load_machine(mine, NETWORK).accelerator.cores == 100
    wide = write('extends = "h100-sxm"\n[link]\nbandwidth_gb_per_s = 900.0\n[wires]\ngb_per_s = 800.0\n')
    assert (load_machine(wide, TILES).link.bandwidth_gb_per_s, load_machine(wide, COMMERCIAL).wires.gb_per_s) == (
        900.0, 800.0)
    # What only the closed form allows, as it costs no time there.
    huge = write('extends = "mi210-2x4"\n[accelerator]\ncores = 2000\n')
    assert load_machine(huge, NETWORK).accelerator.cores == 2000
    assert "[gpu] compute_units is missing, which the event level of tiles needs" in refusal(TILES, huge)


def test_one_file_does_not_contradict_itself(write):
    assert "[gpu] compute_units = 66 and [accelerator] cores = 100 must agree" in refusal(
        NETWORK, write('extends = "mi210-2x4"\n[gpu]\ncompute_units = 66\n[accelerator]\ncores = 100\n'))
    assert "[network] bandwidth_gb_per_s = 25.0 and [inter] bandwidth_gb_per_s = 50.0 must agree" in refusal(
        TILES, write('extends = "a100-sxm"\n[network]\nbandwidth_gb_per_s = 25.0\n'
                     '[inter]\nbandwidth_gb_per_s = 50.0\nefficiency = 0.8\nstep_ns = 1.0\n'))


@pytest.mark.builds_loops
def test_a_file_for_the_cycle_level_serves_the_others(write, capsys):
    mine = write('extends = "t3-table1"\nname = "mine"\n[gpu]\ncompute_units = 160\n')
    assert load_machine(mine, TILES).gpu.compute_units == load_machine(mine, CLUSTER).accelerator.cores == 160
    assert load_machine(mine, CLUSTER).cycle_machine == mine
    assert main(["collective", "--machine", mine, "--sizes", "1M", "--json", "-"]) == 0
    assert '"machine": "mine"' in capsys.readouterr().out


@pytest.mark.builds_loops
@pytest.mark.parametrize("words", [["run", "--level", "event", "--operator", "gemm-rs", "--gemm", "1024x1024x1024"],
                                   ["collective", "--sizes", "1M"]])
def test_memory_without_refresh_is_a_machine_of_the_event_level(words, capsys):
    assert main([*words, "--machine", "t3-accelsim"]) == 0
    assert "t3-accelsim" in capsys.readouterr().out


def test_levels_name_what_a_machine_may_have():
    for level in LEVELS:
        assert set(level.reads) <= set(Machine.model_fields), level.called
        assert level.example in machines_of(level)


def test_what_a_level_does_not_read_is_not_there():
    """And changes nothing that a result is kept by."""
    more = load_machine({"extends": "t3-table1", "link": {"kind": "full"}, "rings": read("h100-sxm")["rings"]})
    assert more == load_machine() and "kind" not in more.model_dump()["link"]


def test_a_machine_of_python_is_asked_as_a_file_is():
    """A record that was loaded for one level is refused by another one in the same words."""
    with pytest.raises(MachineError, match=r"h100-sxm: \[llc\], .* which the cycle level needs"):
        load_machine(load_machine("h100-sxm", COMMERCIAL))
    assert load_machine(load_machine("t3-table1", QUEUE)) == load_machine()


def test_one_gpu_exchanges_nothing(write):
    assert refusal(TILES, write('extends = "gh200"\ngpus = 1\n')).endswith(
        "gpus = 1: the event level of tiles needs at least 2")


def test_machines_are_listed_with_the_commands_that_they_serve(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "120")
    assert main(["machines"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(maxsplit=1)[0] for line in lines if line.split(" ")[0] in PRESETS] == sorted(PRESETS)
    assert any(line.startswith("mi300x ") and "dma, collective, overlap," in line for line in lines)
    assert any(line.startswith("  t3 dma (") and "[stream], [engine]" in line for line in lines)
