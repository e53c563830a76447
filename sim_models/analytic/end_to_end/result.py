"""Common parts of the results of training and inference."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Result:
    """Time, memory and energy per mapping; arrays if the mapping's fields are."""

    breakdown_ns: dict[str, np.ndarray]  #: parts that add up to `iteration_ns`
    memory_bytes: np.ndarray  #: of one GPU
    flop: np.ndarray  #: executed by all GPUs, recomputation included
    gpus: np.ndarray
    energy_joules: np.ndarray

    @property
    def iteration_ns(self):
        """Time of one training iteration, prompt or decoded token."""
        return sum(self.breakdown_ns.values())

    @property
    def tflops_per_gpu(self):
        """FLOP executed per second and GPU, recomputation included, as the Megatron papers count them."""
        return self.flop / self.gpus / self.iteration_ns / 1e3
