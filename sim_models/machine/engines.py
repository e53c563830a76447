"""Sections for the event level of a machine whose DMA engines run collectives."""

from typing import Annotated

from pydantic import Field, model_validator

from t3sim.machine.section import NotNegative, Positive, Section, Share


class Link(Section):
    """A link between two GPUs, one direction."""

    bandwidth_gb_per_s: Positive
    push_efficiency: Share  #: what a DMA engine's packets leave of it
    store_efficiency: Share  #: what loads and stores of compute units leave of it


class Memory(Section):
    """A GPU's memory, all accesses together."""

    bandwidth_gb_per_s: Positive


class HostStart(Section):
    """The one process that commands all engines."""

    command_ns: NotNegative  #: to write a command into a queue
    doorbell_ns: NotNegative  #: to tell an engine
    trigger_ns: NotNegative  #: to set a flag that an engine polls


class Host(HostStart):
    """The one process that commands all engines, and waits for them."""

    observe_ns: NotNegative  #: to see the signal of an engine


class GpuStart(Section):
    """A kernel that commands the engines of its own GPU."""

    command_ns: NotNegative  #: to write a command into a queue
    doorbell_ns: NotNegative  #: to tell an engine


class Gpu(GpuStart):
    """A kernel that commands the engines of its own GPU, and waits for them."""

    observe_ns: NotNegative  #: to see the signal of an engine


class Initiators(Section):
    """Initiators of copies on the cycle level, whose engines are RTL."""

    host: HostStart
    gpu: GpuStart


class Stream(Section):
    """Kernels one after the other on a GPU."""

    gemm_tflop_per_s: Positive  #: that a large GEMM sustains
    launch_ns: NotNegative  #: from the doorbell until the kernel runs
    signal_ns: NotNegative  #: from a kernel's end until the stream's signal is in the host's memory


class Engine(Section):
    """A DMA engine."""

    fetch_ns: NotNegative  #: from the doorbell to the first command
    copy_ns: NotNegative  #: of the first copy, besides its bytes
    next_copy_ns: NotNegative  #: between copies back to back, which overlap
    sync_ns: NotNegative  #: until its signal is in the host's memory
    poll_ns: NotNegative  #: until it sees a flag that was set
    bandwidth_gb_per_s: Positive  #: of one engine, what it writes


class Tracker(Section):
    """Track & Trigger hardware in front of the memory: the write that completes a tile starts its copy."""

    trigger_ns: NotNegative  #: from the last write's grant to an engine that has its command
    copy_ns: NotNegative  #: from there to the first line read


class Protocol(Section):
    """Protocol by which a library's kernel sends: latency against efficiency."""

    base_ns: NotNegative
    hop_ns: NotNegative
    efficiency: Share


class Kernel(Section):
    """Collectives by kernels on compute units: the library's protocols."""

    compute_units: Annotated[int, Field(ge=1, le=1024)]  #: that they occupy
    ll: Protocol
    ll128: Protocol
    simple: Protocol


_Range = Annotated[tuple[NotNegative, NotNegative], Field(strict=False)]


class PowerRange(Section):
    """Uncertain inputs of an estimate of power: least and most of each."""

    compute_idle_share: _Range  #: of the power at rest, on the compute dies
    kernel_units: _Range  #: compute units that a collective's kernel occupies
    compute_unit_w: _Range
    compute_pj_per_bit: _Range
    engine_pj_per_bit: _Range
    link_pj_per_bit: _Range
    memory_pj_per_bit: _Range


class Power(Section):
    """Power that a GPU's dies draw at rest, and what work adds to it."""

    compute_idle_w: NotNegative  #: all compute dies, clocks running
    io_idle_w: NotNegative  #: the dies with links, caches, memory controllers and DMA engines
    memory_idle_w: NotNegative
    compute_unit_w: NotNegative  #: a compute unit that a kernel occupies
    compute_pj_per_bit: NotNegative  #: each bit that a kernel loads or stores, for caches and registers
    engine_pj_per_bit: NotNegative  #: each bit that a DMA engine reads or writes
    link_pj_per_bit: NotNegative  #: each bit that goes over a link, both ends
    memory_pj_per_bit: NotNegative  #: each bit that memory reads or writes
    range: PowerRange

    @model_validator(mode="after")
    def _are_within_their_ranges(self) -> "Power":
        for name in PowerRange.model_fields:
            low, high = getattr(self.range, name)
            value = getattr(self, name, low)
            if not low <= value <= high:
                raise ValueError(f"range.{name} = {[low, high]}: the least and the most are needed, and {value} "
                                 "between them")
        return self


class Node(Section):
    """GPUs that are linked each with each other."""

    name: str
    gpus: Annotated[int, Field(ge=2, le=72)]
    engines_per_gpu: Annotated[int, Field(ge=1, le=1024)]
    link: Link
    memory: Memory
    host: Host
    gpu: Gpu
    stream: Stream
    engine: Engine
    tracker: Tracker
    kernel: Kernel
    power: Power
