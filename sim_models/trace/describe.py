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
from t3sim.trace.passes import HERE, Passes
from t3sim.trace.recorder import Filter, Subject
from t3sim.trace.schema import ALONE
from t3sim.workload.operators.copy import Pass, Share
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
        ("to_device", "to_device", NOWHERE), ("to_wg", "to_id", NOWHERE))}
    there = tables["tile"] >= 0
    tables |= {name: np.where(there, values[tables["tile"]], 0) for name, values in (
        ("m0", run.tiling.first_row), ("n0", run.tiling.first_column), ("rows", run.tiling.rows),
        ("columns", run.tiling.columns))}
    tables["region"] = padded([space.table.own[order] for space, order in zip(run.spaces, row_of)], 0)
    tables["c_base"] = run.tiling.offsets[tables["tile"]] + np.array([[space.base] for space in run.spaces])
    if run.schedule.placement is not None:
        tables |= _placed(run, run.schedule.placement, row_of)
    elif run.gathers:
        tables |= _consumers(run)
    else:
        tables["made"] = padded([_makers(run, space)[order] for space, order in zip(run.spaces, row_of)], 0)
    if run.sim.mirrored:
        tables |= {name: getattr(run.sim.mirror, name)[row_of[0]] for name in ("group", "rank")}
        tables |= {"lines": run.sim.mirror.lines, "becomes": run.sim.mirror.becomes}
    return tables


def _makers(run: FusedRun, space: AddressSpace) -> np.ndarray:
    """Return how many workgroups make each tile, int64[row]."""
    of_row = rows_of_workgroups(space, run.made)
    return np.bincount(of_row[of_row >= 0], minlength=len(space.table.own)) * run.schedule.policy.parts


def _consumers(run: FusedRun) -> dict[str, np.ndarray]:
    """Return what the workgroups make that start when their inputs have come, in the order of dispatch."""
    waits, made = [], {name: [] for name in ("m0", "rows", "n0", "columns")}
    for space in run.spaces:
        consumers = build.consumers_of(run.machine, run.workload, space.device)
        turn, needs = consumers.in_turn(space)
        waits.append(last_groups(space, needs))
        for found, values in zip(made.values(), consumers.made):
            found.append(values[turn])
    return {"waits_for": padded(waits, NOWHERE)} | {f"output_{name}": padded(values, 0)
                                                    for name, values in made.items()}


def _placed(run: FusedRun, placement: Placement, row_of: list[np.ndarray]) -> dict[str, np.ndarray]:
    """Return what the workgroups make whose columns are of several tiles, and how many of each tile's they store."""
    stored, made = [], {name: [] for name in ("m0", "n0", "rows", "columns")}
    for space, order in zip(run.spaces, row_of):
        touched = run.schedule.rows_touched(space.device)
        columns, _ = placement.columns_of_workgroups(space.device)
        there = touched >= 0
        row = touched[there]
        wavefront = (columns[there] - run.tiling.first_column[run.schedule.rows(space.device).tile[row]]) // (
            run.tiling.wf_columns)
        counts = np.zeros((len(order), run.tiling.wavefronts), np.int64)
        np.add.at(counts, (row, wavefront), 1)
        stored.append(counts[order])
        tiling, workgroups = placement.made[space.device], placement.workgroups(space.device)
        for name, values in (("m0", tiling.first_row), ("n0", tiling.first_column), ("rows", tiling.rows)):
            made[name].append(values[workgroups])
        made["columns"].append((columns >= 0).sum(axis=1))
    found = {f"output_{name}": padded(values, 0) for name, values in made.items()}
    return found | {"waits_for": np.full(found["output_m0"].shape, NOWHERE), "stored": padded(stored, 0),
                    "made": np.zeros((len(run.spaces), max(map(len, row_of))), np.int64)}


def describe_run(run: FusedRun, technique: str, seed: int) -> dict:
    """Describe settings, geometry, and what the hardware said at the end."""
    sim, workload, schedule = run.sim, run.workload, run.schedule
    tiles = [len(schedule.rows(space.device).tile) for space in run.spaces]
    return described_gpus(run, run.machine, sim.mirrored) | {
        "title": f"{workload.title}, {technique}, {run.machine.name}",
        "workload": {"m": workload.m, "n": workload.n, "k": workload.k, "tp": workload.tp},
        "technique": technique, "seed": seed,
        "topology": schedule.topology.name, "around_a_ring": _around_a_ring(run),
        "in_switch": schedule.program.in_switch,
        "devices": workload.tp, "policy": run.policy.name,
        "names": count(schedule, build.make_tiling(run.machine, workload)),
        "tiles": tiles, "wavefronts": run.tiling.wavefronts, "parts": schedule.policy.parts,
        "group_tiles": run.tiling.tile_rows if run.gathers else None,
        "wf_columns": run.tiling.wf_columns, "pitch_bytes": run.tiling.pitch_bytes,
        "element_bytes": run.tiling.element_bytes,
        "bases": list(run.spaces[0].bases),
        "switch_groups": [[[to.device for to in group] for group in space.groups] for space in run.spaces],
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


def _around_a_ring(run: FusedRun) -> bool:
    """Say whether every GPU sends to the next one only, and receives from the one before it."""
    schedule = run.schedule
    return schedule.topology.name == "ring" and all(len(schedule.peers(d)) == 1 for d in range(schedule.devices))


def geometry_of(geometry) -> dict[str, int]:
    """Return the sizes that readers of a trace need."""
    channel, tracker = geometry.channel, geometry.tracker
    return {"channels": channel.channels, "queue_entries": channel.queue_entries, "sets": tracker.sets,
            "ways": tracker.ways, "banks": tracker.banks, "engines": geometry.dma.engines}


def _region(run: FusedRun, space: AddressSpace, region: Region) -> dict:
    """Describe a region as the driver programmed it."""
    whole = region.rows * region.columns * run.tiling.element_bytes
    return {
        "kind": next(name for action, name in _KINDS.items() if action in region.actions),
        "rows": region.rows, "columns": region.columns, "tile_bytes": whole, "updates_per_element": region.updates,
        "counted_bytes": space.first_line_bytes(region.rows) if region.present else whole,
        "admitted": region.admitted, "present": region.present, "tiles_per_block": region.tiles_per_block,
        "to": [{"device": to.device, "region": space.table.number(to.region)} for to in region.destinations],
    }


def names(schedule: Schedule, device: int) -> np.ndarray:
    """Name a device's tiles by numbers, int64[row of `Schedule.rows`]: 0, 1, 2, ... in some order.

    A tile that has no id of its own comes after all that have one, in the order of dispatch.
    """
    found = schedule.rows(device).id.copy()
    without = np.flatnonzero(found == NO_ID)
    found[without] = np.arange(len(found) - len(without), len(found))
    return found


def count(schedule: Schedule, made: Tiling) -> int:
    """Return how many names there are on the device that has most; `made` as for `workgroups`."""
    tiles = max(len(schedule.rows(device).tile) for device in range(schedule.devices))
    if schedule.placement is not None:
        return tiles + max(len(schedule.placement.workgroups(device)) for device in range(schedule.devices))
    return tiles + made.tiles if schedule.policy.present else tiles


def workgroups(space: AddressSpace, made: Tiling) -> tuple[np.ndarray, np.ndarray]:
    """Name a device's workgroups, two int64[group of its kernel]: the tile that each makes, and which part of it.

    Parts count from 0 in the order of dispatch; `ALONE` if there is but one. `made`: what workgroups make. Those whose
    inputs are tiles of the schedule, which others make, or that make columns of several of them, come after all tiles,
    in the order of dispatch.
    """
    if space.schedule.placement is not None:
        found = np.arange(len(space.schedule.placement.workgroups(space.device)))
        return max(len(space.schedule.rows(one).tile) for one in range(space.schedule.devices)) + found, (
            np.full(len(found), ALONE))
    called = names(space.schedule, space.device)
    if space.schedule.policy.present:
        sending = called[rows_sent(space)]
        found = np.concatenate([sending, len(called) + np.arange(made.tiles)])
        return found, np.full(len(found), ALONE)
    of_row = np.sort(np.repeat(rows_of_workgroups(space, made), space.schedule.policy.parts))
    of_row = of_row[of_row >= 0]
    part = np.arange(len(of_row)) - np.searchsorted(of_row, of_row)
    return called[of_row], np.where(np.bincount(of_row)[of_row] > 1, part, ALONE)


def padded(rows: Sequence[np.ndarray], value: int) -> np.ndarray:
    """Stack rows of which some are shorter, which end with a value."""
    most = max(map(len, rows))
    return np.stack([np.concatenate([row, np.full((most - len(row), *row.shape[1:]), value, row.dtype)])
                     for row in rows])


def last_groups(space: AddressSpace, needs: np.ndarray) -> np.ndarray:
    """Return the group of inputs for which each workgroup waits last, int64[workgroup]; -1: for none.

    `needs`: how many groups of others must have come, in their order.
    """
    come = groups_of(space).in_turn
    return np.where(needs > 0, come[needs - 1], -1) if len(come) else np.full(needs.shape, -1)


def senders(space: AddressSpace) -> np.ndarray:
    """Name the tile whose stores leave for a peer under each region and id, int64[region, id]; -1: none."""
    schedule, device = space.schedule, space.device
    rows, asked, called = schedule.rows(device), schedule.named(device), names(schedule, device)
    found = np.full((len(space.regions) + 1, int(asked.max()) + 1), -1)
    leave = np.flatnonzero(rows.actions & Action.SEND_STORES)
    for region in space.table.own[leave].T:
        found[region, asked[leave]] = called[leave]
    found[0] = -1
    return found


def destinations(schedule: Schedule, device: int, chosen: frozenset[int]) -> set[int]:
    """Return the ids under which what leaves the chosen tiles arrives at their peers."""
    sent = schedule.rows(device).to_id[np.isin(names(schedule, device), list(chosen))]
    return set(sent[sent != NO_ID].tolist())


def tiles_of(run: FusedRun, wanted: Filter) -> Subject:
    """Return what a recorder must know of a fused kernel: workgroups are named by the tiles that they make."""
    made = build.make_tiling(run.machine, run.workload)
    called, parts = (padded(columns, ALONE) for columns in zip(*(workgroups(space, made) for space in run.spaces)))
    sent = None if wanted.wgs is None else wanted.wgs.union(
        *(destinations(run.schedule, space.device, wanted.wgs) for space in run.spaces))
    return Subject(called, parts, np.array([len(space.peers) for space in run.spaces]), packet_wgs=sent,
                   senders=[senders(space) for space in run.spaces])


def pieces_of(run: ProgrammedCollective, wanted: Filter) -> Subject:
    """Return it of a collective alone: workgroups are named by their turn, and requests by their addresses."""
    passes = Passes(described_passes(run), run.asked.mirrored)
    devices = range(passes.devices)
    first = padded([np.array([share["first"] for share in passes.shares(d)], np.int64) for d in devices], 0)
    subject = Subject(first, np.full_like(first, ALONE), np.zeros(len(first), np.int64), True, passes.count)
    if wanted.wgs is None:
        return subject
    spans = [span for device in devices for wg in sorted(wanted.wgs) for span in passes.spans(device, wg)]
    lines = np.zeros((len(first), 1 + max((span.end for span in spans), default=0) // LINE_BYTES), bool)
    for device, start, end in spans:
        lines[device, start // LINE_BYTES:-(-end // LINE_BYTES)] = True
    return subject._replace(packet_wgs=(), lines=lines)


def describe_collective(run: ProgrammedCollective, title: str, names: int) -> dict:
    """Describe a collective alone; `names`: as many as its workgroups need."""
    topology = run.asked.topology
    return described_gpus(run, run.asked.machine, run.asked.mirrored) | {
        "title": title, "devices": topology.gpus, "topology": topology.name, "names": names, "wavefronts": 1,
        "collective": described_passes(run)}


def described_passes(run: ProgrammedCollective) -> dict:
    """Describe a run's passes, as `passes.Passes` reads them."""
    operator = build.planned_copy(run.asked.machine, run.plans)
    state, arrivals = run.sim.kernel.state, run.sim.kernel.work.arrivals
    gpus = []
    for d, plan in enumerate(run.plans):
        shares, steps = list(operator.shares(d)), []
        for step in range(arrivals.shape[1]):
            mine = [share for share in shares if share.phase == step]
            steps.append({
                "over": int(state.phase_over[d, step]) if step < state.phase[d] else None,
                "lines": int(arrivals[d, step]),
                "passes": [described for one in mine[0].passes for described in _described(plan, one, step)],
                "shares": [_share(one, shares) for one in mine]})
        gpus.append({"start": int(run.sim.control.start[d]), "steps": steps})
    return {"chunk_bytes": run.asked.chunk_bytes, "gpus": gpus}


def _share(share: Share, shares: list[Share]) -> dict[str, int]:
    return {"first": sum(one.workgroups for one in shares[:shares.index(share)]), "workgroups": share.workgroups,
            "first_byte": share.first_byte, "apart": share.apart_bytes, "size": share.size_bytes}


def _described(plan: LevelPlan, one: Pass, step: int) -> list[dict]:
    """Describe a pass; its first source is its own part of the chunk, the others came to be added.

    What a switch copies is a pass to each that gets it, with the number and the address under which it leaves.
    """
    at, held, ranks = plan.at, plan.program.held[plan.rank], plan.program.ranks
    pitch = at.received(1) - at.copies
    chunk = held[(one.sources[0] - at.data) // pitch]
    sources = [{"address": one.sources[0], "origin": _copied_from(plan, chunk, step)}]
    for address in one.sources[1:]:
        place, number = divmod((address - at.copies) // pitch, most_additions(plan.program))
        came = plan.program.transfers[plan.program.additions[plan.rank, held[place]][number]]
        sources.append({"address": address, "origin": came.source})
    to = plan.peers[one.peer] if one.route == Route.PEER else HERE
    comes_from = (2 * plan.rank - to) % ranks if plan.mirrored and to != HERE else plan.rank
    found = {"chunk": chunk, "sources": sources, "destination": one.destination, "to": to, "comes_from": comes_from}
    if to < ranks:
        return [found]
    return [found | {"destination": one.destination + offset, "to": device, "comes_from": plan.rank,
                     "copied": {"to": to, "address": one.destination}} for device, offset in plan.copied_to]


def _copied_from(plan: LevelPlan, chunk: int, step: int) -> int:
    """Return from which device a chunk has come before a step, HERE: it is the device's own, or its own sum."""
    program = plan.program
    came = [index for index in program.arrivals.get((plan.rank, chunk), ())
            if program.transfers[index].op is Op.COPY and program.levels[index] < step]
    return program.transfers[came[-1]].source if came else HERE
