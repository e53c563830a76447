"""A scenario whose kernel is alone on one GPU, or beside copies: of a file, or what makes a layer's output."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from t3sim.analytic.libraries.contention import slowed_by_copies
from t3sim.base.errors import BadInput
from t3sim.base.output import collect_versions
from t3sim.machine import Machine
from t3sim.runs import kernels
from t3sim.runs.failure import SimulationError
from t3sim.runs.kernel_results import IsolatedKernel
from t3sim.runs.operators import with_its_kernel
from t3sim.runs.phases import Moved, by_stream
from t3sim.study.gemm_rate import gemm_rate
from t3sim.study.results import BesideRun, KernelRun
from t3sim.study.scenario.kinds import check_keys, is_alone
from t3sim.study.scenario.layers import in_format, small_workload
from t3sim.study.scenario.request import check_operator, fraction_of_tokens, machine_of
from t3sim.study.scenario.scenario import ALONE, Scenario, setting
from t3sim.study.tasks.estimate import Estimate, estimate
from t3sim.study.tasks.store import Results
from t3sim.study.tasks.task import kernel_task
from t3sim.workload.interchange.kernel_file import load_kernel
from t3sim.workload.operators.kernel_table import KernelError, KernelTable
from t3sim.workload.workloads import Workload


class KernelAlone:
    """A kernel alone; made ready, which raises BadInput, before it runs.

    `copies`: run it once more beside copies of these rates.
    """

    what = "a kernel alone"  #: for people

    def __init__(self, scenario: Scenario, copies: kernels.Copies | None = None) -> None:
        layer = scenario.layer
        if not is_alone(layer):
            raise BadInput(f"{setting('layer.operator', layer.operator)} is no kernel alone: allowed are "
                           f"{', '.join(ALONE)}, and layer.kernel = FILE")
        check_keys(scenario, "kernel")
        check_operator(scenario)
        self.copies, self.file = copies, layer.kernel
        self.table: KernelTable | None = load_kernel(Path(layer.kernel)) if layer.kernel is not None else None
        workload = None if self.table is not None else fraction_of_tokens(
            in_format(small_workload(layer, scenario.seed), layer.dtype), scenario)
        self.machine: Machine = machine_of(scenario)
        self.workload: Workload | None = None if workload is None else with_its_kernel(self.machine, workload)
        name = Path(self.file).name if self.workload is None else f"{self.workload.kind} {self.workload.size}"
        #: What is simulated, by its name for people.
        self.kernels: dict[str, kernels.Kernel] = {name: kernels.GEMM, **(
            {} if copies is None else {"beside copies": kernels.BesideCopies(copies)})}

    def estimate(self) -> Estimate | None:
        """Estimate how long it takes; None of a file's, which says not what it computes."""
        return None if self.workload is None else estimate(self.machine, self.workload, self.kernels.values())

    def run(self, progress: Callable[[str, float], None], store: Results | None = None) -> KernelRun:
        """Simulate it, unless it is kept. Raises KernelError for a kernel that cannot run on this machine."""
        machine, workload = self.machine, self.workload
        try:
            results = [self._simulate(kernel, partial(progress, name), store) for name, kernel in self.kernels.items()]
        except (BadInput, KernelError, SimulationError) as error:
            if self.file is None:
                raise
            reason = ": its groups wait for each other (waits, arrivals)" if isinstance(error, SimulationError) else ""
            raise type(error)(f"{self.file}: {error}{reason}") from None
        for name in self.kernels:
            progress(name, 1.0)
        alone, dram_bytes = results[0], sum(map(sum, results[0].dram.values()))
        return KernelRun(
            next(iter(self.kernels)), machine.name, alone.ns, alone.simulated_cycles, _dram_bytes(alone.dram),
            sum(kernel.host_seconds for kernel in results), collect_versions(),
            None if workload is None else gemm_rate(machine, workload, alone.ns, dram_bytes),
            None if self.copies is None else BesideRun(
                self.copies.read, self.copies.write, results[1].ns, results[1].ns / alone.ns,
                slowed_by_copies(machine, alone.ns, dram_bytes, self.copies.read, self.copies.write),
                _dram_bytes(results[1].dram)))

    def _simulate(self, kernel: kernels.Kernel, progress: Callable[[float], None],
                  store: Results | None) -> IsolatedKernel:
        if self.table is not None:
            from t3sim.runs.isolated_kernels import run_table

            return run_table(self.table, self.machine, progress, getattr(kernel, "copies", None))
        task = kernel_task(kernel, self.machine, self.workload)
        if store is None or (result := store.load(task)) is None:
            result = kernels.simulate(kernel, self.machine, self.workload, progress)
            if store is not None:
                store.save(task, result)
        return result


def _dram_bytes(dram: dict[str, Moved]) -> dict[str, int]:
    return {stream: count for stream, count in by_stream(dram).items() if count}
