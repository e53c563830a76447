"""Amaranth's own simulator as a backend: slow, for stepping and for machines without a compiler."""

import contextlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
from amaranth import Cat, ClockDomain, Module, Value
from amaranth.lib import wiring
from amaranth.sim import Simulator

from t3sim.rtlsim.port_map import FALLING, WORD_BITS, Port, PortMap
from t3sim.rtlsim.signature import CLOCK, path_name
from t3sim.rtlsim.simulator import checked_stimulus

_HALF_PERIOD_SECONDS = 0.5e-9  #: the 1 GHz memory clock, for waveforms
_WORD_BYTES = WORD_BITS // 8


class AmaranthBackend:
    """One instance of a component. See `Backend`.

    `ports` is the PortMap that `generate_verilog` gave for an equal component. The component must be fresh: it is
    elaborated here. `vcd` names a file for waveforms, complete after `close`.
    """

    design = None

    def __init__(self, component: wiring.Component, ports: PortMap, vcd: Path | None = None) -> None:
        self.ports = ports
        self.inputs = np.zeros(max(1, ports.input_words), np.uint64)
        self.outputs = np.zeros(max(1, ports.output_words), np.uint64)
        module = Module()
        module.submodules.dut = component
        signals = {path_name(path): Value.cast(value) for path, _, value in component.signature.flatten(component)}
        self._names = ports.clocks or tuple(filter(None, [ports.clock]))
        for clock in dict.fromkeys((ports.clock, *(name.removesuffix(FALLING) for name in self._names))):
            if clock and clock not in signals:  # not the component's own: of a domain
                domain = ClockDomain(clock.removesuffix(CLOCK).rstrip("_") or "sync")
                module.domains += domain
                signals |= {clock: domain.clk, domain.rst.name: domain.rst}
        self._clocks = Cat(signals[name.removesuffix(FALLING)] for name in self._names)
        self._idle = sum(name.endswith(FALLING) << n for n, name in enumerate(self._names))
        self._edges = 0
        # One assignment and one read per cycle: every access makes the simulator settle.
        self._inputs = Cat(signals[name] for name in ports.inputs)
        self._outputs = Cat(signals[name] for name in ports.outputs)
        self._command: Callable = self._settle
        self._simulator = Simulator(module)
        self._simulator.add_testbench(self._testbench)
        self._open = contextlib.ExitStack()
        self._waves = vcd is not None
        if vcd is not None:
            self._open.enter_context(self._simulator.write_vcd(str(vcd)))
        self._advance(self._settle)

    def reset(self) -> None:
        if self._waves:
            raise ValueError("waveforms cannot go back to time 0; drive the input rst instead")
        self.inputs[:] = 0
        self._simulator.reset()
        self._advance(self._settle)

    def step(self, cycles: int = 1, *clocks: str) -> None:
        self._edges = sum(1 << self._names.index(clock) for clock in clocks or self._names)
        for _ in range(cycles):
            self._advance(self._rise)
            self._advance(self._fall)

    def settle(self) -> None:
        self._advance(self._settle)

    def run(self, stimulus: np.ndarray) -> np.ndarray:
        stimulus = checked_stimulus(self.ports, stimulus)
        outputs = np.zeros((len(stimulus), self.ports.output_words), np.uint64)
        for cycle, row in enumerate(stimulus):
            self.inputs[:len(row)] = row
            self.step()
            outputs[cycle] = self.outputs[:self.ports.output_words]
        return outputs

    def close(self) -> None:
        self._open.close()

    def __enter__(self) -> "AmaranthBackend":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    async def _testbench(self, context) -> None:
        while True:
            self._command(context)
            await context.delay(_HALF_PERIOD_SECONDS)

    def _advance(self, command: Callable) -> None:
        self._command = command
        self._simulator.advance()

    def _settle(self, context) -> None:
        if self._names:
            context.set(self._clocks, self._idle)
        context.set(self._inputs, pack(self.ports.inputs, self.inputs))
        unpack(self.ports.outputs, context.get(self._outputs), self.outputs)

    def _rise(self, context) -> None:
        context.set(self._inputs, pack(self.ports.inputs, self.inputs))
        if self._names:
            context.set(self._clocks, self._idle ^ self._edges)
        unpack(self.ports.outputs, context.get(self._outputs), self.outputs)

    def _fall(self, context) -> None:
        if self._names:
            context.set(self._clocks, self._idle)


def pack(ports: dict[str, Port], words: np.ndarray) -> int:
    """Pack words to one integer without the gaps between ports."""
    data, value, position = words.tobytes(), 0, 0
    for port in ports.values():
        start = port.offset * _WORD_BYTES
        bits = int.from_bytes(data[start:start + port.words * _WORD_BYTES], "little") & ((1 << port.width) - 1)
        value |= bits << position
        position += port.width
    return value


def unpack(ports: dict[str, Port], value: int, words: np.ndarray) -> None:
    """Unpack a value that `pack` has packed."""
    for port in ports.values():
        bits = (value & ((1 << port.width) - 1)).to_bytes(port.words * _WORD_BYTES, "little")
        words[port.offset:port.offset + port.words] = np.frombuffer(bits, np.uint64)
        value >>= port.width
