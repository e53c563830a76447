"""An RMSNorm with its residual, alone and in one kernel with its all-reduce (TokenWeave, arXiv 2505.11329)."""

from t3sim.analytic.libraries.algorithms import library_collective
from t3sim.analytic.libraries.in_switch import in_switch_ns
from t3sim.machine import Machine

#: Passes over the tokens: hidden states and residual in, both out.
_PASSES = 4
#: Of a norm besides its bytes: two kernels' worth of start and drain, as an event around it measures.
_STARTS = 2


def norm_ns(machine: Machine, tokens: float, hidden: int) -> float:
    """Return the time of an RMSNorm of tokens of 16 bits."""
    return _STARTS * machine.kernels.launch_ns + _PASSES * 2.0 * tokens * hidden / machine.memory_bytes_per_ns


def part_ns(machine: Machine, gpus: int, tokens: int, hidden: int, part: str) -> float:
    """Return the time of a part, or of both in one kernel or in turn. Raises KeyError."""
    size = 2.0 * tokens * hidden

    def switch(kind: str) -> float:
        return in_switch_ns(machine, kind, gpus, size)

    found = {
        "norm": lambda: norm_ns(machine, tokens, hidden),
        "partial norm": lambda: norm_ns(machine, tokens / gpus, hidden),
        "nccl": lambda: library_collective(machine, "all_reduce", gpus, size, library="torch/NCCL").ns,
        "multimem": lambda: switch("all_reduce"),
        "reduce-scatter": lambda: switch("reduce_scatter"), "all-gather": lambda: switch("all_gather"),
        # The norm of a GPU's own tokens lies between its loads and stores in the switch, which go on meanwhile.
        "fused": lambda: switch("all_reduce") + machine.wires.latency_ns,
        # Every GPU norms all tokens, after a barrier of the same kernel.
        "simple fusion": lambda: (switch("all_reduce") + norm_ns(machine, tokens, hidden) + machine.in_switch.barrier_ns
                                  - machine.kernels.launch_ns),
        "in turn": lambda: switch("all_reduce") + norm_ns(machine, tokens, hidden)}
    return found[part]()
