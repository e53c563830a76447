"""Collectives whose sums and copies are made in the switch.

A GPU loads a sum from a multicast address: the switch asks all GPUs, adds, and answers; a store there goes to all. Each
packet has a header, and a request or an acknowledgement of a header's size goes the other way. For a reduce-scatter of
S bytes on n GPUs a GPU sends S and gets S/n, for an all-gather it sends S/n and gets S, for an all-reduce both. So one
share of headers gives all three rates. A thread block keeps `IN_FLIGHT` bytes in flight: few blocks do not
fill the wires.
"""

from t3sim.machine import Machine
from t3sim.machine.libraries import InSwitch

#: Bytes that a thread block of 1,024 threads has in flight; the first of them come within the latency.
IN_FLIGHT = 16 << 10
BLOCKS = 16  #: thread blocks if a source does not say


def in_switch_ns(machine: Machine, kind: str, gpus: int, size: float, blocks: int = BLOCKS, *,
                 shots: int = 2, flags: bool = False, graph: bool = False) -> float:
    """Return the time of a kernel of `blocks` thread blocks; `graph`: launched with others, so that nothing waits.

    `shots`: 1 if each GPU loads all sums itself, 2 if it stores its part of them at all; `flags`: data carries flags
    instead of a barrier between the two.
    """
    switch = machine.in_switch
    barriers = 1 if shots == 1 or flags else 2
    latency = (0.0 if graph else switch.launch_ns) + barriers * switch.barrier_ns + (switch.flag_ns if flags else 0.0)
    return latency + transfer_ns(machine, kind, gpus, size, blocks, shots)


def transfer_ns(machine: Machine, kind: str, gpus: int, size: float, blocks: int = BLOCKS, shots: int = 2) -> float:
    """Return the time in which the wires, or the thread blocks, move the bytes."""
    switch: InSwitch = machine.in_switch
    header, part = switch.header_share, size / gpus
    loaded = size if shots == 1 else part if kind != "all_gather" else 0.0  # sums of this GPU
    stored = part if kind != "reduce_scatter" and shots == 2 else 0.0
    sent = (gpus * loaded if kind != "all_gather" else 0.0) * (1 + header) + stored * (1 + header) + loaded * header
    got = loaded * (1 + header) + gpus * stored * (1 + header) + gpus * loaded * header
    acknowledged = gpus * stored * header
    wires = max(sent + acknowledged, got) / machine.wires.gb_per_s
    in_blocks = (max(0.0, loaded - blocks * IN_FLIGHT) / switch.block_gb_per_s
                 + stored / switch.block_store_gb_per_s) / blocks
    return max(wires, in_blocks)
