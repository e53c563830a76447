"""A compiled design, opened, and its instances."""

import ctypes
from pathlib import Path
from typing import Protocol

import numpy as np

from t3sim.rtlsim.port_map import PortMap

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

    def step(self, cycles: int = 1) -> None:
        """Step that many clock cycles with the inputs as they are."""

    def settle(self) -> None:
        """Bring combinational outputs up to date with the inputs, without a clock edge."""

    def run(self, stimulus: np.ndarray) -> np.ndarray:
        """Run one cycle per row of inputs; the result has a row of outputs per cycle. uint64[cycles, words] both."""
        ...

    def close(self) -> None:
        """Free the instance; it cannot be used after that."""


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
        self.design = design
        self.ports = design.ports
        # At least one word, so that a design without inputs has an address too.
        self.inputs = np.zeros(max(1, self.ports.input_words), np.uint64)
        self.outputs = np.zeros(max(1, self.ports.output_words), np.uint64)
        self.handle: int = design.new(self.inputs.ctypes.data, self.outputs.ctypes.data)

    def set(self, name: str, value: int) -> None:
        """Set an input, or a field of one, such as `compute[3].payload.address`.

        A negative value is taken as two's complement. Raises KeyError for a name, ValueError for an output or a value
        that does not fit.
        """
        port, lsb, width = self.ports.place(name)
        if port.name not in self.ports.inputs:
            raise ValueError(f"{name} is an output of {self.ports.top}")
        if not -(1 << width) // 2 <= value < 1 << width:
            raise ValueError(f"{name} has {width} bits: {value} does not fit")
        words = self.inputs[port.offset:port.offset + port.words]
        mask = (1 << width) - 1
        bits = int.from_bytes(words.tobytes(), "little") & ~(mask << lsb) | (value & mask) << lsb
        words[:] = np.frombuffer(bits.to_bytes(words.nbytes, "little"), np.uint64)

    def get(self, name: str) -> int:
        """Return a port or a field of one, as an unsigned number. Raises KeyError.

        After `set` alone, `settle` brings outputs that depend on inputs up to date.
        """
        port, lsb, width = self.ports.place(name)
        words = (self.inputs if port.name in self.ports.inputs else self.outputs)[port.offset:port.offset + port.words]
        return int.from_bytes(words.tobytes(), "little") >> lsb & (1 << width) - 1

    def reset(self) -> None:
        self.design.reset(self._open_handle())

    def step(self, cycles: int = 1) -> None:
        handle = self._open_handle()
        for _ in range(cycles):
            self.design.step(handle)

    def settle(self) -> None:
        self.design.eval(self._open_handle())

    def run(self, stimulus: np.ndarray) -> np.ndarray:
        stimulus = checked_stimulus(self.ports, stimulus)
        outputs = np.zeros((len(stimulus), self.ports.output_words), np.uint64)
        self.design.run(self._open_handle(), stimulus.ctypes.data, outputs.ctypes.data, len(stimulus))
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
