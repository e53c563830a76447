"""`pytest tests/rtl --engines`: each test on Amaranth's simulator and on the compiled design, with the ratio."""

import os
from collections.abc import Iterator
from functools import partialmethod

import pytest
from amaranth.sim import Simulator

from t3sim.rtlsim.engine import CompiledEngine
from t3sim.rtlsim.graph import UnsupportedDesign
from tests.support.stream_bench import once

ENGINES = {"amaranth": "pysim", "compiled": CompiledEngine}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.config.getoption("--engines"):
        metafunc.parametrize("engine", ENGINES, indirect=True)


@pytest.fixture(autouse=True)
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let Amaranth's `Simulator` run on this test's engine; without --engines it is Amaranth's own."""
    name = getattr(request, "param", None)
    if name is None:
        yield
        return
    once.cache_clear()  # another engine's
    monkeypatch.setattr(Simulator, "__init__", partialmethod(Simulator.__init__, engine=ENGINES[name]))
    start = sum(os.times()[:4])  # compilers included
    yield
    request.node.user_properties.append((name, sum(os.times()[:4]) - start))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    try:
        return (yield)
    except UnsupportedDesign as error:
        if not item.config.getoption("--engines"):
            raise
        pytest.skip(str(error))


def pytest_terminal_summary(terminalreporter, config: pytest.Config) -> None:
    """Of the tests that passed on both engines."""
    if not config.getoption("--engines"):
        return
    seconds: dict[str, dict[str, float]] = {}
    passed = {report.nodeid for report in terminalreporter.getreports("passed") if report.when == "call"}
    for report in terminalreporter.getreports(""):
        for engine, taken in report.user_properties:
            if report.when == "teardown" and report.nodeid in passed:
                seconds.setdefault(report.nodeid.replace(engine, ""), {})[engine] = taken
    both = [times for times in seconds.values() if len(times) == len(ENGINES)]
    ours, theirs = (sum(times[name] for times in both) for name in reversed(ENGINES))
    if both:
        terminalreporter.write_line(f"{len(both)} tests passed on both: compiled {ours:.1f} processor s, Amaranth's "
                                    f"simulator {theirs:.1f}, a ratio of {ours / theirs:.2f}")
