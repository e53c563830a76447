"""Sections for the event level of a machine beyond one node: its topology, and what collectives on it cost."""

from pydantic import field_validator

from t3sim.machine.accelerator import Accelerator
from t3sim.machine.section import Count, NotNegative, Positive, Section
from t3sim.topologies import named_topology


class Link(Section):
    """One direction of a link."""

    bandwidth_gb_per_s: Positive
    latency_ns: NotNegative


class Memory(Section):
    """Memory that is read at random."""

    line_bytes: Count  #: read at once


class Kernel(Section):
    """Collectives by kernels on compute units."""

    launch_ns: NotNegative
    step_ns: NotNegative  #: from the arrival of a chunk to the first bytes that leave of the next step


class ScaleOut(Section):
    """Equal GPUs on equal links."""

    name: str
    topology: str  #: as in `named_topology`
    link: Link
    network: Link | None = None  #: of a GPU's card, if the topology joins nodes
    kernel: Kernel
    memory: Memory
    accelerator: Accelerator

    @field_validator("topology")
    @classmethod
    def _is_one(cls, text: str) -> str:
        named_topology(text)
        return text
