"""Collectives as data: transfers of chunks between ranks and their order, without sizes in bytes or times."""

from t3sim.collectives.program import CollectiveError, Op, Program, Transfer, Transfers

__all__ = ["CollectiveError", "Op", "Program", "Transfer", "Transfers"]
