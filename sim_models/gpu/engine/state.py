"""All state of a run: resources of the simulated GPUs, the kernel that runs on them, and their hardware."""

from typing import NamedTuple

import numpy as np

from t3sim.collectives.schedule.mirror import Mirror
from t3sim.gpu.engine.chaos import Chaos
from t3sim.gpu.engine.hardware import Hardware
from t3sim.gpu.fabric import bits, memory, queues
from t3sim.gpu.fabric import network as links
from t3sim.gpu.fabric.llc import Llc
from t3sim.gpu.fabric.llc_slices import CacheSlices
from t3sim.gpu.fabric.memory_cache import MemoryCache
from t3sim.gpu.fabric.memory_map import MemoryMap
from t3sim.gpu.fabric.switch import SwitchState
from t3sim.gpu.hbm import HbmState


class Control(NamedTuple):
    """State of the loop itself; [device] unless said otherwise."""

    events: np.ndarray  # int32 [device, id, wavefront]: times that a tile's event came
    event_count: np.ndarray
    rs_end: np.ndarray  # cycle of the last event
    rs_start: np.ndarray  # cycle of the first packet
    progress: np.ndarray  # int64 [2]: a sum that grows with progress, cycle at which it last grew
    downstream: np.ndarray  # int64 [device, peer]: device to which a kernel's stores to a peer go; the neighbour first
    region_ports: np.ndarray  # int64 [device, region, copy]: through which its lines leave; `network.NO_PORT`: no more
    picks_ports: np.ndarray  # bool [device]: its lines leave through several ports
    inside: np.ndarray  # int64 [port]: lines between the queues below and the port, in egress lanes
    start: np.ndarray  # first cycle in which a workgroup may start
    blocked_cycles: np.ndarray  # int64 [device]: cycles in which a free compute unit waited for the window
    signals: np.ndarray  # int64 [device, 1 + signal]: lines that have come for it, and workgroups that have ended
    halt: np.ndarray  # int64 [1]: set by an observer that cannot go on


class Sim(NamedTuple):
    """State of the simulated GPUs; arrays per GPU, or per memory channel of each."""

    b: bits.RequestBits
    m: MemoryMap
    hbm: HbmState
    memory_cache: MemoryCache
    mem: memory.MemoryState
    compute: queues.RequestQueue
    inbound: queues.RequestQueue
    llc: Llc
    slices: CacheSlices
    stores_out: queues.TimedQueue  # stores to remote-mapped tiles [port]
    store_limit: int
    network: links.Network
    switch: SwitchState
    mirrored: bool
    mirror: Mirror
    hardware_stream: int  # under which what Track & Trigger reads and sends is counted, of memory.COMPUTE ...
    fill_cycles: int
    expected_events: np.ndarray  # int64 [device]: final tiles
    control: Control
    chaos: Chaos
    kernel: tuple | None  # named: an agent, see agents.py
    hardware: Hardware | None  # None: a memory without arbiters, no window, no link of its own

    def apart(self) -> tuple["Sim", tuple | None, Hardware | None]:
        """Return the machine, its kernel and its hardware by themselves, as the loop passes them.

        So the machine's own functions are compiled once for all kernels and hardware.
        """
        return self._replace(kernel=None, hardware=None), self.kernel, self.hardware
