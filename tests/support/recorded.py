"""Small recorded runs for the tests."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from t3sim.machine import load_machine
from t3sim.runs.plan import Plan
from t3sim.runs.skew import Skew
from t3sim.trace.record import record
from t3sim.trace.recorder import Filter
from t3sim.trace.setup import Setup
from t3sim.trace.store import Trace
from t3sim.workload.workloads import gemm_workload

MACHINE = Path(__file__).parents[1] / "data" / "machines" / "ring_small.toml"
SHAPE, DEVICES = "256x256x64", 4


def make(folder: Path, bug: str | None = None, wanted: Filter = Filter(), technique: str = "t3-mca",
         policy: str | None = None, mirrored: bool = False, shape: str = SHAPE,
         varied: Mapping[str, object] = MappingProxyType({}), **options) -> Trace:
    """A ring of four GPUs, all of it recorded."""
    plan = Plan(load_machine(str(MACHINE)), gemm_workload(shape, DEVICES), skew=None if mirrored else Skew())
    record(Setup(plan, technique, bug, policy, varied), folder, wanted, **options)
    return Trace.load(folder)


def ring(tmp_path_factory) -> Trace:
    return make(tmp_path_factory.mktemp("ring"))
