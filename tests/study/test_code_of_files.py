"""A scenario's or a study's file cannot have a function called, whatever key names it; who types the name can."""

import json
from pathlib import Path

import pytest

from t3sim import run_scenario
from t3sim.base.custom import GROUPS
from t3sim.base.errors import BadInput, Failure
from t3sim.commands.sweep import points_of
from t3sim.study.scenario.files import keys, scenario_of
from t3sim.study.scenario.short_names import SHORT_NAMES
from t3sim.study.sweeps.study import COMMANDS, load_study
from tests.support.studies import written
from tests.whole.test_entry_points import distribution

SMALL = str(Path(__file__).parents[1] / "data" / "machines" / "ring_small.toml")
LAYER = f'techniques = ["t3"]\nmachine = "{SMALL}"\n[layer]\ngemm = "256x256x64"\ndevices = 4\n'
#: The keys that take a function, each with what else a scenario needs, and the letters after the function's name.
CODE = {"layer.operator": ("", "-rs"), "exchange.algorithm": ("", ""),
        "exchange.topology": ('[exchange]\nalgorithm = "direct"\n', "")}
TRAP = """
from pathlib import Path
import t3sim.collectives.ring as ring
from t3sim.machine.topologies import ring as around

Path(__file__).with_suffix(".called").touch()


def usual(collective, ranks):
    return ring.reduce_scatter(ranks, -1)


def links(ranks):
    return around(ranks)


def operator(machine, workload, tiling, base):
    raise ValueError("called")
"""
FUNCTIONS = {"layer.operator": "operator", "exchange.algorithm": "usual", "exchange.topology": "links"}


@pytest.fixture
def trap(tmp_path) -> Path:
    path = tmp_path / "trap.py"
    path.write_text(TRAP)
    return path


def was_called(trap: Path) -> bool:
    return trap.with_suffix(".called").exists()


def asked(trap: Path, key: str) -> str:
    """Return a scenario that names the trap's function by this key."""
    section, _, name = key.partition(".")
    line = f'{name} = "{trap}:{FUNCTIONS[key]}{CODE[key][1]}"\n'
    return LAYER + line if section == "layer" else f"{LAYER}{CODE[key][0] or '[exchange]'}\n{line}"


def test_every_group_of_parts_but_techniques_is_tried():
    assert CODE.keys() == FUNCTIONS.keys() == GROUPS.keys() - {"techniques"}


@pytest.mark.parametrize("key", CODE)
def test_a_scenario_names_no_function(key, trap, error_of):
    file = trap.with_suffix(".toml")
    file.write_text(asked(trap, key))
    out = str(trap.parent / "out")
    commands = [["run", str(file)], ["trace", str(file), "--out", out], ["sweep", str(file), "--out", out]]
    for words in [*commands, ["kernel", str(file)]]:
        told = error_of(*words)
        assert "may name installed parts, not a function: --allow-code" in told and f"{trap}:{FUNCTIONS[key]}" in told
        assert words[0] == "sweep" or told.startswith(f"t3: error: {file}: ")
    with pytest.raises(BadInput, match="allow_code = true calls"):
        run_scenario(str(file))
    assert not was_called(trap) and not Path(out).exists()


def test_consent_calls_it(trap, error_of):
    """By an option, by `--set`, by --allow-code, or by Python; another key's consent is none."""
    file, reference = trap.with_suffix(".toml"), f"{trap}:usual"
    file.write_text(LAYER.replace('"t3"', '"sequential"'))
    assert "is for t3, t3-mca" in error_of("run", str(file), "--algorithm", reference)
    assert was_called(trap)
    assert scenario_of({}, {"exchange.algorithm": reference}).custom() == {"exchange.algorithm": reference}
    file.write_text(asked(trap, "exchange.algorithm").replace('"t3"', '"sequential"'))
    assert "is for t3, t3-mca" in error_of("run", str(file), "--allow-code")
    assert "is for t3, t3-mca" in error_of("run", str(file), "--set", f"exchange.algorithm={reference}")
    assert "is for t3, t3-mca" in error_of("sweep", str(file), "--out", str(trap.parent / "out"), "--allow-code")
    assert "--allow-code" in error_of("run", str(file), "--operator", f"{trap}:operator-rs")
    with pytest.raises(BadInput, match="is for t3, t3-mca"):
        run_scenario(str(file), allow_code=True)


@pytest.mark.long
def test_a_study_names_no_function_in_any_place(trap, tmp_path):
    """Whatever key of whatever part of a study: nothing is called."""
    machine = ["machine.gpu.workgroup_order", "machine.arbiter.policy", "machine.extends"]
    for command in COMMANDS:
        names = (*keys(), *SHORT_NAMES, *machine) if command == "run" else (
            "topology", "algorithm", "operator", "machine", "library", "geometry", "collective", "trace", "block")
        for name in names:
            for function in (f"{trap}:usual", f"{trap}:usual-rs", "trap:usual"):
                said, listed = (f"{json.dumps(name)} = {json.dumps(one)}" for one in (function, [function]))
                for part in (f"[options]\n{said}", f"[[points]]\n{said}", f"[grid]\n{listed}",
                             f"[draw]\ncount = 1\n[draw.settings]\n{listed}"):
                    text = f'title = "t"\ncommand = "{command}"\n{part}\n'
                    with pytest.raises((ValueError, Failure)):
                        for point in points_of(load_study(str(written(tmp_path, text)))):
                            point.tasks[0].run(lambda share: None)
                    assert not was_called(trap), text


def test_an_installed_part_is_named_by_a_file(tmp_path, monkeypatch, capsys):
    """By its entry point's name, or by the function that this stands for."""
    entries = ("[t3sim.operators]\nouter = my_parts.links:outer\n[t3sim.algorithms]\nleaping = my_parts.links:leaping\n"
               "[t3sim.topologies]\nchords = my_parts.links:chords\n")
    monkeypatch.syspath_prepend(distribution(tmp_path, entries))
    for names in (("outer-rs", "chords", "leaping"),
                  ("my_parts.links:outer-rs", "my_parts.links:chords", "my_parts.links:leaping")):
        content = {"layer": {"operator": names[0]}, "exchange": {"topology": names[1], "algorithm": names[2]}}
        assert len(scenario_of(content, {}).custom()) == 3
    with pytest.raises(BadInput, match=r"exchange.algorithm = my_parts.links:chords: a file may name installed parts"):
        scenario_of({"exchange": {"algorithm": "my_parts.links:chords"}}, {})
