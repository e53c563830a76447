"""The event level's contention held to the cycle level: kernels beside copies of stated rates, on three machines."""

from collections.abc import Iterator

from t3sim.analytic.libraries.contention import slowed_by_copies
from t3sim.base import plots
from t3sim.machine import load_machine
from t3sim.papers.figure import Figure, Findings, Quantities, Results, Scope, Table
from t3sim.papers.variants import variant
from t3sim.runs.beside_copies import Copies
from t3sim.runs.kernels import GEMM, BesideCopies
from t3sim.study.tasks.task import KernelTask
from t3sim.workload.workloads import decode_workload, gemm_workload, gemv_workload

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


def _cases(setup: Scope) -> Iterator[tuple[str, str, str, KernelTask, KernelTask, Copies]]:
    for machine, described in _machines(setup).items():
        for title, workload in _WORKLOADS.items():
            for rate in _RATES:
                copies = Copies.of(rate)
                if copies.read + copies.write > described.dram_peak_bytes_per_ns:
                    continue
                alone, beside = (setup.task(kernel, workload, described) for kernel in (GEMM, BesideCopies(copies)))
                yield machine, title, rate, alone, beside, copies


def evaluate(setup: Scope, results: Results) -> Findings:
    machines, rows, errors, slowdowns, rates = _machines(setup), [], [], [], []
    for machine, title, rate, alone_task, beside_task, copied in _cases(setup):
        alone, beside = results[alone_task], results[beside_task]
        moved = sum(map(sum, alone.dram.values()))
        cycle = beside.ns / alone.ns
        event = slowed_by_copies(machines[machine], alone.ns, moved, copied.read, copied.write)
        errors.append(100 * (event - cycle))
        slowdowns.append((cycle, event))
        rates.append(rate)
        rows.append((f"{title}, {machine}", rate, f"{alone.ns / 1e3:,.1f}", f"{moved / alone.ns:,.0f}", f"{cycle:.3f}",
                     f"{event:.3f}", f"{errors[-1]:+.1f}"))
    within = {rate: [abs(error) <= _POINTS for error, one in zip(errors, rates) if float(one) <= float(rate)]
              for rate in (_OF_A_LINK, _RATES[-1])}
    of_a_link, all_of_them = (100 * sum(some) / len(some) for some in within.values())
    ours = Quantities()
    ours.add("contention_link_within", of_a_link, "%", f"slowdowns within {_POINTS} points, copies up to a link's rate",
             at_least=100)
    ours.add("contention_within", all_of_them, "%", "the same, of up to four links", at_least=100)
    ours.add("contention_largest_points", max(map(abs, errors)), "points",
             "slowdown, event against cycle level, largest", at_most=_POINTS)
    return Findings(
        text="Slowdowns that the event level gives kernels beside copies are within "
             f"{_POINTS} points of the cycle level's in {sum(within[_OF_A_LINK])} of {len(within[_OF_A_LINK])} cases "
             f"up to the rate of a link, and in {sum(within[_RATES[-1]])} of all {len(errors)}. It serves streams in "
             "turn, each up to what it asks for on average: a GEMM that loads one block of K ahead waits earlier, for "
             "loads that come late.",
        ours=ours, targets=ours.targets,
        tables=[Table("Slowdown beside copies",
                      ("kernel, machine", "copies (GB/s, read and written)", "alone (µs)", "DRAM alone (GB/s)",
                       "cycle level", "event level", "points between"), rows)],
        plots={"contention": lambda: plots.beside_each_other(
            slowdowns, "slowdown on the cycle level", "on the event level")})


def _tasks(setup: Scope) -> list[KernelTask]:
    return [task for *_, alone, beside, _ in _cases(setup) for task in (alone, beside)]


CONTENTION = Figure("contention", "Kernels beside copies, on the event level and on the cycle level", _tasks, evaluate)
