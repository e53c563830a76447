"""Power of a GPU during a collective, by its dies: an estimate from energies per bit and what is occupied."""

from dataclasses import dataclass

from t3sim.event.flow.dma import DmaRun, kernel_collective_ns
from t3sim.machine import Machine


@dataclass(frozen=True)
class Watts:
    """Mean power of one GPU."""

    compute: float  #: compute dies
    io: float  #: links, caches, memory controllers, DMA engines
    memory: float

    @property
    def total(self) -> float:
        return self.compute + self.io + self.memory


def engine_watts(node: Machine, run: DmaRun) -> Watts:
    """Return the power while DMA engines run a collective.

    They read each source, and what goes over a link is written.
    """
    return _watts(node, run.ns, run.link_bytes, memory_bytes=run.read_bytes + run.link_bytes, compute_bytes=0.0,
                  engine_bytes=run.read_bytes + run.link_bytes, compute_units=0)


def kernel_watts(node: Machine, size_bytes: float) -> Watts:
    """Return the power while kernels run an all-gather or all-to-all.

    What arrives goes through a buffer of their library, from which it is copied to where it belongs (DMA collectives
    paper, sections 5.4 and 6.4).
    """
    moved = size_bytes * (node.gpus - 1)
    return _watts(node, kernel_collective_ns(node, size_bytes), moved, memory_bytes=4 * moved, compute_bytes=4 * moved,
                  engine_bytes=0.0, compute_units=node.kernel.compute_units)


def _watts(node: Machine, ns: float, link_bytes: float, memory_bytes: float, compute_bytes: float, engine_bytes: float,
           compute_units: int) -> Watts:
    """Return the power of one GPU; bytes are those of all."""
    power = node.power

    def moving(size_bytes: float, pj_per_bit: float) -> float:
        return 8e-3 * pj_per_bit * size_bytes / node.gpus / ns  # 1 pJ/ns is 1 mW

    return Watts(
        compute=(power.compute_idle_w + compute_units * power.compute_unit_w
                 + moving(compute_bytes, power.compute_pj_per_bit)),
        io=(power.io_idle_w + moving(link_bytes, power.link_pj_per_bit)
            + moving(engine_bytes, power.engine_pj_per_bit)),
        memory=power.memory_idle_w + moving(memory_bytes, power.memory_pj_per_bit))
