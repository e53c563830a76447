"""Record of a failed test for `t3 explain` and `t3 step`: where it failed, and what all ports showed until then.

The ports are those of a second run, of the design that shows its inner signals (`t3sim.trace.testbench` makes a trace
of it).
"""

import json
from collections import deque
from pathlib import Path

import numpy as np

from t3sim.rtlsim.port_map import Port, PortMap

MOST_CYCLES = 20_000  #: that are kept of a round, the last ones
FAILURE, SAMPLES = "failure.json", "samples.npz"
_SILENCE_CYCLES = 1_000  #: that are kept behind the last movement
_WORD = (1 << 64) - 1


class Samples:
    """The ports of every cycle before `end` as words: inputs, outputs before the clock edge, and outputs after it."""

    def __init__(self, bench, ports: PortMap, end: int) -> None:
        self._bench, self._end = bench, end
        self._inputs, self._outputs = ([(port, bench[port.name]) for port in side.values()]
                                       for side in (ports.inputs, ports.outputs))
        self._words = ports.input_words, ports.output_words
        self._before: tuple[np.ndarray, np.ndarray] = ()
        self._cycles: deque[tuple[np.ndarray, ...]] = deque(maxlen=MOST_CYCLES)
        self._first = 0

    def before_edge(self) -> None:
        if self._bench.now < self._end:
            self._before = _read(self._inputs, self._words[0]), _read(self._outputs, self._words[1])

    def behind_edge(self) -> None:
        if self._bench.now < self._end:
            self._cycles.append((*self._before, _read(self._outputs, self._words[1])))
            self._first = self._bench.now + 1 - len(self._cycles)

    def save(self, path: Path) -> None:
        inputs, before, behind = (np.stack(side) for side in zip(*self._cycles))
        np.savez(path, first=self._first, inputs=inputs, before=before, behind=behind)


def _read(signals: list[tuple[Port, object]], words: int) -> np.ndarray:
    """Return uint64[words]; what is unknown yet counts as 0."""
    found = np.zeros(words, np.uint64)
    for port, signal in signals:
        try:
            value = signal.read_bits()
        except ValueError:
            continue
        for word in range(port.words):
            found[port.offset + word] = value >> 64 * word & _WORD
    return found


async def keep(bench, test: str, error: Exception) -> None:
    """Keep what a failed round leaves; the first round that fails calls it."""
    folder, cycle = bench.folder, bench.now
    if bench.samples:
        await bench.finish_cycle()
        bench.samples.save(folder / SAMPLES)
    if (folder / FAILURE).exists():
        return
    items = [item.get("details", item) for item in getattr(error, "items", ())]
    tiles = [(item["wg"], item["wf"]) for item in items if {"wg", "wf"} <= item.keys()]
    text = (str(error).splitlines() or [type(error).__name__])[0]
    end = cycle + 1 if bench.moved is None else min(cycle, bench.moved + _SILENCE_CYCLES) + 1
    (folder / FAILURE).write_text(json.dumps({
        "test": test, "round": bench.number, "cycle": cycle, "end": end, "problem": text, "tiles": tiles}))
