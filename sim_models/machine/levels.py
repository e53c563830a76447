"""Levels of simulation, each with the sections and keys that it requires of a machine.

A machine file serves every level whose keys it has. If several levels read a section, the section marks each key with
its levels (`section.needed_by`).
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Level:
    """A level of simulation."""

    called: str  #: name in messages
    example: str  #: a machine with all required keys
    command: str  #: command line that runs it, without its machine
    needs: tuple[str, ...]  #: required sections, and keys outside of sections
    takes: tuple[str, ...] = ()  #: optional sections and keys
    least_gpus: int = 1  #: of `gpus`
    on: "Level | None" = None  #: another level, all of whose keys this one also reads

    @property
    def reads(self) -> tuple[str, ...]:
        """Sections and keys that the level reads, required or optional."""
        return ("name", *self.needs, *self.takes)


CYCLE = Level("the cycle level", "t3-table1", "t3 run",
              ("memory_clock_ghz", "gpu", "llc", "link", "tracker", "channels", "dma", "arbiter", "collective", "dram"),
              ("memory_cache", "occupancy", "switch", "network"))
QUEUE = Level("a collective by the RTL's command queue", "t3-table1", "t3 dma --level cycle", (*CYCLE.needs, "host"),
              CYCLE.takes, on=CYCLE)
ENGINES = Level("the event level of DMA engines", "mi300x", "t3 dma",
                ("gpus", "engines_per_gpu", "link", "memory", "host", "gpu", "stream", "engine", "tracker", "kernel",
                 "power"), least_gpus=2)
TILES = Level("the event level of tiles", "a100-sxm", "t3 run --level event",
              ("gpus", "gpu", "memory", "link", "library", "host"), ("network", "occupancy", "signals", "sharing"),
              least_gpus=2)
NETWORK = Level("the event level of networks", "torus-128", "t3 collective",
                ("topology", "link", "kernel", "memory", "accelerator"), ("network",))
CLUSTER = Level("the closed form", "mi210", "t3 end-to-end",
                ("gpus_per_node", "iteration_ns", "accelerator", "intra", "inter", "uncertainty"), ("cycle_machine",))
COMMERCIAL = Level("the level of libraries on GPUs that are sold", "h100-sxm", "t3 overlap, t3 validate",
                   ("gpus", "gpu", "memory", "peak", "sustained", "kernels", "wires", "rings", "direct", "sharing"),
                   ("in_switch", "cards", "measured"))
ITERATIONS = Level("the level of whole iterations", "h100-sxm", "t3 end-to-end",
                   (*COMMERCIAL.needs, "iteration_ns", "accelerator", "uncertainty"),
                   (*COMMERCIAL.takes, "cycle_machine"), on=COMMERCIAL)

LEVELS: tuple[Level, ...] = (CYCLE, QUEUE, ENGINES, TILES, NETWORK, CLUSTER, COMMERCIAL, ITERATIONS)
