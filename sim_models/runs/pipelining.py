"""Fusion of a GEMM with a collective."""

from dataclasses import replace

from t3sim.collectives.schedule import Ids, Limits, ScheduleError
from t3sim.machine import Machine
from t3sim.mechanisms.exchange import COMBINE, IN_SWITCH, Exchange
from t3sim.mechanisms.track_trigger import map_output
from t3sim.runs.operators import make_tiling
from t3sim.runs.plan import Plan
from t3sim.workload.workloads import Workload


def fused_plan(exchange: Exchange, machine: Machine, workload: Workload, seed: int = 0,
               staged: bool = False) -> Plan:
    """Plan a run that fuses a GEMM with `exchange`; `staged`: `Plan.stage_first_chunk`."""
    if exchange.reduces:
        return Plan(machine, workload, seed, staged, signal=exchange.signal)
    plan = Plan(machine, workload, seed, staged, collective=exchange.program, topology=exchange.links,
                limits=Limits.EXACT)
    if exchange.collective == COMBINE:
        return plan  # its placement says the rest
    if exchange.before:
        plan = replace(plan, ids=Ids.TRACKED, gathers=True)
        if exchange.algorithm == "ring" or exchange.of_experts:
            return plan
        # Groups of activations come from all others in turn, as they do come, not GPU by GPU: a slice for each group
        # of a GPU's own.
        return _most_slices(plan, plan.schedule.tiling.tile_columns // plan.schedule.program.chunks)
    if exchange.algorithm in ("direct", IN_SWITCH) or exchange.by_levels:
        # Tiles of all owners in turn, one of each after the other: every owner's Tracker then holds few tiles of which
        # parts are missing, and stores go over all links at any time. Only an owner's tiles need places in its window.
        chunks = exchange.program(workload.tp).chunks
        return replace(plan, ids=Ids.TRACKED, slices=max(1, make_tiling(machine, workload).tiles // chunks))
    if exchange.of_parts:  # the fewest slices: a GPU's own tiles leave as they are made, and need no places
        return replace(plan, ids=Ids.TRACKED)
    # The first slices are gathered while later ones are made: as many as the GPU has stages of workgroups.
    at_once = machine.gpu.compute_units * machine.gpu.workgroups_per_cu
    return _most_slices(plan, -(-make_tiling(machine, workload).tiles // at_once))


def _most_slices(plan: Plan, most: int) -> Plan:
    """Cut the output into the most slices of which the hardware can run a schedule."""
    machine = plan.machine
    for slices in range(most, 1, -1):
        cut = replace(plan, slices=slices)
        schedule = cut.schedule
        try:
            map_output(schedule, 0, [0] * plan.workload.tp, machine.geometry(), machine.dma.tiles_per_block)
        except ScheduleError:
            continue
        return cut
    return plan
