"""Plugin of pytest: the mistake named by $T3_MISTAKE or $T3_LIVED is in the source before any test imports it.

With the latter the top is not compiled.
"""

import json
import os
from types import SimpleNamespace

from amaranth.hdl import Const

from t3sim.testbenches.mutation.source.changes import Change, Changes
from t3sim.testbenches.mutation.source.lived import Lived
from t3sim.testbenches.mutation.source.rewrite import import_with, import_wrong

MISTAKE, LIVED = "T3_MISTAKE", "T3_LIVED"  #: environment: a Change, or a Lived, as JSON


def pytest_configure(config) -> None:
    if MISTAKE in os.environ:
        change = Change(**json.loads(os.environ[MISTAKE]))
        import_with(Changes(lambda other: 1 if other == change else None, Const(1)), [change.file])
    else:
        mistake = Lived(**json.loads(os.environ[LIVED]))
        import_wrong(mistake.file, mistake.right, mistake.wrong)
        from t3sim.cosim import gpu

        gpu.gpu_design = lambda geometry: SimpleNamespace(simulator=lambda: gpu.amaranth_gpu(geometry))
