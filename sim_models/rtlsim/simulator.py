"""A compiled design, opened, and its instances."""

import contextlib
import ctypes
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import numpy as np

from t3sim.rtlsim.port_map import InnerMemory, PortMap, words_for

_POINTER = ctypes.c_void_p
#: numba takes a handle as an integer, so handles are integers everywhere.
_HANDLE = ctypes.c_size_t


class Design:
    """The C functions of one compiled design; any number of instances can be made from it.

    `step`, `eval` and `reset` are ctypes functions of a handle: numba compiles calls of them when they are passed to an
    `@njit` function as an argument.
    """

    def __init__(self, path: Path, ports: PortMap) -> None:
        self.path = path
        self.ports = ports
        self._shared = ctypes.CDLL(str(path))
        self.new = self._function("t3_new", _HANDLE, _POINTER, _POINTER)
        self.free = self._function("t3_free", None, _HANDLE)
        self.reset = self._function("t3_reset", None, _HANDLE)
        self.evaluate_all = self._function("t3_evaluate_all", None, _HANDLE, ctypes.c_int)
        self.asleep = self._function("t3_asleep", ctypes.c_int, _HANDLE)
        self.step = self._function("t3_step", None, _HANDLE)
        self.eval = self._function("t3_eval", None, _HANDLE)
        self.run = self._function("t3_run", ctypes.c_uint64, _HANDLE, _POINTER, _POINTER, ctypes.c_int64)
        if ports.clocks:
            self.tick = self._function("t3_tick", None, _HANDLE, ctypes.c_uint64)
        if ports.memories:
            self.memory = self._function("t3_memory", None, _HANDLE, ctypes.c_int, ctypes.c_uint64, _POINTER,
                                         ctypes.c_int)
        self.self_test = self._function("t3_self_test", ctypes.c_int64, ctypes.c_int64)

    def simulator(self) -> "Simulator":
        """Make an instance, in the state after power-on."""
        return Simulator(self)

    def _function(self, name: str, result, *arguments):
        function = self._shared[name]
        function.restype, function.argtypes = result, arguments
        return function


class Backend(Protocol):
    """One instance of a component, driven through two arrays of 64-bit words.

    `ports` says which words of `inputs` and `outputs` are which port. After `step`, `outputs` holds what the outputs
    show after the rising edge with the inputs unchanged: for a component whose outputs are functions of registers
    alone, that is what its neighbours see in the next cycle. Bits of `inputs` above a port's width are ignored.
    """

    ports: PortMap
    inputs: np.ndarray
    outputs: np.ndarray
    design: Design | None  #: the compiled design that a compiled loop can step; None: it is stepped from Python

    def reset(self) -> None:
        """Go back to the state after power-on, all inputs 0. For a reset in flight drive the input `rst`."""

    def step(self, cycles: int = 1, *clocks: str) -> None:
        """Step that many clock cycles with the inputs as they are, of all clocks together or of those named."""

    def settle(self) -> None:
        """Bring combinational outputs up to date with the inputs, without a clock edge."""

    def run(self, stimulus: np.ndarray) -> np.ndarray:
        """Run one cycle per row of inputs; the result has a row of outputs per cycle. uint64[cycles, words] both."""
        ...

    def close(self) -> None:
        """Free the instance; it cannot be used after that."""


def _fitting(name: str, value: int, width: int) -> int:
    """Return a value as bits. Raises ValueError."""
    if not -(1 << width) // 2 <= value < 1 << width:
        raise ValueError(f"{name} has {width} bits: {value} does not fit")
    return value & (1 << width) - 1


def checked_stimulus(ports: PortMap, stimulus: np.ndarray) -> np.ndarray:
    """Return the stimulus as contiguous uint64[cycles, input words]. Raises ValueError."""
    if stimulus.ndim != 2 or stimulus.shape[1] != ports.input_words or stimulus.dtype.kind not in "ui":
        raise ValueError(f"a stimulus for {ports.top} is integers[cycles, {ports.input_words}], not "
                         f"{stimulus.dtype}{list(stimulus.shape)}")
    return np.ascontiguousarray(stimulus).astype(np.uint64, copy=False)


class Simulator:
    """One instance of a compiled design. See `Backend`.

    From numba, pass `backend.design.step` and `backend.handle` as arguments and call the one with the other; `inputs`
    and `outputs` are ordinary arrays there. Keep the backend alive meanwhile:

        @njit
        def loop(step, handle, inputs, outputs, cycles):
            for cycle in range(cycles):
                inputs[0] = outputs[0]
                step(handle)

        loop(backend.design.step, backend.handle, backend.inputs, backend.outputs, 1000)
    """

    def __init__(self, design: Design) -> None:
        self._sample: Callable | None = None
        self.design = design
        self.ports = design.ports
        # At least one word, so that a design without inputs has an address too.
        self.inputs = np.zeros(max(1, self.ports.input_words), np.uint64)
        self.outputs = np.zeros(max(1, self.ports.output_words), np.uint64)
        self.handle: int = design.new(self.inputs.ctypes.data, self.outputs.ctypes.data)

    def set(self, name: str, value: int | dict) -> None:
        """Set an input, a field of one, such as `compute[3].payload.address`, or a word of a memory.

        A dict sets what is below the name: `set("compute[3]", {"valid": 1, "payload": {"address": 64}})`. A negative
        value is taken as two's complement. Raises KeyError for a name, ValueError for an output or a value that does
        not fit.
        """
        if isinstance(value, dict):
            for key, part in value.items():
                self.set(f"{name}[{key}]" if isinstance(key, int) else f"{name}.{key}", part)
            return
        if word := self._word(name):
            memory, address = word
            self._access(memory, address, _fitting(name, value, memory.width))
            return
        port, lsb, width = self.ports.place(name)
        if port.name not in self.ports.inputs:
            raise ValueError(f"{name} is no input of {self.ports.top}")
        words = self.inputs[port.offset:port.offset + port.words]
        bits = int.from_bytes(words.tobytes(), "little") & ~((1 << width) - 1 << lsb)
        bits |= _fitting(name, value, width) << lsb
        words[:] = np.frombuffer(bits.to_bytes(words.nbytes, "little"), np.uint64)

    def get(self, name: str) -> int | dict:
        """Return a port, a field of one, a shown inner signal or a word of a memory, as an unsigned number.

        Of a layout, an interface or a module it returns a dict of what is below the name. Raises KeyError. After `set`
        alone, `settle` brings up to date what depends on inputs and memories.
        """
        if below := self.ports.below.get(name):
            return {key: self.get(inner) for key, inner in below.items()}
        if word := self._word(name):
            return self._access(*word)
        port, lsb, width = self.ports.place(name)
        words = (self.inputs if port.name in self.ports.inputs else self.outputs)[port.offset:port.offset + port.words]
        return int.from_bytes(words.tobytes(), "little") >> lsb & (1 << width) - 1

    def _word(self, name: str) -> tuple[InnerMemory, int] | None:
        """Return the memory and the address that `fifo.storage[3]` names. Raises KeyError beyond its depth."""
        owner, _, address = name.removesuffix("]").rpartition("[")
        memory = self.ports.memories.get(owner)
        if memory is None:
            return None
        if not address.isdecimal() or int(address) >= memory.depth:
            raise KeyError(f"{name}: {owner} has words 0 to {memory.depth - 1}")
        return memory, int(address)

    def _access(self, memory: InnerMemory, address: int, value: int | None = None) -> int:
        words = np.zeros(words_for(memory.width) or 1, np.uint64)
        if value is not None:
            words[:] = np.frombuffer(value.to_bytes(words.nbytes, "little"), np.uint64)
        self.design.memory(self._open_handle(), memory.number, address, words.ctypes.data, value is not None)
        return int.from_bytes(words.tobytes(), "little")

    @contextlib.contextmanager
    def waves(self, path: Path | str) -> Iterator[None]:
        """Write a VCD file of all ports and shown inner signals while the body runs: two time units are a cycle.

        Inputs change in the middle of a cycle, and the clock rises at its end. A step is then slow: it settles first.
        A path that ends in .fst gets an FST file, written from the VCD file at the end.
        """
        from t3sim.rtlsim.waves import recording

        path, as_fst = Path(path), None
        if path.suffix == ".fst":
            from t3sim.rtlsim.fst import to_fst as as_fst  # before the run: its library may be missing
        vcd = path.with_name(path.name + ".vcd") if as_fst else path
        try:
            with recording(self.ports, vcd) as sample:
                self._sample = sample
                self.settle()
                yield
        finally:
            self._sample = None
            if as_fst and vcd.exists():
                as_fst(vcd, path)
                vcd.unlink()

    def reset(self) -> None:
        self.design.reset(self._open_handle())

    def step(self, cycles: int = 1, *clocks: str) -> None:
        handle = self._open_handle()
        mask = sum(1 << self.clock_number(clock) for clock in set(clocks))
        for _ in range(cycles):
            if self._sample is not None:
                self.settle()
            if clocks:
                self.design.tick(handle, mask)
            else:
                self.design.step(handle)
            if self._sample is not None:
                self._sample(self.inputs, self.outputs, clocks or self.ports.clocks or ("clk",))

    def clock_number(self, clock: str) -> int:
        if clock not in self.ports.clocks:
            raise KeyError(f"{self.ports.top} has no clock {clock!r} besides others: its clocks are "
                           f"{', '.join(self.ports.clocks) or 'clk alone'}")
        return self.ports.clocks.index(clock)

    def settle(self) -> None:
        self.design.eval(self._open_handle())
        if self._sample is not None:
            self._sample(self.inputs, self.outputs, ())

    def run(self, stimulus: np.ndarray) -> np.ndarray:
        stimulus = checked_stimulus(self.ports, stimulus)
        outputs = np.zeros((len(stimulus), self.ports.output_words), np.uint64)
        if self._sample is None:
            self.design.run(self._open_handle(), stimulus.ctypes.data, outputs.ctypes.data, len(stimulus))
            return outputs
        for row, output_row in zip(stimulus, outputs):
            self.inputs[:len(row)] = row
            self.step()
            output_row[:] = self.outputs[:len(output_row)]
        return outputs

    def checksum(self, stimulus: np.ndarray) -> int:
        """Run a stimulus as `run` does, but return a checksum of the outputs instead of them: the bare C++ loop."""
        stimulus = checked_stimulus(self.ports, stimulus)
        return self.design.run(self._open_handle(), stimulus.ctypes.data, None, len(stimulus))

    def evaluate_all(self, all_: bool = True) -> None:
        """Evaluate all, from now on, not what has changed alone: slower, with the same result."""
        self.design.evaluate_all(self._open_handle(), all_)

    @property
    def asleep(self) -> int:
        """Instances of graphs that are at rest: the next step leaves them out unless their inputs change."""
        return self.design.asleep(self._open_handle())

    def close(self) -> None:
        if self.handle:
            self.design.free(self.handle)
            self.handle = 0

    def __enter__(self) -> "Simulator":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "handle", 0):
            self.close()

    def _open_handle(self) -> int:
        if not self.handle:
            raise ValueError(f"this instance of {self.ports.top} is closed")
        return self.handle
