"""Sections about software: costs of collectives by kernels, of a library, and of a host."""

from typing import Annotated

from pydantic import Field

from t3sim.machine.levels import ENGINES, NETWORK, QUEUE, TILES
from t3sim.machine.section import NotNegative, Section, Share, Wait, needed_by, within


class CollectiveSection(Section):
    """Collectives that run as kernels on the CUs: the sequential baseline, and the all-gather."""

    kernel_launch_ns: Wait
    workgroups_per_cu: Annotated[int, within(1, 64)]  #: of the copy or reduce kernel, resident at once
    workgroup_bytes: Annotated[int, Field(ge=64, le=65536, multiple_of=64)]  #: of the result, per workgroup
    workgroup_overhead_ns: Wait  #: a workgroup's own instructions, before its loads and after them


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
    compute_units: Annotated[int, Field(ge=1, le=1024)] = needed_by(ENGINES)  #: that they occupy
    ll: KernelProtocol = needed_by(ENGINES)
    ll128: KernelProtocol = needed_by(ENGINES)
    simple: KernelProtocol = needed_by(ENGINES)


class LibraryProtocol(Section):
    """Protocol of a library: one efficiency, and one latency per step of a ring, software included."""

    efficiency: Share  #: of the link
    step_ns: NotNegative
    base_ns: NotNegative  #: of a call, whatever its number of steps


class LibrarySection(LibraryProtocol):
    """Collectives of the vendor's library."""

    small: LibraryProtocol | None = None  #: used if it is faster, for small messages


class Signals(Section):
    """Times of sending from within a kernel."""

    mask_ns: NotNegative  #: a workgroup sets its bit and checks whether it is the last
    put_ns: NotNegative  #: the last one calls the library: data, fence, flag
    poll_ns: NotNegative  #: until a waiting workgroup sees a flag that has arrived
    trigger_ns: NotNegative  #: by Track & Trigger: from the last write to the first line that leaves


class Host(Section):
    """Times that the host's software adds to kernels and copies, and to commands for DMA engines."""

    launch_ns: NotNegative = needed_by(TILES)  #: from the end of a kernel to the start of the next on its stream
    event_ns: NotNegative = needed_by(TILES)  #: until a stream that waits for another one continues
    copy_ns: NotNegative = needed_by(TILES)  #: of a copy with its signal after another one, besides its bytes
    call_ns: NotNegative = needed_by(TILES)  #: of one call with a wait for its end, as single operators are measured
    command_ns: NotNegative = needed_by(ENGINES, QUEUE)  #: to write a command into an engine's queue
    doorbell_ns: NotNegative = needed_by(ENGINES, QUEUE)  #: to tell an engine
    trigger_ns: NotNegative = needed_by(ENGINES, QUEUE)  #: to set a flag that an engine polls
    observe_ns: NotNegative = needed_by(ENGINES)  #: to see the signal of an engine
