"""Host time of the channel model under load: `python -m t3sim.testbenches.hbm_replay.benchmark`."""

from __future__ import annotations

import time

import numpy as np

from t3sim.base.compiled.jit import compiled
from t3sim.gpu.hbm.channel import hbm_enqueue, hbm_has_room, hbm_step
from t3sim.gpu.hbm.state import HbmState, make_hbm
from t3sim.machine.dram import Dram


@compiled
def run_load(state: HbmState, channels: int, cycles: int, lines: np.ndarray, ops: np.ndarray, done: np.ndarray,
             position: np.ndarray) -> None:
    """Keep every channel's queue full; request i of channel c is (lines[c, i % n], ops[c, i % n])."""
    n = lines.shape[1]
    for cycle in range(cycles):
        for c in range(channels):
            if hbm_step(state, c, cycle) >= 0:
                done[c] += 1
            if hbm_has_room(state, c, cycle):
                i = position[c]
                hbm_enqueue(state, c, cycle, lines[c, i], ops[c, i], i)
                position[c] = i + 1 if i + 1 < n else 0


def loads(rng: np.random.Generator, channels: int, n: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return request mixes: name -> (lines, operations)."""
    i = np.arange(n)
    stream = (i + (1 << 12) * np.arange(channels)[:, None]).astype(np.int64)
    reads = np.zeros((channels, n), np.int64)
    turns = np.broadcast_to((i // 8 % 4)[None], (channels, n))
    four = np.where(True, (i // 32 * 8 + i % 8)[None] + turns * (1 << 16), stream).astype(np.int64)
    mixed = np.where(turns == 3, 2, np.where(turns == 2, 1, 0)).astype(np.int64)
    anywhere = rng.integers(0, 1 << 22, (channels, n))
    return {
        "stream of reads": (stream, reads),
        "stream of updates": (stream, reads + 2),
        "2 read, 1 store, 1 update streams": (four, mixed),
        "random reads": (anywhere, reads),
        "random reads and updates": (anywhere, rng.integers(0, 2, (channels, n)) * 2),
    }


def timed_load(dram: Dram, channels: int, cycles: int, lines: np.ndarray,
               ops: np.ndarray) -> tuple[float, HbmState, np.ndarray]:
    """Return host seconds (CPU), final state and requests served per channel of `cycles` cycles from idle."""
    state, done, position = make_hbm(dram, channels), np.zeros(channels, np.int64), np.zeros(channels, np.int64)
    start = time.process_time()
    run_load(state, channels, cycles, lines, ops, done, position)
    return time.process_time() - start, state, done


def main(channels: int = 32, cycles: int = 100_000) -> None:
    """Print ns per channel and cycle and the bandwidth reached, for each load."""
    dram = Dram()
    for name, (lines, ops) in loads(np.random.default_rng(1), channels, 1 << 14).items():
        timed_load(dram, channels, 10, lines, ops)  # compiles
        seconds, state, done = timed_load(dram, channels, cycles, lines, ops)
        per_cycle = done.sum() * 64 / channels / cycles
        print(f"{name:36s} {seconds / cycles * 1e9:7.0f} ns per cycle of {channels} channels, "
              f"{seconds / cycles / channels * 1e9:5.1f} ns per channel-cycle, "
              f"{per_cycle / dram.peak_bytes_per_cycle:6.1%} of peak, "
              f"{state.channels['activates'].sum() / max(done.sum(), 1):5.2f} ACT per request")


if __name__ == "__main__":
    main()
