"""Results of kernels that commands share: found again to the bit, and simulated again when in doubt."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from t3sim.base import user_cache
from t3sim.cli import main
from t3sim.machine import load_machine
from t3sim.runs import kernels
from t3sim.runs.collective_alone import PlannedCollective
from t3sim.runs.kernels import GemmAlone
from t3sim.runs.skew import Skew
from t3sim.study.sweeps.point import flat
from t3sim.study.sweeps.scenario_point import ScenarioPoint
from t3sim.study.tasks.store import KeptResults, Store
from t3sim.study.tasks.task import kernel_task
from t3sim.workload.workloads import gemm_workload, gemv_workload

pytestmark = [pytest.mark.builds_rtl, pytest.mark.builds_loops]

SMALL = Path(__file__).parents[1] / "data" / "machines" / "ring_small.toml"
WORKLOAD = gemm_workload("256x256x64", 4)
RUN = ("run", "--gemm", "256x256x64", "--devices", "4", "--machine", str(SMALL), "--technique", "sequential,t3")


@pytest.fixture
def simulated(monkeypatch) -> list[str]:
    """Names of the kernels that are simulated."""
    names, simulate = [], kernels.simulate_plan

    def counted(kernel, *arguments, **options):
        names.append(kernel.name)
        return simulate(kernel, *arguments, **options)

    monkeypatch.setattr(kernels, "simulate_plan", counted)
    return names


def answer(tmp_path: Path, *arguments: str) -> dict:
    assert main([*arguments, "--json", str(tmp_path / "answer.json")]) == 0
    return json.loads((tmp_path / "answer.json").read_text())


@pytest.mark.slow
def test_a_run_repeats_nothing(simulated, tmp_path, capsys):
    first = answer(tmp_path, *RUN)
    needed = len(simulated)
    assert needed >= 4 and "estimated" in capsys.readouterr().err
    again = answer(tmp_path, *RUN)
    assert again == first and len(simulated) == needed
    assert f"{needed} of {needed} simulations are those of an earlier run" in capsys.readouterr().err
    more = answer(tmp_path, *RUN[:-1], "sequential,t3,t3-mca")
    assert more["techniques"]["t3"] == first["techniques"]["t3"]
    assert set(simulated[needed:]) == {"fused-mca", "gather-mca"}
    del simulated[:]
    fresh = answer(tmp_path, *RUN, "--fresh")
    assert len(simulated) == needed
    for one in (fresh, first):
        for technique in one["techniques"].values():
            del technique["host_seconds"]
    assert fresh == first


@pytest.mark.slow
def test_a_study_finds_what_a_run_left(simulated, tmp_path):
    answer(tmp_path, *RUN)
    needed = len(simulated)
    study = tmp_path / "study.toml"
    study.write_text(f"""title = "kept"
[options]
gemm = "256x256x64"
machine = {json.dumps(str(SMALL))}
technique = "sequential,t3"
[grid]
devices = [4]
""")
    assert main(["sweep", str(study), "--out", str(tmp_path / "out"), "--jobs", "1"]) == 0
    assert len(list((tmp_path / "out" / "cache").glob("*.json"))) == needed  # whole in itself
    assert len(simulated) == needed


def test_a_kernel_alone_is_simulated_once(simulated, tmp_path):
    alone = ("kernel", "gemm", "--gemm", "256x256x64", "--machine", str(SMALL))
    first, again = answer(tmp_path, *alone), answer(tmp_path, *alone)
    assert first == again and simulated == ["gemm"]


@pytest.mark.slow
def test_what_is_damaged_is_simulated_again(simulated, tmp_path):
    first = answer(tmp_path, *RUN)
    needed = len(simulated)
    for file in user_cache.results_folder().glob("results-*/gemm-*.json"):
        text = file.read_text()
        assert '"simulated_cycles": ' in text
        file.write_text(text.replace('"simulated_cycles": ', '"simulated_cycles": 1'))  # lawful, and wrong
    for file in user_cache.results_folder().glob("results-*/gather-*.json"):
        file.write_text(file.read_text()[:-20])
    again = answer(tmp_path, *RUN)
    assert [name.partition("-")[0] for name in sorted(simulated[needed:])] == ["gather", "gemm"]
    assert again["techniques"]["t3"]["total_ns"] == first["techniques"]["t3"]["total_ns"]


def test_a_cache_that_takes_no_files_keeps_nothing(monkeypatch, tmp_path):
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    monkeypatch.setattr(user_cache, "results_folder", lambda: in_the_way)
    task, kept = kernel_task(kernels.GEMM, load_machine(str(SMALL)), WORKLOAD), KeptResults()
    kept.save(task, task.run(lambda share: None))
    assert kept.load(task) is None


@dataclass(frozen=True)
class FromElsewhere(GemmAlone):
    """A kernel whose source is not the package's."""


def test_a_kernel_of_somebody_else_is_not_kept():
    task, kept = kernel_task(FromElsewhere(), load_machine(str(SMALL)), WORKLOAD), KeptResults()
    kept.save(task, task.run(lambda share: None))
    assert kept.load(task) is None


def test_keys_tell_apart_what_names_do_not():
    machine = load_machine(str(SMALL))
    late = [kernel_task(GemmAlone(Skew(late_ns=((1, ns),))), machine, WORKLOAD) for ns in (1234567.0, 1234568.0)]
    assert late[0].kernel.name == late[1].kernel.name and late[0].key != late[1].key
    vector = gemv_workload("256x1x64", 4)
    assert kernel_task(kernels.GEMM, machine, vector).key != kernel_task(
        kernels.GEMM, machine, gemm_workload("256x1x64", 4)).key


def test_a_store_keeps_what_it_found_elsewhere(tmp_path):
    task = kernel_task(kernels.GEMM, load_machine(str(SMALL)), WORKLOAD)
    result = replace(task.run(lambda share: None), host_seconds=3.5)
    Store(tmp_path / "a").save(task, result)
    assert Store(tmp_path / "b", Store(tmp_path / "a")).load(task) == result
    assert Store(tmp_path / "b").load(task) == result
    Store(tmp_path / "c", Store(tmp_path / "d")).save(task, result)
    assert Store(tmp_path / "d").load(task) == result


COLLECTIVE = ("--collective", "ar", "--devices", "4", "--machine", str(SMALL))


def test_a_collective_alone_is_simulated_once_for_all_commands(tmp_path, capsys, monkeypatch):
    simulations, simulate = [], PlannedCollective.simulate
    monkeypatch.setattr(PlannedCollective, "simulate",
                        lambda self, *arguments: simulations.append(self) or simulate(self, *arguments))
    first = answer(tmp_path, "run", *COLLECTIVE, "--bytes", "4096")
    assert answer(tmp_path, "run", *COLLECTIVE, "--bytes", "4096") == first and len(simulations) == 1
    assert "result of an earlier run (--fresh simulates again)" in capsys.readouterr().err
    assert answer(tmp_path, "run", *COLLECTIVE, "--bytes", "4096", "--algorithm", "ring") == first
    assert len(simulations) == 1
    answer(tmp_path, "run", *COLLECTIVE, "--bytes", "4096", "--fresh")
    assert len(simulations) == 2
    seen = answer(tmp_path, "trace", *COLLECTIVE, "--bytes", "8192", "--out", str(tmp_path / "trace"))
    assert answer(tmp_path, "run", *COLLECTIVE, "--bytes", "8192")["cycles"] == seen["cycles"] and len(simulations) == 2
    answer(tmp_path, "trace", *COLLECTIVE, "--bytes", "16384", "--until", "300", "--out", str(tmp_path / "trace"))
    point = ScenarioPoint({"collective": "ar", "devices": 4, "bytes": 4096, "machine": str(SMALL)})
    assert point.answer({point.tasks[0].key: KeptResults().load(point.tasks[0])}) == flat(first)
    longer = ScenarioPoint({**point.values, "bytes": 16384})
    assert KeptResults().load(longer.tasks[0]) is None, "what a window has seen is not all of it"
    others = [ScenarioPoint({**point.values, **change}).tasks[0] for change in (
        {"bytes": 8192}, {"collective": "rs"}, {"topology": "switch"}, {"algorithm": "both-rings"}, {"values": True},
        {"every-gpu": True}, {"every-gpu": True, "skew": "late:1:9"})]
    assert len({task.key for task in [*point.tasks, *others]}) == 8
