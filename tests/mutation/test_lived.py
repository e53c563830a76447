"""Mistakes in the source that lived once: each is still one, and its test notices it.

A mistake in the top takes a quarter of a minute to be noticed. Among other tests a few of those are run, others with
another `--seed`; all of them when this file is named.
"""

import random
import re

import pytest

from t3sim.testbenches.mutation.source.lived import lived
from t3sim.testbenches.mutation.source.rewrite import ROOT
from t3sim.testbenches.mutation.source.unit import noticed

_AT_ONCE = 6  #: of those in the top


def pytest_generate_tests(metafunc):
    if "mistake" not in metafunc.fixturenames:
        return
    config = metafunc.config
    named = any(__name__.rpartition(".")[2] in argument for argument in config.args)
    top = [mistake for mistake in lived() if "test_gpu_top" in mistake.test]
    left_out = [] if named else random.Random(config.option.seed).sample(top, len(top) - _AT_ONCE)
    metafunc.parametrize("mistake", [mistake for mistake in lived() if mistake not in left_out],
                         ids=lambda mistake: mistake.wrong)


def test_each_is_of_a_line_and_has_a_test_that_are_there():
    for mistake in lived():
        assert (ROOT / mistake.file).read_text(encoding="utf-8").count(mistake.right) == 1, mistake
        file, _, test = mistake.test.partition("::")
        assert re.search(rf"^def {test.partition('[')[0]}\(", (ROOT / file).read_text(encoding="utf-8"), re.M), mistake


@pytest.mark.builds_rtl
@pytest.mark.slow
def test_it_is_noticed(mistake):
    found = noticed(mistake)
    assert found and found.what == "unit" and found.by.startswith(mistake.test), f"{mistake.file}: {found}"
