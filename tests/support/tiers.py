"""Tiers of tests: what `make test` asks, and what only `make test-all` does."""

from collections.abc import Iterable

import pytest


def on_one(values: Iterable, *quick) -> list:
    """Give values to a parametrized test: `make test` asks `quick` (the first without it), the others are slow."""
    values = list(values)
    chosen = quick or (values[0],)
    assert all(one in values for one in chosen), f"{chosen} are not among {values}"
    return [value if value in chosen else pytest.param(*(value if isinstance(value, tuple) else (value,)),
                                                       marks=pytest.mark.slow) for value in values]
