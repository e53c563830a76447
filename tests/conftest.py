"""Options that every test may use."""

import random

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, default=None, metavar="N",
                     help="seed of random stimulus; 1 without it; -1 draws one")


def pytest_configure(config: pytest.Config) -> None:
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


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """Seed of this run; printed, so that a failure shows it."""
    value = request.config.option.seed
    print(f"seed {value}")
    return value


@pytest.fixture
def rng(seed: int) -> random.Random:
    return random.Random(seed)
