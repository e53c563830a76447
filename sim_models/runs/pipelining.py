"""Fusion of a GEMM with a collective."""

from dataclasses import replace

from t3sim.collectives.schedule import Ids, Limits, ScheduleError
from t3sim.machine import Machine
from t3sim.mechanisms.exchange import COMBINE, IN_SWITCH, Exchange
from t3sim.mechanisms.track_trigger import map_output
from t3sim.runs import build
from t3sim.workload.workloads import Workload


def fused_options(exchange: Exchange, machine: Machine, workload: Workload, seed: int = 0,
                  staged: bool = False) -> build.Options:
    """Return the options of a run that fuses a GEMM with `exchange`; `staged`: as in `build.Options`."""
    if exchange.reduces:
        return build.Options(seed, staged, signal=exchange.signal)
    options = build.Options(seed, staged, collective=exchange.program, topology=exchange.links, limits=Limits.EXACT)
    if exchange.collective == COMBINE:
        return options  # its placement says the rest
    if exchange.before:
        options = replace(options, ids=Ids.TRACKED, gathers=True)
        in_order = exchange.algorithm == "ring" or exchange.of_experts
        return options if in_order else _side_by_side(machine, workload, options)
    if exchange.algorithm in ("direct", IN_SWITCH) or exchange.by_levels:
        return _in_turn(machine, workload, options, exchange.program(workload.tp).chunks)
    if exchange.of_parts:  # the fewest slices: a GPU's own tiles leave as they are made, and need no places
        return replace(options, ids=Ids.TRACKED)
    return _pipelined(machine, workload, options)


def _in_turn(machine: Machine, workload: Workload, options: build.Options, chunks: int) -> build.Options:
    """Make tiles of all owners in turn, one of each after the other.

    Every owner's Tracker then holds few tiles of which parts are missing, and stores go over all links at any time.
    Only an owner's tiles need places in its window.
    """
    tiles = build.make_tiling(machine, workload).tiles
    return replace(options, ids=Ids.TRACKED, slices=max(1, tiles // chunks))


def _side_by_side(machine: Machine, workload: Workload, options: build.Options) -> build.Options:
    """Have groups of activations come from all others in turn, as they do come, not GPU by GPU.

    There is a slice for each group of a GPU's own, or the next smaller number of which the hardware can run a schedule.
    """
    groups = build.make_schedule(machine, workload, options)
    return _cut(machine, workload, options, groups.tiling.tile_columns // groups.program.chunks)


def _pipelined(machine: Machine, workload: Workload, options: build.Options) -> build.Options:
    """Cut the output so that its first slices are gathered while later ones are made.

    There are as many slices as the GPU has stages of workgroups, or the next smaller number of which the hardware can
    run a schedule.
    """
    tiles = build.make_tiling(machine, workload).tiles
    return _cut(machine, workload, options, -(-tiles // (machine.gpu.compute_units * machine.gpu.workgroups_per_cu)))


def _cut(machine: Machine, workload: Workload, options: build.Options, most: int) -> build.Options:
    """Cut the output into the most slices of which the hardware can run a schedule."""
    for slices in range(most, 1, -1):
        cut = replace(options, slices=slices)
        schedule = build.make_schedule(machine, workload, cut)
        try:
            map_output(schedule, 0, [0] * workload.tp, machine.geometry(), machine.dma.tiles_per_block)
        except ScheduleError:
            continue
        return cut
    return options
