"""The end of a run: all has happened, or nothing moves any more."""

from t3sim.base.compiled.jit import compiled
from t3sim.gpu.engine.agents import done, progress
from t3sim.gpu.fabric.queues import under_way
from t3sim.gpu.state import Sim

IDLE_LIMIT = 200_000  #: cycles without any progress after which a run is declared stuck
RUNNING, DONE, STUCK = range(3)
LOOK_STUCK = 1 << 14  #: cycles between two looks at whether anything moves


@compiled
def finished(sim: Sim, kernel: tuple) -> bool:
    """Return whether all that was to happen has happened and nothing is under way any more."""
    for gpu in range(len(sim.control.downstream)):
        if not done(kernel, sim, gpu):
            return False
        if sim.mem.fills.count[gpu] or sim.mem.hits.count[gpu]:
            return False
        for channel in range(sim.mem.m.channels):
            row = gpu * sim.mem.m.channels + channel
            held = sim.mem.free.shape[1] - sim.mem.free_count[row]
            if held or sim.mem.compute.count[row] or sim.mem.inbound.count[row]:
                return False
            if sim.mem.compute_tags.count[row] or sim.mem.inbound_tags.count[row]:  # inside the hardware
                return False
    for port in range(len(sim.network.free_time)):
        if under_way(sim.network.flight, port) or sim.stores_out.count[port] or sim.mem.dma_returns.count[port]:
            return False
    return True


@compiled
def stuck(sim: Sim, kernel: tuple, now: int) -> bool:
    """Return whether nothing has moved for IDLE_LIMIT cycles."""
    total = 0
    for gpu in range(len(sim.control.downstream)):
        total += sim.control.event_count[gpu] + progress(kernel, gpu)
        for purpose in range(sim.mem.total_bytes.shape[1]):
            total += sim.mem.total_bytes[gpu, purpose]
    for port in range(len(sim.network.sent_bytes)):
        total += sim.network.sent_bytes[port]
    if total != sim.control.progress[0]:
        sim.control.progress[0] = total
        sim.control.progress[1] = now
    return now - sim.control.progress[1] > IDLE_LIMIT


@compiled
def outcome(sim: Sim, kernel: tuple, now: int) -> int:
    """Return RUNNING, DONE or STUCK."""
    if finished(sim, kernel):
        return DONE
    return STUCK if now % LOOK_STUCK == 0 and stuck(sim, kernel, now) else RUNNING
