"""A case of a table says which it is when it fails."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def case(what: object) -> Iterator[None]:
    """Put what the case is before the message of whatever fails within the block."""
    try:
        yield
    except (Exception, pytest.fail.Exception) as error:
        raise AssertionError(f"{what}: {error}") from error
