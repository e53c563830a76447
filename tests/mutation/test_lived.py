"""Mistakes in the source that lived once: each is still one, and its test notices it."""

import pytest

from t3sim.testbenches.mutation.source.lived import lived
from t3sim.testbenches.mutation.source.rewrite import ROOT
from t3sim.testbenches.mutation.source.unit import noticed

pytestmark = [pytest.mark.builds_rtl, pytest.mark.slow]


@pytest.mark.parametrize("mistake", lived(), ids=lambda mistake: mistake.wrong)
def test_it_is_noticed(mistake):
    assert (ROOT / mistake.file).read_text(encoding="utf-8").count(mistake.right) == 1
    found = noticed(mistake)
    assert found and found.what == "unit" and found.by.startswith(mistake.test), f"{mistake.file}: {found}"
