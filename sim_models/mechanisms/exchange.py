"""What becomes of a GEMM's output: a collective, by which algorithm, over which links."""

from dataclasses import dataclass

from ..collectives import Program
from ..errors import BadInput, choices
from ..flow.algorithms import algorithms
from ..topologies import Topology, named_topology


@dataclass(frozen=True)
class Exchange:
    """A collective on the output of a GEMM; names are those of `t3 collective`."""

    collective: str = "rs"
    algorithm: str = "ring"
    topology: str = "ring"  #: without its size, which is the number of GPUs

    @property
    def name(self) -> str:
        """For people and for the names of files."""
        return "-".join((self.collective, self.algorithm, self.topology))

    @property
    def operator(self) -> str:
        """A GEMM with it, as `t3 run` names that."""
        return next(name for name, collective in FUSED_OPERATORS.items() if collective == self.collective)

    def to_json(self) -> dict[str, str]:
        return {"operator": self.operator, "algorithm": self.algorithm, "topology": self.topology}

    def links(self, ranks: int) -> Topology:
        """Return the topology for so many GPUs. Raises TopologyError."""
        return named_topology(f"{self.topology}:{ranks}")

    def program(self, ranks: int) -> Program:
        """Return who sends which chunk to whom. Raises BadInput, TopologyError."""
        found = algorithms(self.collective, self.links(ranks))
        if self.algorithm not in found:
            raise BadInput(f"--algorithm {self.algorithm!r} is not possible on {self.topology}:{ranks}: allowed are "
                           f"{choices(self.algorithm, found)}")
        return found[self.algorithm].program()


#: Operators that fuse a GEMM with a collective, and which.
FUSED_OPERATORS = {"gemm-rs": "rs", "gemm-ar": "ar"}


#: Links between GPUs that `t3 run` knows; a ring's are the same around a switch.
TOPOLOGIES = ("ring", "switch")


def fused_with(operator: str, topology: str = "ring") -> Exchange:
    """Return what an operator fuses its GEMM with, over which links. Raises BadInput."""
    if topology not in TOPOLOGIES:
        raise BadInput(f"--topology {topology!r} is unknown: allowed are {choices(topology, TOPOLOGIES)}")
    if operator not in FUSED_OPERATORS:
        raise BadInput(f"--operator {operator!r} is unknown: allowed are {choices(operator, FUSED_OPERATORS)}")
    return Exchange(FUSED_OPERATORS[operator], topology=topology)


REDUCED = Exchange()  #: by a ring reduce-scatter, as in the T3 paper
