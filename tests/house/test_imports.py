"""Imports point one way, and every hardware block has its reference model and its test."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OURS = {"rtl", "sim_models", "testbenches", "tests"}

#: What a folder is called when it is imported.
NAMES = {"rtl": "t3sim.rtl", "sim_models": "t3sim", "testbenches": "t3sim.testbenches", "tests": "tests"}

#: The plain facts of the hardware that models may read: no Amaranth objects needed to use them.
PLAIN_RTL = {f"t3sim.rtl.{name}" for name in ("arbiter", "geometry", "registers", "address_map", "check_bits", "order",
                                       "queue_commands", "formats")}

#: Files of rtl/ that hold no block.
NO_BLOCK = {"rtl/geometry.py", "rtl/layouts.py", "rtl/registers.py", "rtl/blocks.py", "rtl/order.py",
            "rtl/queue_commands.py", "rtl/formats.py", "rtl/channel/converters.py",
            "rtl/streams/clock_crossing.py"}  # the last a library's

#: Blocks whose behaviour is checked through a larger one, which names them in its model and test.
CHECKED_THROUGH = {
    "arbiter/arbiter": "arbiter",
    "control/event_counter": "gpu_top",
    "control/reset_sequence": "gpu_top",
    "channel/fp_adder": "nmc_alu",
    "streams/pointer_queue": "memory_channel",
    "dma/read_credits": "gpu_top",
    "streams/two_entry_queue": "coalescer",
    "switch/credited_input": "switch",
    "switch/credited_output": "switch",
    "switch/merge_row": "merge_table",
    "switch/multicast": "switch",
    "switch/switch_bus": "switch",
}

#: Blocks wired from checked ones. What they must do is what the models around them and the fused run's self-checks say
#: (tests/runs/test_fused.py).
NO_MODEL_OF_ITS_OWN = {"gpu_top"}


def files(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


@cache
def parse(path: Path) -> ast.Module:
    """Read a file once, for all tests."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@cache
def _imports(path: Path) -> tuple[str, ...]:
    """Look at a file once, for all tests."""
    return tuple(_in_tree(path, parse(path)))


def imports(path: Path, tree: ast.Module | None = None) -> Iterable[str]:
    """Return absolute names of all modules that a file, or a part of its tree, imports, wherever in the file.

    `from a import b` gives `a.b` when that is a module of ours, otherwise `a`.
    """
    return _imports(path) if tree is None else _in_tree(path, tree)


def _in_tree(path: Path, tree: ast.Module) -> Iterator[str]:
    package = module_name(path).split(".")[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join((*package[:len(package) - node.level + 1], *filter(None, [node.module]))) \
                if node.level else node.module
            for alias in node.names:
                inner = source_path(f"{base}.{alias.name}")
                yield f"{base}.{alias.name}" if inner.with_suffix(".py").exists() or inner.is_dir() else base


def module_name(path: Path) -> str:
    folder, *inner = path.relative_to(ROOT).with_suffix("").parts
    return ".".join((NAMES[folder], *inner))


def source_path(module: str) -> Path:
    """Of a module or package as if it were ours, without a suffix."""
    folder = top(module)
    inner = module.removeprefix(NAMES.get(folder, folder)).strip(".")
    return ROOT.joinpath(folder, *inner.split(".")) if inner else ROOT / folder


def top(module: str) -> str:
    """The folder of a module of ours, or the package of another."""
    return next((folder for folder in ("rtl", "testbenches", "sim_models")
                 if f"{module}.".startswith(f"{NAMES[folder]}.")), module.split(".")[0])


def offences(folder: str, allowed) -> list[str]:
    return [f"{path.relative_to(ROOT)} imports {module}"
            for path in files(folder) for module in imports(path) if not allowed(path, module)]


def test_rtl_needs_nothing_but_amaranth():
    def allowed(path, module):
        return top(module) in {"rtl", "amaranth"} | set(sys.stdlib_module_names)
    assert not offences("rtl", allowed)


#: Folders of rtl/ from the ground up. Below them are the facts (geometry, registers, layouts, ...), above them the top.
HARDWARE = ("control", "streams", "arbiter", "channel", "track", "window", "dma", "link", "switch")
TOP = {"rtl/gpu_top.py", "rtl/blocks.py"}


def storey(path: Path) -> int:
    """Where a file of rtl/ stands in the order; a package itself, such as the arbiter's table, is a fact."""
    _, *folders = path.relative_to(ROOT).parent.parts
    if path.relative_to(ROOT).as_posix() in TOP:
        return len(HARDWARE) + 1
    return HARDWARE.index(folders[0]) + 1 if folders else 0


def test_folders_of_the_hardware_import_those_before_them_only():
    assert {path.parent.name for path in files("rtl")} == {"rtl", *HARDWARE}
    assert not offences("rtl", lambda path, module: top(module) != "rtl" or (
        storey(source_path(module).with_suffix(".py")) <= storey(path)))


def test_models_reach_the_rtl_through_one_door():
    def allowed(path, module):
        here = room(module_name(path))
        return (here == "cosim" or top(module) not in {"rtl", "amaranth"} or module in PLAIN_RTL
                or here == "rtlsim" and top(module) == "amaranth")
    assert not offences("sim_models", allowed)


def test_testbenches_know_no_amaranth_objects():
    """But for specifications, mutants and random designs, which are made of Amaranth themselves."""
    def allowed(path, module):
        if any(path.is_relative_to(ROOT / "testbenches" / folder) for folder in ("formal", "mutation", "fuzz.py")):
            return True
        return top(module) not in {"rtl", "amaranth"} or module in PLAIN_RTL
    assert not offences("testbenches", allowed)


#: What parts of sim_models may import of ours, where that is less than `ORDER` allows. Operators know no devices,
#: collectives and topologies neither bytes nor cycles; only the schedule sees all three.
PARTS = {
    "machine/topologies": {"machine.topologies", "base.errors"},
    "collectives/*.py": {"collectives", "machine.topologies", "base"},
    "collectives/schedule": {"collectives", "machine.topologies", "workload.operators", "base.errors", "base.line"},
    "workload/operators": {"workload.operators", "base.errors", "base.line"},
    "rtlsim": {"rtlsim", "base"},  # it compiles any Amaranth design
    "cosim/driver": {"cosim.driver", "base.errors", *PLAIN_RTL},
    "gpu/hbm": {"gpu.hbm", "machine", "base.compiled", "base.line"},
    # Neither matrices nor roles, only the mirror's table of lines.
    "gpu/fabric": {"gpu.fabric", "gpu.hbm", "gpu.setup", "machine.dram", "collectives.schedule.mirror", "base.compiled",
                   "base.line", *PLAIN_RTL},
    "gpu/agents": {"gpu", "workload.operators", "cosim.ports", "base.compiled", "base.line"},
}


def part_files(part: str) -> list[Path]:
    return sorted((ROOT / "sim_models").glob(part)) if "*" in part else files(f"sim_models/{part}")


def room(module: str) -> str:
    """The room of sim_models, or the module of another folder."""
    return module.split(".")[1] if top(module) == "sim_models" and "." in module else module


def within(module: str, parts: Iterable[str]) -> bool:
    module = module.removeprefix("t3sim.") if top(module) == "sim_models" else module
    return any(f"{module}.".startswith(f"{part}.") for part in parts)


@pytest.mark.parametrize("part", PARTS)
def test_parts_know_only_what_they_may(part):
    """What only their types name is no dependence: a compiled function says that it takes the state of a run."""
    assert part_files(part) and not [
        f"{path.relative_to(ROOT)} imports {module}" for path in part_files(part) for module in needed(path)
        if top(module) in OURS and not within(module.removesuffix(".__init__"), PARTS[part])]


@pytest.mark.parametrize("name", ["fabric", "hbm"])
def test_resources_know_neither_the_loop_nor_the_state_of_a_run(name):
    """Their functions take their own records; here types count as well."""
    assert not [f"{path.relative_to(ROOT)} imports {module}" for path in files(f"sim_models/gpu/{name}")
                for module in imports(path) if within(module, {"gpu.engine", "gpu.agents", "gpu.state"})]


def test_only_the_schedule_sees_operators_collectives_and_topologies():
    def sees(path, part):
        return any(within(module, {part}) and not within(module, {"collectives.schedule"}) for module in needed(path))
    assert [module_name(path) for path in files("sim_models")
            if all(sees(path, part) for part in ("workload.operators", "collectives", "machine.topologies"))
            ] == ["t3sim.collectives.schedule.schedule"]


@pytest.mark.parametrize("name", ["fabric", "hbm"])
def test_resources_know_no_gemm(name):
    """They count what computes, and what that exchanges; which kernel and collective it is, runs say (`phases.py`)."""
    words = re.compile(r"gemm|(reduce|all)[-_](scatter|gather|reduce)", re.IGNORECASE)
    assert [f"{path.name}: {line}" for path in files(f"sim_models/gpu/{name}")
            for line in path.read_text(encoding="utf-8").splitlines() if words.search(line)] == []
    assert words.search("REDUCE_SCATTER = 1") and words.search("an all-gather") and not words.search("all gathered")


#: What makes a run: its state, its hardware, or all of it. Whatever comes later asks `runs` for one that is ready.
BUILDING = {"make_hardware", "make_units", "make_network", "make_memory", "make_llc", "make_sim", "machine_state",
            "simulator", "FusedRun", "ProgrammedRun", "ProgrammedGpus", "Driver", "ApbMaster"}


def made(tree: ast.Module) -> set[str]:
    """Names of what a file calls to make a run, but for classes of its own."""
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    return {name for node in ast.walk(tree) if isinstance(node, ast.Call)
            and (name := ast.unparse(node.func).rpartition(".")[2]) in BUILDING - own}


def test_only_runs_build():
    """But for a mechanism without hardware, which places its units on a machine."""
    above = ORDER.split()[ORDER.split().index("runs") + 1:]
    allowed = {"mechanisms": {"make_units", "machine_state"}}
    assert {path.relative_to(ROOT).as_posix(): found for path in files("sim_models")
            if (here := room(module_name(path))) in above
            and (found := made(parse(path)) - allowed.get(here, set()))} == {}
    assert made(ast.parse("run = runs.FusedRun(x)\ny: FusedRun = make_units(z)\nmake_tea()")) == {
        "FusedRun", "make_units"}


def test_published_figures_are_out_of_the_cores_sight():
    """Their room is for commands only, and reference models and recorded DRAM traces for these two."""
    def allowed(path, module):
        here = room(module_name(path))
        if top(module) == "testbenches":
            return here in {"papers", "commands"}
        return room(module) != "papers" or here in {"papers", "commands"}
    assert offences("sim_models", allowed) == []


def test_studies_never_touch_a_runs_state():
    assert not offences("sim_models/study", lambda path, module: not within(
        module, {"gpu.engine", "gpu.hbm", "cosim.driver"}))


@pytest.mark.parametrize("folder", ["rtl", "sim_models", "testbenches"])
def test_nothing_imports_tests(folder):
    assert not offences(folder, lambda path, module: top(module) != "tests")


def test_reference_models_know_only_the_geometry():
    def allowed(path, module):
        return (module in PLAIN_RTL or module.startswith("t3sim.testbenches.reference")
                or top(module) in set(sys.stdlib_module_names) | {"numpy"})
    assert not offences("testbenches/reference", allowed)


def test_reference_models_load_without_amaranth():
    """Through all that they import, too: they also run inside a simulator that has no Amaranth."""
    modules = [module_name(path) for path in files("testbenches/reference")]
    code = ("import importlib, sys\n"
            f"for name in {modules!r}: importlib.import_module(name)\n"
            "sys.exit('amaranth was imported' if 'amaranth' in sys.modules else 0)")
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, text=True, capture_output=True, timeout=120)
    assert result.returncode == 0, result.stderr


def blocks() -> list[Path]:
    """Files of rtl/ that define a component."""
    found = []
    for path in files("rtl"):
        defines = any(isinstance(node, ast.ClassDef) and any("Component" in ast.unparse(base) for base in node.bases)
                      for node in parse(path).body)
        if defines and path.relative_to(ROOT).as_posix() not in NO_BLOCK:
            found.append(path)
    return found


@pytest.mark.parametrize("path", blocks(), ids=lambda path: path.stem)
def test_every_block_has_a_model_and_a_test(path):
    name = path.relative_to(ROOT / "rtl").with_suffix("").as_posix()
    name = CHECKED_THROUGH.get(name, path.stem)
    wanted = [ROOT / "tests" / "rtl" / f"test_{name}.py"]
    if name not in NO_MODEL_OF_ITS_OWN:
        wanted.append(ROOT / "testbenches" / "reference" / f"{name}.py")
    assert not [str(file.relative_to(ROOT)) for file in wanted if not file.exists()]


def test_exceptions_still_exist():
    for name, through in CHECKED_THROUGH.items():
        assert (ROOT / "rtl" / f"{name}.py").exists()
        assert (ROOT / "tests" / "rtl" / f"test_{through}.py").exists()


@pytest.mark.parametrize("folder", ["rtl", "sim_models", "testbenches"])
def test_imports_are_absolute_and_a_module_has_a_docstring(folder):
    trees = {path.relative_to(ROOT).as_posix(): parse(path) for path in files(folder)}
    assert trees and not [f"{path}:{node.lineno}" for path, tree in trees.items() for node in ast.walk(tree)
                          if isinstance(node, ast.ImportFrom)
                          and (node.level or any(alias.name == "*" for alias in node.names))]
    assert not [path for path, tree in trees.items() if tree.body and not ast.get_docstring(tree)], (
        "a module says in its first line what it is for")


def test_finder_sees_what_it_must(tmp_path, monkeypatch):
    """The checks above would pass if `imports` saw nothing."""
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    folder = tmp_path / "rtl" / "arbiter"
    folder.mkdir(parents=True)
    for name in ("rtl/geometry.py", "rtl/tracker.py"):
        (tmp_path / name).write_text("")
    probe = folder / "probe.py"
    probe.write_text("import numpy.linalg\nfrom t3sim.rtl import geometry\nfrom ..tracker import Tracker\n"
                     "from . import mca\nimport t3sim.testbenches.run\n"
                     "def late():\n    from t3sim.llc import Llc\n")
    found = [*imports(probe)]
    assert found == ["numpy.linalg", "t3sim.rtl.geometry", "t3sim.rtl.tracker", "t3sim.rtl.arbiter",
                     "t3sim.testbenches.run", "t3sim.llc"]
    assert [*map(top, found)] == ["numpy", "rtl", "rtl", "rtl", "testbenches", "sim_models"]
    assert room("t3sim.gpu.llc") == "gpu" and room("t3sim.rtl.geometry") == "t3sim.rtl.geometry"


#: The rooms of sim_models from the ground up: each may import only those before it, also for its type hints.
ORDER = ("base machine workload collectives analytic rtlsim cosim gpu runs event mechanisms trace study area papers "
         "commands cli")


def test_one_class_name_means_one_thing():
    places: dict[str, list[str]] = {}
    for path in files("sim_models"):
        for node in parse(path).body:
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(path.relative_to(ROOT).as_posix())
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_rooms_import_those_before_them_in_the_list_only():
    storeys = {name: number for number, name in enumerate(ORDER.split())}
    upward = {}
    for path in files("sim_models"):
        here = room(module_name(path))
        for module in imports(path):
            if here != "__init__" and top(module) == "sim_models" and storeys[room(module)] > storeys[here]:
                upward.setdefault((here, room(module)), []).append(path.relative_to(ROOT).as_posix())
    assert upward == {}


def test_every_room_is_in_the_list():
    there = {path.stem for path in (ROOT / "sim_models").iterdir()
             if path.suffix == ".py" or any(path.rglob("*.py"))} - {"__init__"}
    assert there == set(ORDER.split())


@cache
def needed(path: Path) -> frozenset[str]:
    """Modules of ours that a file needs to run, wherever it imports them; not those that only its types name."""
    tree = parse(path)
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            node.body = [ast.Pass()]
    with_packages = set()
    for module in imports(path, tree):
        here = source_path(module)
        with_packages.add(module if here.with_suffix(".py").exists() else f"{module}.__init__")
    return frozenset(module for module in with_packages if top(module) in OURS) - {module_name(path)}


def circles(graph: dict[str, frozenset[str] | set[str]]) -> list[list[str]]:
    """Ways around, one at a time, each without the module that closed the one before."""
    found, graph = [], dict(graph)
    while True:
        try:
            TopologicalSorter(graph).prepare()
            return found
        except CycleError as error:
            way = error.args[1]
            found.append(way)
            closing = way[0]
            graph = {module: needs - {closing} for module, needs in graph.items() if module != closing}


def test_no_imports_go_around_in_a_circle():
    graph = {module_name(path): needed(path) for folder in NAMES for path in files(folder)}
    assert len(graph) > 300
    assert circles(graph) == []


def test_a_circle_is_found():
    around = {"a": {"b"}, "b": {"c", "d"}, "c": {"a"}, "d": set()}
    assert [sorted(way[1:]) for way in circles(around)] == [["a", "b", "c"]] and circles({"a": {"b"}, "b": set()}) == []
