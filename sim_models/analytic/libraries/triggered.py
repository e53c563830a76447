"""Track & Trigger after a GEMM, tile by tile, within the limits of its hardware.

Workgroups start in the order of their tiles when a unit has a place and the dispatch window has room. They share their
unit, so all that start together end together, and then store. A tile of the first chunk is stored at the neighbour. A
later one is complete when the neighbour's tile has arrived as well, and is then sent on; the last chunk stays. All GPUs
do the same, so a GPU's arrivals are its own sends. The losses follow:

- `window_blocked`: a place is empty because the Tracker has no entry for a workgroup, or the queue of commands no
  place. A tile of id i may start when the one of id i - window is finished (docs/why/five-questions.md, question 2).
- `store_to_memory`: arbiters that take turns mix the ring's reads and writes into a stage's stores, and DRAM turns its
  bus around for each batch of writes. The kernel's turns also serve the loads of units that are in the next stage, so
  stores have the rest. These units go on when the stage's last tile is stored.
- `store_to_link`: a unit keeps the place of a tile until the link's buffer has taken it. Staging the first chunk avoids
  it, for one write and one read of that chunk more.
- `power`: the GEMM's clock while the link sends.
- `link_tail`: sends after the GEMM. The tiles of the last stage complete when it ends.
"""

from collections import deque
from dataclasses import dataclass, replace
from functools import lru_cache
from heapq import heappop, heappush
from math import ceil, inf
from typing import NamedTuple

from t3sim.analytic.costs import memory_bytes_per_ns
from t3sim.base.errors import BadInput
from t3sim.base.line import LINE_BYTES
from t3sim.collectives.schedule.slices import slack_room
from t3sim.machine import Machine


@dataclass(frozen=True)
class Tiles:
    """A GEMM's tiles on one GPU."""

    count: int
    units: int
    at_once: int  #: places of all units
    size_bytes: float


class TriggerLimits(NamedTuple):
    """Limits of Track & Trigger's hardware; those of none leave the ring and the GEMM alone."""

    window: float = inf  #: workgroups that the Trackers and the queue of commands hold
    moved_bytes_per_ns: float = inf  #: by engines and egress lanes
    buffer_bytes: float = inf  #: of stores in front of the link
    stores_bytes_per_ns: float = inf  #: that memory takes from a kernel alone
    mixed_bytes_per_ns: float = inf  #: that memory serves while GEMM and ring take turns


def trigger_limits(hardware: Machine) -> TriggerLimits:
    """Derive the limits from a machine of the cycle level.

    Of a ring's turns a third are reads for DMA, two thirds writes: the GEMM's and those that arrive, half of all each.
    """
    tracker, dma, clock, dram = hardware.tracker, hardware.dma, hardware.memory_clock_ghz, hardware.dram
    wavefronts = min(tracker.ways, hardware.gpu.wavefronts_per_workgroup)
    return TriggerLimits(
        min(tracker.sets * (tracker.ways // wavefronts), dma.ready_commands // wavefronts),
        min(dma.engines, dma.egress_lanes) * LINE_BYTES * clock, hardware.link.stores_bytes,
        hardware.dram_peak_bytes_per_ns * dram.refreshed, memory_bytes_per_ns(hardware, reads_per_write=1 / 3))


@dataclass(frozen=True)
class TileExchange:
    """The exchange that follows a GEMM: around a ring, or each tile straight to its owner."""

    gpus: int
    bytes_per_ns: float
    latency_ns: float
    direct: bool = False
    turns: bool = False  #: memory serves the GEMM and the ring's reads and writes in turn; else the GEMM first
    staged: bool = False  #: the first chunk is stored here, and then sent
    loads_bytes_per_ns: float = 0.0  #: of the GEMM from memory, all units together
    power_share: float = 0.0  #: of the GEMM's clock while the link sends


class TriggeredRun(NamedTuple):
    """Time of a GEMM and its exchange, and where what the GEMM does not hide went: the losses add up to the rest."""

    ns: float
    losses_ns: dict[str, float]


def triggered_gemm(gemm_ns: float, tiles: Tiles, ring: TileExchange, limits: TriggerLimits) -> TriggeredRun:
    """Play a GEMM and the exchange of its output."""
    ring = replace(ring, bytes_per_ns=min(ring.bytes_per_ns, limits.moved_bytes_per_ns))
    chunk = ceil(tiles.count / ring.gpus / slices(tiles, ring.gpus, limits.window))
    if chunk >= limits.window:
        raise BadInput(f"[tracker] and [dma] have room for {limits.window:.0f} workgroups, and a chunk has {chunk}: "
                       "the dispatch window must hold more than a chunk")
    free_window = limits._replace(window=inf)
    alone = free_window._replace(buffer_bytes=inf, mixed_bytes_per_ns=inf)
    unpowered = replace(ring, power_share=0.0)
    # Each limit is added to the ones before.
    steps = {"store_to_link": (unpowered, alone._replace(buffer_bytes=limits.buffer_bytes)),
             "store_to_memory": (unpowered, free_window), "power": (ring, free_window),
             "window_blocked": (ring, limits)}
    losses_ns, before_ns, end_ns = {}, gemm_ns, gemm_ns
    for cause, (step_ring, step_limits) in steps.items():
        ends_ns, end_ns = _play(gemm_ns, tiles, chunk, step_ring, step_limits)
        losses_ns[cause], before_ns = ends_ns - before_ns, ends_ns
    return TriggeredRun(end_ns, losses_ns | {"link_tail": end_ns - before_ns})


def slices(tiles: Tiles, gpus: int, window: float) -> int:
    """Return the parts of the output that are reduced one after the other, as `sliced_schedule` cuts it.

    1.5 stages of workgroups and a chunk of a part fit into the window.
    """
    room, parts = slack_room(window, tiles.at_once), 1
    while tiles.count / gpus / parts > room and tiles.count >= 2 * gpus * (parts + 1):
        parts += 1
    return parts


@lru_cache(maxsize=1 << 12)  # mechanisms with the same limits ask for the same play
def _play(gemm_ns: float, tiles: Tiles, chunk: int, ring: TileExchange, limits: TriggerLimits) -> tuple[float, float]:
    """Return the ends of the GEMM and of the exchange; `chunk`: tiles of a slice's chunk."""
    wire_ns, alone_ns = tiles.size_bytes / ring.bytes_per_ns, tiles.size_bytes / limits.stores_bytes_per_ns
    mixed = limits.mixed_bytes_per_ns
    rate = max(mixed / 2, mixed - 2 * ring.bytes_per_ns) if ring.turns else inf  # the ring writes and reads each byte
    work_ns = max(0.0, gemm_ns - tiles.count * alone_ns) / _work(tiles)  # of a tile that has its unit alone
    free_ns = [0.0] * tiles.at_once  # when each place is
    running: deque[float] = deque()  # by the work of each tile's unit at which that tile ends
    finished_ns: list[float] = []
    arrived_ns: dict[int, float] = {}
    now = work = link_ns = 0.0
    started = next_stage = 0  # tiles; those that run in the stage after the one that stores
    stage_work = 0.0  # at whose end the stage stores
    while len(finished_ns) < tiles.count:
        opens_ns = inf
        if started < tiles.count:
            oldest = started - limits.window + chunk
            room_ns = 0.0 if started < limits.window else (
                finished_ns[int(oldest)] + ring.latency_ns if oldest < len(finished_ns) else inf)
            opens_ns = max(free_ns[0] if free_ns else inf, room_ns)
        if opens_ns <= now or not running:
            now = max(now, opens_ns)
            heappop(free_ns)
            running.append(work + work_ns)
            started, next_stage = started + 1, next_stage + (work >= stage_work > 0)
            continue
        share = 1 / ceil(len(running) / tiles.units)  # that a tile of the fullest unit has
        sending_ns, clock = max(0.0, link_ns - now), 1 - ring.power_share
        left_ns = (running[0] - work) / share
        ends_ns = now + min(left_ns / clock, sending_ns) + max(0.0, left_ns - sending_ns * clock)
        if opens_ns < ends_ns:
            passed_ns = opens_ns - now
            work += share * (passed_ns - min(passed_ns, sending_ns) * ring.power_share)
            now = opens_ns
            continue
        now, work, tile = ends_ns, running.popleft(), len(finished_ns)
        if work > stage_work:
            stage_work, next_stage = work, 0
        part = tile // chunk % ring.gpus
        sent_away = part < ring.gpus - 1
        if sent_away and not ring.staged and (ring.direct or part == 0):
            now += alone_ns  # units issue these stores no faster than others
            link_ns = max(link_ns, now) + wire_ns
            complete_ns, place_ns = now, max(now, link_ns - limits.buffer_bytes / ring.bytes_per_ns)
        else:
            loads = ring.loads_bytes_per_ns * next_stage / tiles.at_once
            now += tiles.size_bytes / min(limits.stores_bytes_per_ns, max(rate / 2, rate - loads))
            complete_ns, place_ns = max(now, arrived_ns.pop(tile, 0.0)), now
            if sent_away:
                link_ns = max(link_ns, now if ring.direct else complete_ns) + wire_ns
        if sent_away:
            arrived_ns[tile + chunk] = link_ns + ring.latency_ns
        finished_ns.append(max(complete_ns, finished_ns[-1] if finished_ns else 0.0))
        heappush(free_ns, place_ns)
    return max(now, *free_ns), max(finished_ns[-1], *free_ns)


def _work(tiles: Tiles) -> int:
    """Return the tiles of the fullest unit, over all stages."""
    stages, rest = divmod(tiles.count, tiles.at_once)
    return stages * ceil(tiles.at_once / tiles.units) + ceil(rest / tiles.units)
