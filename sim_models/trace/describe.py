"""Description of a run in trace.json and plan.npz, so that a trace explains itself: tiles, or a collective's passes.

A tile's name is the id that Tracker and packets use, a workgroup's that of the tile that it makes.
"""

from collections.abc import Sequence

import numpy as np

from t3sim.base.line import LINE_BYTES
from t3sim.collectives import Op
from t3sim.collectives.schedule import Action, Schedule
from t3sim.collectives.schedule.placement import Placement
from t3sim.collectives.schedule.regions import Region
from t3sim.collectives.schedule.schedule import NO_ID
from t3sim.machine import Machine
from t3sim.runs import build
from t3sim.runs.address_space import AddressSpace, rows_of_workgroups
from t3sim.runs.collective_alone import ProgrammedCollective
from t3sim.runs.fused import FusedRun
from t3sim.runs.gather_before import groups_of, rows_sent
from t3sim.runs.program_kernels import LevelPlan, most_additions
from t3sim.runs.programmed import ProgrammedGpus
from t3sim.trace.passes import (
    HERE,
    CopiedBySwitch,
    Passes,
    TracedCollective,
    TracedGpu,
    TracedPass,
    TracedShare,
    TracedSource,
    TracedStep,
)
from t3sim.trace.recorder import Filter, Subject
from t3sim.trace.schema import ALONE
from t3sim.workload.operators.copy import Pass
from t3sim.workload.operators.kernel_table import Route
from t3sim.workload.operators.tiling import Tiling

#: What `t3 explain` calls a region by.
_KINDS = {Action.SEND_STORES: "remote", Action.SEND_DMA: "dma", Action.EVENT: "event"}
NOWHERE = -1  #: of a tile: no more routes, or no tile of that name


def plan_of(run: FusedRun) -> dict[str, np.ndarray]:
    """Return what becomes of each tile, [device, tile by its name]; devices may have fewer, then `tile` is -1.

    `made`: by how many workgroups. Where it goes is [device, tile, route]: a device and the tile's name there. In
    mirrored mode it is also how its lines become those of a role that waits for them (`schedule.mirror`): group [tile],
    rank [tile, wavefront], lines [group], becomes [group, route]. Of a GEMM whose inputs are the tiles, or whose
    columns are placed in several, what each workgroup makes, [device, workgroup], and for which group of tiles it waits
    last; and how many columns of each tile a device's workgroups store, [device, tile, wavefront].
    """
    rows = [run.schedule.rows(space.device) for space in run.spaces]
    row_of = [np.argsort(names(run.schedule, space.device)) for space in run.spaces]

    def each(field: str, missing: int) -> np.ndarray:
        return padded([getattr(one, field)[order] for one, order in zip(rows, row_of)], missing).astype(np.int64)
    tables = {name: each(field, missing) for name, field, missing in (
        ("tile", "tile", NOWHERE), ("position", "level", 0), ("made", "contributes", 0),
        ("to_device", "to_gpu", NOWHERE), ("to_wg", "to_id", NOWHERE))}
    has_tile = tables["tile"] >= 0
    tables |= {name: np.where(has_tile, values[tables["tile"]], 0) for name, values in (
        ("m0", run.tiling.first_row), ("n0", run.tiling.first_column), ("rows", run.tiling.rows),
        ("columns", run.tiling.columns))}
    tables["region"] = padded([space.table.own_regions[order] for space, order in zip(run.spaces, row_of)], 0)
    tables["c_base"] = run.tiling.offsets[tables["tile"]] + np.array([[space.base] for space in run.spaces])
    if run.schedule.placement is not None:
        tables |= _placed(run, run.schedule.placement, row_of)
    elif run.gathers:
        tables |= _consumers(run)
    else:
        made_by = []
        for space, order in zip(run.spaces, row_of):
            of_row = rows_of_workgroups(space, run.workgroup_tiling)
            made_by.append(np.bincount(of_row[of_row >= 0], minlength=len(order))[order])
        tables["made"] = padded(made_by, 0) * run.schedule.policy.parts
    if run.sim.network.mirrored:
        tables |= {name: getattr(run.sim.network.mirror, name)[row_of[0]] for name in ("group", "rank")}
        tables |= {"lines": run.sim.network.mirror.lines, "becomes": run.sim.network.mirror.becomes}
    return tables


def _consumers(run: FusedRun) -> dict[str, np.ndarray]:
    """Return what the workgroups make that start when their inputs have come, in the order of dispatch."""
    last_groups, made = [], {name: [] for name in ("m0", "rows", "n0", "columns")}
    for space in run.spaces:
        consumers = build.consumers_of(run.machine, run.workload, space.device)
        turn, needs = consumers.in_turn(space)  # needs: how many groups of others, in their order
        groups = groups_of(space).in_turn
        last_groups.append(np.where(needs > 0, groups[needs - 1], NOWHERE) if len(groups) else
                           np.full(needs.shape, NOWHERE))
        for rows, values in zip(made.values(), consumers.outputs):
            rows.append(values[turn])
    return {"waits_for": padded(last_groups, NOWHERE)} | {f"output_{name}": padded(rows, 0)
                                                          for name, rows in made.items()}


def _placed(run: FusedRun, placement: Placement, row_of: list[np.ndarray]) -> dict[str, np.ndarray]:
    """Return what the workgroups make whose columns are of several tiles, and how many of each tile's they store."""
    stored, made = [], {name: [] for name in ("m0", "n0", "rows", "columns")}
    for space, order in zip(run.spaces, row_of):
        touched = run.schedule.rows_touched(space.device)
        columns, _ = placement.columns_of_workgroups(space.device)
        is_touched = touched >= 0
        row = touched[is_touched]
        wavefront = (columns[is_touched] - run.tiling.first_column[run.schedule.rows(space.device).tile[row]]) // (
            run.tiling.wf_columns)
        counts = np.zeros((len(order), run.tiling.wavefronts), np.int64)
        np.add.at(counts, (row, wavefront), 1)
        stored.append(counts[order])
        tiling, workgroups = placement.tilings[space.device], placement.workgroups(space.device)
        for name, values in (("m0", tiling.first_row), ("n0", tiling.first_column), ("rows", tiling.rows)):
            made[name].append(values[workgroups])
        made["columns"].append((columns >= 0).sum(axis=1))
    output = {f"output_{name}": padded(values, 0) for name, values in made.items()}
    return output | {"waits_for": np.full(output["output_m0"].shape, NOWHERE), "stored": padded(stored, 0),
                     "made": np.zeros((len(run.spaces), max(map(len, row_of))), np.int64)}


def describe_run(run: FusedRun, technique: str, seed: int) -> dict:
    """Describe settings, geometry, and what the hardware said at the end."""
    sim, workload, schedule = run.sim, run.workload, run.schedule
    tiles = [len(schedule.rows(space.device).tile) for space in run.spaces]
    to_the_next_only = all(len(schedule.peers(d)) == 1 for d in range(schedule.gpus))
    return described_gpus(run, run.machine, sim.network.mirrored) | {
        "title": f"{workload.title}, {technique}, {run.machine.name}",
        "workload": {"m": workload.m, "n": workload.n, "k": workload.k, "tp": workload.tp},
        "technique": technique, "seed": seed,
        "topology": schedule.topology.name, "around_a_ring": schedule.topology.name == "ring" and to_the_next_only,
        "in_switch": schedule.program.in_switch,
        "devices": workload.tp, "policy": run.policy.name,
        "names": count_names(schedule, build.make_tiling(run.machine, workload)),
        "tiles": tiles, "wavefronts": run.tiling.wavefronts, "parts": schedule.policy.parts,
        "group_tiles": run.tiling.tile_rows if run.gathers else None,
        "wf_columns": run.tiling.wf_columns, "pitch_bytes": run.tiling.pitch_bytes,
        "element_bytes": run.tiling.element_bytes,
        "bases": list(run.spaces[0].bases),
        "switch_groups": [[[to.gpu for to in group] for group in space.groups] for space in run.spaces],
        "regions": [[_region(run, space, region) for region in space.regions] for space in run.spaces],
        "final_tiles": {"come": sim.control.event_count.tolist(), "expected": sim.expected_events.tolist()},
    }


def described_gpus(run: ProgrammedGpus, machine: Machine, mirrored: bool) -> dict:
    """Describe a run's GPUs, and what their hardware said at the end."""
    sim, places = run.sim, run.sim.kernel.state.state.shape[1]
    return {
        "machine": machine.name, "simulated_devices": len(run.devices), "mirrored": mirrored,
        "numbers": list(run.devices),
        "starvation_limit": run.masters[0].read(run.drivers[0].registers["STARVATION_LIMIT"].offset),
        "clock_ghz": machine.memory_clock_ghz, "link_latency_cycles": int(sim.network.latency_cycles.max()),
        "geometry": geometry_of(run.geometry) | {"compute_units": places, "units": sim.kernel.rates.units},
        "errors": [driver.first_error(master.read) for driver, master in zip(run.drivers, run.masters)],
        "counters": [run.counters(d) for d in range(len(run.devices))],
    }


def geometry_of(geometry) -> dict[str, int]:
    """Return the sizes that readers of a trace need."""
    channel, tracker = geometry.channel, geometry.tracker
    return {"channels": channel.channels, "queue_entries": channel.queue_entries, "sets": tracker.sets,
            "ways": tracker.ways, "banks": tracker.banks, "engines": geometry.dma.engines}


def _region(run: FusedRun, space: AddressSpace, region: Region) -> dict:
    """Describe a region as the driver programmed it."""
    region_bytes = region.rows * region.columns * run.tiling.element_bytes
    return {
        "kind": next(name for action, name in _KINDS.items() if action in region.actions),
        "rows": region.rows, "columns": region.columns, "tile_bytes": region_bytes,
        "updates_per_element": region.updates,
        "counted_bytes": space.first_line_bytes(region.rows) if region.present else region_bytes,
        "admitted": region.admitted, "present": region.present, "tiles_per_block": region.tiles_per_block,
        "to": [{"device": to.gpu, "region": space.table.number(to.region)} for to in region.destinations],
    }


def names(schedule: Schedule, device: int) -> np.ndarray:
    """Name a device's tiles by numbers, int64[row of `Schedule.rows`]: 0, 1, 2, ... in some order.

    A tile that has no id of its own comes after all that have one, in the order of dispatch.
    """
    numbers = schedule.rows(device).id.copy()
    without = np.flatnonzero(numbers == NO_ID)
    numbers[without] = np.arange(len(numbers) - len(without), len(numbers))
    return numbers


def count_names(schedule: Schedule, tiling: Tiling) -> int:
    """Return how many names there are on the device that has most; `tiling` as for `workgroups`."""
    tiles = max(len(schedule.rows(device).tile) for device in range(schedule.gpus))
    if schedule.placement is not None:
        return tiles + max(len(schedule.placement.workgroups(device)) for device in range(schedule.gpus))
    return tiles + tiling.tiles if schedule.policy.present else tiles


def workgroups(space: AddressSpace, tiling: Tiling) -> tuple[np.ndarray, np.ndarray]:
    """Name a device's workgroups, two int64[group of its kernel]: the tile that each makes, and which part of it.

    Parts count from 0 in the order of dispatch; `ALONE` if there is but one. `tiling`: what workgroups make. Those
    whose inputs are tiles of the schedule, which others make, or that make columns of several of them, come after all
    tiles, in the order of dispatch.
    """
    if space.schedule.placement is not None:
        tiles = max(len(space.schedule.rows(device).tile) for device in range(space.schedule.gpus))
        numbers = tiles + np.arange(len(space.schedule.placement.workgroups(space.device)))
        return numbers, np.full(len(numbers), ALONE)
    called = names(space.schedule, space.device)
    if space.schedule.policy.present:
        numbers = np.concatenate([called[rows_sent(space)], len(called) + np.arange(tiling.tiles)])
        return numbers, np.full(len(numbers), ALONE)
    of_row = np.sort(np.repeat(rows_of_workgroups(space, tiling), space.schedule.policy.parts))
    of_row = of_row[of_row >= 0]
    part = np.arange(len(of_row)) - np.searchsorted(of_row, of_row)
    return called[of_row], np.where(np.bincount(of_row)[of_row] > 1, part, ALONE)


def padded(rows: Sequence[np.ndarray], value: int) -> np.ndarray:
    """Stack rows of which some are shorter, which end with a value."""
    most = max(map(len, rows))
    return np.stack([np.concatenate([row, np.full((most - len(row), *row.shape[1:]), value, row.dtype)])
                     for row in rows])


def senders(space: AddressSpace) -> np.ndarray:
    """Name the tile whose stores leave for a peer under each region and id, int64[region, id]; -1: none."""
    schedule, device = space.schedule, space.device
    ids = schedule.named(device)
    tile_of = np.full((len(space.regions) + 1, int(ids.max()) + 1), -1)
    leave = np.flatnonzero(schedule.rows(device).actions & Action.SEND_STORES)
    for region in space.table.own_regions[leave].T:
        tile_of[region, ids[leave]] = names(schedule, device)[leave]
    tile_of[0] = -1
    return tile_of


def tiles_of(run: FusedRun, selection: Filter) -> Subject:
    """Return what a recorder must know of a fused kernel: workgroups are named by the tiles that they make."""
    tiling = build.make_tiling(run.machine, run.workload)
    called, parts = (padded(columns, ALONE) for columns in zip(*(workgroups(space, tiling) for space in run.spaces)))
    packet_wgs = None
    if selection.wgs is not None:  # and the ids under which what leaves them arrives at their peers
        wgs = list(selection.wgs)
        sent_ids = [run.schedule.rows(space.device).to_id[np.isin(names(run.schedule, space.device), wgs)]
                    for space in run.spaces]
        packet_wgs = selection.wgs.union(*(ids[ids != NO_ID].tolist() for ids in sent_ids))
    return Subject(called, parts, np.array([len(space.peers) for space in run.spaces]), packet_wgs=packet_wgs,
                   senders=[senders(space) for space in run.spaces])


def pieces_of(run: ProgrammedCollective, selection: Filter) -> Subject:
    """Return it of a collective alone: workgroups are named by their turn, and requests by their addresses."""
    passes = Passes(described_passes(run), run.collective.mirrored)
    devices = range(passes.devices)
    first = padded([np.array([share.first for share in passes.shares(d)], np.int64) for d in devices], 0)
    subject = Subject(first, np.full_like(first, ALONE), np.zeros(len(first), np.int64), True, passes.count)
    if selection.wgs is None:
        return subject
    spans = [span for device in devices for wg in sorted(selection.wgs) for span in passes.spans(device, wg)]
    lines = np.zeros((len(first), 1 + max((span.end for span in spans), default=0) // LINE_BYTES), bool)
    for device, start, end in spans:
        lines[device, start // LINE_BYTES:-(-end // LINE_BYTES)] = True
    return subject._replace(packet_wgs=(), lines=lines)


def describe_collective(run: ProgrammedCollective, title: str, names: int) -> dict:
    """Describe a collective alone; `names`: as many as its workgroups need."""
    topology = run.collective.topology
    return described_gpus(run, run.collective.machine, run.collective.mirrored) | {
        "title": title, "devices": topology.gpus, "topology": topology.name, "names": names, "wavefronts": 1,
        "collective": described_passes(run).model_dump(exclude_unset=True)}


def described_passes(run: ProgrammedCollective) -> TracedCollective:
    """Describe each device's steps: what their passes move and for whom."""
    operator = build.planned_copy(run.collective.machine, run.plans)
    state, arrivals = run.sim.kernel.state, run.sim.kernel.work.arrivals
    gpus = []
    for d, plan in enumerate(run.plans):
        first, steps, shares = 0, [], list(operator.shares(d))
        for step in range(arrivals.shape[1]):
            of_step, described = [share for share in shares if share.phase == step], []
            for share in of_step:
                described.append(TracedShare(first=first, workgroups=share.workgroups, first_byte=share.first_byte,
                                             apart=share.stride_bytes, size=share.size_bytes))
                first += share.workgroups
            steps.append(TracedStep(
                over=int(state.phase_over[d, step]) if step < state.phase[d] else None, lines=int(arrivals[d, step]),
                passes=[traced for move in of_step[0].passes for traced in _traced(plan, move, step)],
                shares=described))
        gpus.append(TracedGpu(start=int(run.sim.control.start[d]), steps=steps))
    return TracedCollective(chunk_bytes=run.collective.chunk_bytes, gpus=gpus)


def _traced(plan: LevelPlan, move: Pass, step: int) -> list[TracedPass]:
    """Describe a pass; its first source is its own part of the chunk, the others came to be added.

    What a switch copies is a pass to each that gets it, with the number and the address under which it leaves.
    """
    at, program, ranks = plan.at, plan.program, plan.program.ranks
    held, pitch = program.rank_chunks[plan.rank], at.received(1) - at.copies
    chunk = held[(move.sources[0] - at.data) // pitch]
    copied_from = [index for index in program.arrivals.get((plan.rank, chunk), ())
                   if program.transfers[index].op is Op.COPY and program.levels[index] < step]
    origin = program.transfers[copied_from[-1]].source if copied_from else HERE
    sources = [TracedSource(address=move.sources[0], origin=origin)]
    for address in move.sources[1:]:
        place, number = divmod((address - at.copies) // pitch, most_additions(program))
        transfer = program.transfers[program.additions[plan.rank, held[place]][number]]
        sources.append(TracedSource(address=address, origin=transfer.source))
    to = plan.peers[move.peer] if move.route == Route.PEER else HERE
    if to < ranks:
        comes_from = (2 * plan.rank - to) % ranks if plan.mirrored and to != HERE else plan.rank
        return [TracedPass(chunk=chunk, sources=sources, destination=move.destination, to=to, comes_from=comes_from)]
    return [TracedPass(chunk=chunk, sources=sources, destination=move.destination + offset, to=device,
                       comes_from=plan.rank, copied=CopiedBySwitch(to=to, address=move.destination))
            for device, offset in plan.copied_to]
