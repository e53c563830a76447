"""Options that every test may use."""

import gc
import json
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

#: Objects made between looks for garbage, as for the command line: what tests elaborate and compile is kept.
ALLOCATIONS = 50_000
LEFT_OUT = {"builds_rtl", "builds_loops", "long", "slow"}  #: marks of what `make check` leaves out


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, default=None, metavar="N",
                     help="seed of random stimulus; 1 without it; -1 draws one")
    parser.addoption("--engines", action="store_true",
                     help="tests/rtl: each test on Amaranth's simulator and on the compiled design, with the ratio")
    parser.addoption("--compile-nothing", action="store_true",
                     help="only short tests without the marks of what must be built; one that builds after all fails")


def pytest_configure(config: pytest.Config) -> None:
    gc.set_threshold(ALLOCATIONS)
    seed = config.getoption("--seed")
    if hasattr(config, "workerinput"):  # one of xdist's processes: all use the same
        seed = config.workerinput["seed"]
    elif seed is None:
        seed = 1
    elif seed < 0:
        seed = random.SystemRandom().randrange(1 << 32)
    config.option.seed = seed


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node) -> None:
    node.workerinput["seed"] = node.config.option.seed


def pytest_report_header(config: pytest.Config) -> str:
    return f"seed: {config.option.seed} (repeat with --seed={config.option.seed})"


#: This file compiles the loops that most others run. Meanwhile the other processes test hardware: those that needed
#: the same loops would wait.
FIRST = "test_data_mode.py"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    built: dict[Path, set[str]] = {}
    for item in items:
        built.setdefault(item.path, set()).update(mark.name for mark in item.iter_markers())

    def turn(item: pytest.Item) -> int:
        if "builds_loops" in built[item.path]:
            return 0 if item.path.name == FIRST else 2
        return 1 if "builds_rtl" in built[item.path] else 3  # short ones fill the end

    items.sort(key=turn)
    if config.getoption("--compile-nothing"):
        kept = [item for item in items if not LEFT_OUT.intersection(mark.name for mark in item.iter_markers())]
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = kept


@pytest.fixture(scope="session", autouse=True)
def compile_nothing(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let builds fail, even those that a cache would answer: elsewhere it is empty."""
    if not request.config.getoption("--compile-nothing"):
        yield
        return
    def fails(mark: str):
        return lambda *_, **__: pytest.fail(f"this builds: mark the test {mark}")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("numba.core.dispatcher.Dispatcher.compile", fails("builds_loops"))
        for place in ("t3sim.cosim.component.cached", "t3sim.rtlsim.build.cached", "t3sim.cosim.verilog.cached",
                      "t3sim.cosim.cocotb_run.cached", "t3sim.base.yowasp.command"):
            patch.setattr(place, fails("builds_rtl"))
        yield


@pytest.fixture(autouse=True)
def own_results(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep results of kernels apart: a test that replaces what simulates neither finds nor leaves any."""
    folder: list[Path] = []

    def results_folder() -> Path:
        folder[:] = folder or [tmp_path_factory.mktemp("results")]
        return folder[0]

    monkeypatch.setattr("t3sim.base.user_cache.results_folder", results_folder)


@pytest.fixture
def json_of(capsys: pytest.CaptureFixture) -> Callable[..., Any]:
    """Run a command, which must succeed, and return its JSON, all that it prints."""
    def answer(*words: object) -> Any:
        from t3sim.cli import main

        assert main([*map(str, words), "--json", "-"]) == 0
        return json.loads(capsys.readouterr().out)

    return answer


@pytest.fixture
def error_of(capsys: pytest.CaptureFixture) -> Callable[..., str]:
    """Run a command with bad input, and return the one line with which it is refused; nothing else is printed."""
    def error(*words: object) -> str:
        from t3sim.cli import main

        assert main([*map(str, words)]) == 2
        printed = capsys.readouterr()
        assert not printed.out and re.fullmatch(r"t3: error: [^\n]+\n", printed.err), printed.err
        return printed.err

    return error


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """Seed of this run; printed, so that a failure shows it."""
    value = request.config.option.seed
    print(f"seed {value}")
    return value


@pytest.fixture
def rng(seed: int) -> random.Random:
    return random.Random(seed)
