"""Sections for the event level of a machine whose GEMMs it plays tile by tile."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from t3sim.machine.cycle import Machine
from t3sim.machine.occupancy import Wavefronts
from t3sim.machine.section import Count, NotNegative, Positive, Section, Share, within

_Edge = Annotated[int, within(8, 1024)]
_Tile = Annotated[tuple[_Edge, _Edge], Field(strict=False)]


class Gpu(Section):
    """Compute units, and the kernels that the GEMM library has for them."""

    compute_units: Annotated[int, within(1, 1024)]
    clock_ghz: Positive
    matrix_flop_per_cycle_per_cu: Count  #: dense, 16-bit operands
    matrix_efficiency: Share  #: of the peak, in the main loop
    tiles: Annotated[tuple[_Tile, ...], Field(strict=False, min_length=1, max_length=32)]  #: rows, columns
    split_k: Annotated[tuple[Annotated[int, within(1, 64)], ...], Field(strict=False, min_length=1, max_length=16)]
    workspace_bytes: Annotated[int, within(0, 1 << 40)]  #: for the parts of a GEMM that is split along K
    lds_bytes_per_cycle_per_cu: Positive  #: that a compute unit moves into its matrix units, and into its LDS
    #: Rows and columns that a wavefront, or a group of them, multiplies from the LDS at once.
    matrix_block: _Tile
    blocks_at_once: Annotated[int, within(1, 64)]  #: of these that keep a compute unit's matrix units busy
    tile_ns: NotNegative  #: of a tile besides its main loop: first loads, last multiply-adds, stores
    l2_bytes_per_cycle: Positive  #: that all compute units together load from the last-level cache

    def tflop_per_s(self, flop: float, ns: float) -> tuple[float, float]:
        """Return the rate of a kernel, and the matrix units' peak."""
        peak = self.compute_units * self.matrix_flop_per_cycle_per_cu * self.clock_ghz
        return flop / ns / 1e3, peak / 1e3


class Memory(Section):
    """A GPU's memory."""

    bandwidth_gb_per_s: Positive
    efficiency: Share  #: of the peak, for kernels that only move data


class Link(Section):
    """Link of a GPU, each direction."""

    #: switch: a port into a switch; full: a link to each other GPU; host: a port into a CPU, two CPUs joined.
    kind: Literal["switch", "full", "host"]
    bandwidth_gb_per_s: Positive  #: of the port, or of the link to one GPU
    latency_ns: NotNegative
    store_efficiency: Share  #: what stores of compute units leave of it
    push_efficiency: Share  #: what a copy engine that writes to a peer leaves of it
    pull_efficiency: Share  #: what a copy engine that reads from a peer leaves of it
    between_hosts_gb_per_s: Positive | None = None  #: host only: all that goes from one CPU to the other

    @model_validator(mode="after")
    def _hosts_are_joined(self) -> "Link":
        if (self.kind == "host") != (self.between_hosts_gb_per_s is not None):
            raise ValueError(f"kind = {self.kind!r}: between_hosts_gb_per_s goes with kind host, and only there")
        return self


class Network(Section):
    """Network cards that join two nodes, per GPU and direction."""

    bandwidth_gb_per_s: Positive
    efficiency: Share
    latency_ns: NotNegative


class Protocol(Section):
    """Protocol of a library: one efficiency, and one latency per step of a ring, software included."""

    efficiency: Share  #: of the link
    step_ns: NotNegative
    base_ns: NotNegative  #: of a call, whatever its number of steps


class Library(Protocol):
    """Collectives of the vendor's library."""

    small: Protocol | None = None  #: taken where it is faster: for small messages


class Occupancy(Wavefronts):
    """Limits of how many wavefronts a compute unit holds, and what they wait for."""

    wavefronts_per_workgroup: Count
    sending_registers: Count  #: that calls of a library for communication add
    load_ns: NotNegative  #: from a load to its data, memory not busy


class Signals(Section):
    """Times of sending from within a kernel."""

    mask_ns: NotNegative  #: a workgroup sets its bit and looks whether it is the last
    put_ns: NotNegative  #: the last one calls the library: data, fence, flag
    poll_ns: NotNegative  #: until a waiting workgroup sees a flag that has arrived
    trigger_ns: NotNegative  #: by Track & Trigger: from the last write to the first line that leaves


class Host(Section):
    """Times that software adds to kernels and copies."""

    launch_ns: NotNegative  #: from the end of a kernel to the start of the one behind it on its stream
    event_ns: NotNegative  #: until a stream goes on that waits for another one
    copy_ns: NotNegative  #: of a copy with its signal behind another one, besides its bytes
    call_ns: NotNegative  #: of one call that is waited for, as operators are measured alone


class Node(Section):
    """Equal GPUs."""

    name: str
    gpus: Annotated[int, within(2, 72)]
    gpu: Gpu
    memory: Memory
    link: Link
    network: Network | None = None
    library: Library
    host: Host
    occupancy: Occupancy | None = None  #: of persistent kernels
    signals: Signals | None = None

    @property
    def memory_bytes_per_ns(self) -> float:
        """The rate that kernels that only move data reach."""
        return self.memory.bandwidth_gb_per_s * self.memory.efficiency

    def without_software(self) -> "Node":
        """Return the same hardware with a library and a host that take no time."""
        return self.model_copy(update={
            "library": self.library.model_copy(update={"step_ns": self.link.latency_ns, "base_ns": 0.0, "small": None}),
            "host": Host(launch_ns=0.0, event_ns=0.0, copy_ns=0.0, call_ns=0.0)})


#: Bytes per cycle that never limit: the cycle level has no LDS of its own.
_NO_LIMIT = 1e9


def node_of(machine: Machine) -> Node:
    """Return the node of eight whose GPUs are those of a machine of the cycle level, around a switch.

    A tile's time besides its main loop is its prologue, its epilogue and its stores, which all units make at once; the
    one kernel is the machine's, and its collectives start when a kernel is launched. Rows here are tokens, which that
    machine's tiles have along their second extent.
    """
    gpu, link, dram = machine.gpu, machine.link, machine.dram
    peak = dram.peak_bytes_per_cycle * dram.channels * machine.memory_clock_ghz
    return Node(
        name=machine.name, gpus=8,
        gpu=Gpu(compute_units=gpu.compute_units, clock_ghz=gpu.clock_ghz,
                matrix_flop_per_cycle_per_cu=gpu.matrix_flop_per_cycle_per_cu,
                matrix_efficiency=gpu.matrix_efficiency, tiles=((gpu.tile_n, gpu.tile_m),), split_k=(1,),
                workspace_bytes=0, lds_bytes_per_cycle_per_cu=_NO_LIMIT, matrix_block=(gpu.tile_n, gpu.tile_m),
                blocks_at_once=1,
                tile_ns=gpu.prologue_ns + gpu.epilogue_ns + 2 * gpu.tile_m * gpu.tile_n * gpu.compute_units / peak,
                l2_bytes_per_cycle=min(gpu.cu_bytes_per_ns * gpu.compute_units, machine.llc.bandwidth_bytes_per_ns)
                / gpu.clock_ghz),
        memory=Memory(bandwidth_gb_per_s=peak, efficiency=dram.refreshed),
        link=Link(kind="switch", bandwidth_gb_per_s=link.bandwidth_gb_per_s, latency_ns=link.latency_ns,
                  store_efficiency=1.0, push_efficiency=1.0, pull_efficiency=1.0),
        library=Library(efficiency=1.0, step_ns=link.latency_ns, base_ns=machine.collective.kernel_launch_ns),
        host=Host(launch_ns=machine.collective.kernel_launch_ns, event_ns=0.0, copy_ns=0.0, call_ns=0.0))
