"""Recommendation models (DLRM): one training pass on the event level.

Embedding tables are spread over GPUs, MLPs are replicated on each.
"""

from t3sim.papers.dlrm.model import PAPER, Dlrm, Operators, operators
from t3sim.papers.dlrm.training import PassOptions, PassTimes, training_pass

__all__ = ["PAPER", "Dlrm", "PassOptions", "Operators", "PassTimes", "operators", "training_pass"]
