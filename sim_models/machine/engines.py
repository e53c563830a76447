"""Sections about DMA engines: their times, times of concurrent kernels, and power."""

from typing import Annotated

from pydantic import Field, model_validator

from t3sim.machine.section import NotNegative, Positive, Section


class Stream(Section):
    """Kernels one after the other on a GPU."""

    gemm_tflop_per_s: Positive  #: sustained rate of a large GEMM
    launch_ns: NotNegative  #: from the doorbell until the kernel runs
    signal_ns: NotNegative  #: from a kernel's end until the stream's signal is in the host's memory


class Engine(Section):
    """A DMA engine."""

    fetch_ns: NotNegative  #: from the doorbell to the first command
    copy_ns: NotNegative  #: of the first copy, without its bytes
    next_copy_ns: NotNegative  #: between back-to-back copies, which overlap
    sync_ns: NotNegative  #: until the engine's signal is in the host's memory
    poll_ns: NotNegative  #: until the engine sees a flag that was set
    bandwidth_gb_per_s: Positive  #: writes of one engine


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
    """Power that a GPU's dies draw at rest, and energy of work."""

    compute_idle_w: NotNegative  #: all compute dies at rest, with running clocks
    io_idle_w: NotNegative  #: the dies with links, caches, memory controllers and DMA engines, at rest
    memory_idle_w: NotNegative
    compute_unit_w: NotNegative  #: one compute unit that runs a kernel
    compute_pj_per_bit: NotNegative  #: loads and stores of a kernel, in caches and registers
    engine_pj_per_bit: NotNegative  #: reads and writes of a DMA engine
    link_pj_per_bit: NotNegative  #: a link, both ends
    memory_pj_per_bit: NotNegative  #: reads and writes of memory
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
