"""Networks of GPUs beyond one node, for the event level: TOML, with a source per number."""

from importlib import resources

from pydantic import field_validator

from ..machine import PRESETS as MACHINES
from ..machine import load_machine
from ..machine.accelerator import Accelerator
from ..machine.presets import load_preset
from ..machine.section import Count, NotNegative, Positive, Section
from ..topologies import Topology, named_topology
from .collective import KernelCosts, kernel_costs

#: Networks that come with the package.
PRESETS = ("torus-128", "mi210-2x4")


class Link(Section):
    """One direction of a link."""

    bandwidth_gb_per_s: Positive
    latency_ns: NotNegative


class Memory(Section):
    """How memory is read at random."""

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

    @property
    def costs(self) -> KernelCosts:
        """What its collectives cost; memory at the rate of kernels that only move data."""
        gpu = self.accelerator
        return KernelCosts(self.kernel.launch_ns, self.kernel.step_ns, 0.0, self.link.latency_ns,
                           self.link.bandwidth_gb_per_s, gpu.memory_gb_per_s * gpu.memory_efficiency,
                           *((self.network.latency_ns, self.network.bandwidth_gb_per_s) if self.network else ()))


def load_scale_out(name_or_path: str) -> ScaleOut:
    """Return a network by the name of a preset, or from a TOML file. Raises `BadInput`."""
    return load_preset(ScaleOut, name_or_path, resources.files(__package__).joinpath("networks"), PRESETS,
                       tuple(MACHINES))


def load_costs(name_or_path: str) -> tuple[str, KernelCosts, Topology]:
    """Return name, costs and usual topology of a network. Raises `BadInput`.

    A machine of the cycle level, by its name, is a network, too (a ring of eight).
    """
    if name_or_path in MACHINES:
        machine = load_machine(name_or_path)
        return machine.name, kernel_costs(machine), named_topology("ring:8")
    network = load_scale_out(name_or_path)
    return network.name, network.costs, named_topology(network.topology)
