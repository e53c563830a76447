"""Custom operators, collectives and topologies by reference: made from a file or a module, refused in a line."""

from dataclasses import replace
from pathlib import Path

import pytest

from t3sim import cli
from t3sim.base.custom import is_custom
from t3sim.base.errors import BadInput
from t3sim.study.scenario.files import scenario_of
from t3sim.study.scenario.kernel import KernelAlone
from t3sim.study.scenario.request import LayerRequest, layer_request
from t3sim.study.tasks.runner import work
from t3sim.study.tasks.store import Store
from t3sim.study.techniques import run_sublayer

SMALL = str(Path(__file__).parents[1] / "data" / "machines" / "ring_small.toml")
PARTS = '''
import sys
from dataclasses import replace

from t3sim.collectives import direct, ring
from t3sim.collectives.all_reduce import all_reduce
from t3sim.machine.topologies import fully_connected, ring as around


def usual(collective, ranks):
    """Build the programs of a ring."""
    if collective == "ar":
        return all_reduce(ring.reduce_scatter(ranks, -1), ring.all_gather(ranks, -1))
    return (ring.reduce_scatter if collective == "rs" else ring.all_gather)(ranks, -1)


def short(collective, ranks):
    return ring.reduce_scatter(ranks - 1, -1)


def wrong(collective, ranks):
    return ring.all_gather(ranks, -1)


def gathers(collective, ranks):
    return replace(direct.all_gather(ranks), pairs=True)


def fails(collective, ranks):
    return 1 / 0


def seven(*_):
    return 7


def leaves(*_):
    sys.exit(0)


class Quiet(BaseException):
    def __str__(self):
        raise RuntimeError("no words")


def quiet(*_):
    raise Quiet


class Works:
    """An operator whose kernel is made by this function."""

    def __init__(self, work):
        self.work = lambda device: work()


def works_seven(*_):
    return Works(seven)


def works_leaves(*_):
    return Works(leaves)


def links(nodes):
    return around(nodes)


def pair(nodes):
    return around(2)


def operator(machine, workload, tiling, base):
    raise ValueError("K is too odd")


NUMBER = 3
'''


@pytest.fixture
def parts(tmp_path) -> str:
    path = tmp_path / "parts.py"
    path.write_text(PARTS)
    return str(path)


def request_with(**changes: object) -> LayerRequest:
    keys = {"layer.gemm": "256x256x64", "layer.devices": 4, "machine": SMALL, **changes}
    return layer_request(scenario_of({}, keys))


@pytest.mark.parametrize(("name", "custom"), [
    ("parts.py:links", True), ("my.module:links", True), ("a/b:c.py:links", True), ("torus:2x4", False),
    ("nodes:2x4", False), ("ring", False), ("gemm-rs", False), (":links", False), ("parts.py:", False)])
def test_what_is_a_reference(name, custom):
    assert is_custom(name) == custom


def test_a_custom_algorithm_does_what_its_program_says(parts):
    request = request_with(**{"exchange.algorithm": f"{parts}:usual"})
    exchange = request.plans[0].exchange
    assert exchange.program(4).ranks == 4 and exchange.every_gpu
    task, = (one for one in request.tasks(request.plans[0]).values() if one.kernel.name.startswith("fused-round"))
    assert task.custom == {"exchange.algorithm": f"{parts}:usual"} and "/" not in task.key
    Path(parts).write_text(PARTS + "\n")
    assert replace(task).key != task.key


def test_an_all_to_all_brings_each_chunk_to_its_rank(parts):
    asked = {"layer.operator": "gemm-a2a", "exchange.topology": "switch"}
    with pytest.raises(BadInput, match="whose goal is not that of the all-to-all of 4"):
        request_with(**asked, **{"exchange.algorithm": f"{parts}:gathers"})


def test_a_module_that_can_be_imported_is_as_good(parts, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(parts).parent))
    assert request_with(**{"exchange.algorithm": "parts:usual"}).plans[0].exchange.program(4).ranks == 4


@pytest.mark.parametrize(("key", "name", "words"), [
    ("exchange.algorithm", "nothing", "no function 'nothing' is there: allowed are"),
    ("exchange.algorithm", "NUMBER", "no function 'NUMBER' is there"),
    ("exchange.algorithm", "seven", "returns 7: a Program is needed"),
    ("exchange.algorithm", "fails", "division by zero"),
    ("exchange.algorithm", "leaves", "fails: SystemExit: 0"),
    ("exchange.algorithm", "quiet", "fails: Quiet"),
    ("exchange.topology", "leaves", "fails: SystemExit: 0"),
    ("exchange.topology", "quiet", "fails: Quiet"),
    ("exchange.algorithm", "short", "makes a program of 3 ranks whose goal is not that of the reduce-scatter of 4"),
    ("exchange.algorithm", "wrong", "makes a program of 4 ranks whose goal is not that of the reduce-scatter of 4"),
    ("exchange.topology", "links", "needs exchange.algorithm = NAME"),
    ("exchange.topology", "pair", "is of 2 GPUs, and here are 4"),
    ("exchange.topology", "seven", "returns 7: a Topology is needed"),
])
def test_what_cannot_be_is_refused_before_any_work(parts, key, name, words):
    changes = {key: f"{parts}:{name}"}
    if key == "exchange.topology" and name != "links":
        changes["exchange.algorithm"] = f"{parts}:usual"
    with pytest.raises(BadInput) as refused:
        request_with(**changes)
    assert words in str(refused.value) and f"{key} = {parts}:{name}" in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("text", "words"), [
    ("def usual(:", "fails: SyntaxError: invalid syntax (broken.py, line 1)"),
    ("import nowhere_at_all", "fails: ModuleNotFoundError: No module named 'nowhere_at_all'"),
    ("import sys; sys.exit(0)", "fails: SystemExit: 0"), ("raise BaseException", "fails: BaseException"),
    ("raise RuntimeError('no')", "fails: RuntimeError: no"), ("raise RuntimeError", "fails: RuntimeError")])
def test_a_file_that_cannot_be_imported_is_a_line(tmp_path, text, words):
    path = tmp_path / "broken.py"
    path.write_text(text)
    with pytest.raises(BadInput) as refused:
        request_with(**{"exchange.algorithm": f"{path}:usual"})
    assert words in str(refused.value) and str(path) in str(refused.value)


def test_a_file_that_is_not_there_is_a_line(tmp_path):
    with pytest.raises(BadInput, match=r"exchange.algorithm = .*none.py:usual fails: FileNotFoundError: No such file"):
        request_with(**{"exchange.algorithm": f"{tmp_path}/none.py:usual"})
    with pytest.raises(BadInput, match=r"fails: ModuleNotFoundError: .*no_such_module"):
        request_with(**{"exchange.algorithm": "no_such_module:usual"})


def test_a_custom_operator_is_asked_for_like_others(parts):
    request = request_with(**{"layer.operator": f"{parts}:operator-rs"})
    with pytest.raises(BadInput, match=r"layer.operator = .*:operator fails: ValueError: K is too odd"):
        run_sublayer(request.plans[0], request.techniques)
    with pytest.raises(BadInput, match=r"needs layer.devices = N"):
        request_with(**{"layer.operator": f"{parts}:operator-rs", "layer.devices": None})
    with pytest.raises(BadInput, match=r"technique flux has its own GEMM"):
        request_with(**{"layer.operator": f"{parts}:operator-rs", "techniques": ("sequential", "flux")})
    with pytest.raises(BadInput, match=r"layer.operator = '.*:operator-xx' is unknown"):
        request_with(**{"layer.operator": f"{parts}:operator-xx"})
    alone = KernelAlone(scenario_of({}, {"layer.operator": f"{parts}:operator", "layer.gemm": "256x256x64",
                                         "machine": SMALL}))
    with pytest.raises(BadInput, match="K is too odd"):
        alone.run(lambda what, share: None)


@pytest.mark.parametrize(("name", "words"), [
    ("leaves", "fails: SystemExit: 0"), ("quiet", "fails: Quiet"), ("seven", "returns 7: an Operator is needed"),
    ("works_seven", "'s work returns 7: a KernelTable is needed"), ("works_leaves", "fails: SystemExit: 0")])
def test_an_operator_that_is_none_is_a_line(parts, name, words):
    """Alone, and fused, where it is asked for while kernels run side by side."""
    asked = {"layer.gemm": "256x256x64", "machine": SMALL}
    alone = KernelAlone(scenario_of({}, {**asked, "layer.operator": f"{parts}:{name}"}))
    with pytest.raises(BadInput, match=words):
        alone.run(lambda what, share: None)
    request = request_with(**{"layer.operator": f"{parts}:{name}-rs"})
    with pytest.raises(BadInput, match=words):
        run_sublayer(request.plans[0], request.techniques)


@pytest.mark.parametrize("name", ["leaves", "quiet"])
def test_a_part_that_ends_the_program_ends_the_command(parts, name, tmp_path, capsys):
    """Exit code 2 and a line, without an answer that is not there."""
    out = tmp_path / "out.json"
    code = cli.main(["run", "--gemm", "256x256x64", "--devices", "4", "--machine", SMALL, "--algorithm",
                     f"{parts}:{name}", "--json", str(out)])
    line, = capsys.readouterr().err.splitlines()
    assert code == 2 and line.startswith(f"t3: error: --algorithm {parts}:{name} fails: ") and not out.exists()


@pytest.mark.parametrize("raised", ["SystemExit(0)", "GeneratorExit()", "type('Own', (BaseException,), {})()"])
def test_whatever_ends_a_command_is_reported(raised, monkeypatch, capsys):
    """No exception of a command's is a success, nor shows a traceback."""
    def ends(arguments, dropped):
        raise eval(raised)
    monkeypatch.setattr(cli, "_called", ends)
    assert cli.main(["techniques"]) == cli.FAULT
    line, = capsys.readouterr().err.splitlines()
    assert line.startswith("t3: error: a fault of t3 itself")


def test_a_worker_tells_of_a_part_that_ends_the_program(tmp_path):
    class Leaves:
        key = "leaves"

        def run(self, progress):
            raise SystemExit(0)
    message, trace = work(Leaves(), Store(tmp_path))
    assert message == "SystemExit: 0" and "Traceback" in trace
