"""Plugin of pytest: the mistake named by $T3_MISTAKE is in the source before any test imports it."""

import json
import os

from amaranth.hdl import Const

from .changes import Change, Changes
from .rewrite import import_with

MISTAKE = "T3_MISTAKE"  #: environment: a Change as JSON


def pytest_configure(config) -> None:
    change = Change(**json.loads(os.environ[MISTAKE]))
    import_with(Changes(lambda other: 1 if other == change else None, Const(1)), [change.file])
