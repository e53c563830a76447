"""The event level held to the cycle level, and to closed forms."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from t3sim.analytic.closed_forms import chunk_bytes, closed_form_ns
from t3sim.analytic.costs import kernel_costs, network_costs
from t3sim.analytic.libraries.contention import slowed_by_copies
from t3sim.base import plots
from t3sim.collectives import ring as rings
from t3sim.collectives.algorithms import COLLECTIVES, algorithms
from t3sim.event.flow.collective import run_program
from t3sim.machine import load_machine
from t3sim.machine.levels import NETWORK
from t3sim.machine.topologies import named_topology, ring, switch
from t3sim.papers.figure import Figure, Findings, ModelTask, Quantities, Results, Scope, Table, variant
from t3sim.runs.beside_copies import Copies
from t3sim.runs.kernels import ALL_GATHER, ALL_TO_ALL, GEMM, REDUCE_SCATTER, REDUCE_SCATTER_NMC, BesideCopies
from t3sim.study.tasks.task import KernelTask
from t3sim.workload.workloads import Workload, decode_workload, gemm_workload, gemv_workload

# The event level held to the cycle level: the same collectives on both, over sizes and numbers of GPUs.

_RING_SIZES_MB = (1, 6, 24, 192)
_DEVICES = (4, 8, 16)
_KERNELS = {REDUCE_SCATTER: "reduce-scatter", REDUCE_SCATTER_NMC: "reduce-scatter, near-memory",
            ALL_GATHER: "all-gather", ALL_TO_ALL: "direct all-to-all"}


def _cases_event_level(setup: Scope) -> Iterator[tuple[int, int, str, KernelTask]]:
    for devices in _DEVICES:
        for size in _RING_SIZES_MB:
            for kernel in _KERNELS:
                # An all-to-all is of each GPU's share of the output.
                rows, columns = (devices * size * 250, 2000) if kernel == ALL_TO_ALL else (size * 500, 1000)
                workload = Workload("custom", "gemm", devices, rows, columns, 1)
                yield devices, size, kernel, setup.task(kernel, workload)


def evaluate_event_level(setup: Scope, results: Results) -> Findings:
    costs, rows, errors = kernel_costs(setup.machine), [], []
    for devices, size, kernel, task in _cases_event_level(setup):
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
    ours = Quantities()
    ours.add("event_error_max_percent", abs(worst), "%", "event against cycle level, largest", at_most=3)

    def draw():
        figure, axes = plots.figure(3.0)
        places = range(len(_DEVICES) * len(_RING_SIZES_MB))
        for index, (title, marker, colour) in enumerate(zip(
                _KERNELS.values(), "osD^", (plots.BLUE, plots.SKY, plots.ORANGE, plots.GREEN))):
            axes.plot(places, errors[index::len(_KERNELS)], marker, color=colour, markersize=4, label=title)
        axes.axhspan(-3, 3, color=plots.LIGHT, alpha=0.4, zorder=0, linewidth=0)
        axes.set_xticks(places, [f"{size} MB" for _ in _DEVICES for size in _RING_SIZES_MB])
        plots.name_groups(axes, [f"{devices} GPUs" for devices in _DEVICES for _ in _RING_SIZES_MB], 0.13)
        axes.set_ylabel("difference of the event level\nfrom the cycle level (%)")
        plots.legend_above(axes, 4)
        return figure

    return Findings(
        text="The event level's times of ring collectives and of a direct all-to-all through a switch are within "
             f"{abs(worst):.1f} % of the cycle level's. No constant was fitted; the costs of a step and of memory are "
             "derived from the machine file.",
        ours=ours,
        tables=[Table("Time (µs)", ("collective", "cycle level", "event level", "difference"), rows, folded=True)],
        plots={"event-level": draw})


EVENT_LEVEL = Figure("event-level", "The event level against the cycle level",
                     lambda setup: [case[3] for case in _cases_event_level(setup)], evaluate_event_level)


# The event level's contention held to the cycle level: kernels beside copies of stated rates, on three machines.

_WORKLOADS = {"GEMM 2048 x 4096 x 2048": gemm_workload("2048x4096x2048", 2),
              "GEMM 2048 x 8192 x 512": gemm_workload("2048x8192x512", 2),
              "GEMM of 64 tokens, 8192 x 4096": decode_workload("64x8192x4096", 2),
              "GEMV 8192 x 8192": gemv_workload("8192x1x8192", 2)}
#: GB/s read and written: half of what a link of t3-table1 brings, that, twice that, four times. DRAM that cannot give a
#: rate is not asked for it.
_RATES = ("37.5", "75", "150", "300")
_OF_A_LINK = _RATES[1]
_POINTS = 10  #: between the levels that are allowed
#: Cycles in which half of the bytes go through a channel.
_HALVED = ("burst_cycles", "tccd_s_cycles", "tccd_l_cycles", "ccdwl_cycles")


def _machines(setup: Scope):
    dram = setup.machine.dram
    half = variant(setup.machine, {f"dram.{name}": 2 * getattr(dram, name) for name in _HALVED})
    return {setup.machine.name: setup.machine, "half of its DRAM's bandwidth": half,
            "t3-accelsim": load_machine("t3-accelsim")}


def _cases_contention(setup: Scope) -> Iterator[tuple[str, str, str, KernelTask, KernelTask, Copies]]:
    for name, machine in _machines(setup).items():
        for title, workload in _WORKLOADS.items():
            for rate in _RATES:
                copies = Copies.of(rate)
                if copies.read + copies.write > machine.dram_peak_bytes_per_ns:
                    continue
                alone, beside = (setup.task(kernel, workload, machine) for kernel in (GEMM, BesideCopies(copies)))
                yield name, title, rate, alone, beside, copies


def evaluate_contention(setup: Scope, results: Results) -> Findings:
    machines, rows, errors, slowdowns, rates = _machines(setup), [], [], [], []
    for machine_name, title, rate, alone_task, beside_task, copies in _cases_contention(setup):
        alone, beside = results[alone_task], results[beside_task]
        dram_bytes = sum(map(sum, alone.dram.values()))
        cycle = beside.ns / alone.ns
        event = slowed_by_copies(machines[machine_name], alone.ns, dram_bytes, copies.read, copies.write)
        errors.append(100 * (event - cycle))
        slowdowns.append((cycle, event))
        rates.append(rate)
        rows.append((f"{title}, {machine_name}", rate, f"{alone.ns / 1e3:,.1f}", f"{dram_bytes / alone.ns:,.0f}",
                     f"{cycle:.3f}", f"{event:.3f}", f"{errors[-1]:+.1f}"))
    near_cases = {rate: [abs(error) <= _POINTS for error, case_rate in zip(errors, rates)
                         if float(case_rate) <= float(rate)] for rate in (_OF_A_LINK, _RATES[-1])}
    link_percent, all_percent = (100 * sum(flags) / len(flags) for flags in near_cases.values())
    ours = Quantities()
    ours.add("contention_link_within", link_percent, "%",
             f"slowdowns within {_POINTS} points, copies up to a link's rate", at_least=100)
    ours.add("contention_within", all_percent, "%",
             f"slowdowns within {_POINTS} points, copies up to four links' rate", at_least=100)
    ours.add("contention_largest_points", max(map(abs, errors)), "points",
             "slowdown, event against cycle level, largest", at_most=_POINTS)
    return Findings(
        text="For kernels that run next to copies, the event level's slowdown is within "
             f"{_POINTS} points of the cycle level's in {sum(near_cases[_OF_A_LINK])} of "
             f"{len(near_cases[_OF_A_LINK])} cases with copies up to the rate of a link, and in "
             f"{sum(near_cases[_RATES[-1]])} of all {len(errors)} cases. The event level serves streams in turn, each "
             "up to its average demand. On the cycle level a GEMM waits earlier, because it loads only one block of K "
             "ahead and single loads return late.",
        ours=ours,
        tables=[Table("Slowdown next to copies",
                      ("kernel, machine", "copies (GB/s, read and written)", "alone (µs)", "DRAM alone (GB/s)",
                       "cycle level", "event level", "difference (points)"), rows)],
        plots={"contention": lambda: plots.scatter_pairs(
            slowdowns, "slowdown on the cycle level", "slowdown on the event level")})


def _tasks_contention(setup: Scope) -> list[KernelTask]:
    return [task for *_, alone, beside, _ in _cases_contention(setup) for task in (alone, beside)]


CONTENTION = Figure("contention", "Kernels next to copies, on the event and the cycle level", _tasks_contention,
                    evaluate_contention)


# Collectives on tori, switches and nodes of 8 to 128 GPUs: the event level held to closed forms.

#: Machine and topology.
_NETWORKS = (("torus-128", "torus:4x4"), ("torus-128", "torus:8x8"), ("torus-128", "torus:8x16"),
             ("torus-128", "switch:16"), ("mi210-2x4", "nodes:2x4"), ("mi210-2x4", "nodes:4x8"))
_NETWORK_SIZES_MB = (1, 192)


@dataclass(frozen=True)
class CollectiveTime:
    """Time of a collective, ns."""

    ns: float
    busiest_link: float  #: share of the time
    host_seconds: float = field(default=0.0, compare=False)


@dataclass(frozen=True)
class EventCollectiveTask(ModelTask):
    """A collective alone on the event level."""

    machine: str
    topology: str
    collective: str
    algorithm: str
    size_mb: int

    kind = "collective"
    source = "t3sim.event.flow.runs"
    result_type = CollectiveTime

    @property
    def seconds(self) -> float:
        return (named_topology(self.topology).gpus / 45) ** 3

    @property
    def label(self) -> str:
        return f"{COLLECTIVES[self.collective]}, {self.algorithm}, {self.topology}, {self.size_mb} MB"

    @property
    def description(self) -> dict[str, Any]:
        return {"machine": load_machine(self.machine, NETWORK).model_dump(), "topology": self.topology,
                "collective": self.collective, "algorithm": self.algorithm, "size_mb": self.size_mb}


    def closed_form_ns(self) -> float:
        """Return what the links alone take."""
        return closed_form_ns(self.collective, named_topology(self.topology), self.algorithm,
                              network_costs(load_machine(self.machine, NETWORK)), self.size_mb * 1e6)

    def run(self, progress: Callable[[float], None]) -> CollectiveTime:
        topology = named_topology(self.topology)
        program = algorithms(self.collective, topology)[self.algorithm].program()
        part = chunk_bytes(self.collective, program, self.size_mb * 1e6)
        run = run_program(program, topology, lambda chunk: part, network_costs(load_machine(self.machine, NETWORK)))
        return CollectiveTime(run.ns, run.busiest_link)


def _tasks_networks(setup: Scope) -> Iterator[EventCollectiveTask]:
    for machine, topology in _NETWORKS:
        for kind in ("ar", "a2a"):
            for name in algorithms(kind, named_topology(topology)):
                for size in _NETWORK_SIZES_MB:
                    yield EventCollectiveTask(machine, topology, kind, name, size)


def evaluate_networks(setup: Scope, results: Results) -> Findings:
    times = [(task, results[task]) for task in _tasks_networks(setup)]
    errors = [100 * (time.ns / task.closed_form_ns() - 1) for task, time in times]
    worst = max(map(abs, errors))
    ours = Quantities()
    ours.add("network_error_max_percent", worst, "%", "events against closed form, largest", at_most=3)
    return Findings(
        text="On tori of 16, 64 and 128 GPUs, on a switch, and on nodes with a network card per GPU, the event level's "
             f"times of collectives are within {worst:.1f} % of closed forms of the links.",
        ours=ours,
        tables=[Table("Time (µs)", ("collective", "events", "closed form", "difference", "busiest link"), [
            (task.label, f"{time.ns / 1e3:,.1f}", f"{task.closed_form_ns() / 1e3:,.1f}", f"{error:+.2f} %",
             f"{100 * time.busiest_link:.0f} %") for (task, time), error in zip(times, errors)], folded=True)])


NETWORKS = Figure("networks", "Collectives on networks, event level against closed forms", _tasks_networks,
                  evaluate_networks, paper="fused")
