"""A scenario of the event level: an operator and its collective, tile by tile, without RTL, on GPUs that are sold."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from t3sim.analytic.gemm import Shape, best_tile_kernel
from t3sim.base.errors import BadInput
from t3sim.machine import Machine, load_machine
from t3sim.machine.levels import TILES
from t3sim.mechanisms import event_runs as runs
from t3sim.mechanisms.event_runs import OverlapRun, run_overlap
from t3sim.mechanisms.flux.event import Choice
from t3sim.mechanisms.fused_wg import event as persistent
from t3sim.mechanisms.fused_wg.event import PersistentRun, Sending, run_persistent
from t3sim.study.results import FileRun
from t3sim.study.scenario.kinds import check_keys
from t3sim.study.scenario.layers import of_file, refuse, workloads_of
from t3sim.study.scenario.scenario import Scenario, setting
from t3sim.workload.workloads import Workload, batch_and_tables, gemm_workload

_OPERATORS = (*runs.OPERATORS, *persistent.OPERATORS, "gemm")
_SLICE_TASKS = {"embedding-a2a": 32}  #: of a persistent kernel, if the scenario does not say; else 1


@dataclass(frozen=True)
class GemmRun:
    """A library's GEMM alone."""

    shape: str
    machine: str
    kernel_ns: float
    call_ns: float  #: of a call that is waited for
    kernel: str
    tiles: int
    rounds: int
    tflop_per_s: float
    peak_tflop_per_s: float

    def to_json(self) -> dict[str, Any]:
        return {"kernel": f"GEMM {self.shape}", "machine": self.machine, "kernel_ns": self.kernel_ns,
                "call_ns": self.call_ns, "tiles": self.kernel, "rounds": self.rounds}


EventRun = OverlapRun | FileRun | PersistentRun | GemmRun


class EventLevel:
    """Event-level play of a scenario; made ready, which raises BadInput, before it starts."""

    what = "level = event"  #: for people
    notes: Sequence[str] = ()  #: for people: what was read in a model's file

    def __init__(self, scenario: Scenario) -> None:
        check_keys(scenario, "event")
        self._scenario = scenario
        self._check_signal()
        operator = scenario.layer.operator
        if operator not in _OPERATORS:
            raise BadInput(f"layer.operator = {operator!r} is not on the event level: allowed are "
                           f"{', '.join(_OPERATORS)}")
        node = load_machine(scenario.machine, TILES)
        #: With libraries and hosts that take no time, if the scenario says so.
        self.node: Machine = node if scenario.software else node.without_software()
        self._play: Callable[[], EventRun] = (
            self._persistent() if operator in persistent.OPERATORS else self._of_a_gemm())

    def run(self) -> EventRun:
        """Play it. Raises BadInput for what the machine has not."""
        return self._play()

    def _check_signal(self) -> None:
        scenario, signal = self._scenario, self._scenario.exchange.signal
        if signal and scenario.techniques is not None and not (
                {"flux", "fused-wg", "t3-model"} & set(scenario.techniques)):
            raise BadInput(f"{setting('exchange.signal', signal)} is for flux, or fused-wg and t3-model, of which "
                           f"{setting('techniques', scenario.techniques)} names none")
        for key, value in (("fused_wg.slice_tasks", scenario.fused_wg.slice_tasks),
                           ("flux.pieces", scenario.flux.pieces), ("flux.tune", scenario.flux.tune)):
            if signal and value not in (None, False):
                raise BadInput(f"{setting('exchange.signal', signal)} does not go with {key}, which says how much is "
                               "sent together")

    def _of_a_gemm(self) -> Callable[[], EventRun]:
        scenario, layer, flux, node = self._scenario, self._scenario.layer, self._scenario.flux, self.node
        signal = scenario.exchange.signal
        model_keys = ("layer.model", "layer.sublayer", "layer.tp", "layer.tokens")
        for key, value in (("layer.embedding", layer.embedding),
                           *((key, getattr(layer, key[6:])) for key in model_keys if layer.operator == "gemm"),
                           ("fused_wg.slice_tasks", scenario.fused_wg.slice_tasks),
                           ("exchange.signal", signal if layer.operator == "gemm" else None)):
            if value is not None:
                raise BadInput(f"{setting(key, value)} does not go with {setting('layer.operator', layer.operator)}")
        if layer.gemm is None and (layer.model is None or layer.operator == "gemm"):
            raise BadInput("level = event needs layer.gemm = MxNxK, the GEMM of one GPU, or layer.model = NAME")
        if layer.gemm is None:
            layer = layer if layer.tp is not None else layer.model_copy(update={"tp": node.gpus})
        elif layer.devices is None:
            layer = layer.model_copy(update={"devices": node.gpus})
        if layer.operator == "gemm":
            workload = gemm_workload(layer.gemm or "", layer.devices or 1)
            return lambda: _gemm_alone(node, layer.gemm or "", workload)
        workloads_and_counts, self.notes = workloads_of(layer, scenario.seed)
        for workload, _ in workloads_and_counts:
            runs.check_gpus(node, workload.tp, workload.m, "layer.devices" if layer.model is None else "layer.tp")
        choice = Choice(flux.order, flux.transfer or "push", 1 if flux.pieces is None else flux.pieces, signal)
        if flux.tune and choice != Choice():
            raise BadInput("flux.tune = true tries every flux.order, flux.transfer and flux.pieces: give it or them")
        techniques = scenario.techniques or tuple(
            name for name in runs.TECHNIQUES if name != "decomposed" or workloads_and_counts[0][0].tp <= node.gpus)

        def play(workload: Workload) -> OverlapRun:
            return run_overlap(node, layer.operator, Shape(workload.m, workload.n, workload.k), workload.tp, techniques,
                               None if flux.tune else choice, scenario.decomposed.communication_units,
                               "" if layer.model is None else workload.title)
        if of_file(layer):
            return lambda: FileRun(tuple((count, play(workload)) for workload, count in workloads_and_counts))
        return lambda: play(workloads_and_counts[0][0])

    def _persistent(self) -> Callable[[], EventRun]:
        """Make a persistent kernel that sends ready, beside separate kernels and Track & Trigger."""
        scenario, layer, node = self._scenario, self._scenario.layer, self.node
        refuse(layer, ("model", "sublayer", "tp", "tokens"),
               f" does not go with {setting('layer.operator', layer.operator)} on the event level")
        operator, devices = layer.operator, node.gpus if layer.devices is None else layer.devices
        if operator == "embedding-a2a":
            if layer.gemm is not None or layer.embedding is None:
                raise BadInput("layer.operator = embedding-a2a needs layer.embedding = BATCHxTABLES (tables per "
                               "GPU), for example 2048x256, and no layer.gemm")
            shape: tuple[int, ...] = batch_and_tables(layer.embedding)
        elif layer.gemm is None or layer.embedding is not None:
            raise BadInput(f"layer.operator = {operator} needs layer.gemm = MxNxK, one GPU's, and no layer.embedding")
        else:
            workload = gemm_workload(layer.gemm, devices)
            if operator == "gemv-ar" and workload.n != 1:
                raise BadInput("layer.operator = gemv-ar multiplies by a vector: layer.gemm = "
                               f"{workload.m}x1x{workload.k}")
            shape = (workload.m, workload.k) if operator == "gemv-ar" else (workload.m, workload.n, workload.k)
        slice_tasks = scenario.fused_wg.slice_tasks
        tasks = _SLICE_TASKS.get(operator, 1) if slice_tasks is None else slice_tasks
        sending = scenario.exchange.signal or Sending(tasks)
        return lambda: run_persistent(node, operator, devices, shape,
                                      scenario.techniques or persistent.TECHNIQUES, sending)


def _gemm_alone(node: Machine, shape: str, workload: Workload) -> GemmRun:
    kernel = best_tile_kernel(node, Shape(workload.m, workload.n, workload.k))
    rate, peak = node.gpu.tflop_per_s(workload.flop, kernel.ns)
    return GemmRun(shape, node.name, kernel.ns, kernel.ns + node.host.call_ns, kernel.name, kernel.tiles,
                   kernel.rounds(), rate, peak)
