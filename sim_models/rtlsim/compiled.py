"""The compiled RTL as a backend."""

import numpy as np

from t3sim.rtlsim.backend import checked_stimulus
from t3sim.rtlsim.library import Library


class CompiledBackend:
    """One instance of a compiled design. See `Backend`.

    From numba, pass `backend.library.step` and `backend.handle` as arguments and call the one with the other; `inputs`
    and `outputs` are ordinary arrays there. Keep the backend alive meanwhile:

        @njit
        def loop(step, handle, inputs, outputs, cycles):
            for cycle in range(cycles):
                inputs[0] = outputs[0]
                step(handle)

        loop(backend.library.step, backend.handle, backend.inputs, backend.outputs, 1000)
    """

    def __init__(self, library: Library) -> None:
        self.library = library
        self.ports = library.ports
        # At least one word, so that a design without inputs has an address too.
        self.inputs = np.zeros(max(1, self.ports.input_words), np.uint64)
        self.outputs = np.zeros(max(1, self.ports.output_words), np.uint64)
        self.handle: int = library.new(self.inputs.ctypes.data, self.outputs.ctypes.data)

    def reset(self) -> None:
        self.library.reset(self._open_handle())

    def step(self, cycles: int = 1) -> None:
        handle = self._open_handle()
        for _ in range(cycles):
            self.library.step(handle)

    def settle(self) -> None:
        self.library.eval(self._open_handle())

    def run(self, stimulus: np.ndarray) -> np.ndarray:
        stimulus = checked_stimulus(self.ports, stimulus)
        outputs = np.zeros((len(stimulus), self.ports.output_words), np.uint64)
        self.library.run(self._open_handle(), stimulus.ctypes.data, outputs.ctypes.data, len(stimulus))
        return outputs

    def checksum(self, stimulus: np.ndarray) -> int:
        """Run a stimulus as `run` does, but return a checksum of the outputs instead of them: the bare C++ loop."""
        stimulus = checked_stimulus(self.ports, stimulus)
        return self.library.run(self._open_handle(), stimulus.ctypes.data, None, len(stimulus))

    def evaluate_all(self, all_: bool = True) -> None:
        """Evaluate all, from now on, not what has changed alone: slower, with the same result."""
        self.library.evaluate_all(self._open_handle(), all_)

    @property
    def asleep(self) -> int:
        """Instances of graphs that are at rest: the next step leaves them out unless their inputs change."""
        return self.library.asleep(self._open_handle())

    def close(self) -> None:
        if self.handle:
            self.library.free(self.handle)
            self.handle = 0

    def __enter__(self) -> "CompiledBackend":
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
