"""Collectives as data: who sends which chunk to whom, in which order. They know no bytes and no cycles."""

from t3sim.collectives.program import CollectiveError, Op, Program, Transfer

__all__ = ["CollectiveError", "Op", "Program", "Transfer"]
