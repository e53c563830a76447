"""Sections about software: costs of collectives by kernels, of a library, and of a host."""

from typing import Annotated

from pydantic import Field

from t3sim.machine.levels import ENGINES, NETWORK, QUEUE, TILES
from t3sim.machine.section import NotNegative, Section, Share, Wait, needed_by, within


class CollectiveSection(Section):
    """Collectives that run as kernels on the CUs: the sequential baseline, and the all-gather."""

    kernel_launch_ns: Wait
    #: Workgroups of the copy or reduce kernel resident on a compute unit at once.
    workgroups_per_cu: Annotated[int, within(1, 64)]
    workgroup_bytes: Annotated[int, Field(ge=64, le=65536, multiple_of=64)]  #: bytes of the result per workgroup
    workgroup_overhead_ns: Wait  #: time of a workgroup's own instructions, before its loads and after them


class KernelProtocol(Section):
    """Protocol by which a library's kernel sends: latency against efficiency."""

    base_ns: NotNegative
    hop_ns: NotNegative
    efficiency: Share


class KernelSection(Section):
    """Collectives by kernels on compute units: a step's times, or the library's protocols."""

    launch_ns: NotNegative = needed_by(NETWORK)
    #: From the arrival of a chunk to the first bytes of the next step on the link.
    step_ns: NotNegative = needed_by(NETWORK)
    #: Compute units that a collective occupies.
    compute_units: Annotated[int, Field(ge=1, le=1024)] = needed_by(ENGINES)
    ll: KernelProtocol = needed_by(ENGINES)
    ll128: KernelProtocol = needed_by(ENGINES)
    simple: KernelProtocol = needed_by(ENGINES)


class LibraryProtocol(Section):
    """Protocol of a library: one efficiency, and one latency per step of a ring, software included."""

    efficiency: Share  #: share of the link's bandwidth
    step_ns: NotNegative
    base_ns: NotNegative  #: time of a call, independent of its number of steps


class LibrarySection(LibraryProtocol):
    """Collectives of the vendor's library."""

    small: LibraryProtocol | None = None  #: a second protocol for small messages; used if it is faster


class Signals(Section):
    """Times of sending from within a kernel."""

    mask_ns: NotNegative  #: for a workgroup to set its bit and check whether it is the last
    put_ns: NotNegative  #: for the last workgroup to call the library: data, fence, flag
    poll_ns: NotNegative  #: until a waiting workgroup sees a flag that has arrived
    trigger_ns: NotNegative  #: with Track & Trigger: from the last write to the first line that leaves


class Host(Section):
    """Times that the host's software adds to kernels and copies, and to commands for DMA engines."""

    launch_ns: NotNegative = needed_by(TILES)  #: from the end of a kernel to the start of the next one on its stream
    event_ns: NotNegative = needed_by(TILES)  #: until a stream that waits for another one continues
    copy_ns: NotNegative = needed_by(TILES)  #: of a copy with its signal after another copy, without its bytes
    call_ns: NotNegative = needed_by(TILES)  #: of a single call, including the wait for its end
    command_ns: NotNegative = needed_by(ENGINES, QUEUE)  #: time to write a command into an engine's queue
    doorbell_ns: NotNegative = needed_by(ENGINES, QUEUE)  #: time to notify an engine
    trigger_ns: NotNegative = needed_by(ENGINES, QUEUE)  #: time to set a flag that an engine polls
    observe_ns: NotNegative = needed_by(ENGINES)  #: time to see an engine's signal
