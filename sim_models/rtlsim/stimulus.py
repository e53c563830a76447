"""Recorded stimuli: uint64[cycles, input words], one row of inputs per clock cycle."""

import numpy as np

from t3sim.rtlsim.design_code import CHECKSUM_MULTIPLIER
from t3sim.rtlsim.port_map import RESET, WORD_BITS, PortMap


def random_stimulus(ports: PortMap, cycles: int, seed: int, reset_probability: float = 0.0) -> np.ndarray:
    """Draw every bit of every input at random in every cycle, except `rst`, which is 1 with its own probability."""
    generator = np.random.default_rng(seed)
    stimulus = generator.integers(0, 1 << WORD_BITS, (cycles, ports.input_words), dtype=np.uint64)
    for port in ports.inputs.values():
        top_bits = port.width % WORD_BITS
        if top_bits:
            stimulus[:, port.offset + port.words - 1] &= np.uint64((1 << top_bits) - 1)
    if RESET in ports.inputs:
        stimulus[:, ports.inputs[RESET].offset] = generator.random(cycles) < reset_probability
    return stimulus


def checksum(trace: np.ndarray) -> int:
    """Return what `Simulator.checksum` gives for the stimulus with this trace of outputs."""
    weights = 2 * np.arange(trace.shape[1], dtype=np.uint64) + 1
    result = 0
    for row in (trace * weights).sum(axis=1, dtype=np.uint64):
        result = (result * CHECKSUM_MULTIPLIER + int(row)) % (1 << WORD_BITS)
    return result
