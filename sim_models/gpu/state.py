"""All state of a run: resources of the simulated GPUs, the kernel that runs on them, and their hardware."""

from typing import NamedTuple

import numpy as np

from t3sim.gpu.engine.chaos import Chaos
from t3sim.gpu.fabric import bits, queues
from t3sim.gpu.fabric.state import Llc, MemoryState, Network, SwitchState


class Control(NamedTuple):
    """State of the loop itself; [gpu] unless said otherwise."""

    events: np.ndarray  # int32 [gpu, id, wavefront]: times that a tile's event came
    event_count: np.ndarray
    rs_end: np.ndarray  # cycle of the last event
    rs_start: np.ndarray  # cycle of the first packet
    progress: np.ndarray  # int64 [2]: a sum that grows with progress, cycle at which it last grew
    downstream: np.ndarray  # int64 [gpu, peer]: GPU to which a kernel's stores to a peer go; the neighbour first
    picks_ports: np.ndarray  # bool [gpu]: its lines leave through several ports
    inside: np.ndarray  # int64 [port]: lines in egress lanes, between the GPU's queues and the port
    start: np.ndarray  # first cycle in which a workgroup may start
    blocked_cycles: np.ndarray  # int64 [gpu]: cycles in which a free compute unit waited for the window
    signals: np.ndarray  # int64 [gpu, 1 + signal]: lines that have come for it, and workgroups that have ended
    halt: np.ndarray  # int64 [1]: set by an observer that cannot go on


class Sim(NamedTuple):
    """State of the simulated GPUs: the records of their resources, of which each function takes its own."""

    b: bits.RequestBits
    mem: MemoryState
    llc: Llc
    stores_out: queues.TimedQueue  # stores to remote-mapped tiles [port]
    store_limit: int
    network: Network
    switch: SwitchState
    hardware_stream: int  # under which what Track & Trigger reads and sends is counted, of memory.COMPUTE ...
    expected_events: np.ndarray  # int64 [gpu]: final tiles
    control: Control
    chaos: Chaos
    kernel: tuple | None  # named: an agent, see agents.py
    hardware: tuple | None  # named, engine/hardware.py; None: a memory without arbiters, no window, no link of its own

    def apart(self) -> tuple["Sim", tuple | None, tuple | None]:
        """Return the machine, its kernel and its hardware by themselves, as the loop passes them.

        So the machine's own functions are compiled once for all kernels and hardware.
        """
        return self._replace(kernel=None, hardware=None), self.kernel, self.hardware
