"""Replays a recorded stimulus on any component and records its outputs.

Files in the folder named by $T3_REPLAY: `ports.json` (a PortMap) and `stimulus.npy` (uint64[cycles, input words]) are
read; `outputs.npy` (uint64[cycles, output words]) and `seconds.txt` (of the replay alone) are written.
"""

import os
import time
from pathlib import Path

import cocotb
import numpy as np
from cocotb.triggers import Timer

from t3sim.rtlsim.port_map import WORD_BITS, PortMap

_HALF_PERIOD_PS = 500  # the 1 GHz memory clock


@cocotb.test()
async def replay(dut) -> None:
    folder = Path(os.environ["T3_REPLAY"])
    ports = PortMap.load(folder / "ports.json")
    stimulus = np.load(folder / "stimulus.npy")
    outputs = np.zeros((len(stimulus), ports.output_words), np.uint64)
    sinks = [(port, getattr(dut, port.verilog)) for port in ports.outputs.values()]
    changes = [(getattr(dut, port.verilog), _changes(stimulus, port)) for port in ports.inputs.values()]
    by_cycle = [[] for _ in stimulus]
    for handle, changed in changes:
        handle.value = 0
        for cycle, value in changed:
            by_cycle[cycle].append((handle, value))
    clock = getattr(dut, ports.clock) if ports.clock else None
    if clock is not None:
        clock.value = 0
    await Timer(_HALF_PERIOD_PS, "ps")
    start = time.perf_counter()
    for cycle, assignments in enumerate(by_cycle):
        for handle, value in assignments:
            handle.value = value
        if clock is not None:
            clock.value = 0
        await Timer(_HALF_PERIOD_PS, "ps")
        if clock is not None:
            clock.value = 1
        await Timer(_HALF_PERIOD_PS, "ps")
        for port, handle in sinks:
            value = handle.value.to_unsigned() if port.width > 1 else int(handle.value)
            for word in range(port.words):
                outputs[cycle, port.offset + word] = value >> word * WORD_BITS & 0xFFFF_FFFF_FFFF_FFFF
    (folder / "seconds.txt").write_text(str(time.perf_counter() - start))
    np.save(folder / "outputs.npy", outputs)


def _changes(stimulus: np.ndarray, port) -> list[tuple[int, int]]:
    """Return the cycles in which an input changes, and to what; it is 0 before the first."""
    columns = stimulus[:, port.offset:port.offset + port.words]
    before = np.vstack([np.zeros((1, port.words), np.uint64), columns[:-1]])
    cycles = np.flatnonzero((columns != before).any(axis=1))
    return [(int(cycle), sum(int(word) << WORD_BITS * index for index, word in enumerate(columns[cycle])))
            for cycle in cycles]
