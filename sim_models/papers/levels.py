"""The event level held to the cycle level: the same collectives on both, over sizes and numbers of GPUs."""

from collections.abc import Iterator

from t3sim.analytic.costs import kernel_costs
from t3sim.base import plots
from t3sim.collectives import ring as rings
from t3sim.collectives.algorithms import algorithms
from t3sim.event.flow.collective import run_program
from t3sim.machine.topologies import ring, switch
from t3sim.papers.figure import Figure, Findings, Results, Scope, Table
from t3sim.papers.paper import Target
from t3sim.runs.kernels import ALL_GATHER, ALL_TO_ALL, REDUCE_SCATTER, REDUCE_SCATTER_NMC
from t3sim.study.tasks.task import KernelTask
from t3sim.workload.workloads import Workload

_SIZES_MB = (1, 6, 24, 192)
_DEVICES = (4, 8, 16)
_KERNELS = {REDUCE_SCATTER: "reduce-scatter", REDUCE_SCATTER_NMC: "reduce-scatter, near-memory",
            ALL_GATHER: "all-gather", ALL_TO_ALL: "direct all-to-all"}


def _cases(setup: Scope) -> Iterator[tuple[int, int, str, KernelTask]]:
    for devices in _DEVICES:
        for size in _SIZES_MB:
            for kernel in _KERNELS:
                # An all-to-all is of each GPU's share of the output.
                rows, columns = (devices * size * 250, 2000) if kernel == ALL_TO_ALL else (size * 500, 1000)
                workload = Workload("custom", "gemm", devices, rows, columns, 1)
                yield devices, size, kernel, setup.task(kernel, workload)


def evaluate(setup: Scope, results: Results) -> Findings:
    costs, rows, errors = kernel_costs(setup.machine), [], []
    for devices, size, kernel, task in _cases(setup):
        topology = switch(devices) if kernel == ALL_TO_ALL else ring(devices)
        program = (algorithms("a2a", topology)["direct"].program() if kernel == ALL_TO_ALL else
                   rings.all_gather(devices) if kernel == ALL_GATHER else rings.reduce_scatter(devices))
        chunk = size * 1e6 / devices
        event = run_program(program, topology, lambda number, chunk=chunk: chunk, costs,
                            near_memory=kernel == REDUCE_SCATTER_NMC).ns
        cycle = results[task].ns
        errors.append(100 * (event / cycle - 1))
        rows.append((f"{_KERNELS[kernel]}, {devices} GPUs, {size} MB", f"{cycle / 1e3:,.2f}", f"{event / 1e3:,.2f}",
                     f"{errors[-1]:+.2f} %"))
    worst = max(errors, key=abs)

    def draw():
        drawn, axes = plots.figure(2.6)
        axes.plot(range(len(errors)), errors, "o", color=plots.BLUE, markersize=4)
        axes.axhspan(-3, 3, color=plots.LIGHT, alpha=0.4, zorder=0)
        axes.set_xticks([])
        axes.set_ylabel("event over cycle level (%)")
        axes.set_xlabel("collectives on 4, 8, 16 GPUs, and within each 1 to 192 MB")
        return drawn

    return Findings(
        text="On the event level ring collectives, and a direct all-to-all around a switch, take what they take cycle "
             f"by cycle, within {abs(worst):.1f} %. "
             "No constant was fitted: step and memory costs are derived from the machine file.",
        ours={"event_error_max_percent": abs(worst)},
        targets={"event_error_max_percent": Target("event against cycle level, largest", "%", None, "beyond",
                                                   at_most=3)},
        tables=[Table("Time (µs)", ("collective", "cycle level", "event level", "difference"), rows, folded=True)],
        plots={"levels": draw})


LEVELS = Figure("levels", "The event level against the cycle level", lambda setup: [case[3] for case in _cases(setup)],
                evaluate, short="levels")
