"""Every key of scenarios, studies and machines with values of every type: an answer, or one line; never a fault of t3.

What is asked for is made ready, and computed where it is a closed form; nothing is simulated.
"""

import copy
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from t3sim import cli
from t3sim.base.errors import is_ours
from t3sim.commands.sweep import points_of
from t3sim.machine.files import read
from t3sim.study.scenario.dispatch import request_of
from t3sim.study.scenario.event import EventLevel
from t3sim.study.scenario.files import keys, scenario_of
from t3sim.study.scenario.ranking import LayerToRank
from t3sim.study.scenario.request import LayerRequest
from t3sim.study.sweeps.comparisons import regimes, regrets
from t3sim.study.sweeps.page import write_page
from t3sim.study.sweeps.point import flat
from t3sim.study.sweeps.study import load_study
from t3sim.study.sweeps.sweep import make_table
from t3sim.study.tasks.estimate import estimate
from tests.support.damage import answered

pytestmark = [pytest.mark.builds_loops, pytest.mark.long]

SMALL = str(Path(__file__).parents[1] / "data" / "machines" / "ring_small.toml")
VALUES = (True, 0, 1, -1, 2, 3, 7, 64, 1 << 40, 1 << 62, 10 ** 30, 0.5, 0.0, 1e-300, 1e12, 1e300, math.nan, math.inf,
          "", " ", "x", "\0", "x" * 3000, "a:b", "-rs", "torus:0x0", "torus:99999999999x1", "0x0x0", "1x1x1",
          "99999999x99999999x9999", "zipf:nan", "1/999", "/dev/null", [], [1], [2], ["x"], ["x", "x"], [[]],
          [[8, 8]], [0, 0], {}, {"a": 1}, {"extends": 1}, {"sizes": []}, {"sizes": ["1M", "1M"]})


def toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(name)} = {toml(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value)


def places(content: Any, place: tuple = ()) -> Iterator[tuple]:
    inner = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for name, value in inner:
        yield (*place, name)
        yield from places(value, (*place, name))


def with_value(content: dict, place: tuple, value: Any) -> dict:
    made = at = copy.deepcopy(content)
    for name in place[:-1]:
        at = at.setdefault(name, {}) if isinstance(at, dict) else at[name]
    at[place[-1]] = value
    return made


def some(every: list, most: int) -> list:
    """Give every so-manieth; an odd step meets each of the values."""
    return every[::max(1, len(every) // most) | 1]


def fault(answer: Callable[[dict], object], content: dict, place: tuple, value: object) -> list:
    """Return how a value at a place of a file's content fails that is no line and no result."""
    try:
        answer(with_value(content, place, value))
    except Exception as error:
        if not (is_ours(error) or isinstance(error, OSError)) or "\n" in str(error):
            return [type(error).__name__, str(error)[:200], content, place, value]
    return []


SCENARIOS = [
    {"layer": {"gemm": "256x256x64", "devices": 4}, "machine": SMALL},
    {"layer": {"model": "t-nlg", "tp": 8}},
    {"layer": {"model": "llama-3.1-8b", "tp": 8}},
    {"layer": {"gemm": "256x256x64", "devices": 4, "operator": "gemm-ar"}, "machine": SMALL,
     "exchange": {"topology": "switch", "algorithm": "direct"}, "techniques": ["t3", "fused-wg", "decomposed"]},
    {"layer": {"operator": "ag-gemm", "gemm": "512x512x64", "devices": 4}, "machine": SMALL,
     "techniques": ["flux", "t3"]},
    {"layer": {"operator": "moe-dispatch", "gemm": "512x256x256", "experts": "8x2", "devices": 4}},
    {"layer": {"operator": "moe-combine", "gemm": "512x256x256", "experts": "8x2", "devices": 4}},
    {"layer": {"operator": "embedding-a2a", "embedding": "64x4", "devices": 4}},
    {"layer": {"operator": "gemv-ar", "gemm": "256x1x64", "devices": 4}},
    {"layer": {"operator": "gemm", "gemm": "256x256x64"}, "machine": SMALL},
    {"layer": {"collective": "ar", "bytes": 4096, "devices": 4}, "machine": SMALL},
    {"level": "event", "machine": "h100-sxm", "layer": {"gemm": "512x512x512", "devices": 4}},
    {"level": "library"}]


def made_ready(content: dict) -> None:
    ready = request_of(scenario_of(content, {}))
    if isinstance(ready, EventLevel | LayerToRank):
        ready.run()
    elif isinstance(ready, LayerRequest):
        for plan in ready.plans:
            estimate(plan.machine, plan.workload, ready.tasks(plan))
    else:
        ready.estimate()


def test_every_key_of_a_scenario():
    every = [(base, tuple(key.split(".")), value) for base in SCENARIOS for key in keys() for value in VALUES]
    faults = [told for base, key, value in some(every, 3000)
              if (told := fault(made_ready, base, key, value))]
    assert not faults, faults[:3]


STUDY = {
    "title": "T", "command": "collective", "options": {"collective": "ar"},
    "grid": {"topology": ["ring:4", "full:4"], "sizes": ["1M", "2M"]},
    "plots": [{"x": "sizes", "y": ["runs.0.collective_ns"], "series": "topology", "title": "a", "label": "b",
               "scale": 1.5, "log_x": True}],
    "maps": [{"x": "sizes", "y": "topology", "least_of": ["runs.0.collective_ns", "runs.0.closed_form_ns"]}],
    "compare": {"over": "topology", "by": "runs.0.collective_ns", "against": "ring:4", "within_percent": 1.0,
                "slower_percent": 0.5, "average": "sizes"},
    "regimes": {"over": "topology", "by": "runs.0.collective_ns", "bound": "runs.0.closed_form_ns",
                "along": ["sizes"]}}
OTHERS = [("machine",), ("points",), ("points", 0), ("draw",), ("scenario",), ("nothing",)]


def test_every_key_of_a_study(tmp_path):
    """Its table, and what its report compares, are made of results that are all there; some reports are drawn."""
    file, drawn = tmp_path / "study.toml", iter(range(10 ** 6))

    def answered_by(content: dict) -> None:
        file.write_text("\n".join(f"{name} = {toml(value)}" for name, value in content.items()))
        study = load_study(str(file))
        points = points_of(study)
        rows = [{"runs.0.collective_ns": 100.0 + place, "runs.0.closed_form_ns": 90.0 + 3 * place, **point.values}
                for place, point in enumerate(points)]
        make_table(rows, study.varied_settings)
        if study.compare:
            regrets(study.compare, rows, study.varied_settings, study.compared_settings)
        if study.regimes:
            regimes(study.regimes, rows, study.varied_settings)
        if next(drawn) % 50 == 0:
            write_page(study, rows, [], len(points), tmp_path)

    every = [(place, value) for place in (*places(STUDY), *OTHERS) for value in VALUES if place != ("points", 0)]
    every += [(("points",), [value]) for value in VALUES]
    faults = [told for place, value in some(every, 1200)
              if (told := fault(answered_by, STUDY, place, value))]
    assert not faults, faults[:3]


def test_a_plot_of_words_and_numbers_is_drawn(tmp_path):
    file = tmp_path / "study.toml"
    study = with_value(STUDY, ("grid", "sizes"), ["1M", 2097152, 0.5])
    file.write_text("\n".join(f"{name} = {toml(study[name])}" for name in ("title", "command", "options", "grid",
                                                                           "plots")))
    described = load_study(str(file))
    rows = [{"runs.0.collective_ns": 1.0, **values} for values in described.points_settings()]
    write_page(described, rows, [], len(rows), tmp_path)
    assert (tmp_path / "plot0.svg").exists()


#: A machine, and a command that answers in closed form or event by event.
MACHINES = [
    ("h100-sxm", "run --level event --gemm 512x512x512 --devices 4"),
    ("h100-sxm", "overlap --expert-parallel --model mixtral-8x7b"),
    ("mi300x", "dma --collective rs --sizes 64K"),
    ("mi210-2x4", "run --level event --operator embedding-a2a --embedding 64x4 --devices 4"),
    ("torus-128", "collective --collective ar --sizes 64K --topology ring:4"),
    ("a100-sxm", "end-to-end --model megatron-145b --gpus 8 --mapping tp=8"),
    ("h100-t3", "machines"), ("mi300x-t3", "run --technique none")]


@pytest.mark.parametrize(("machine", "command"), MACHINES)
def test_every_key_of_a_machine(machine, command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    every = [(place, value) for place in places(read(machine)) if not any(isinstance(one, int) for one in place)
             for value in VALUES]
    words = [*command.split(), *(["m.toml"] if command == "machines" else ["--machine", "m.toml"])]
    for place, value in some(every, 120):
        Path("m.toml").write_text(f'extends = "{machine}"\n{".".join(place)} = {toml(value)}\n')
        answered(capsys, words, (0, 2))


def test_what_made_faults_is_one_line(tmp_path, monkeypatch, capsys):
    """A library without a kernel of whole K, a plot divided by 0, a cluster of more units than there are."""
    monkeypatch.chdir(tmp_path)
    for section, words in (("gpu", MACHINES[0][1]), ("kernels", "overlap")):
        Path("m.toml").write_text(f'extends = "h100-sxm"\n[{section}]\nsplit_k = [2]\n')
        assert f"m.toml: [{section}] split_k = [2]: 1, whole K, must be among them" in answered(
            capsys, [*words.split(), "--machine", "m.toml"], (2,))
    Path("m.toml").write_text('extends = "h100-sxm"\n[gpu]\ncompute_units = 1\n')
    assert not answered(capsys, ["overlap", "--expert-parallel", "--model", "mixtral-8x7b", "--machine", "m.toml"],
                        (0,))
    Path("s.toml").write_text("\n".join(f"{name} = {toml(value)}" for name, value in with_value(
        STUDY, ("plots", 0, "scale"), 0.0).items()))
    assert "plots.0.scale = 0.0" in answered(capsys, ["sweep", "s.toml", "--out", "out"], (2,))
    assert "distributed.comm.tls.client: it names none" in answered(
        capsys, ["sweep", "tracker-ways", "--out", "out", "--scheduler", "tls://127.0.0.1:9"], (2,))
    assert not Path("out").exists()


def test_waits_that_the_clock_cannot_tell_end(tmp_path, monkeypatch, capsys):
    """After 1000 s a flow's last 0.1 ps are less than a step of the clock's floating point."""
    monkeypatch.chdir(tmp_path)
    Path("m.toml").write_text('extends = "mi300x"\n[engine]\npoll_ns = 1e12\n')
    assert cli.main("dma --collective rs --sizes 64K --machine m.toml --json out.json".split()) == 0
    assert max(value for name, value in flat(json.loads(Path("out.json").read_text())).items() if "ns" in name) > 1e12
