"""Self-checks of a fused run (docs/reference/schedule.md lists them), and where requests wait if it is stuck."""

from collections.abc import Mapping, Sequence

import numpy as np

from t3sim.collectives.schedule import Action
from t3sim.cosim.driver.driver import error_in_words
from t3sim.gpu.fabric.network import outgoing
from t3sim.rtl.registers import STATUS_BITS, WAITS, WATCHDOG_PERIOD
from t3sim.runs.failure import SimulationError
from t3sim.runs.programmed import AT_WORK, ProgrammedGpus, ProgrammedRun

_NONE, _INPUTS = "none", "inputs that have come"
_TOLD_TILES = 3  #: missing tiles that a diagnosis names, per device


def waits(run: ProgrammedRun) -> list[dict[str, str]]:
    """List where requests wait, by GPU: heading and value."""
    rows = []
    for d, space in enumerate(run.spaces):
        sim, error = run.sim, error_in_words(run.drivers[d].first_error(run.masters[d].read))
        asks = sim.hardware.asks.shape[1]  #: groups of activations that workgroups wait for
        rows.append({
            "device": str(space.device),
            "workgroups finished": f"{sim.kernel.state.finished[d]} of {sim.kernel.work.workgroups[d]}",
            "final tiles": f"{sim.control.event_count[d]} of {sim.expected_events[d]}",
            "missing": missing_tiles(run, d) or _NONE,
            **({_INPUTS: f"{sim.hardware.answered[d]} of {asks} groups"} if asks else {}),
            "window head": str(run.backends[d].outputs[sim.hardware.ports.head]),
            **queued(run, d),
            "lost": lost_packets(run, d).removeprefix(" and ") or _NONE,
            "hardware": busy(run, d) or "hardware idle",
            "watchdog": watchdog(run, d),
            "error": error})
    return rows


def queued(run: ProgrammedGpus, device: int) -> dict[str, str]:
    """Count the requests in a device's queues and on its links."""
    sim, channels = run.sim, run.sim.mem.m.channels
    of, ports = slice(device * channels, (device + 1) * channels), outgoing(sim.network, device)
    return {"compute": str(sim.mem.compute.count[of].sum()), "arriving": str(sim.mem.inbound.count[of].sum()),
            "in DRAM": str(sim.mem.hbm.occupancy[of].sum()),
            "leaving": str(sum(queue.count[ports].sum() for queue in (sim.stores_out, sim.mem.dma_returns))),
            "on the link": str(sim.network.flight.count[ports].sum())}


def in_a_line(rows: Sequence[Mapping[str, str]]) -> str:
    """Write the rows of `waits` in one line."""
    parts = []
    for row in rows:
        queued = ", ".join(f"{row[name]} {name}"
                           for name in ("compute", "arriving", "in DRAM", "leaving", "on the link"))
        missing = "" if row["missing"] == _NONE else f" (missing {row['missing']})"
        inputs = f"{row[_INPUTS]} of inputs have come, " if _INPUTS in row else ""
        lost = "" if row["lost"] == _NONE else f" and {row['lost']}"
        parts.append(f"GPU {row['device']}: {row['workgroups finished']} workgroups finished, "
                     f"{row['final tiles']} final tiles{missing}, {inputs}window head {row['window head']}, "
                     f"queued: {queued}{lost}, {row['hardware']}, watchdog: {row['watchdog']}, error {row['error']}")
    return "; ".join(parts)


def watchdog(run: ProgrammedRun, device: int) -> str:
    """Ask the watchdog of a device about a stuck run; only the RTL is stepped meanwhile.

    During a run it is off, because its limit would report long computations as a hang, which `end.stuck` does not.
    """
    master, driver = run.masters[device], run.drivers[device]
    failed = driver.first_error(master.read) is not None
    run.write(master, driver.watchdog(driver.least_watchdog_cycles))
    run.backends[device].step(driver.least_watchdog_cycles + 2 * WATCHDOG_PERIOD)
    names = driver.waiting(master.read)
    run.write(master, driver.watchdog(None) + ([] if failed else driver.clear_error()))
    return "; ".join(text for name, text in WAITS if name in names) or "nothing waits"


def at_rest(run: ProgrammedRun, device: int) -> str:
    """Name the parts of a device's hardware that are still busy after the run; "" if none.

    The window's head first gets the cycles to pass all of its ids.
    """
    for _ in range(run.geometry.tracker.window_slots):
        if not (inside := busy(run, device)):
            break
    return inside


def busy(run: ProgrammedRun, device: int) -> str:
    """Name the busy parts of a device's hardware, in the words of its STATUS register; "" if none."""
    status = run.drivers[device].status(run.masters[device].read)
    return ", ".join(text for name, text in STATUS_BITS if name in AT_WORK and name in status)


def final_tiles(run: ProgrammedRun, device: int) -> np.ndarray:
    """Return bool[workgroup, wavefront]: tiles whose reduction ends at the device."""
    rows = run.schedule.rows(run.spaces[device].device)
    final = np.zeros(run.sim.control.events[device].shape, bool)
    ends = rows.actions & Action.EVENT != 0
    final[rows.id[ends]] = run.tiling.wf_widths[rows.tile[ends]] > 0
    return final


def missing_tiles(run: ProgrammedRun, device: int) -> str:
    """Name the first missing final tiles of a device."""
    missing = np.argwhere(final_tiles(run, device) & (run.sim.control.events[device] == 0))
    names = ", ".join(f"workgroup {wg} wavefront {wf}" for wg, wf in missing[:_TOLD_TILES])
    return names + (f" and {len(missing) - _TOLD_TILES} more" if len(missing) > _TOLD_TILES else "")


def lost_packets(run: ProgrammedRun, device: int) -> str:
    """Count the packets that a device's links lost or doubled, and those without a route; "" if none.

    Links of a mirrored run are not checked, because its arrivals are made from other packets.
    """
    network, lost_words = run.sim.network, ""
    for port in () if run.sim.network.mirrored else outgoing(network, device):
        lost = network.sent_packets[port] - network.flight.count[port] - network.taken[port]
        lost_or_made = f"{lost} lost" if lost > 0 else f"{-lost} more than were sent"
        lost_words += f" and {lost_or_made} on it to GPU {network.target[port]}" if lost else ""
    nowhere = network.unroutable[device]
    return lost_words + (f" and {nowhere} for GPUs to which no way leads" if nowhere else "")


def check(run: ProgrammedRun) -> None:
    """Check a run whose fused kernel has ended. Raises SimulationError."""
    control = run.sim.control
    for d, space in enumerate(run.spaces):
        if lost_packets(run, d):
            waiting = run.sim.network.flight.count[outgoing(run.sim.network, d)].sum()
            raise SimulationError(f"GPU {space.device}: {waiting} packets on the link"
                                  f"{lost_packets(run, d)}")
    run.raise_errors()
    for d, space in enumerate(run.spaces):
        if inside := at_rest(run, d):  # a tile that fired got bytes twice, or bytes of another
            raise SimulationError(f"GPU {space.device}: not idle at the end: {inside}")
        final = final_tiles(run, d)
        if (control.events[d] != final).any():
            q, wf = np.argwhere(control.events[d] != final)[0]
            raise SimulationError(f"GPU {space.device}: tile of workgroup {q}, wavefront {wf} completed "
                                  f"{control.events[d, q, wf]} times instead of {int(final[q, wf])}")
        tracked = run.schedule.tracked_wf_tiles(space.device)
        counters = run.counters(d)
        if counters["triggers"] != tracked:
            raise SimulationError(f"GPU {space.device}: {counters['triggers']} triggers for {tracked} tiles")
        if counters["packets"] != run.sim.network.injected[d]:
            raise SimulationError(f"GPU {space.device}: {counters['packets']} packets left, "
                                  f"{run.sim.network.injected[d]} were sent")
    for observer in run.observers:
        observer.check()


def nothing_counted(run: ProgrammedGpus, before: Sequence[Mapping[str, int]]) -> None:
    """Check that no counter moved during a collective by kernels, which is not tracked. Raises SimulationError.

    `before`: each device's counters.
    """
    for d, device in enumerate(run.devices):
        counted = run.counters(d)
        changed = [f"{name} {before[d][name]:,} to {counted[name]:,}" for name in counted
                   if counted[name] != before[d][name]]
        if changed:
            raise SimulationError(f"GPU {device}: stores of a collective are not tracked, but the hardware counted "
                                  f"during it: {', '.join(changed)}")
