"""Recommendation models (DLRM): embedding tables spread over GPUs, MLPs replicated on each; one training pass on the
event level."""

from .model import PAPER, Dlrm, Operators, operators
from .training import Graph, Pass, training_pass

__all__ = ["PAPER", "Dlrm", "Graph", "Operators", "Pass", "operators", "training_pass"]
