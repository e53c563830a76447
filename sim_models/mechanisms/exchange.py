"""What becomes of a GEMM's, a GEMV's or a pooling's output: a collective, by which algorithm, over which links."""

from dataclasses import dataclass

from ..collectives import Program
from ..errors import BadInput, choices
from ..flow.algorithms import algorithms
from ..machine import Machine
from ..topologies import Topology, fully_connected, named_topology
from ..workloads import Workload
from .gather_before import tiling_for


@dataclass(frozen=True)
class Exchange:
    """A collective on the output of a GEMM; names are those of `t3 collective`."""

    collective: str = "rs"
    algorithm: str = "ring"
    topology: str = "ring"  #: without its size, which is the number of GPUs
    before: bool = False  #: it brings the activations before the GEMM, instead of taking the output
    producer: str = "gemm"  #: what makes the output

    @property
    def name(self) -> str:
        """The name for people and for files."""
        return "-".join((self.collective, self.algorithm, self.topology)) + ("-before" if self.before else "")

    @property
    def operator(self) -> str:
        """The name that `t3 run` has for a producer with it."""
        return f"{self.collective}-{self.producer}" if self.before else f"{self.producer}-{self.collective}"

    @property
    def hides(self) -> tuple[str, ...]:
        """Phases of the baseline that it does beside the GEMM; an all-gather that is not among them follows it."""
        return _HIDES[self.collective]

    @property
    def of_parts(self) -> bool:
        """Say whether each GPU makes a part of the output, and nothing is added."""
        return self.collective in ("ag", "a2a") and not self.before

    def link_bytes(self, workload: Workload) -> float:
        """Compute what a GPU sends."""
        if self.before:
            return workload.activation_bytes * (workload.tp - 1) / workload.tp
        whole = workload.output_bytes * (workload.tp - 1) / workload.tp
        return whole / workload.tp if self.collective == "a2a" else whole * len(self.hides)

    def to_json(self) -> dict[str, str]:
        return {"operator": self.operator, "algorithm": self.algorithm, "topology": self.topology}

    def links(self, ranks: int) -> Topology:
        """Return the topology for so many GPUs. Raises TopologyError.

        A GPU's links to all others together have its bandwidth, so that topologies compare.
        """
        if self.topology == "full":
            return fully_connected(ranks, divided=True)
        return named_topology(f"{self.topology}:{ranks}")

    def program(self, ranks: int) -> Program:
        """Return who sends which chunk to whom. Raises BadInput, TopologyError."""
        found = algorithms(self.collective, self.links(ranks))
        if self.algorithm not in found:
            raise BadInput(f"--algorithm {self.algorithm!r} is not possible on {self.topology}:{ranks}: allowed are "
                           f"{choices(self.algorithm, found)}")
        return found[self.algorithm].program()

    def hardware(self, machine: Machine, workload: Workload) -> Machine:
        """Return the machine with what a direct exchange needs. Raises BadInput if it is too much.

        That is dispatch windows that know the heads of all others, regions for the tiles of each, counters for the
        updates of all, and where a tile goes to all others, so many routes of a region.
        """
        ranks, gpu = workload.tp, machine.gpu
        if self.before:
            return _with_ready_table(machine, workload)
        if self.algorithm != "direct":
            return machine
        if ranks - 1 > MOST_PEERS:
            raise BadInput(f"--algorithm direct between {ranks} GPUs: a dispatch window knows the heads of at most "
                           f"{MOST_PEERS} others")
        tile_bytes = gpu.tile_m * gpu.tile_n // gpu.wavefronts_per_workgroup * workload.format.bytes
        counted = max(machine.tracker.count_bits, (ranks * tile_bytes).bit_length())
        dma = {"peers": max(machine.dma.peers, ranks - 1), "regions": MOST_REGIONS}
        if self.collective in ("ag", "ar"):
            dma |= {"routes": MOST_ROUTES, "copies": ranks - 1}
        return machine.model_copy(update={"dma": machine.dma.model_copy(update=dma),
                                          "tracker": machine.tracker.model_copy(update={"count_bits": counted})})


def _with_ready_table(machine: Machine, workload: Workload) -> Machine:
    """Return the machine with a counter for each group of the activations. Raises BadInput, TilingError.

    The Tracker's counters hold the bytes of their tiles, and there are regions for ragged ones.
    """
    tiling = tiling_for(machine, workload)
    if tiling.tile_columns > MOST_GROUPS:
        raise BadInput(f"M={workload.m}: the ready table counts {MOST_GROUPS} groups of {tiling.tile_n} tokens at most")
    groups = max(2, 1 << (tiling.tile_columns - 1).bit_length())
    tile_bytes = tiling.tile_m * tiling.wf_columns * tiling.element_bytes
    alike = workload.m % (workload.tp * tiling.tile_n) == 0
    dma = {"ready_groups": max(machine.dma.ready_groups, groups),
           "regions": machine.dma.regions if alike else MOST_REGIONS}
    counted = max(machine.tracker.count_bits, (tile_bytes + 1).bit_length())
    return machine.model_copy(update={"dma": machine.dma.model_copy(update=dma),
                                      "tracker": machine.tracker.model_copy(update={"count_bits": counted})})


MOST_GROUPS = 4096  #: as `[dma]` of a machine allows
MOST_PEERS, MOST_REGIONS, MOST_ROUTES = 15, 64, 64  #: as `[dma]` of a machine allows

#: Operators that fuse a producer with a collective, and which.
FUSED_OPERATORS = {"gemm-rs": "rs", "gemm-ar": "ar", "gemm-ag": "ag", "gemm-a2a": "a2a", "ag-gemm": "ag",
                   "gemv-ar": "ar", "embedding-a2a": "a2a"}
BEFORE = ("ag-gemm",)  #: those of them whose collective comes before the GEMM
_HIDES = {"rs": ("reduce-scatter",), "ar": ("reduce-scatter", "all-gather"), "ag": ("all-gather",),
          "a2a": ("all-to-all",)}


#: Links between GPUs that `t3 run` knows; a ring's are the same around a switch.
TOPOLOGIES = ("ring", "switch", "full")
ALGORITHMS = ("ring", "direct")


def fused_with(operator: str, topology: str = "ring", algorithm: str = "ring") -> Exchange:
    """Return what an operator fuses its GEMM with, over which links. Raises BadInput."""
    if algorithm not in ALGORITHMS:
        raise BadInput(f"--algorithm {algorithm!r} is unknown: allowed are {choices(algorithm, ALGORITHMS)}")
    if topology not in TOPOLOGIES:
        raise BadInput(f"--topology {topology!r} is unknown: allowed are {choices(topology, TOPOLOGIES)}")
    if operator not in FUSED_OPERATORS:
        raise BadInput(f"--operator {operator!r} is unknown: allowed are {choices(operator, FUSED_OPERATORS)}")
    if algorithm == "direct" and topology == "ring":
        raise BadInput("--algorithm direct sends to every GPU, in a ring over the others' links too: it needs "
                       "--topology switch or full")
    if algorithm == "ring" and topology == "full":
        raise BadInput("--topology full divides a GPU's bandwidth among its links, of which a ring uses one: it needs "
                       "--algorithm direct")
    if algorithm == "direct" and operator in BEFORE:
        raise BadInput(f"--algorithm direct with --operator {operator} would have the activations of all GPUs come at "
                       "once, which is not built: it needs --algorithm ring")
    collective, before = FUSED_OPERATORS[operator], operator in BEFORE
    if algorithm == "ring" and collective == "a2a":
        raise BadInput(f"--operator {operator} sends something else to every GPU: it needs --algorithm direct")
    producer = operator.removeprefix(f"{collective}-") if before else operator.removesuffix(f"-{collective}")
    return Exchange(collective, algorithm, topology, before, producer)


REDUCED = Exchange()  #: by a ring reduce-scatter, as in the T3 paper
