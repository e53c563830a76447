"""What trace.json and plan.npz say about a run, so that a trace explains itself."""

import numpy as np

from ..errors import Failure
from ..mechanisms.track_trigger import AddressSpace
from ..runs.fused import FusedRun
from ..schedule import Action
from ..schedule.regions import Region
from .names import names

#: What `t3 explain` calls a region by.
_KINDS = {Action.SEND_STORES: "remote", Action.SEND_DMA: "dma", Action.EVENT: "event"}


def plan_of(run: FusedRun) -> dict[str, np.ndarray]:
    """Return what each workgroup does, [device, workgroup by its name].

    In mirrored mode it is also how its lines become the next position's (`schedule.mirror`): group [workgroup], rank
    [workgroup, wavefront], lines [group].
    """
    rows = [run.schedule.rows(space.device) for space in run.spaces]
    row_of = [np.argsort(names(run.schedule, space.device)) for space in run.spaces]
    tables = {name: np.stack([getattr(one, field)[order] for one, order in zip(rows, row_of)])
              for name, field in (("tile", "tile"), ("position", "level"))}
    tables |= {name: values[tables["tile"]] for name, values in (
        ("m0", run.tiling.first_row), ("n0", run.tiling.first_column), ("rows", run.tiling.rows),
        ("columns", run.tiling.columns))}
    tables["region"] = np.stack([space.table.own[order] for space, order in zip(run.spaces, row_of)])
    tables["c_base"] = run.tiling.offsets[tables["tile"]] + np.array([[space.base] for space in run.spaces])
    if run.sim.mirrored:
        tables |= {name: getattr(run.sim.mirror, name)[row_of[0]] for name in ("group", "rank")}
        tables |= {"lines": run.sim.mirror.lines, "becomes": run.sim.mirror.becomes[:, 0]}  # one peer
    return tables


def describe_run(run: FusedRun, technique: str, seed: int) -> dict:
    """Describe settings, geometry, and what the hardware said at the end.

    Raises Failure for devices that send to several.
    """
    sim, g, workload = run.sim, run.geometry, run.workload
    peers = [_peer(space) for space in run.spaces]
    return {
        "title": f"{workload.title}, {technique}, {run.machine.name}",
        "workload": {"m": workload.m, "n": workload.n, "k": workload.k, "tp": workload.tp},
        "machine": run.machine.name, "technique": technique, "seed": seed,
        "devices": workload.tp, "simulated_devices": len(run.spaces), "mirrored": sim.mirrored,
        "ring_devices": [space.device for space in run.spaces],
        "downstream": [int(d) for d in sim.control.downstream[:, 0]],
        "policy": run.policy.name,
        "starvation_limit": run.masters[0].read(run.drivers[0].registers["STARVATION_LIMIT"].offset),
        "clock_ghz": run.machine.memory_clock_ghz,
        "link_latency_cycles": int(sim.network.latency_cycles.max()),
        "geometry": geometry_of(g) | {"compute_units": sim.kernel.state.state.shape[1]},
        "workgroups": int(sim.kernel.work.workgroups[0]), "wavefronts": run.tiling.wavefronts,
        "wf_columns": run.tiling.wf_columns, "pitch_bytes": run.tiling.pitch_bytes,
        "element_bytes": run.tiling.element_bytes,
        "bases": [{"own": space.base, "downstream": space.bases[peer]} for space, peer in zip(run.spaces, peers)],
        "peers": peers,
        "regions": [[_region(run, space, region) for region in space.regions] for space in run.spaces],
        "final_tiles": {"come": sim.control.event_count.tolist(), "expected": sim.expected_events.tolist()},
        "errors": [driver.first_error(master.read) for driver, master in zip(run.drivers, run.masters)],
        "counters": [run.counters(d) for d in range(len(run.spaces))],
    }


def geometry_of(g) -> dict[str, int]:
    """Return the sizes that readers of a trace need."""
    return {"channels": g.channel.channels, "queue_entries": g.channel.queue_entries, "sets": g.tracker.sets,
            "ways": g.tracker.ways, "banks": g.tracker.banks, "engines": g.dma.engines}


def _region(run: FusedRun, space: AddressSpace, region: Region) -> dict:
    """Describe a region as the driver programmed it; a trace follows it to one device (`_peer`)."""
    to = region.destinations[0] if region.destinations else None
    return {
        "kind": next(name for action, name in _KINDS.items() if action in region.actions),
        "rows": region.rows, "columns": region.columns,
        "tile_bytes": region.rows * region.columns * run.tiling.element_bytes,
        "updates_per_element": region.updates, "wg_offset": to.id_offset if to else 0,
        "tiles_per_block": region.tiles_per_block,
        "to_device": to.device if to else None,
    }


def _peer(space: AddressSpace) -> int:
    """Return the one device that a device sends to: what is reported of a tile follows it there."""
    if len(space.peers) != 1:
        raise Failure(f"device {space.device} sends to {len(space.peers)} others: a trace can follow it to one")
    return space.peers[0]
