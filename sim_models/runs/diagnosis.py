"""Diagnosis of a run that stands still or has left something over: what waits where."""

import numpy as np

from t3sim.collectives.schedule import Action
from t3sim.cosim.driver.driver import error_in_words
from t3sim.gpu.fabric.network import outgoing
from t3sim.rtl.registers import STATUS_BITS, WAITS, WATCHDOG_PERIOD
from t3sim.runs.programmed import AT_WORK, ProgrammedGpus, ProgrammedRun

_TOLD_TILES = 3  #: missing tiles that a diagnosis names, per device


def waits(run: ProgrammedRun) -> list[dict[str, str]]:
    """List what waits where, by GPU: heading and value."""
    rows = []
    for d, space in enumerate(run.spaces):
        sim, error = run.sim, error_in_words(run.drivers[d].first_error(run.masters[d].read))
        rows.append({
            "device": str(space.device),
            "workgroups finished": f"{sim.kernel.state.finished[d]} of {sim.kernel.work.workgroups[d]}",
            "final tiles": f"{sim.control.event_count[d]} of {sim.expected_events[d]}",
            "missing": missing_tiles(run, d).strip(" ()").removeprefix("missing ") or "none",
            **_groups(run, d),
            "window head": str(run.backends[d].outputs[sim.hardware.ports.head]),
            **queued(run, d),
            "lost": lost_packets(run, d).removeprefix(" and ") or "none",
            "hardware": busy(run, d) or "hardware idle",
            "watchdog": watchdog(run, d),
            "error": error})
    return rows


def queued(run: ProgrammedGpus, device: int) -> dict[str, str]:
    """Count what waits in device d's queues and on its links."""
    sim, channels = run.sim, run.sim.m.channels
    of, ports = slice(device * channels, (device + 1) * channels), outgoing(sim.network, device)
    return {"compute": str(sim.compute.count[of].sum()), "arriving": str(sim.inbound.count[of].sum()),
            "in DRAM": str(sim.hbm.occupancy[of].sum()),
            "leaving": str(sum(queue.count[ports].sum() for queue in (sim.stores_out, sim.mem.dma_returns))),
            "on the link": str(sim.network.flight.count[ports].sum())}


def _groups(run: ProgrammedRun, device: int) -> dict[str, str]:
    """Say how many groups of device d's activations have come, if its workgroups wait for any."""
    hardware = run.sim.hardware
    asks = hardware.asks.shape[1]
    return {"inputs that have come": f"{hardware.answered[device]} of {asks} groups"} if asks else {}


def in_a_line(run: ProgrammedRun) -> str:
    """Write `waits` in one line."""
    parts = []
    for d, row in enumerate(waits(run)):
        queued = ", ".join(f"{row[name]} {name}"
                           for name in ("compute", "arriving", "in DRAM", "leaving", "on the link"))
        inputs = "".join(f"{groups} of inputs have come, " for groups in _groups(run, d).values())
        parts.append(f"GPU {row['device']}: {row['workgroups finished']} workgroups finished, "
                     f"{row['final tiles']} final tiles{missing_tiles(run, d)}, "
                     f"{inputs}window head {row['window head']}, queued: {queued}"
                     f"{lost_packets(run, d)}, {row['hardware']}, watchdog: {row['watchdog']}, "
                     f"error {row['error']}")
    return "; ".join(parts)


def watchdog(run: ProgrammedRun, device: int) -> str:
    """Ask the watchdog of device d about a run that stands still; only the hardware goes on meanwhile.

    It is off before: a limit would take units that compute for long for a hang, which `end.stuck` does not.
    """
    master, driver = run.masters[device], run.drivers[device]
    failed = driver.first_error(master.read) is not None
    run.write(master, driver.watchdog(driver.least_watchdog_cycles))
    run.backends[device].step(driver.least_watchdog_cycles + 2 * WATCHDOG_PERIOD)
    names = driver.waiting(master.read)
    run.write(master, driver.watchdog(None) + ([] if failed else driver.clear_error()))
    return "; ".join(text for name, text in WAITS if name in names) or "nothing waits"


def at_rest(run: ProgrammedRun, device: int) -> str:
    """Name what device d still has inside after the run; "" if nothing.

    That is after the cycles in which the window's head passes all of its ids.
    """
    for _ in range(run.geometry.tracker.window_slots):
        if not (inside := busy(run, device)):
            break
    return inside


def busy(run: ProgrammedRun, device: int) -> str:
    """Name what device d's hardware still has inside, in the words of its STATUS register; "" if nothing."""
    status = run.drivers[device].status(run.masters[device].read)
    return ", ".join(text for name, text in STATUS_BITS if name in AT_WORK and name in status)


def final_tiles(run: ProgrammedRun, device: int) -> np.ndarray:
    """Return bool[workgroup, wavefront]: tiles whose reduction ends on simulated device d."""
    rows = run.schedule.rows(run.spaces[device].device)
    final = np.zeros(run.sim.control.events[device].shape, bool)
    ends = rows.actions & Action.EVENT != 0
    final[rows.id[ends]] = run.tiling.wf_widths[rows.tile[ends]] > 0
    return final


def missing_tiles(run: ProgrammedRun, device: int) -> str:
    """Name the first of device d's final tiles that have not come; "" if none is missing."""
    missing = np.argwhere(final_tiles(run, device) & (run.sim.control.events[device] == 0))
    names = ", ".join(f"workgroup {wg} wavefront {wf}" for wg, wf in missing[:_TOLD_TILES])
    more = f" and {len(missing) - _TOLD_TILES} more" if len(missing) > _TOLD_TILES else ""
    return f" (missing {names}{more})" if names else ""


def lost_packets(run: ProgrammedRun, device: int) -> str:
    """Name what the links of device d lost or made up, and what it sent to nobody; "" if nothing.

    A mirrored run has packets of its own making.
    """
    network, lost_words = run.sim.network, ""
    for port in () if run.sim.mirrored else outgoing(network, device):
        lost = network.sent_packets[port] - network.flight.count[port] - network.taken[port]
        lost_or_made = f"{lost} lost" if lost > 0 else f"{-lost} more than were sent"
        lost_words += f" and {lost_or_made} on it to GPU {network.target[port]}" if lost else ""
    nowhere = network.unroutable[device]
    return lost_words + (f" and {nowhere} for GPUs to which no way leads" if nowhere else "")
