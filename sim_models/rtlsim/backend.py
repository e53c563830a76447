"""Interface of every simulator of a component."""

from typing import TYPE_CHECKING, Protocol

import numpy as np

from t3sim.rtlsim.port_map import PortMap

if TYPE_CHECKING:
    from t3sim.rtlsim.simulator import Design


class Backend(Protocol):
    """One instance of a component, driven through two arrays of 64-bit words.

    `ports` says which words of `inputs` and `outputs` are which port. After `step`, `outputs` holds what the outputs
    show after the rising edge with the inputs unchanged: for a component whose outputs are functions of registers
    alone, that is what its neighbours see in the next cycle. Bits of `inputs` above a port's width are ignored.
    """

    ports: PortMap
    inputs: np.ndarray
    outputs: np.ndarray
    design: "Design | None"  #: the compiled design that a compiled loop can step; None: it is stepped from Python

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
