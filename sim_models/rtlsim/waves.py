"""Ports as signals of a wave viewer, and VCD files of them."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from vcd import VCDWriter

from t3sim.rtlsim.port_map import FALLING, WORD_BITS, Port, PortMap


@dataclass(frozen=True)
class Signal:
    """One trace of a wave viewer and where its bits lie in a sample's words."""

    scope: str
    name: str
    bit: int
    width: int

    @property
    def path(self) -> str:
        return f"{self.scope}.{self.name}"


def _identifier(text: str) -> str:
    """Write a name as viewers take it: `channel[3].arbiter` is `channel_3.arbiter`."""
    return re.sub(r"\[(\d+)\]", r"_\1", text)


def port_signals(port: Port, scope: str, first_word: int) -> Iterator[Signal]:
    """Yield the leaves of a port; its words begin at `first_word` of a sample, after its offset."""
    owner, _, name = port.name.rpartition(".")
    place = f"{scope}.{_identifier(owner)}" if owner else scope
    leaves = {leaf: field for leaf, field in port.fields.items()
              if not any(other.startswith((leaf + ".", leaf + "[")) for other in port.fields)}
    at = (first_word + port.offset) * WORD_BITS
    for leaf, field in leaves.items():
        yield Signal(place, _identifier(f"{name}_{leaf.lstrip('.')}").replace(".", "_"), at + field.lsb, field.width)
    if not leaves:
        yield Signal(place, _identifier(name), at, port.width)


@contextmanager
def recording(ports: PortMap, path: Path) -> Iterator[Callable]:
    """Write a VCD file; gives what takes a sample: inputs, outputs, and the clocks that have just had their edge."""
    split = max(1, ports.input_words)
    signals = [signal for port in ports.inputs.values() for signal in port_signals(port, ports.top, 0)]
    signals += [signal for port in ports.outputs.values() for signal in port_signals(port, ports.top, split)]
    users: list[list[int]] = [[] for _ in range(split + max(1, ports.output_words))]
    for number, signal in enumerate(signals):
        for word in range(signal.bit // WORD_BITS, -(-(signal.bit + signal.width) // WORD_BITS)):
            users[word].append(number)
    with path.open("w") as file, VCDWriter(file, timescale="1 ns", comment="the clock rises every 2 ns") as writer:
        clocks = {clock: writer.register_var(ports.top, clock, "wire", size=1, init=int(clock.endswith(FALLING)))
                  for clock in ports.clocks or filter(None, [ports.clock])}
        variables = [writer.register_var(signal.scope, signal.name, "wire", size=signal.width) for signal in signals]
        last: np.ndarray | None = None
        time = 0

        def sample(inputs: np.ndarray, outputs: np.ndarray, ticked: Sequence[str]) -> None:
            nonlocal last, time
            time += time % 2 == (0 if ticked else 1)  # edges at odd times
            row = np.concatenate([inputs, outputs])
            changed = range(len(row)) if last is None else np.flatnonzero(row != last)
            data = row.tobytes()
            for number in dict.fromkeys(number for word in changed for number in users[word]):
                signal = signals[number]
                first, end = signal.bit // 8, -(-(signal.bit + signal.width) // 8)
                value = int.from_bytes(data[first:end], "little") >> signal.bit % 8 & (1 << signal.width) - 1
                writer.change(variables[number], time, value)
            for clock, variable in clocks.items():
                writer.change(variable, time, int((clock in ticked) != clock.endswith(FALLING)))
            last = row

        try:  # what failed is there to be looked at
            yield sample
        finally:
            writer.flush(time + 1)
