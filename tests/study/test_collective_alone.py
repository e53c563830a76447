"""A collective alone: numbers of every GPU, the event level beside it, and what is refused."""

import json

import numpy as np
import pytest

from t3sim import cli
from t3sim.base.errors import BadInput
from t3sim.collectives.algorithms import COLLECTIVES, algorithms
from t3sim.gpu.engine.loop import LOOK
from t3sim.machine import load_machine
from t3sim.runs.collective_alone import PlannedCollective, ProgrammedCollective
from t3sim.runs.exchange import Exchange
from t3sim.runs.failure import SimulationError
from t3sim.study.results import CollectiveRun
from t3sim.study.scenario.collective import CollectiveRequest
from t3sim.study.scenario.files import scenario_of

pytestmark = [pytest.mark.builds_rtl, pytest.mark.builds_loops]

NO_CARDS = load_machine().model_copy(update={"network": None})
LINKS = {"ring": (4, 8), "switch": (8,), "full": (8,), "torus:2x4": (8,), "nodes:2x4": (8,)}
CASES = [(collective, topology, gpus, algorithm) for topology, sizes in LINKS.items() for gpus in sizes
         for collective in COLLECTIVES
         for algorithm in algorithms(collective, Exchange(topology=topology).links(gpus))]


def scenario(collective: str, topology: str, gpus: int, algorithm: str | None, size: int, **more):
    asked = {"layer.collective": collective, "layer.devices": gpus, "layer.bytes": size, "exchange.topology": topology}
    return scenario_of({}, asked | ({"exchange.algorithm": algorithm} if algorithm else {}) | more)


def ran(*what, **more) -> CollectiveRun:
    return CollectiveRequest(scenario(*what, **more)).run(lambda what, share: None)


def switched(**section) -> dict:
    return {"extends": "t3-table1", "name": "own", "switch": section}


@pytest.mark.slow
@pytest.mark.parametrize(("collective", "topology", "gpus", "algorithm"), CASES)
def test_the_event_level_is_within_three_percent(collective, topology, gpus, algorithm):
    one = ran(collective, topology, gpus, algorithm, 4_000_000)
    assert abs(one.event_error) < 0.03
    assert max(one.bounds_ns.values()) < one.collective_ns and one.limited_by == "links"


@pytest.mark.slow
@pytest.mark.parametrize(("collective", "megabytes", "low", "high"), [
    ("rs", 4, -0.14, -0.11), ("ar", 4, -0.17, -0.14), ("ag", 16, -0.16, -0.13)])
def test_sums_of_four_rings_take_longer_than_events(collective, megabytes, low, high):
    """Over all four links of a torus at once memory is as busy as links: it gives less than the event level takes."""
    one = ran(collective, "torus:3x3", 9, "all-rings", megabytes * 1_000_000)
    assert low < one.event_error < high
    assert one.bounds_ns["memory"] > 0.65 * one.collective_ns


@pytest.mark.slow
@pytest.mark.parametrize(("collective", "topology", "gpus", "algorithm"), [
    ("rs", "ring", 3, "both-rings"),
    ("ag", "ring", 2, None), ("ar", "ring", 4, None), ("ar", "switch", 4, "direct"),
    ("a2a", "ring", 4, None), ("rs", "full", 4, None), ("ar", "torus:2x3", 6, None), ("a2a", "torus:2x3", 6, None),
    ("ar", "nodes:2x2", 4, None), ("ag", "nodes:2x2", 4, "direct"), ("ar", "torus:3x3", 9, "all-rings")])
def test_every_word_of_every_gpu_is_right(collective, topology, gpus, algorithm):
    """Also of sizes that are no whole lines."""
    run = ran(collective, topology, gpus, algorithm, 100_008, **{"layer.values": True, "seed": 3})
    kept = 1 if collective == "rs" else gpus
    assert len(run.gpus) == gpus and run.words_compared >= kept * 100_008 // 8
    assert run.words_compared < kept * (100_008 // 8) + 4 * gpus * gpus


def programmed(collective: str = "ar", gpus: int = 4) -> ProgrammedCollective:
    links = Exchange(topology="switch").links(gpus)
    program = algorithms(collective, links)["direct"].program()
    return ProgrammedCollective(PlannedCollective(load_machine(), "reduce-scatter", 4096, program, links, seed=1))


@pytest.mark.slow
@pytest.mark.parametrize(("break_it", "told"), [
    (lambda data: data.sources.__setitem__((1, 1, 2), data.sources[1, 1, 1]), "word 0 of chunk 1 is "),
    (lambda data: data.later.__setitem__((2, 0, 0), 1), "word 0 of chunk 0 is "),
    (lambda data: data.sender.__setitem__((3, 2), -1), "GPU 3: 64 accesses outside all chunks"),
    (lambda data: data.stored.__setitem__((0, 7), 1), "GPU 0: word 7 of chunk 0 was stored 2 times instead of 1")])
def test_wrong_numbers_are_found(break_it, told):
    """A part that is added twice, a read that comes too late, a store of nobody's, one too many."""
    run = programmed()
    try:
        break_it(run.numbers.data)
        with pytest.raises(SimulationError, match=told):
            run.run()
    finally:
        run.close()


def test_an_arrival_where_nothing_is_open_is_an_error_of_the_hardware():
    run = programmed()
    try:
        for driver, master in zip(run.drivers, run.masters):
            run.write(master, driver.open_memory(0, base=0, limit=4096))
        with pytest.raises(SimulationError, match="the hardware reports arrival_refused"):
            run.run()
    finally:
        run.close()


def test_one_gpu_stands_for_all():
    for what in (("ar", "ring", 4, "ring"), ("rs", "switch", 4, "direct"), ("a2a", "full", 4, "direct")):
        mirrored, whole = ran(*what, 400_000), ran(*what, 400_000, **{"gpus.every": True})
        assert len(mirrored.gpus) == 1 and len(whole.gpus) == 4
        assert mirrored.collective_ns == pytest.approx(whole.collective_ns, rel=0.02)
        assert mirrored.gpus[0].read_bytes == whole.gpus[0].read_bytes
        assert {gpu.written_bytes for gpu in whole.gpus} == {mirrored.gpus[0].written_bytes}


def test_gpus_that_are_not_alike():
    alike = ran("rs", "ring", 4, None, 400_000, **{"gpus.every": True})
    slow = ran("rs", "ring", 4, None, 400_000, **{"gpus.every": True, "gpus.skew": "link:0-3:10,late:2:3000"})
    assert slow.event_ns is None and slow.event_error is None and alike.event_ns is not None
    assert slow.collective_ns > 300_000 / 10 + 3571 > 2 * alike.collective_ns
    assert slow.fullest.link_to == 3 and np.argmax([gpu.link_busy for gpu in slow.gpus]) == 0


def test_links_and_algorithm_that_are_not_named_are_the_collectives_own():
    requests = {(collective, topology): CollectiveRequest(scenario_of({}, {
        "layer.collective": collective, "layer.bytes": 4096, "layer.devices": 8,
        **({"exchange.topology": topology} if topology else {})}))
        for collective in COLLECTIVES for topology in (None, "torus:2x4", "nodes:2x4", "full")}
    assert {key: (request.topology, request.algorithm) for key, request in requests.items()
            if key[1] is None or key[0] == "a2a"} == {
        ("rs", None): ("ring", "ring"), ("ag", None): ("ring", "ring"), ("ar", None): ("ring", "ring"),
        ("a2a", None): ("switch", "direct"), ("a2a", "torus:2x4"): ("torus:2x4", "hierarchical"),
        ("a2a", "nodes:2x4"): ("nodes:2x4", "direct"), ("a2a", "full"): ("full", "direct")}
    assert {requests[collective, "torus:2x4"].algorithm for collective in ("rs", "ag", "ar")} == {"hierarchical"}


def test_the_command_prints_and_writes_it(tmp_path, capsys):
    (tmp_path / "ar.toml").write_text('exchange.topology = "nodes:2x2"\n[layer]\ncollective = "ar"\nbytes = 200000\n')
    out = tmp_path / "ar.json"
    assert cli.main(["run", str(tmp_path / "ar.toml"), "--values", "--json", str(out)]) == 0
    printed, content = capsys.readouterr().out, json.loads(out.read_text())
    assert "all equal" in printed and "event level" in printed and f"Limited by {content['limited_by']}" in printed
    assert (content["devices"], content["algorithm"], len(content["gpus"])) == (4, "hierarchical", 4)
    assert content["event_error"] == pytest.approx(content["event_ns"] / content["collective_ns"] - 1)


@pytest.mark.parametrize(("changes", "told"), [
    ({"layer.collective": "all"}, "layer.collective = 'all' is unknown: allowed are rs, ag, ar, a2a"),
    ({"layer.bytes": None}, "layer.collective = rs needs layer.bytes = N"),
    ({"layer.bytes": 0}, "layer.bytes = 0 is not possible: 1 or more"),
    ({"layer.bytes": 1 << 40}, "a GPU would hold .* bytes"),
    ({"layer.devices": None}, "layer.collective = rs needs layer.devices = N"),
    ({"layer.devices": 1}, "layer.devices = 1 is not possible for layer.collective = rs: 2 to 32"),
    ({"layer.devices": 33}, "layer.devices = 33 is not possible for layer.collective = rs: 2 to 32"),
    ({"exchange.topology": "star"}, "exchange.topology = 'star' is unknown: allowed are ring, switch, full, torus:RxC"),
    ({"exchange.topology": "torus:2x4"}, "exchange.topology = torus:2x4 is of 8 GPUs, and here are 4"),
    ({"exchange.topology": "torus:8x8", "layer.devices": None}, "layer.devices = 64 is not possible"),
    ({"exchange.algorithm": "direct"}, "exchange.algorithm = 'direct' is not possible for .* ring: allowed are ring, "),
    ({"exchange.topology": "nodes:2x2", "machine": NO_CARDS}, r"no \[network\]"),
    ({"layer.gemm": "4x4x4"}, "layer.gemm = 4x4x4 does not go with layer.collective = rs, which is alone"),
    ({"layer.operator": "gemm"}, "layer.operator = gemm does not go with layer.collective = rs"),
    ({"techniques": ("t3",)}, "techniques = t3 does not go with layer.collective = rs"),
    ({"t3.policy": "mca"}, "t3.policy = mca does not go with layer.collective = rs"),
    ({"level": "event"}, "layer.collective = rs does not go with level = event"),
    ({"gpus.skew": "late:0:9"}, "gpus.skew = late:0:9 needs gpus.every = true"),
    ({"gpus.every": True, "gpus.skew": "link:0-2:9"}, "topology 'ring' has no such link"),
])
def test_what_cannot_be_is_refused(changes, told):
    asked = {"layer.collective": "rs", "layer.bytes": 4096, "layer.devices": 4} | changes
    with pytest.raises(BadInput, match=told) as refused:
        CollectiveRequest(scenario_of({}, {key: value for key, value in asked.items() if value is not None}))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("words", "told"), [
    (["run", "--bytes", "4096"], "--bytes 4096 is for --collective rs, ag, ar or a2a"),
    (["run", "--bytes", "4K"], "--bytes 4096 is for"),
    (["run", "--bytes", "4k"], "Invalid value for '--bytes': '4k' is not a whole number"),
    (["run", "--values"], "--values: 8 GPUs of 8,192 x 4,256 are 278,921,216 numbers: at most 16,777,216 are compared"),
    (["run", "--values", "--technique", "sequential", "--gemm", "512x512x256", "--devices", "4"], "--values is for t3"),
    (["run", "--values", "--operator", "gemm", "--gemm", "256x256x64"], "--values does not go with a kernel alone"),
    (["run", "--operator", "gemm", "--gemm", "256x256x64", "--bytes", "8"], "--bytes 8 does not go with a kernel"),
    (["run", "--collective", "rs", "--bytes", "64", "--devices", "2", "--plot", "x.svg"],
     "--plot x.svg does not go with a collective alone"),
])
def test_the_command_refuses_in_its_options(words, told, error_of):
    assert told in error_of(*words)


STUDY = 'title = "Sizes"\ncommand = "run"\noptions.collective = "rs"\noptions.devices = 2\ngrid.bytes = [{}]\n'


def test_a_study_refuses_a_point_that_cannot_be(tmp_path, error_of):
    (tmp_path / "study.toml").write_text(STUDY.format("4096, 0"))
    line = error_of("sweep", str(tmp_path / "study.toml"), "--out", str(tmp_path / "out"))
    assert "grid.bytes: layer.bytes = 0 is not possible: 1 or more" in line
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_study_of_collectives(tmp_path):
    import pandas

    (tmp_path / "study.toml").write_text(STUDY.format("4096, 400000"))
    assert cli.main(["sweep", str(tmp_path / "study.toml"), "--out", str(tmp_path / "out")]) == 0
    rows = pandas.read_parquet(tmp_path / "out" / "results.parquet")
    assert sorted(rows["bytes"]) == [4096, 400_000] and rows["collective_ns"].nunique() == 2


@pytest.mark.slow
@pytest.mark.parametrize("gpus", [2, 4, 8])
@pytest.mark.parametrize("collective", ["rs", "ag", "ar"])
def test_a_collective_in_the_switch_is_within_three_percent(collective, gpus):
    """What is summed comes once to its owner, what is copied leaves once; memory adds a sum to the owner's own part."""
    run = ran(collective, "switch", gpus, "in-switch", 4_000_000)
    assert abs(run.event_error) < 0.03 and len(run.gpus) == gpus
    chunk, adds, gathers = 4_000_000 // gpus, collective != "ag", collective != "rs"
    for gpu in run.gpus:
        assert gpu.sent_bytes == chunk * (adds * (gpus - 1) + gathers)
        assert gpu.written_bytes == chunk * (adds + gathers * (gpus - 1))


@pytest.mark.slow
def test_the_rtl_of_the_switch_adds_for_a_collective_alone():
    """Half a table for a chunk does: its parts come close together. Where even that is full, sums leave in parts."""
    def table(sets: int, ways: int) -> CollectiveRun:
        own = switched(merge_sets=sets, merge_ways=ways, rtl=True)
        return ran("rs", "switch", 4, "in-switch", 200_000, machine=own)
    half, line, model = table(64, 8), table(1, 1), ran("rs", "switch", 4, "in-switch", 200_000)
    assert half.switch["evicted"] == half.switch["expired"] == 0 < 50 < half.switch["most_held"] < 512
    assert half.gpus[0].written_bytes == model.gpus[0].written_bytes == 50_000
    assert half.collective_ns == pytest.approx(model.collective_ns, rel=0.03)
    assert line.gpus[0].written_bytes > 100_000 and line.switch["evicted"] > 1000


def test_a_switch_s_tables_say_how_many_workgroups_there_are():
    def request(ways: int, planes: int = 1, collective: str = "rs", rtl: bool = False) -> CollectiveRequest:
        return CollectiveRequest(scenario(collective, "switch", 4, "in-switch", 200_000, machine=switched(
            merge_sets=64, merge_ways=ways, planes=planes, rtl=rtl)))

    def kernel(one: CollectiveRequest) -> tuple[int, int]:
        return one.machine.collective.workgroup_bytes // 192, one.machine.collective.workgroups_per_cu
    assert kernel(request(16)) == kernel(request(8, 2)) == kernel(request(1, collective="ag")) == (2, 8)
    assert kernel(request(8)) == (1, 3) and 80 * 3 <= 64 * 8 // 2 < 80 * 4
    assert kernel(request(3)) == kernel(request(1, rtl=True)) == (1, 1)
    with pytest.raises(BadInput, match="128 lines do not keep the sums of 80 compute units apart: 160 or more, or "):
        request(2)
    assert "3 workgroups at once on a unit, of 192 bytes each" in "".join(request(8).notes)


@pytest.mark.slow
@pytest.mark.parametrize("rtl", [False, True])
@pytest.mark.parametrize("collective", ["rs", "ag", "ar"])
def test_every_word_is_right_in_switches_side_by_side(collective, rtl):
    """The RTL's tables are too small: sums leave in parts, and their GPU's memory adds those. The model's suffice."""
    own = switched(merge_sets=4 if rtl else 64, merge_ways=2, timeout_ns=1000.0, planes=2, rtl=rtl)
    run = ran(collective, "switch", 4, "in-switch", 100_008, machine=own, **{"layer.values": True, "seed": 3})
    assert run.words_compared == (1 if collective == "rs" else 4) * run.array_bytes // 8
    assert (run.switch is not None) == rtl
    if rtl and collective != "ag":
        assert run.switch["begun"] == run.switch["completed"] + run.switch["evicted"] + run.switch["expired"]
        assert run.switch["evicted"] > 1000 and run.switch["most_held"] == 8


@pytest.mark.slow
@pytest.mark.parametrize(("break_it", "told"), [
    (lambda data: data.last_read.__setitem__((0, 1, 3), 7.0), r"GPU 0: word 3 of chunk 0 is "),
    (lambda data: data.added.__setitem__((0, 2), 1), "word 2 of chunk 0 got 4 parts of other GPUs instead of 3"),
    (lambda data: data.stored.__setitem__((0, 0), 1), "GPU 0: word 0 of chunk 0 was stored 1 times instead of 0")])
def test_wrong_numbers_in_the_switch_are_found(break_it, told):
    run = ProgrammedCollective(CollectiveRequest(scenario("rs", "switch", 4, "in-switch", 4096, **{
        "layer.values": True})).planned)
    try:
        run.run(until=5 * LOOK)
        break_it(run.numbers.data)
        with pytest.raises(SimulationError, match=told):
            run.run()
    finally:
        run.close()


def test_what_does_not_go_with_the_switch_is_refused():
    with pytest.raises(BadInput, match="allowed are direct, ring, in-switch"):
        CollectiveRequest(scenario("rs", "switch", 4, "hierarchical", 4096))
