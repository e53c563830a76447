"""What trace.json and plan.npz say about a run, so that a trace explains itself."""

import numpy as np

from ..address_space import UPDATES_PER_ELEMENT, AddressSpace, Region
from ..fused import FusedRun
from ..tiling import DMA, EVENT, REMOTE, STAGED

_KINDS = {REMOTE: "remote", DMA: "dma", EVENT: "event", STAGED: "dma"}


def plan_of(run: FusedRun) -> dict[str, np.ndarray]:
    """What each workgroup does, [device, workgroup]; in mirrored mode also how its lines become the next position's
    (`link.Mirror`): group [workgroup], rank [workgroup, wavefront], lines [group]."""
    orders = [run.tiling.order(space.device) for space in run.spaces]
    tables = {name: np.stack([order[i] for order in orders]) for i, name in enumerate(("tile", "position"))}
    tables |= {name: getattr(run.sim.plan, name) for name in ("m0", "n0", "rows", "columns", "region", "c_base")}
    if run.sim.mirrored:
        tables |= {name: getattr(run.sim.mirror, name) for name in ("group", "rank", "lines")}
    return tables


def describe_run(run: FusedRun, technique: str, seed: int) -> dict:
    """Settings, geometry, and what the hardware said at the end."""
    sim, g, workload = run.sim, run.geometry, run.workload
    return {
        "title": f"{workload.title}, {technique}, {run.machine.name}",
        "workload": {"m": workload.m, "n": workload.n, "k": workload.k, "tp": workload.tp},
        "machine": run.machine.name, "technique": technique, "seed": seed,
        "devices": workload.tp, "simulated_devices": len(run.spaces), "mirrored": sim.mirrored,
        "ring_devices": [space.device for space in run.spaces],
        "downstream": [int(d) for d in sim.control.downstream],
        "policy": run.policy.name,
        "starvation_limit": run.masters[0].read(run.driver.registers["STARVATION_LIMIT"].offset),
        "clock_ghz": run.machine.memory_clock_ghz,
        "link_latency_cycles": sim.link_shape.latency_cycles,
        "geometry": geometry_of(g) | {"compute_units": sim.gemm.state.shape[1]},
        "workgroups": sim.shape.workgroups, "wavefronts": run.tiling.wavefronts,
        "wf_columns": run.tiling.wf_columns, "pitch_bytes": run.tiling.pitch_bytes,
        "bases": [{"own": space.base, "downstream": space.downstream_base} for space in run.spaces],
        "regions": [[_region(run, space, region) for region in space.regions] for space in run.spaces],
        "final_tiles": {"come": sim.control.event_count.tolist(), "expected": sim.expected_events.tolist()},
        "errors": [run.driver.first_error(master.read) for master in run.masters],
        "counters": [run.counters(d) for d in range(len(run.spaces))],
    }


def geometry_of(g) -> dict[str, int]:
    """The sizes that readers of a trace need."""
    return {"channels": g.channel.channels, "queue_entries": g.channel.queue_entries, "sets": g.tracker.sets,
            "ways": g.tracker.ways, "banks": g.tracker.banks, "engines": g.dma.engines}


def _region(run: FusedRun, space: AddressSpace, region: Region) -> dict:
    """A region as the driver programmed it."""
    return {
        "kind": _KINDS[region.kind], "rows": region.rows, "columns": region.columns,
        "tile_bytes": region.rows * region.columns * run.tiling.element_bytes,
        "updates_per_element": {REMOTE: 0, STAGED: 1}.get(region.kind, UPDATES_PER_ELEMENT),
        "wg_offset": region.wg_offset, "tiles_per_block": region.tiles_per_block,
        "to_device": None if region.kind == EVENT else space.downstream,
    }
