"""Access to tests/data/dram."""

import hashlib
import importlib.util
import json
from functools import cache
from pathlib import Path

from sim_models.hbm.trace import Trace

FOLDER = Path(__file__).parents[1] / "data" / "dram"
_spec = importlib.util.spec_from_file_location("generate_traces", FOLDER / "generate_traces.py")
generate_traces = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(generate_traces)

WORKLOADS = {w["name"]: w for w in json.loads((FOLDER / "workloads.json").read_text())}
EXPECTED = json.loads((FOLDER / "expected.json").read_text())
MICRO = json.loads((FOLDER / "micro.json").read_text())


def map_of(config: str) -> str:
    """Address map of a configuration, as the trace generator calls it."""
    return "ro_ba_co_bg" if config.endswith("_bgil") else "ro_bg_ba_co"


@cache
def reference_trace(workload: str, address_map: str) -> Trace:
    """The trace of a workload."""
    return Trace.of(*generate_traces.trace(WORKLOADS[workload], address_map))


def sha256(workload: str, address_map: str) -> str:
    """Of the trace's file."""
    text = generate_traces.text(*generate_traces.trace(WORKLOADS[workload], address_map))
    return hashlib.sha256(text.encode()).hexdigest()
