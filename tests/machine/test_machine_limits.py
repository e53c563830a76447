"""Every key of a machine file with every kind of value: refused in one line, or accepted.

The line names the key, the value and what is allowed; and what is accepted runs to its end.
"""

import os

import pytest

from t3sim.base.errors import shortened
from t3sim.machine import Machine, MachineError, load_machine
from t3sim.machine.levels import CYCLE, LEVELS, Level
from t3sim.machine.section import Section, is_read, section_of
from t3sim.runs import kernels
from t3sim.workload.workloads import gemm_workload
from tests.support.naming import case

LONGEST_LINE = 200

_WRONG = {"negative": "-1", "NaN": "nan", "infinite": "inf", "huge": str(2**40), "beyond a float": "1e400",
          "digits": "1" + "0" * 4000, "more digits": "1" + "0" * 5000, "boolean": "true", "empty": "''",
          "long": "'" + "x" * 5000 + "'", "list": "[]", "long list": "[" + "1, " * 5000 + "]", "section": "{}",
          "date": "2024-04-27"}


def keys(level: Level, section: type[Section] = Machine, path: tuple[str, ...] = ()):
    for name, field in section.model_fields.items():
        if name in level.reads if section is Machine else is_read(field, level):
            if inner := section_of(field):
                yield from keys(level, inner, (*path, name))
            else:
                yield ".".join((*path, name)), field


#: Keys by level; one that several levels read is asked about on the first.
READ = {level: dict(keys(level)) for level in LEVELS}
FIELDS = {key: field for level in reversed(LEVELS) for key, field in READ[level].items()}
LEVEL = {key: level for level in reversed(LEVELS) for key in READ[level]}
SECTIONS = {section: [key for key in FIELDS if key.rpartition(".")[0] == section]
            for section in dict.fromkeys(key.rpartition(".")[0] for key in FIELDS)}
NUMBERS = {key: field for key, field in FIELDS.items() if field.annotation in (int, float)}
SIMULATED = {key: field for key, field in NUMBERS.items() if key in READ[CYCLE]}


#: Machines with the sections that a level's example does without.
WITH = {"memory_cache": "mi300x-t3"}


def text_of(key: str, value: str) -> str:
    section, _, name = key.rpartition(".")
    base = f'extends = "{WITH.get(section, LEVEL[key].example)}"\n'
    return base + f"[{section}]\n" * bool(section) + f"{name} = {value}\n"


def bounds(field) -> dict[str, float]:
    return {name: value for item in field.metadata for name in ("ge", "gt", "le")
            if (value := getattr(item, name, None)) is not None}


@pytest.fixture
def load(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def load_text(text: str | bytes) -> Machine:
        (tmp_path / "m.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
        return load_machine("m.toml")
    return load_text


def refusal(load, text: str | bytes) -> str:
    with pytest.raises(MachineError) as caught:
        load(text)
    line = shortened(str(caught.value))
    assert "\n" not in line and len(line) <= LONGEST_LINE, line
    assert os.listdir() == ["m.toml"]
    return line


def is_allowed(key: str, kind: str) -> bool:
    """Say whether a value that is wrong for nearly all keys is none for this one."""
    field = FIELDS[key]
    return (kind == "boolean" and field.annotation is bool
            or kind == "list" and (field.default == () or key == "measured.fitted")
            or kind == "empty" and field.annotation in (str, str | None) and key != "name"
            or kind == "long" and key == "cycle_machine"
            or kind == "huge" and bounds(field).get("le", 0) >= 2**40)


def check_refusal(load, key: str, kind: str) -> None:
    line = refusal(load, text_of(key, _WRONG[kind]))
    if kind not in ("digits", "more digits"):
        assert key.split(".")[-1] in line, line
    assert key == "name" or "=" in line or "not a TOML file" in line, line


@pytest.mark.long
@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section or "top")
def test_wrong_values(load, section):
    for key in SECTIONS[section]:
        for kind in _WRONG:
            if not is_allowed(key, kind):
                with case(f"{key}, {kind}"):
                    check_refusal(load, key, kind)


def test_every_number_has_limits():
    for key, field in NUMBERS.items():
        assert len(bounds(field)) == 2 and "le" in bounds(field), key


def limits(section: str):
    for key in filter(SIMULATED.get, SECTIONS[section]):
        yield from ((key, value) for value in bounds(SIMULATED[key]).values())


@pytest.mark.slow
@pytest.mark.builds_loops
@pytest.mark.parametrize("section", [section for section in SECTIONS if [*limits(section)]],
                         ids=lambda section: section or "top")
def test_what_is_accepted_runs(load, section):
    for key, value in limits(section):
        with case(f"{key} = {value}"):
            check_run(load, key, value)


def check_run(load, key: str, value: float) -> None:
    """What is accepted runs in the models, or is refused because of another key.

    Without RTL: each other size of that is other hardware, which would have to be compiled first. If it is refused, the
    line names this key too.
    """
    try:
        machine = load(text_of(key, str(value)))
    except MachineError:
        assert key.split(".")[-1] in refusal(load, text_of(key, str(value)))
        return
    assert type(value) is NUMBERS[key].annotation or NUMBERS[key].annotation is float
    workload = gemm_workload("256x256x64", 2)
    if machine.gpu.tile_m > 256 or machine.gpu.tile_n > 256:
        workload = gemm_workload("2048x2048x64", 2)
    if machine.gpu.k_parts > 2:  # each needs a block of K
        workload = gemm_workload(f"256x256x{machine.gpu.k_parts * machine.gpu.block_k}", 2)
    for name, phase in ((kernels.GEMM, "gemm"), (kernels.ALL_GATHER, "ag")):
        moved = kernels.simulate(name, machine, workload).dram[phase]
        assert moved.write > 0 or machine.memory_cache and moved.read > 0  # what such a cache holds, DRAM never gets


@pytest.mark.parametrize(("text", "words"), [
    (b"\xff\xfe", ["m.toml", "not a TOML file"]),
    (b"\x00" * (2 << 20), ["m.toml", "longer than"]),
    (b"a = " + b"[" * 50000, ["m.toml", "nested too deeply"]),
    (b'name = "a"\nname = "b"\n', ["m.toml", "not a TOML file", "line 2"]),
    (b'extends = "m.toml"\n', ["'m.toml'", "extends itself"]),
    (b'extends = "./../' + b"%s" + b'/m.toml"\n', ["extends itself"]),
    (b'extends = ""\n', ["extends = ''"]),
    (b'extends = "a\\u0000b"\n', ["extends = 'a\\x00b'"]),
    (b'extends = "' + b"x" * 5000 + b'"\n', ["cannot be read", "too long"]),
    (b'extends = "' + b"x/" * 5000 + b'"\n', ["cannot be read", "too long"]),
    (b'extends = "."\n', ["cannot be read", "directory"]),
    (b'extends = ["t3-table1"]\n', ["extends = ['t3-table1']"]),
    (b'extends = "t3-table1"\n' + b"x" * 5000 + b" = 1\n", ["is unknown", "allowed are"]),
    (b'extends = "t3-table1"\n' + b"x." * 5000 + b"x = 1\n", ["x is unknown"]),
    (b'extends = "t3-table1"\n"two words" = 1\n', ["'two words' is unknown"]),
    (b'extends = "t3-table1"\n[dma]\nready_commands = 4\n', ["[dma] ready_commands = 4", "= 8"]),
    (b'extends = "t3-table1"\n[arbiter]\nthreshold = 127\n', ["[arbiter] threshold = 127", "'auto' or 'none'", "126"]),
    (b'extends = "t3-table1"\n[arbiter]\nthreshold = "' + b"x" * 5000 + b'"\n', ["[arbiter] threshold", "'auto'"]),
    (b'extends = "t3-table1"\n[llc]\nways = 8\nline_bytes = 96\nsize_bytes = 786432\n', ["line_bytes = 96", "power"]),
    (b'extends = "t3-table1"\n[llc]\nsize_bytes = 12582912\n', ["[llc] size_bytes = 12582912", "power of two"]),
    (b'extends = "t3-table1"\n[switch]\nplanes = 3\n', ["[switch] planes = 3", "power of two"]),
    (b'extends = "t3-table1"\n[tracker]\nsets = 200\n', ["[tracker] sets=200", "power of two"]),
])
def test_wrong_file(load, text, words):
    line = refusal(load, text % os.getcwd().rpartition("/")[2].encode() if b"%s" in text else text)
    for word in words:
        assert word in line


def test_machines_that_extend_one_another_for_ever(load, tmp_path):
    """In a circle through folders, and in a line that is too long: neither ends in a traceback."""
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "b.toml").write_text('extends = "../a.toml"\n')
    (tmp_path / "a.toml").write_text('extends = "deep/b.toml"\n')
    (tmp_path / "deep" / "link").symlink_to(tmp_path)
    (tmp_path / "c.toml").write_text('extends = "deep/link/c.toml"\n')
    for name in ("a.toml", "c.toml"):
        with pytest.raises(MachineError, match="extends itself"):
            load_machine(name)
    for number in range(1200):
        (tmp_path / f"{number}.toml").write_text(f'extends = "{number + 1}.toml"\n')
    (tmp_path / "1200.toml").write_text('extends = "t3-table1"\n')
    with pytest.raises(MachineError, match="at most 16 machines"):
        load_machine("0.toml")
    assert load_machine("1190.toml") == load_machine()


@pytest.mark.parametrize(("key", "value", "told"), [
    ("accelerator.peak_tflop_per_s", "0", "peak_tflop_per_s = 0: 1e-9 to 1e12 is allowed"),
    ("accelerator.kernel_ns", "1e13", "kernel_ns = 10000000000000.0: 0 to 1e12 is allowed"),
    ("accelerator.memory_efficiency", "1.5", "memory_efficiency = 1.5: above 0, at most 1 is allowed"),
    ("link.latency_ns", "1e5", "latency_ns = 100000.0: 0 to 10000 is allowed")])
def test_limits_are_written_as_people_do(load, key, value, told):
    assert told in refusal(load, text_of(key, value))
