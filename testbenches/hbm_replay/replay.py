"""Replay a request trace on one channel."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from t3sim.base.compiled.jit import compiled
from t3sim.gpu.hbm.channel import hbm_enqueue, hbm_has_room, hbm_step
from t3sim.gpu.hbm.state import HbmState, make_hbm
from t3sim.machine.dram import Dram
from t3sim.testbenches.hbm_replay import dramsim3
from t3sim.testbenches.hbm_replay.configurations import configured
from t3sim.testbenches.hbm_replay.trace import Trace, read_trace

if TYPE_CHECKING:
    from t3sim.testbenches.hbm_replay.dramsim3 import Requests

__all__ = ["ReplayResult", "Replayed", "replay", "replay_trace"]

CHUNK_REQUESTS = 1 << 16  #: between two progress reports


class Replayed(NamedTuple):
    """Everything about a replay that is not in its summary."""

    accepted: np.ndarray  #: int64[request]: cycle of acceptance
    done: np.ndarray  #: int64[request]: end of a read's data; -1 for writes
    cycles: int  #: end of the last data burst
    writes_buffered: int  #: in the dramsim3 scheduler's buffer, not served
    host_seconds: float
    state: HbmState


@compiled
def _run_queue(state: HbmState, requests: Requests, start: int, stop: int, cycle: int,
               served: int) -> tuple[int, int, int, int]:
    """Run like `dramsim3.run`, for the unified queue; `served`: requests that are done, of those before `start`.

    One request is offered per cycle, after the step, blocking those after it.
    """
    lines, ops, cycles, accepted, done, _ = requests
    n = lines.shape[0]
    i = start
    end = 0
    while i < stop or (stop == n and served < n):
        token = hbm_step(state, 0, cycle)
        if token >= 0:
            served += 1
            if ops[token] == 0:
                done[token] = cycle + state.read_data_cycles
                end = max(end, int(done[token]))
            else:
                end = max(end, cycle + state.write_data_cycles)
        following = state.next_cycle[0]
        if i < stop and state.occupancy[0] < state.queue_entries:
            following = min(following, max(cycle + 1, cycles[i]))
            if cycles[i] <= cycle and hbm_has_room(state, 0, cycle):
                accepted[i] = cycle
                hbm_enqueue(state, 0, cycle, lines[i], ops[i], i)
                i += 1
        cycle = max(cycle + 1, following)
    return i, cycle, end, served


def replay_trace(trace: Trace, dram: Dram, progress: Callable[[int], None] | None = None,
                 log: bool = False) -> Replayed:
    """Replay with the scheduler of `dram`; `progress` gets the number of requests accepted."""
    lines, ops, cycles = trace
    n = lines.size
    accepted, done, mates = (np.full(n, -1, np.int64) for _ in range(3))
    requests = dramsim3.Requests(lines, ops, cycles, accepted, done, mates)
    reference = dram.scheduler == "dramsim3"
    state = make_hbm(dram.by_column if reference else dram, 1, log=log)
    front = dramsim3.make_front(dram)
    config, channel = state.config[0], state.channels[0]
    begin = time.process_time()
    i, cycle, end, served = 0, 0, 0, 0
    while True:
        stop = min(i + CHUNK_REQUESTS, n)
        if reference:
            i, cycle = dramsim3.run(config, front[0], channel, requests, i, stop, cycle)
        else:
            i, cycle, chunk_end, served = _run_queue(state, requests, i, stop, cycle, served)
            end = max(end, chunk_end)
        if progress is not None:
            progress(i)
        if i >= n:
            break
    if reference:
        end = int(front["end"][0])
    return Replayed(accepted, done, end, int(front["writes"][0]), time.process_time() - begin, state)


def warm_up(dram: Dram) -> None:
    """Compile (or load from the cache) what a replay needs, so that `host_seconds` holds none of it."""
    replay_trace(Trace.of([0, 1], [0, 1], [0, 0]), dram)


@dataclass(frozen=True)
class ReplayResult:
    """The result of a replay.

    `bytes_per_cycle` counts column commands: not the reads that shared one, nor the writes that merged or stayed in the
    dramsim3 scheduler's buffer.
    """

    cycles: int  #: from cycle 0 to the end of the last data burst
    requests: int
    bytes_per_cycle: float
    mean_read_latency_cycles: float  #: from acceptance to the end of data; 0 without reads
    activates: int
    precharges: int  #: single-bank, those of refreshes included
    refreshes: int
    reads: int  #: served by DRAM
    writes: int
    writes_buffered: int  #: left in the dramsim3 scheduler's buffer, which an idle controller does not empty
    host_seconds: float  #: processor time without compilation

    @property
    def requests_per_second(self) -> float:
        """Requests per second of the host's processor time."""
        return self.requests / self.host_seconds if self.host_seconds > 0 else 0.0

    def to_json(self) -> dict[str, float]:
        return {**asdict(self), "requests_per_second": self.requests_per_second}


def replay(trace: Trace | Path | str, dram: Dram, config: str = "base",
           progress: Callable[[int], None] | None = None) -> ReplayResult:
    """Replay with the scheduler of `dram`; `progress` takes the number of requests accepted."""
    if not isinstance(trace, Trace):
        trace = read_trace(Path(trace), dram.request_bytes)
    variant = configured(dram, config)
    warm_up(variant)
    result = replay_trace(trace, variant, progress)
    channel = result.state.channels[0]
    reads = trace.ops == 0
    columns = int(channel["columns_read"] + channel["columns_written"])
    return ReplayResult(
        cycles=result.cycles, requests=trace.lines.size,
        bytes_per_cycle=columns * variant.column_bytes / result.cycles if result.cycles else 0.0,
        mean_read_latency_cycles=float((result.done - result.accepted)[reads].mean()) if reads.any() else 0.0,
        activates=int(channel["activates"]), precharges=int(channel["precharges"]),
        refreshes=int(channel["refreshes"]), reads=int(channel["columns_read"]) // variant.columns_per_request,
        writes=int(channel["columns_written"]) // variant.columns_per_request, writes_buffered=result.writes_buffered,
        host_seconds=result.host_seconds)
