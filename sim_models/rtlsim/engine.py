"""Testbenches of Amaranth's simulator on a compiled design: `Simulator(design, engine=CompiledEngine)`.

Processes, testbenches, clocks, delays and triggers are Amaranth's own (0.5). The design beside them is one process: it
runs when an input has changed or a clock has its edge, and shows in one step what takes Amaranth's several.
"""

from collections.abc import Callable
from functools import partial

from amaranth.hdl import Const, Signal
from amaranth.hdl._ast import SignalDict
from amaranth.hdl._ir import Design
from amaranth.hdl._mem import MemoryData, MemoryInstance
from amaranth.sim._base import BaseProcess, BaseSignalState
from amaranth.sim.pysim import PySimEngine, _PyEngineState, _PyMemoryState, _run_wakers

from t3sim.rtlsim.build import compile_text, flat_text
from t3sim.rtlsim.graph import UnsupportedDesign
from t3sim.rtlsim.port_map import FALLING, WORD_BITS, Port

_WORD = (1 << WORD_BITS) - 1


class CompiledEngine(PySimEngine):
    """What cannot be done is refused with UnsupportedDesign: see docs/how-to/simulate-your-own-design.md."""

    def __init__(self, design: Design) -> None:
        self._design = design
        self._hardware = _Hardware(design)
        self._state = self._hardware.state
        self._processes = {self._hardware}
        self._testbenches = []
        self._delta_cycles = 0
        self._vcd_writers = []
        self._active_triggers = set()

    def write_vcd(self, **_):
        raise UnsupportedDesign("the compiled design writes no VCD by `write_vcd`: run this test on Amaranth's engine, "
                                "or use `rtlsim.compile` and `Simulator.waves`")


class _Hardware(BaseProcess):
    """The compiled design as a process; its signals are read where the compiled design shows them."""

    def __init__(self, design: Design) -> None:
        self.simulator = compile_text(*flat_text(design, "top", "*")).simulator()
        ports = self.simulator.ports
        self.watched: list[_Shown] = []  #: which wake a process when they change
        self.state = _State(self, design)
        self._edges = 0  #: of clocks, by bit
        self._start: list[Callable] = []  #: sets an input to its initial value
        clocks = ports.clocks or (ports.clock,)
        for name, signal, _ in design.ports:
            if name in ports.inputs:
                waker = self._input_waker(ports.inputs[name])
                self._start.append(partial(waker, 0, signal.init))
                self.state.add_signal_waker(signal, waker)
            for number, clock in enumerate(clocks):
                if clock and name == clock.removesuffix(FALLING):
                    self.state.add_signal_waker(signal, self._clock_waker(1 << number, not clock.endswith(FALLING)))
        self.reset()

    def _input_waker(self, port: Port) -> Callable:
        words, mask = memoryview(self.simulator.inputs)[port.offset:port.offset + port.words], (1 << port.width) - 1

        def waker(_, new: int) -> bool:
            new &= mask
            for n in range(len(words)):
                words[n] = new >> WORD_BITS * n & _WORD
            self.runnable = True
            return True
        return waker

    def _clock_waker(self, bit: int, level: bool) -> Callable:
        def waker(_, new: int) -> bool:
            if new == level:
                self._edges |= bit
                self.runnable = True
            return True
        return waker

    def reset(self) -> None:
        self.simulator.reset()
        for start in self._start:
            start()
        self._edges = 0
        self.run()
        for state in self.watched:
            state.last = state.curr

    def run(self) -> None:
        design, handle, edges = self.simulator.design, self.simulator.handle, self._edges
        self._edges = 0
        if not edges:
            design.eval(handle)
        elif self.simulator.ports.clocks:
            design.tick(handle, edges)
        else:
            design.step(handle)
        self.state.pending.update(state for state in self.watched if state.last != state.curr)


class _State(_PyEngineState):
    """Amaranth's state, but for the signals and memories of the design."""

    def __init__(self, hardware: _Hardware, design: Design) -> None:
        super().__init__()
        self._hardware = hardware
        self._names = SignalDict((signal, name) for name, signal, _ in design.ports if isinstance(signal, Signal))
        self._memories = {fragment._data: ".".join(where.name[1:]) for fragment, where in design.fragments.items()
                          if isinstance(fragment, MemoryInstance)}

    def get_signal(self, signal: Signal) -> int:
        try:
            return self.signals[signal]
        except KeyError:
            name, ports = self._names.get(signal), self._hardware.simulator.ports
            if name not in ports.outputs:
                return super().get_signal(signal)
        self.signals[signal] = len(self.slots)
        self.slots.append(_Shown(signal, ports.outputs[name], self._hardware))
        return self.signals[signal]

    def get_memory(self, memory: MemoryData) -> int:
        if memory not in self.memories and memory in self._memories:
            self.memories[memory] = len(self.slots)
            self.slots.append(_Memory(memory, self.pending, self._memories[memory], self._hardware))
        return super().get_memory(memory)


class _Shown(BaseSignalState):
    """A signal that the design drives."""

    is_comb = False

    def __init__(self, signal: Signal, port: Port, hardware: _Hardware) -> None:
        self.signal, self.wakers = signal, []
        self._hardware, self._signed = hardware, signal.shape().signed
        self._sign = 1 << port.width - 1
        self._words = memoryview(hardware.simulator.outputs)[port.offset:port.offset + port.words]
        self.last = self.curr

    @property
    def curr(self) -> int:
        value = self._words[0] if len(self._words) == 1 else sum(
            word << WORD_BITS * n for n, word in enumerate(self._words))
        return (value ^ self._sign) - self._sign if self._signed else value

    next = curr

    def update(self, value: int, mask: int = ~0) -> None:
        raise UnsupportedDesign(f"{self.signal.name} is driven by the design: a compiled one cannot be overridden")

    def reset(self) -> None:
        """Leave it to the design."""

    def add_waker(self, waker: Callable) -> None:
        if self not in self._hardware.watched:
            self._hardware.watched.append(self)
            self.last = self.curr
        self.wakers.append(waker)

    def commit(self) -> bool:
        last, self.last = self.last, self.curr
        _run_wakers(self.wakers, last, self.last)
        return True


class _Memory(_PyMemoryState):
    """A memory of the design; what is written arrives there when it is committed."""

    def __init__(self, memory: MemoryData, pending: set, name: str, hardware: _Hardware) -> None:
        super().__init__(memory, pending)
        self._name, self._hardware = name, hardware

    def reset(self) -> None:
        self.write_queue = {}

    @property
    def data(self) -> "_Memory":
        return self

    def __getitem__(self, address: int) -> int:
        return Const(self._hardware.simulator.get(f"{self._name}[{address}]"), self.shape).value

    def commit(self) -> bool:
        for address, value in self.write_queue.items():
            self._hardware.simulator.set(f"{self._name}[{address}]", value & (1 << self.shape.width) - 1)
        self.write_queue.clear()
        self._hardware.runnable = True
        return True
